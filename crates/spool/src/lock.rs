//! Locks that end with the process that holds them: the writer's, one for each consumer, and the
//! one under which marks go back and events are removed.
//!
//! Each is a lock of an open file description on a small file (`F_OFD_SETLK`): the kernel releases
//! it when that description is closed, at the end of the process at the latest. Closing another
//! descriptor of the file, as a copy of the folder does, changes nothing. A forked child inherits
//! the description until it runs another program. So releasing a lock unlocks it in the kernel,
//! which frees it even if a child still has the description; and a child that runs no other program
//! must close it: code that forks like this must call [`before_fork`] and its two counterparts,
//! which do that.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::{LazyLock, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use ackline_core::locked;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW};

use crate::{
    SpoolError,
    folder::{self, Dir, Folder, Key},
};

/// A lock of this process, released when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
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

/// The holder of a lock: its process (0 if unknown), and the text it wrote.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    pub(crate) pid: u32,
    pub(crate) text: String,
}

impl Lock {
    /// Takes the lock of a spool's one writer, or returns its holder.
    pub(crate) fn writer(folder: &Folder) -> Result<Self, SpoolError> {
        match Self::take(folder.root(), folder::LOCK, folder)? {
            Taken::Ours(lock) => {
                lock.say(
                    folder,
                    &format!("{} {}\n", std::process::id(), start_time()),
                )?;
                Ok(lock)
            }
            Taken::Theirs(other) => Err(SpoolError::Locked {
                dir: folder.dir().to_owned(),
                pid: other.pid,
            }),
        }
    }

    /// Takes the lock under which marks go back and events are removed, waiting for it.
    ///
    /// # Errors
    /// `spool.marks_busy` when another process holds it for longer than 10 seconds.
    pub(crate) fn marks(folder: &Folder) -> Result<Self, SpoolError> {
        let deadline = Instant::now() + MARKS_WAIT;
        loop {
            match Self::take(folder.root(), folder::MARKS_LOCK, folder)? {
                Taken::Ours(lock) => {
                    // For a process that waits too long; it may stay unwritten on a full disk.
                    let text = format!("{} {}\n", std::process::id(), start_time());
                    let _ = lock.say(folder, &text);
                    return Ok(lock);
                }
                Taken::Theirs(_) if Instant::now() < deadline => {
                    std::thread::sleep(MARKS_LOOK_EVERY);
                }
                Taken::Theirs(other) => {
                    return Err(SpoolError::MarksBusy {
                        dir: folder.dir().to_owned(),
                        pid: other.pid,
                    });
                }
            }
        }
    }

    /// Takes the lock on a file, without waiting.
    pub(crate) fn take(at: &Dir, name: &str, folder: &Folder) -> Result<Taken, SpoolError> {
        let path = at.join(name);
        let mut held = held();
        loop {
            let file = open(at, name, folder)?;
            match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::EACCES) => {
                    let pid = conflict(&file, &path)?.unwrap_or(0);
                    return Ok(Taken::Theirs(Other::new(pid, text_of(&file))));
                }
                Err(error) => return Err(SpoolError::io("lock", &path, error.into())),
            }
            let meta = file
                .metadata()
                .map_err(|error| SpoolError::io("look at", &path, error))?;
            let key = (meta.dev(), meta.ino());
            // A consumer that was removed meanwhile took its file along: that lock has no effect.
            if at.look(name)?.is_some_and(|seen| seen.key == key) {
                held.insert(key, file);
                let pid = std::process::id();
                return Ok(Taken::Ours(Self { path, key, pid }));
            }
        }
    }

    /// Writes the holder's text, for processes that want the lock.
    pub(crate) fn say(&self, folder: &Folder, text: &str) -> Result<(), SpoolError> {
        let disk = folder.disk();
        self.with_file("write", |file| {
            disk.publish(file, &self.path, text.as_bytes(), 0)?;
            disk.cut(file, &self.path, text.len() as u64)
        })
    }

    /// Returns the text of the file: by [`say`](Self::say), or by the last holder of the lock.
    pub(crate) fn text(&self) -> String {
        held().get(&self.key).map(text_of).unwrap_or_default()
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
        self.with_file("touch", |file| {
            rustix::fs::futimens(file, &times)
                .map_err(|error| SpoolError::io("touch", &self.path, error.into()))
        })
    }

    /// Whether it belongs to this process, and not to one that this process was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Whether the locked file is still the one that others would lock.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.key)
    }

    fn with_file(
        &self,
        action: &'static str,
        work: impl FnOnce(&File) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        let held = held();
        let file = held.get(&self.key).ok_or_else(|| {
            let error = std::io::Error::other("it was closed in a forked child");
            SpoolError::io(action, &self.path, error)
        })?;
        work(file)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_ours() {
            let_go(self.key);
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

/// Returns the holder of the lock on a file, without trying to take it.
pub(crate) fn holder(at: &Dir, name: &str) -> Result<Option<Other>, SpoolError> {
    let file = match at.open_file(name, OFlags::RDWR) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        // A process that may not write it may still read it.
        Err(SpoolError::Io { .. }) => at.read_file(name)?,
        Err(error) => return Err(error),
    };
    let pid = conflict(&file, &at.join(name))?;
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

/// Keeps other threads from taking and dropping locks until [`after_fork_in_parent`] or
/// [`after_fork_in_child`] is called by the same thread. For `os.register_at_fork` and the like.
pub fn before_fork() {
    FORKING.with(|forking| *forking.borrow_mut() = Some(held()));
}

/// Lets other threads continue.
pub fn after_fork_in_parent() {
    FORKING.with(|forking| forking.borrow_mut().take());
}

/// Closes every lock that the child inherited, so that it keeps none alive once its parent has ended.
pub fn after_fork_in_child() {
    FORKING.with(|forking| {
        if let Some(mut held) = forking.borrow_mut().take() {
            held.clear();
        }
    });
}

fn open(at: &Dir, name: &str, folder: &Folder) -> Result<File, SpoolError> {
    loop {
        match at.open_file(name, OFlags::RDWR) {
            Err(error) if error.is_not_found() => {}
            opened => return opened,
        }
        match folder.create(at, name) {
            // For writing in place, not for appending.
            Ok(_) => {}
            Err(SpoolError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) if error.is_full() && crate::reserve::give_piece(folder) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The lock to take: for writing, on all of the file.
fn whole_file() -> libc::flock {
    lock_of(libc::F_WRLCK)
}

fn lock_of(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The process that holds a conflicting lock, if there is one; 0 if unknown.
fn conflict(file: &File, path: &std::path::Path) -> Result<Option<u32>, SpoolError> {
    let mut found = whole_file();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))
        .map_err(|error| SpoolError::io("look at the lock of", path, error.into()))?;
    let is_free = libc::c_int::from(found.l_type) == libc::F_UNLCK;
    // An earlier release's lock names its process; one of an open file description has -1.
    Ok((!is_free).then(|| u32::try_from(found.l_pid).unwrap_or(0)))
}

fn text_of(file: &File) -> String {
    let mut bytes = vec![0; MAX_TEXT];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Frees a lock of this process, even if a child that will run another program has inherited it.
pub(crate) fn let_go(key: Key) {
    if let Some(file) = held().remove(&key) {
        // If this fails, the lock is free when the last descriptor is closed.
        let _ = fcntl(&file, FcntlArg::F_OFD_SETLK(&lock_of(libc::F_UNLCK)));
    }
}

/// Another descriptor of a locked file's description, as a forked child has it.
#[cfg(test)]
pub(crate) fn inherited(at: &Dir, name: &str) -> File {
    let key = at.look(name).unwrap().unwrap().key;
    held()[&key].try_clone().unwrap()
}

fn held() -> MutexGuard<'static, Held> {
    locked(&HELD)
}

/// More than any holder writes.
const MAX_TEXT: usize = 4_096;

/// The holder of the lock on marks writes a few small files meanwhile.
const MARKS_WAIT: Duration = Duration::from_secs(10);

const MARKS_LOOK_EVERY: Duration = Duration::from_millis(2);

type Held = HashMap<Key, File>;

/// The locked files of this process, by device and inode.
static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The list of locks while this thread forks.
    static FORKING: RefCell<Option<MutexGuard<'static, Held>>> = const { RefCell::new(None) };
}
