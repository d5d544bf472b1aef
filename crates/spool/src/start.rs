//! The start of a spool: the first kept position. Everything below counts as gone, even while its
//! files still exist, so that one small file removes many segments, whose files are deleted
//! afterwards.
//!
//! The file also holds the highest position that was published when it was written: a second copy
//! of it beside the durable mark and the groups.

use serde_json::json;

use crate::{
    SpoolError,
    folder::{Folder, START},
    format::{FORMAT, check_format},
    index, sealed,
};

/// The content of the file `start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) uuid: String,
    /// The first kept position.
    pub(crate) first: u64,
    /// A position that was published.
    pub(crate) position: u64,
    /// The epoch of the writer that wrote it.
    pub(crate) epoch: u64,
    /// The time for which writers had watched the spool, in microseconds.
    pub(crate) watched_us: u64,
}

impl Start {
    /// Reads the file; `None` if there is none, as in spools of format 1.
    ///
    /// # Errors
    /// `spool.corrupt` when it was damaged, `spool.format`, `spool.io`.
    pub(crate) fn read(folder: &Folder) -> Result<Option<Self>, SpoolError> {
        let Some(bytes) = folder.root().read(START)? else {
            return Ok(None);
        };
        let path = folder.root().join(START);
        let value = sealed::decode(&bytes, &path)?;
        let format = value["format"].as_u64();
        check_format(&path, format, format)?;
        let number = |name: &str| {
            value[name]
                .as_u64()
                .ok_or_else(|| SpoolError::corrupt(&path, format!("it holds no {name}")))
        };
        let (start, position) = (number("start")?, number("position")?);
        if start > position {
            let detail = format!("it begins at {start}, above position {position}");
            return Err(SpoolError::corrupt(&path, detail));
        }
        Ok(Some(Self {
            uuid: value["uuid"].as_str().unwrap_or_default().to_owned(),
            first: start,
            position,
            epoch: epoch_of(&value["epoch"]),
            watched_us: number("watched_us")?,
        }))
    }

    /// Reads the file, if it is this spool's.
    ///
    /// # Errors
    /// Those of [`read`](Self::read); `spool.replaced` for a file of another spool.
    pub(crate) fn read_of(
        folder: &Folder,
        uuid: &str,
        knows: impl FnOnce(&str) -> bool,
    ) -> Result<Option<Self>, SpoolError> {
        match Self::read(folder)? {
            Some(found) if !knows(&found.uuid) => Err(SpoolError::Replaced {
                path: folder.root().join(START),
                expected: uuid.to_owned(),
                found: found.uuid,
            }),
            found => Ok(found),
        }
    }

    /// Replaces the file; durable when it returns.
    pub(crate) fn write(&self, folder: &Folder) -> Result<(), SpoolError> {
        let value = json!({
            "format": FORMAT,
            "uuid": self.uuid,
            "start": self.first,
            "position": self.position,
            "epoch": epoch_hex(self.epoch),
            "watched_us": self.watched_us,
        });
        folder.replace(folder.root(), START, &sealed::encode(&value))
    }
}

/// The first kept position, below `durable`: by the file, or by the first segment if there is no
/// file.
pub(crate) fn first_kept(folder: &Folder, durable: u64) -> Result<u64, SpoolError> {
    if let Some(found) = Start::read(folder)? {
        return Ok(found.first.min(durable));
    }
    let first = index::list(folder)?.first().copied();
    Ok(first.map_or(durable, |first| first.min(durable)))
}

/// The epoch of the last writer that wrote the file; `otherwise` if there is none.
pub(crate) fn newest_epoch(folder: &Folder, otherwise: u64) -> u64 {
    let found = Start::read(folder).ok().flatten();
    found.map_or(otherwise, |start| start.epoch)
}

/// An epoch in a file of JSON: 16 hexadecimal digits.
pub(crate) fn epoch_hex(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// The epoch in a file of JSON; 0 if there is none.
pub(crate) fn epoch_of(value: &serde_json::Value) -> u64 {
    let text = value.as_str().unwrap_or_default();
    u64::from_str_radix(text, 16).unwrap_or(0)
}
