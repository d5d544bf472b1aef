//! Moving a mark: its checks, and its file.

use std::sync::Arc;

use crate::{
    SpoolError,
    clock::now_us,
    consumers::{self, LeaseText, Mark},
    disk::RealDisk,
    folder::{CONSUMERS, Folder, IDENTITY},
    format::Identity,
    lock::{Lock, Other},
    mark, start,
};

/// A moved mark that is still to be written.
pub(super) struct Moved {
    pub(super) mark: Mark,
    /// Held until it is written, unless the mark goes forward.
    pub(super) _marks: Option<Lock>,
}

impl Moved {
    pub(super) fn write(&self, folder: &Folder, identity: &Identity) -> Result<(), SpoolError> {
        consumers::write(folder, identity, &self.mark)
    }
}

/// Moves a mark to `position` for a reader that has finished with everything below it.
pub(super) fn move_mark(
    folder: &Folder,
    name: &str,
    found: Option<Mark>,
    position: u64,
    durable: mark::Mark,
) -> Result<Moved, SpoolError> {
    if let Some(mark) = &found {
        mark.check_end(folder, durable.position, durable.epoch)?;
    }
    check_durable(position, durable.position)?;
    let before = found.as_ref().map(|mark| mark.committed);
    let goes_forward = before.is_some_and(|before| before <= position);
    let marks = if goes_forward {
        None
    } else {
        Some(Lock::marks(folder)?)
    };
    if !goes_forward {
        check_kept(folder, position, durable.position)?;
    }
    if let Some(before) = before.filter(|before| *before > position) {
        goes_back(name, before, position);
    }
    let mut mark = found.unwrap_or_else(|| Mark::new(name, position));
    mark.committed = position;
    mark.epoch = durable.epoch;
    mark.updated_us = now_us();
    mark.seen_us = mark.updated_us;
    Ok(Moved {
        mark,
        _marks: marks,
    })
}

/// The error for a reader that asks for a consumer while `other` holds it.
pub(crate) fn busy(folder: &Folder, name: &str, other: &Other) -> SpoolError {
    // A text that is being written cannot be read for a moment.
    let text = LeaseText::decode(&other.text, folder, name).unwrap_or_default();
    let said = text.holder.as_ref().map_or(0, |holder| holder.pid);
    SpoolError::ConsumerBusy {
        name: name.to_owned(),
        dir: folder.dir().to_owned(),
        pid: if other.pid == 0 { said } else { other.pid },
        holder: text.holder.map(Box::new),
    }
}

pub(super) fn read_mark(
    folder: &Folder,
    identity: &Identity,
    name: &str,
) -> Result<Option<Mark>, SpoolError> {
    consumers::read(folder, name)?
        .map(|mark| mark.check(folder, identity))
        .transpose()
}

/// Checks that the directory still holds the spool that was opened, under the same name.
pub(super) fn check_identity(folder: &Folder, identity: &Identity) -> Result<(), SpoolError> {
    let is_in_place = folder.is_in_place()?;
    let found = if is_in_place {
        Identity::read(folder)?
    } else {
        identity_at_path(folder)?
    };
    let Some(found) = found else {
        return Err(SpoolError::not_a_spool(
            folder.dir(),
            "its spool.json is gone",
        ));
    };
    if found.uuid != identity.uuid {
        return Err(SpoolError::Replaced {
            path: folder.root().join(IDENTITY),
            expected: identity.uuid.clone(),
            found: found.uuid,
        });
    }
    if is_in_place && consumers_are_in_place(folder)? {
        return Ok(());
    }
    let path = if is_in_place {
        folder.root().join(CONSUMERS)
    } else {
        folder.dir().to_owned()
    };
    Err(SpoolError::Moved {
        path,
        detail: "is another directory now".to_owned(),
    })
}

/// The identity of the spool that the folder's path leads to now.
pub(super) fn identity_at_path(folder: &Folder) -> Result<Option<Identity>, SpoolError> {
    match Folder::open(folder.dir(), folder.access(), Arc::new(RealDisk)) {
        Ok(now) => Identity::read(&now),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the consumers' directory is the one that was opened: a mark in another one holds no
/// events.
pub(super) fn consumers_are_in_place(folder: &Folder) -> Result<bool, SpoolError> {
    let opened = folder.consumers()?.key()?;
    let now = folder.root().look(CONSUMERS)?;
    Ok(now.is_some_and(|seen| seen.key == opened))
}

pub(super) fn check_durable(position: u64, durable: u64) -> Result<(), SpoolError> {
    if position > durable {
        return Err(SpoolError::BehindCheckpoint { position, durable });
    }
    Ok(())
}

/// Checks that the events from `position` on can be read. Returns the first kept position.
pub(super) fn check_kept(folder: &Folder, position: u64, durable: u64) -> Result<u64, SpoolError> {
    check_durable(position, durable)?;
    let first_kept = start::first_kept(folder, durable)?;
    if position < first_kept {
        return Err(SpoolError::Gap {
            position,
            first_kept,
        });
    }
    Ok(first_kept)
}

pub(super) fn goes_back(name: &str, from: u64, to: u64) {
    tracing::warn!(
        code = "consumer.back",
        consumer = name,
        from,
        to,
        "a mark goes back: its reader begins again from an older state"
    );
}
