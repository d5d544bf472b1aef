//! The consumers of a spool: one small file each, replaced as a whole, and a lock that a live
//! reader holds beside it. The lease decides which reader may move a mark.
//!
//! Both carry a checksum: a file that does not match it is refused. Files of format 1 have none and
//! are read as they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    SpoolError,
    clock::{now_us, rfc3339, us_of},
    folder::{CONSUMERS, Dir, Folder},
    format::{FORMAT, Identity, check_format},
    lock, sealed,
    start::{self, epoch_hex, epoch_of},
};

/// A consumer: a name with a mark, and whether a reader uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The consumer's name.
    pub name: String,
    /// The mark: the consumer has finished with every event below this position.
    pub committed: u64,
    /// Counts the readers it has had; a mark of an older one is refused.
    pub generation: u64,
    /// When the mark was written, in microseconds since 1970 (UTC).
    pub updated_us: i64,
    /// When a reader was last seen, in microseconds since 1970 (UTC).
    pub seen_us: i64,
    /// The reader that holds it, or that ended without releasing it.
    pub holder: Option<Holder>,
    /// Whether a reader holds it now.
    pub live: bool,
}

impl Consumer {
    /// Whether it has a reader, had one lately, or not for long.
    pub fn state(&self) -> ConsumerState {
        if self.live {
            return ConsumerState::Live;
        }
        if now_us().saturating_sub(self.seen_us) < STALE_AFTER_US {
            return ConsumerState::Idle;
        }
        ConsumerState::Stale
    }
}

/// Whether a consumer has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerState {
    /// A reader holds it.
    Live,
    /// No reader, for less than an hour.
    Idle,
    /// No reader for an hour or more. It still holds its events.
    Stale,
}

impl ConsumerState {
    /// `live`, `idle` or `stale`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Idle => "idle",
            Self::Stale => "stale",
        }
    }
}

/// The process that reads as a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process; 0 when it cannot be seen from here.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: a pid alone may be given out again.
    pub start: u64,
    /// Since when it holds the consumer, in microseconds since 1970 (UTC).
    pub since_us: i64,
    /// The host it runs on.
    pub host: String,
    /// The name that it gave for itself.
    pub what: String,
}

impl Holder {
    /// This process.
    pub(crate) fn this(what: &str) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            pid: std::process::id(),
            start: lock::start_time(),
            since_us: now_us(),
            host: host.trim_end().to_owned(),
            what: what.chars().take(MAX_WHAT).collect(),
        }
    }

    pub(crate) fn encode(&self) -> Value {
        json!({
            "pid": self.pid,
            "start": self.start,
            "since": rfc3339(self.since_us),
            "host": self.host,
            "what": self.what,
        })
    }

    pub(crate) fn decode(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Some(Self {
            pid: u32::try_from(value["pid"].as_u64()?).ok()?,
            start: value["start"].as_u64().unwrap_or(0),
            since_us: value["since"].as_str().and_then(us_of)?,
            host: text("host"),
            what: text("what"),
        })
    }

    /// Whether it is this process.
    pub(crate) fn is_this(&self) -> bool {
        let this = Self::this("");
        (self.pid, self.start, &self.host) == (this.pid, this.start, &this.host)
    }
}

/// The text in the lock of a consumer: its reader, or the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseText {
    /// The reader; `None` if no reader has written yet.
    pub(crate) holder: Option<Holder>,
    /// Counts the consumer's leases.
    pub(crate) generation: u64,
}

impl LeaseText {
    /// The text of a reader that takes the consumer.
    pub(crate) fn encode(holder: &Holder, generation: u64) -> String {
        let mut value = holder.encode();
        value["format"] = FORMAT.into();
        value["generation"] = generation.into();
        let mut text = String::from_utf8(sealed::encode(&value)).unwrap_or_default();
        // It is overwritten in place. After a loss of power, whole sectors of an unchanged length
        // hold either the old text or the new one.
        let padding = text.len().next_multiple_of(TEXT_SECTOR) - text.len();
        text.extend(std::iter::repeat_n(' ', padding));
        text
    }

    /// Decodes a text that was read under the lock. An empty text, or one of zero bytes only, as a
    /// loss of power leaves it, counts as none.
    ///
    /// # Errors
    /// `spool.corrupt` with the cure, `spool.format`.
    pub(crate) fn decode(text: &str, folder: &Folder, name: &str) -> Result<Self, SpoolError> {
        if text.bytes().all(|byte| byte == 0) {
            return Ok(Self::default());
        }
        let path = path_of(folder, &lock_file(name));
        // A process that was killed while writing may have left the end of a longer text after its
        // own.
        let line = text.split_inclusive('\n').next().unwrap_or_default();
        let read = checked(line.as_bytes(), &path, None).and_then(|value| {
            Ok(Self {
                holder: Holder::decode(&value),
                generation: value["generation"]
                    .as_u64()
                    .ok_or_else(|| SpoolError::corrupt(&path, "it holds no generation"))?,
            })
        });
        read.map_err(|error| with_cure(error, folder, name))
    }
}

/// The contents of a consumer's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) committed: u64,
    /// The epoch of the durable mark when this one was written; 0 when there was none.
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) updated_us: i64,
    pub(crate) seen_us: i64,
    pub(crate) holder: Option<Holder>,
}

impl Mark {
    /// A consumer without any reader yet.
    pub(crate) fn new(name: &str, committed: u64) -> Self {
        let now = now_us();
        Self {
            name: name.to_owned(),
            uuid: String::new(),
            committed,
            epoch: 0,
            generation: 0,
            updated_us: now,
            seen_us: now,
            holder: None,
        }
    }

    fn encode(&self, identity: &Identity) -> Vec<u8> {
        sealed::encode(&json!({
            "format": FORMAT,
            "uuid": identity.uuid,
            "committed": self.committed,
            "epoch": epoch_hex(self.epoch),
            "generation": self.generation,
            "updated": rfc3339(self.updated_us),
            "seen": rfc3339(self.seen_us),
            "holder": self.holder.as_ref().map(Holder::encode),
        }))
    }

    fn decode(bytes: &[u8], path: &Path, name: &str) -> Result<Self, SpoolError> {
        let value = checked(bytes, path, Some(1))?;
        let broken = |what: &str| SpoolError::corrupt(path, what);
        // The first releases wrote neither generation nor seen nor holder.
        let time = |name: &str, without: i64| match &value[name] {
            Value::Null => Ok(without),
            Value::String(text) => us_of(text).ok_or_else(|| broken("it holds no time")),
            _ => Err(broken("it holds no time")),
        };
        let updated_us = time("updated", 0)?;
        Ok(Self {
            name: name.to_owned(),
            uuid: value["uuid"]
                .as_str()
                .ok_or_else(|| broken("it holds no UUID"))?
                .to_owned(),
            committed: value["committed"]
                .as_u64()
                .filter(|position| i64::try_from(*position).is_ok())
                .ok_or_else(|| broken("it holds no position"))?,
            epoch: epoch_of(&value["epoch"]),
            generation: match &value["generation"] {
                Value::Null => 0,
                generation => generation
                    .as_u64()
                    .ok_or_else(|| broken("it holds no generation"))?,
            },
            updated_us,
            seen_us: time("seen", updated_us)?,
            holder: match &value["holder"] {
                Value::Null => None,
                holder => Some(Holder::decode(holder).ok_or_else(|| broken("it holds no holder"))?),
            },
        })
    }

    /// Refuses a file that was put here from another spool.
    pub(crate) fn check(self, folder: &Folder, identity: &Identity) -> Result<Self, SpoolError> {
        if identity.knows(&self.uuid) {
            return Ok(self);
        }
        Err(SpoolError::Replaced {
            path: path_of(folder, &file(&self.name)),
            expected: identity.uuid.clone(),
            found: self.uuid,
        })
    }

    /// Refuses a mark above `position`, the end of a spool whose newest epoch is `newest_epoch`.
    ///
    /// # Errors
    /// `spool.restored` when the mark is of a newer epoch than the spool, else `spool.mark_ahead`.
    pub(crate) fn check_end(
        &self,
        folder: &Folder,
        position: u64,
        newest_epoch: u64,
    ) -> Result<(), SpoolError> {
        if self.committed <= position {
            return Ok(());
        }
        Err(ahead(folder, self, position, newest_epoch))
    }

    /// The consumer, with the information in its lock.
    pub(crate) fn with_lock(self, folder: &Folder) -> Result<Consumer, SpoolError> {
        let (dir, lock_file) = (folder.consumers()?, lock_file(&self.name));
        let held = lock::holder(dir, &lock_file)?;
        // An empty lock was made by a tool: no reader was there.
        let touched = dir
            .look(&lock_file)?
            .filter(|seen| seen.len > 0)
            .map(|seen| seen.modified_s.saturating_mul(1_000_000));
        // A text that is being written cannot be read for a moment.
        let text = held
            .as_ref()
            .and_then(|other| LeaseText::decode(&other.text, folder, &self.name).ok());
        Ok(Consumer {
            name: self.name,
            committed: self.committed,
            generation: self.generation,
            updated_us: self.updated_us,
            seen_us: self.seen_us.max(touched.unwrap_or(0)),
            holder: text.and_then(|text| text.holder).or(self.holder),
            live: held.is_some(),
        })
    }
}

/// The error of a mark above `position`, the end of a spool whose newest epoch is `newest_epoch`.
pub(crate) fn ahead(folder: &Folder, mark: &Mark, position: u64, newest_epoch: u64) -> SpoolError {
    let dir = folder.dir().to_owned();
    // A refused writer has raised the durable mark's epoch, and changed nothing else.
    if is_restored(mark.epoch, start::newest_epoch(folder, newest_epoch)) {
        return SpoolError::Restored {
            dir,
            position,
            reached: mark.committed,
            who: format!("consumer {:?} stands", mark.name),
        };
    }
    SpoolError::MarkAhead {
        dir,
        name: mark.name.clone(),
        mark: mark.committed,
        position,
    }
}

/// Whether a mark of this epoch comes from a writer that the spool does not know: the spool is an
/// older copy. If two writers each continue a copy of one spool, their numbers are the same.
pub(crate) fn is_restored(epoch: u64, newest_epoch: u64) -> bool {
    epoch != newest_epoch && epoch >> 32 >= newest_epoch >> 32
}

/// All marks, by name.
pub(crate) fn list(folder: &Folder) -> Result<Vec<Mark>, SpoolError> {
    let mut marks = Vec::new();
    for name in names(folder, MARK)? {
        marks.extend(read(folder, &name)?);
    }
    Ok(marks)
}

/// Refuses a spool that ends at `position` with `newest_epoch` while a consumer's mark is above it.
/// Marks that cannot be read are logged and skipped: the writer opens all the same.
///
/// # Errors
/// `spool.restored`, `spool.mark_ahead`, `spool.io` when the consumers cannot be listed.
pub(crate) fn check_marks(
    folder: &Folder,
    identity: &Identity,
    position: u64,
    newest_epoch: u64,
) -> Result<(), SpoolError> {
    for name in names(folder, MARK)? {
        match read(folder, &name) {
            Ok(Some(mark)) if identity.knows(&mark.uuid) => {
                mark.check_end(folder, position, newest_epoch)?;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(code = "consumer.unreadable", dir = %folder.dir().display(), consumer = name,
                    %error, "a consumer's mark cannot be read");
            }
        }
    }
    Ok(())
}

/// The newest epoch named by the readable marks; 0 if there is none.
///
/// # Errors
/// `spool.io` when the consumers cannot be listed.
pub(crate) fn newest_epoch(folder: &Folder) -> Result<u64, SpoolError> {
    let marks = names(folder, MARK)?
        .into_iter()
        .map(|name| read(folder, &name));
    let epochs = marks.filter_map(|mark| Some(mark.ok()??.epoch));
    Ok(epochs.max().unwrap_or(0))
}

/// The names of all consumers that have a file of this kind, in order. Temporary files are skipped.
pub(crate) fn names(folder: &Folder, kind: &str) -> Result<Vec<String>, SpoolError> {
    let all = match folder.consumers().and_then(Dir::names) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        all => all?,
    };
    let mut names: Vec<String> = all
        .iter()
        .filter(|name| !name.starts_with('.'))
        .filter_map(|name| name.strip_suffix(kind))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// One consumer's mark; `None` when it has none.
pub(crate) fn read(folder: &Folder, name: &str) -> Result<Option<Mark>, SpoolError> {
    let dir = match folder.consumers() {
        Err(error) if error.is_not_found() => return Ok(None),
        dir => dir?,
    };
    let file = file(name);
    let decode = |bytes: Vec<u8>| Mark::decode(&bytes, &dir.join(&file), name);
    dir.read(&file)
        .and_then(|bytes| bytes.map(decode).transpose())
        .map_err(|error| with_cure(error, folder, name))
}

/// Replaces a consumer's file; durable when it returns.
pub(crate) fn write(folder: &Folder, identity: &Identity, mark: &Mark) -> Result<(), SpoolError> {
    folder.replace(
        folder.consumers()?,
        &file(&mark.name),
        &mark.encode(identity),
    )
}

/// Removes a consumer's file. Returns whether there was one.
pub(crate) fn remove(folder: &Folder, name: &str) -> Result<bool, SpoolError> {
    let dir = folder.consumers()?;
    let was_there = folder.disk().remove(dir, &file(name))?;
    if was_there {
        folder.disk().sync_dir(dir)?;
    }
    Ok(was_there)
}

/// The name of the file with a consumer's mark.
pub(crate) fn file(name: &str) -> String {
    format!("{name}{MARK}")
}

/// The name of the file that a consumer's reader locks.
pub(crate) fn lock_file(name: &str) -> String {
    format!("{name}{LOCK}")
}

/// The object in a file, if it matches its checksum. Files of format 1 have none and name
/// `old_format`.
fn checked(bytes: &[u8], path: &Path, old_format: Option<u64>) -> Result<Value, SpoolError> {
    let unsealed = match sealed::decode(bytes, path) {
        Ok(value) => {
            let format = value["format"].as_u64();
            check_format(path, format, format)?;
            return Ok(value);
        }
        Err(error) => error,
    };
    let value = sealed::parse(bytes, path)?;
    let format = value["format"].as_u64();
    if value["crc"].is_null() {
        if format == old_format {
            return Ok(value);
        }
        if format > Some(FORMAT) {
            check_format(path, format, format)?;
        }
    }
    Err(unsealed)
}

/// Adds the cure to the error of a damaged file.
fn with_cure(error: SpoolError, folder: &Folder, name: &str) -> SpoolError {
    let SpoolError::Corrupt { path, detail } = error else {
        return error;
    };
    let dir = folder.dir().display();
    SpoolError::Corrupt {
        path,
        detail: format!(
            "{detail}; remove the consumer with `ackline spool consumers rm {dir} {name}` and make it anew \
             with `ackline spool consumers add {dir} {name}`"
        ),
    }
}

/// The path of a file of the consumers, for messages.
fn path_of(folder: &Folder, file: &str) -> PathBuf {
    folder.dir().join(CONSUMERS).join(file)
}

pub(crate) fn check_name(name: &str) -> Result<(), SpoolError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins || name.len() > 64 || !name.bytes().all(allowed) {
        return Err(SpoolError::Name {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// The extension of a mark's file.
pub(crate) const MARK: &str = ".json";

/// The extension of a reader's lock.
pub(crate) const LOCK: &str = ".lock";

/// A consumer without a reader for an hour is stale.
const STALE_AFTER_US: i64 = 3_600_000_000;

/// The smallest sector of a disk, in bytes.
const TEXT_SECTOR: usize = 512;

/// The longest name of a holder in a message, in bytes.
const MAX_WHAT: usize = 200;
