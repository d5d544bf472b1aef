//! All changes that a spool makes to its disk, in one place, so that tests can record each step,
//! make it fail, and lose unsynced data.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};

use crate::{SpoolError, clock::now_us, filesystem, folder::Dir};

/// A name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) dir: &'a Dir,
    pub(crate) name: &'a str,
}

impl<'a> Name<'a> {
    pub(crate) const fn new(dir: &'a Dir, name: &'a str) -> Self {
        Self { dir, name }
    }
}

/// The steps on whose order and success durability depends. Names are looked up in an open
/// directory, and a name that is a link is never followed.
pub(crate) trait Disk: Send + Sync {
    /// Makes a directory with these rights. Returns whether it was missing.
    fn make_dir(&self, at: &Dir, name: &str, mode: u32) -> Result<bool, SpoolError>;
    /// Creates a file that must not exist, for appending.
    fn create(&self, at: &Dir, name: &str) -> Result<File, SpoolError>;
    /// Opens a file for writing in place.
    fn open(&self, at: &Dir, name: &str) -> Result<File, SpoolError>;
    /// Appends.
    fn write(&self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError>;
    /// Waits until the file's bytes are on the disk.
    fn sync(&self, file: &File, path: &Path) -> Result<(), SpoolError>;
    /// Waits until the directory's names are on the disk.
    fn sync_dir(&self, dir: &Dir) -> Result<(), SpoolError>;
    /// Overwrites a few bytes in place.
    fn publish(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), SpoolError>;
    /// Cuts a file to `len` bytes.
    fn cut(&self, file: &File, path: &Path, len: u64) -> Result<(), SpoolError>;
    /// Renames a file, replacing the file of the new name.
    fn rename(&self, from: Name<'_>, to: Name<'_>) -> Result<(), SpoolError>;
    /// Removes a file. Returns whether there was one.
    fn remove(&self, at: &Dir, name: &str) -> Result<bool, SpoolError>;
    /// Allocates so many bytes for a file on the disk.
    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> Result<(), SpoolError>;
    /// The bytes that an ordinary user may still write; `None` if unknown.
    fn free_bytes(&self, dir: &Dir) -> Option<u64>;
    /// Whether nothing can be reserved, because files are kept in memory.
    fn is_in_memory(&self, dir: &Dir) -> bool {
        filesystem::is_in_memory(dir)
    }
    /// The machine's wall clock, in microseconds since 1970.
    fn now_us(&self) -> i64 {
        now_us()
    }
}

/// The disk as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn make_dir(&self, at: &Dir, name: &str, mode: u32) -> Result<bool, SpoolError> {
        match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(SpoolError::io("create", &at.join(name), error.into())),
        }
    }

    fn create(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        open_at(at, name, flags)
            .map(File::from)
            .map_err(|error| SpoolError::io("create", &at.join(name), error))
    }

    fn open(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        at.open_file(name, OFlags::RDWR)
    }

    fn write(&self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        write_all(file, &mut slices).map_err(|error| SpoolError::io("write", path, error))
    }

    fn sync(&self, file: &File, path: &Path) -> Result<(), SpoolError> {
        file.sync_data()
            .map_err(|error| SpoolError::io("sync", path, error))
    }

    fn sync_dir(&self, dir: &Dir) -> Result<(), SpoolError> {
        rustix::fs::fsync(dir).map_err(|error| SpoolError::io("sync", dir.path(), error.into()))
    }

    fn publish(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), SpoolError> {
        file.write_all_at(bytes, at)
            .map_err(|error| SpoolError::io("write", path, error))
    }

    fn cut(&self, file: &File, path: &Path, len: u64) -> Result<(), SpoolError> {
        file.set_len(len)
            .map_err(|error| SpoolError::io("cut", path, error))
    }

    fn rename(&self, from: Name<'_>, to: Name<'_>) -> Result<(), SpoolError> {
        rustix::fs::renameat(from.dir, from.name, to.dir, to.name)
            .map_err(|error| SpoolError::io("rename", &from.dir.join(from.name), error.into()))
    }

    fn remove(&self, at: &Dir, name: &str) -> Result<bool, SpoolError> {
        match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(SpoolError::io("remove", &at.join(name), error.into())),
        }
    }

    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> Result<(), SpoolError> {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)
            .map_err(|error| SpoolError::io("allocate", path, error.into()))
    }

    fn free_bytes(&self, dir: &Dir) -> Option<u64> {
        let found = rustix::fs::fstatvfs(dir).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Opens a name in a directory with the mode 0600, without following a link and without waiting for the
/// other end of a pipe.
pub(crate) fn open_at(at: &Dir, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::openat(
        at.as_fd(),
        name,
        flags,
        Mode::RUSR | Mode::WUSR,
    )?)
}

fn write_all(mut file: &File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(&slices[..slices.len().min(MAX_SLICES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Linux takes at most 1,024 pieces in one call.
const MAX_SLICES: usize = 1_024;
