//! A spool's folder. Every file in it is opened relative to the folder's own descriptor and never
//! through a link, so that another user who may write there cannot make a spool use a file
//! somewhere else.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::{
    Access, SpoolError,
    disk::{Disk, Name, open_at},
    rights,
};

/// An open directory, and its path for messages.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens the directory that a user named; it may be a link.
    pub(crate) fn open(path: &Path) -> Result<Self, SpoolError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| SpoolError::io("open", path, error.into()))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Opens a directory in this one.
    pub(crate) fn sub(&self, name: &str) -> Result<Self, SpoolError> {
        let path = self.join(name);
        match open_at(self, name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(error) => Err(self.refusal(name, "open", error)),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in it, for messages.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file in it that exists.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<File, SpoolError> {
        let fd = open_at(self, name, flags).map_err(|error| self.refusal(name, "open", error))?;
        let file = File::from(fd);
        let meta = file
            .metadata()
            .map_err(|error| SpoolError::io("look at", &self.join(name), error))?;
        if !meta.is_file() {
            return Err(rights::planted(
                &self.join(name),
                "it is not an ordinary file",
            ));
        }
        // A backup may hold second names of the spool's own files, but not of another owner's.
        if meta.nlink() > 1 && meta.uid() != self.owner()? {
            let what = "it is another user's file under a second name (a hard link)";
            return Err(rights::planted(&self.join(name), what));
        }
        Ok(file)
    }

    fn owner(&self) -> Result<u32, SpoolError> {
        let stat = rustix::fs::fstat(self)
            .map_err(|error| SpoolError::io("look at", &self.path, error.into()))?;
        Ok(stat.st_uid)
    }

    /// Opens a file in it for reading.
    pub(crate) fn read_file(&self, name: &str) -> Result<File, SpoolError> {
        self.open_file(name, OFlags::RDONLY)
    }

    /// The bytes of a small file in it; `None` when there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SpoolError> {
        let file = match self.read_file(name) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        let read = file.take(MOST_SMALL_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| SpoolError::io("read", &self.join(name), error))?;
        if bytes.len() as u64 > MOST_SMALL_BYTES {
            let detail = format!("it has more than {MOST_SMALL_BYTES} bytes");
            return Err(SpoolError::corrupt(&self.join(name), detail));
        }
        Ok(Some(bytes))
    }

    /// Returns the kind, size and times of a name without following a link; `None` if there is
    /// none.
    pub(crate) fn look(&self, name: &str) -> Result<Option<Seen>, SpoolError> {
        match rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Seen {
                key: (stat.st_dev, stat.st_ino),
                len: u64::try_from(stat.st_size).unwrap_or(0),
                kind: FileType::from_raw_mode(stat.st_mode),
                mode: stat.st_mode & 0o7777,
                owner: stat.st_uid,
                modified_s: stat.st_mtime,
            })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(SpoolError::io("look at", &self.join(name), error.into())),
        }
    }

    /// Whether this name exists.
    pub(crate) fn has(&self, name: &str) -> Result<bool, SpoolError> {
        self.look(name).map(|seen| seen.is_some())
    }

    /// The names in it, unordered.
    pub(crate) fn names(&self) -> Result<Vec<String>, SpoolError> {
        let failed = |error: rustix::io::Errno| SpoolError::io("list", &self.path, error.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(self).map_err(failed)? {
            let name = entry.map_err(failed)?;
            let name = name.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    /// The device and the inode of the directory itself.
    pub(crate) fn key(&self) -> Result<Key, SpoolError> {
        let stat = rustix::fs::fstat(self)
            .map_err(|error| SpoolError::io("look at", &self.path, error.into()))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// The error of a name that could not be opened; a link is named as one.
    fn refusal(&self, name: &str, action: &'static str, error: io::Error) -> SpoolError {
        let is_link = self
            .look(name)
            .ok()
            .flatten()
            .is_some_and(|seen| seen.kind == FileType::Symlink);
        if is_link {
            return rights::planted(&self.join(name), "it is a link");
        }
        SpoolError::io(action, &self.join(name), error)
    }
}

/// A device and an inode.
pub(crate) type Key = (u64, u64);

/// The file or directory that a name leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) kind: FileType,
    /// The permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// When it was last written, in seconds since 1970.
    pub(crate) modified_s: i64,
}

/// A spool's folder: its directories, its access rights, and its disk.
#[derive(Clone)]
pub(crate) struct Folder(Arc<Inner>);

struct Inner {
    root: Dir,
    segments: OnceLock<Dir>,
    consumers: OnceLock<Dir>,
    access: Access,
    disk: Arc<dyn Disk>,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Folder").field(&self.0.root.path).finish()
    }
}

impl Folder {
    /// Opens the folder of a spool.
    pub(crate) fn open(
        dir: &Path,
        access: Access,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, SpoolError> {
        Ok(Self(Arc::new(Inner {
            root: Dir::open(dir)?,
            segments: OnceLock::new(),
            consumers: OnceLock::new(),
            access,
            disk,
        })))
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Dir {
        &self.0.root
    }

    /// Its path.
    pub(crate) fn dir(&self) -> &Path {
        &self.0.root.path
    }

    /// The access rights of its files.
    pub(crate) fn access(&self) -> Access {
        self.0.access
    }

    /// The disk through which it is changed.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.0.disk
    }

    /// The directory of the segments.
    pub(crate) fn segments(&self) -> Result<&Dir, SpoolError> {
        self.sub(&self.0.segments, SEGMENTS)
    }

    /// The directory of the consumers.
    pub(crate) fn consumers(&self) -> Result<&Dir, SpoolError> {
        self.sub(&self.0.consumers, CONSUMERS)
    }

    fn sub<'a>(&'a self, at: &'a OnceLock<Dir>, name: &str) -> Result<&'a Dir, SpoolError> {
        if let Some(dir) = at.get() {
            return Ok(dir);
        }
        let dir = self.root().sub(name)?;
        Ok(at.get_or_init(|| dir))
    }

    /// Makes a directory in the folder with the spool's rights and owner, unless it is there.
    pub(crate) fn make_dir(&self, name: &str) -> Result<(), SpoolError> {
        if self
            .disk()
            .make_dir(self.root(), name, self.access().dir_mode())?
        {
            let made = self.root().sub(name)?;
            rights::settle_dir(&made, self)?;
        }
        Ok(())
    }

    /// Creates a file that must not exist, with the spool's rights and owner, for appending.
    pub(crate) fn create(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        let file = self.disk().create(at, name)?;
        rights::settle(&file, &at.join(name), self)?;
        Ok(file)
    }

    /// Replaces a small file as a whole: written to a temporary file, synced, renamed, the
    /// directory synced. On a full disk it takes the space from the reserve.
    pub(crate) fn replace(&self, at: &Dir, name: &str, bytes: &[u8]) -> Result<(), SpoolError> {
        match self.replace_once(at, name, bytes) {
            Err(error) if error.is_full() && crate::reserve::give_piece(self) => {
                self.replace_once(at, name, bytes)
            }
            // A writer that opens the spool removes temporary files.
            Err(error) if error.is_not_found() => self.replace_once(at, name, bytes),
            replaced => replaced,
        }
    }

    fn replace_once(&self, at: &Dir, name: &str, bytes: &[u8]) -> Result<(), SpoolError> {
        // Two processes that replace one file at once must not share a temporary one.
        let temporary = format!(".{name}.{}{TEMPORARY}", std::process::id());
        let disk = self.disk();
        disk.remove(at, &temporary)?;
        let written = (|| {
            let file = self.create(at, &temporary)?;
            let path = at.join(&temporary);
            disk.write(&file, &path, &[bytes])?;
            disk.sync(&file, &path)?;
            disk.rename(Name::new(at, &temporary), Name::new(at, name))
        })();
        if let Err(error) = written {
            let _ = disk.remove(at, &temporary);
            return Err(error);
        }
        disk.sync_dir(at)
    }

    /// The directory `lost+found`, made if it is missing.
    pub(crate) fn lost_found(&self) -> Result<Dir, SpoolError> {
        self.make_dir(LOST_FOUND)?;
        self.root().sub(LOST_FOUND)
    }

    /// Moves a file to another directory; durable when it returns.
    pub(crate) fn relocate(&self, from: Name<'_>, to: Name<'_>) -> Result<(), SpoolError> {
        self.disk().rename(from, to)?;
        self.disk().sync_dir(to.dir)?;
        self.disk().sync_dir(from.dir)
    }

    /// Whether the path by which it was opened still leads to it.
    pub(crate) fn is_in_place(&self) -> Result<bool, SpoolError> {
        let own = self.root().key()?;
        match std::fs::metadata(self.dir()) {
            Ok(meta) => Ok((meta.dev(), meta.ino()) == own),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(SpoolError::io("look at", self.dir(), error)),
        }
    }
}

/// The file with the spool's identity.
pub(crate) const IDENTITY: &str = "spool.json";

/// The durable mark.
pub(crate) const MARK: &str = "durable";

/// The writer's lock.
pub(crate) const LOCK: &str = "lock";

/// The lock of every process that moves marks back or removes events.
pub(crate) const MARKS_LOCK: &str = "marks.lock";

/// The first kept position.
pub(crate) const START: &str = "start";

/// Positions that are lost or damaged.
pub(crate) const LOSSES: &str = "losses";

/// The position up to which events went by age alone.
pub(crate) const RETIRED: &str = "retired";

/// The key of the digests.
pub(crate) const KEY: &str = "key";

/// Links that ended in good order.
pub(crate) const ENDS: &str = "ends";

/// Reserved space for small files on a full disk.
pub(crate) const RESERVE: &str = "reserve";

/// The directory of segments and indexes.
pub(crate) const SEGMENTS: &str = "segments";

/// The directory of marks and leases.
pub(crate) const CONSUMERS: &str = "consumers";

/// The directory of the parts that mending cut.
const LOST_FOUND: &str = "lost+found";

/// The names that a spool makes in its folder and checks when it is opened.
pub(crate) const NAMES: &[&str] = &[
    IDENTITY, MARK, LOCK, MARKS_LOCK, START, LOSSES, RETIRED, KEY, ENDS, RESERVE, SEGMENTS,
    CONSUMERS,
];

/// The extension of a file that will replace another.
pub(crate) const TEMPORARY: &str = ".tmp";

/// More than any small file of a spool has.
const MOST_SMALL_BYTES: u64 = 16 << 20;
