//! One writer for each spool.
//!
//! The lock is a POSIX record lock: the kernel lets go of it when the process ends, however it ends,
//! and a forked child does not keep it alive (it would keep a `flock`). Such a lock does not keep the
//! same process out, so that the process also keeps a list of what it holds; the list names the
//! process, because a forked child inherits it.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
};

use rustix::fs::FlockOperation;

use crate::SpoolError;

/// Held by the writer, let go of when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    key: (u64, u64),
}

impl Lock {
    /// Takes the lock of the spool in `dir`, or says who has it.
    pub(crate) fn take(dir: &Path, path: &Path) -> Result<Self, SpoolError> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(meta) = fs::metadata(path)
            && let Some(pid) = held.get(&(meta.dev(), meta.ino()))
            && *pid == std::process::id()
        {
            // Opening and closing the file here would let go of the lock.
            return Err(SpoolError::Locked {
                dir: dir.to_owned(),
                pid: *pid,
            });
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|error| SpoolError::io("open", path, error))?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let pid = text
                    .split_whitespace()
                    .next()
                    .and_then(|pid| pid.parse().ok());
                return Err(SpoolError::Locked {
                    dir: dir.to_owned(),
                    pid: pid.unwrap_or(0),
                });
            }
            Err(error) => return Err(SpoolError::io("lock", path, error.into())),
        }
        let pid = std::process::id();
        let text = format!("{pid} {}\n", start_time());
        file.set_len(0)
            .and_then(|()| file.write_all_at(text.as_bytes(), 0))
            .map_err(|error| SpoolError::io("write", path, error))?;
        let meta = file
            .metadata()
            .map_err(|error| SpoolError::io("read", path, error))?;
        let key = (meta.dev(), meta.ino());
        held.insert(key, pid);
        Ok(Self { _file: file, key })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        HELD.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

/// When this process started, in clock ticks since boot: a pid alone may be given out again.
fn start_time() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name
        .split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0)
}

/// The locks of this process, by device and inode.
static HELD: LazyLock<Mutex<HashMap<(u64, u64), u32>>> = LazyLock::new(Mutex::default);
