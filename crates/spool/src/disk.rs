//! What the writer does to the disk, in one place, so that tests can record each step and make it fail.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::Path,
};

use crate::SpoolError;

/// The steps whose order and success durability rests on.
pub(crate) trait Disk: Send {
    /// Makes a directory, unless it is there.
    fn make_dir(&mut self, path: &Path) -> Result<(), SpoolError>;
    /// Opens a file for writing in place, creating it if need be.
    fn open(&mut self, path: &Path) -> Result<File, SpoolError>;
    /// Creates a file that must not exist.
    fn create(&mut self, path: &Path) -> Result<File, SpoolError>;
    /// Appends.
    fn write(&mut self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError>;
    /// Waits until the file's bytes are on the disk.
    fn sync(&mut self, file: &File, path: &Path) -> Result<(), SpoolError>;
    /// Waits until the directory's names are on the disk.
    fn sync_dir(&mut self, path: &Path) -> Result<(), SpoolError>;
    /// Overwrites a few bytes in place.
    fn publish(
        &mut self,
        file: &File,
        path: &Path,
        bytes: &[u8],
        at: u64,
    ) -> Result<(), SpoolError>;
    /// Cuts a file to `len` bytes; the file, for appending.
    fn cut(&mut self, path: &Path, len: u64) -> Result<File, SpoolError>;
    /// Gives a file another name, in place of what has that name.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SpoolError>;
    /// Removes a file; whether there was one.
    fn remove(&mut self, path: &Path) -> Result<bool, SpoolError>;
}

/// The disk as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn make_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        make_dir(path)
    }

    fn open(&mut self, path: &Path) -> Result<File, SpoolError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|error| SpoolError::io("open", path, error))
    }

    fn create(&mut self, path: &Path) -> Result<File, SpoolError> {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| SpoolError::io("create", path, error))
    }

    fn write(&mut self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        write_all(file, &mut slices).map_err(|error| SpoolError::io("write", path, error))
    }

    fn sync(&mut self, file: &File, path: &Path) -> Result<(), SpoolError> {
        file.sync_data()
            .map_err(|error| SpoolError::io("sync", path, error))
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        let dir = File::open(path).map_err(|error| SpoolError::io("open", path, error))?;
        dir.sync_all()
            .map_err(|error| SpoolError::io("sync", path, error))
    }

    fn publish(
        &mut self,
        file: &File,
        path: &Path,
        bytes: &[u8],
        at: u64,
    ) -> Result<(), SpoolError> {
        file.write_all_at(bytes, at)
            .map_err(|error| SpoolError::io("write", path, error))
    }

    fn cut(&mut self, path: &Path, len: u64) -> Result<File, SpoolError> {
        let open = OpenOptions::new().append(true).open(path);
        let file = open.map_err(|error| SpoolError::io("open", path, error))?;
        file.set_len(len)
            .map_err(|error| SpoolError::io("cut", path, error))?;
        Ok(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SpoolError> {
        fs::rename(from, to).map_err(|error| SpoolError::io("rename", from, error))
    }

    fn remove(&mut self, path: &Path) -> Result<bool, SpoolError> {
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(SpoolError::io("remove", path, error)),
        }
    }
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

/// Makes a directory for the owner alone, unless it is there.
pub(crate) fn make_dir(path: &Path) -> Result<(), SpoolError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(SpoolError::io("create", path, error))
        }
        _ => Ok(()),
    }
}

/// Linux takes at most 1,024 pieces in one call.
const MAX_SLICES: usize = 1_024;
