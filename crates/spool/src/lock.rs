//! Locks that end with the process that holds them: the writer's, and one for each consumer.
//!
//! Each is a POSIX record lock on a small file: the kernel lets go of it when the process ends, however
//! it ends, and a forked child does not keep it alive (it would keep a `flock`). Such a lock does not
//! keep the same process out, and closing *any* handle of the file in that process gives it up. So the
//! process keeps a list of what it holds, and no file on that list is opened again; the list names the
//! process, because a forked child inherits it.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW},
    process::{Flock, FlockType},
};

use crate::{SpoolError, format::Layout, rights};

/// A lock of this process, let go of when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Closed under the list's mutex, so that nobody takes a lock that this would give up.
    file: Option<File>,
    path: PathBuf,
    key: Key,
    pid: u32,
}

/// The outcome of a try.
#[derive(Debug)]
pub(crate) enum Taken {
    Ours(Lock),
    Theirs(Other),
}

/// Who has a lock: the process (0 when it cannot be seen from here), and what it wrote.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    pub(crate) pid: u32,
    pub(crate) text: String,
}

type Key = (u64, u64);

impl Lock {
    /// Takes the lock of a spool's one writer, or says who has it.
    pub(crate) fn writer(layout: &Layout) -> Result<Self, SpoolError> {
        match Self::take(&layout.lock(), layout)? {
            Taken::Ours(lock) => {
                lock.say(&format!("{} {}\n", std::process::id(), start_time()))?;
                Ok(lock)
            }
            Taken::Theirs(other) => Err(SpoolError::Locked {
                dir: layout.dir.clone(),
                pid: other.pid,
            }),
        }
    }

    /// Takes the lock at `path`, without waiting.
    pub(crate) fn take(path: &Path, layout: &Layout) -> Result<Taken, SpoolError> {
        let mut held = held();
        loop {
            if let Some(other) = of_this_process(&held, path) {
                return Ok(Taken::Theirs(other));
            }
            let file = open(path, layout)?;
            match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                    let pid = conflict(&file, path)?.unwrap_or(0);
                    return Ok(Taken::Theirs(Other::new(pid, text_of(&file))));
                }
                Err(error) => return Err(SpoolError::io("lock", path, error.into())),
            }
            let key = key_of(&file, path)?;
            // A consumer that was removed meanwhile took its file along: that lock keeps nobody out.
            if fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == key) {
                let pid = std::process::id();
                held.insert(key, (pid, String::new()));
                return Ok(Taken::Ours(Self {
                    file: Some(file),
                    path: path.to_owned(),
                    key,
                    pid,
                }));
            }
        }
    }

    /// Writes who holds the lock, for those who want it.
    pub(crate) fn say(&self, text: &str) -> Result<(), SpoolError> {
        let file = self.file();
        file.set_len(0)
            .and_then(|()| file.write_all_at(text.as_bytes(), 0))
            .map_err(|error| SpoolError::io("write", &self.path, error))?;
        held().insert(self.key, (self.pid, text.to_owned()));
        Ok(())
    }

    /// What is written in the file: by [`say`](Self::say), or by the last one that held the lock.
    pub(crate) fn text(&self) -> String {
        text_of(self.file())
    }

    /// Sets the file's time to now: the holder lives.
    pub(crate) fn touch(&self) -> Result<(), SpoolError> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        rustix::fs::futimens(self.file(), &times)
            .map_err(|error| SpoolError::io("touch", &self.path, error.into()))
    }

    /// Whether it belongs to this process, and not to one that this process was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Whether the file that is locked is still the one that others would lock.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.key)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("it is taken out by drop alone")
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = held();
        drop(self.file.take());
        if self.is_ours() {
            held.remove(&self.key);
        }
    }
}

impl Other {
    fn new(pid: u32, text: String) -> Self {
        let written = || text.split_whitespace().next()?.parse().ok();
        let seen = (pid != 0).then_some(pid);
        Self {
            pid: seen.or_else(written).unwrap_or(0),
            text,
        }
    }
}

/// Who holds the lock at `path`, without trying to take it.
pub(crate) fn holder(path: &Path) -> Result<Option<Other>, SpoolError> {
    let held = held();
    if let Some(other) = of_this_process(&held, path) {
        return Ok(Some(other));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SpoolError::io("open", path, error)),
    };
    let pid = conflict(&file, path)?;
    Ok(pid.map(|pid| Other::new(pid, text_of(&file))))
}

/// When this process started, in clock ticks since boot: a pid alone may be given out again.
pub(crate) fn start_time() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name
        .split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0)
}

fn open(path: &Path, layout: &Layout) -> Result<File, SpoolError> {
    let new = !path.exists();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| SpoolError::io("open", path, error))?;
    if new {
        rights::settle(&file, path, layout)?;
    }
    Ok(file)
}

/// The process whose lock is in the way, if one is; 0 when it cannot be seen from here.
fn conflict(file: &File, path: &Path) -> Result<Option<u32>, SpoolError> {
    let wanted = Flock::from(FlockType::WriteLock);
    let found = rustix::process::fcntl_getlk(file, &wanted)
        .map_err(|error| SpoolError::io("look at the lock of", path, error.into()))?;
    let pid = |lock: Flock| {
        let pid = lock.pid.map(|pid| pid.as_raw_nonzero().get());
        pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
    };
    Ok(found.map(pid))
}

fn of_this_process(held: &Held, path: &Path) -> Option<Other> {
    let meta = fs::metadata(path).ok()?;
    let (pid, text) = held.get(&(meta.dev(), meta.ino()))?;
    (*pid == std::process::id()).then(|| Other::new(*pid, text.clone()))
}

fn key_of(file: &File, path: &Path) -> Result<Key, SpoolError> {
    let meta = file
        .metadata()
        .map_err(|error| SpoolError::io("read", path, error))?;
    Ok((meta.dev(), meta.ino()))
}

fn text_of(file: &File) -> String {
    let mut bytes = vec![0; MAX_TEXT];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than any holder writes.
const MAX_TEXT: usize = 4_096;

type Held = HashMap<Key, (u32, String)>;

/// The locks of this process, by device and inode: whose they are, and what they say.
static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);
