//! The consumers of a spool: one small file each, replaced as a whole, and a lock that a live reader
//! holds beside it. Who may move a mark is the lease's matter.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    SpoolError,
    disk::Disk,
    format::{FORMAT, Identity, Layout, now_us, rfc3339, us_of},
    lock, rights,
};

/// A consumer: a name with a mark, and whether somebody reads under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The consumer's name.
    pub name: String,
    /// The mark: every event below this position is done with.
    pub committed: u64,
    /// Counts the readers it has had; a mark of an older one is refused.
    pub generation: u64,
    /// When the mark was written, in microseconds since 1970 (UTC).
    pub updated_us: i64,
    /// When a reader was last seen, in microseconds since 1970 (UTC).
    pub seen_us: i64,
    /// The reader that holds it, or that ended without letting go of it.
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
    /// What it says of itself.
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
}

/// What a consumer's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) committed: u64,
    pub(crate) generation: u64,
    pub(crate) updated_us: i64,
    pub(crate) seen_us: i64,
    pub(crate) holder: Option<Holder>,
}

impl Mark {
    /// A consumer that nobody has read yet.
    pub(crate) fn new(name: &str, committed: u64) -> Self {
        let now = now_us();
        Self {
            name: name.to_owned(),
            uuid: String::new(),
            committed,
            generation: 0,
            updated_us: now,
            seen_us: now,
            holder: None,
        }
    }

    fn encode(&self, identity: &Identity) -> Vec<u8> {
        let value = json!({
            "format": FORMAT,
            "uuid": identity.uuid,
            "committed": self.committed,
            "generation": self.generation,
            "updated": rfc3339(self.updated_us),
            "seen": rfc3339(self.seen_us),
            "holder": self.holder.as_ref().map(Holder::encode),
        });
        format!("{value}\n").into_bytes()
    }

    fn decode(text: &[u8], path: &Path, name: &str) -> Result<Self, SpoolError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| SpoolError::corrupt(path, error.to_string()))?;
        let broken = |what: &str| SpoolError::corrupt(path, what);
        let found = value["format"].as_u64().unwrap_or(0);
        if found != FORMAT {
            return Err(SpoolError::Format {
                path: path.to_owned(),
                found,
                min_reader: found,
                supported: FORMAT,
            });
        }
        // The release before wrote neither generation nor seen nor holder.
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
    pub(crate) fn check(self, layout: &Layout, identity: &Identity) -> Result<Self, SpoolError> {
        if identity.knows(&self.uuid) {
            return Ok(self);
        }
        Err(SpoolError::Replaced {
            path: file(layout, &self.name),
            expected: identity.uuid.clone(),
            found: self.uuid,
        })
    }

    /// The consumer, with what its lock tells.
    pub(crate) fn with_lock(self, layout: &Layout) -> Result<Consumer, SpoolError> {
        let path = lock_file(layout, &self.name);
        let held = lock::holder(&path)?;
        // An empty lock was made by a tool: no reader was there.
        let touched = fs::metadata(&path)
            .ok()
            .filter(|meta| meta.len() > 0)
            .map(|meta| meta.mtime() * 1_000_000 + meta.mtime_nsec() / 1_000);
        let holder = held.as_ref().and_then(|other| holder_of(&other.text));
        Ok(Consumer {
            name: self.name,
            committed: self.committed,
            generation: self.generation,
            updated_us: self.updated_us,
            seen_us: self.seen_us.max(touched.unwrap_or(0)),
            holder: holder.or(self.holder),
            live: held.is_some(),
        })
    }
}

/// All marks, by name.
pub(crate) fn list(layout: &Layout) -> Result<Vec<Mark>, SpoolError> {
    let mut marks = Vec::new();
    for name in names(layout, MARK)? {
        marks.extend(read(layout, &name)?);
    }
    Ok(marks)
}

/// The names of all consumers that have a file of this kind, in order.
pub(crate) fn names(layout: &Layout, kind: &str) -> Result<Vec<String>, SpoolError> {
    let dir = layout.consumers();
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SpoolError::io("list", &dir, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|error| SpoolError::io("list", &dir, error))?
            .file_name();
        let name = name.to_string_lossy();
        names.extend(name.strip_suffix(kind).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// One consumer's mark; `None` when it has none.
pub(crate) fn read(layout: &Layout, name: &str) -> Result<Option<Mark>, SpoolError> {
    let path = file(layout, name);
    match fs::read(&path) {
        Ok(text) => Mark::decode(&text, &path, name).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SpoolError::io("read", &path, error)),
    }
}

/// Replaces a consumer's file; durable when it returns.
pub(crate) fn write(
    disk: &mut dyn Disk,
    layout: &Layout,
    identity: &Identity,
    mark: &Mark,
) -> Result<(), SpoolError> {
    // Two processes that write at once must not share a temporary file.
    let temporary = layout
        .consumers()
        .join(format!(".{}.{}.tmp", mark.name, std::process::id()));
    let path = file(layout, &mark.name);
    replace(disk, layout, &path, &temporary, &mark.encode(identity))
}

/// Removes a consumer's file; whether there was one.
pub(crate) fn remove(disk: &mut dyn Disk, layout: &Layout, name: &str) -> Result<bool, SpoolError> {
    let was_there = disk.remove(&file(layout, name))?;
    if was_there {
        disk.sync_dir(&layout.consumers())?;
    }
    Ok(was_there)
}

/// Replaces a small file as a whole: written beside it, synced, renamed, the directory synced.
pub(crate) fn replace(
    disk: &mut dyn Disk,
    layout: &Layout,
    path: &Path,
    temporary: &Path,
    bytes: &[u8],
) -> Result<(), SpoolError> {
    let _ = disk.remove(temporary);
    let file = disk.create(temporary)?;
    rights::settle(&file, temporary, layout)?;
    disk.write(&file, temporary, &[bytes])?;
    disk.sync(&file, temporary)?;
    disk.rename(temporary, path)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

/// The file of a consumer's mark.
pub(crate) fn file(layout: &Layout, name: &str) -> PathBuf {
    layout.consumers().join(format!("{name}{MARK}"))
}

/// The file that a consumer's reader locks.
pub(crate) fn lock_file(layout: &Layout, name: &str) -> PathBuf {
    layout.consumers().join(format!("{name}{LOCK}"))
}

/// Who wrote the text of a lock file.
pub(crate) fn holder_of(text: &str) -> Option<Holder> {
    Holder::decode(&serde_json::from_str::<Value>(text).ok()?)
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

/// What the file of a mark ends with.
pub(crate) const MARK: &str = ".json";

/// What the file of a reader's lock ends with.
pub(crate) const LOCK: &str = ".lock";

/// A consumer without a reader for an hour is stale.
const STALE_AFTER_US: i64 = 3_600_000_000;

/// What a holder says of itself is for one line of a message.
const MAX_WHAT: usize = 200;
