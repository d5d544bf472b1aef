//! Room for the small files on a full file system.
//!
//! `DIR/reserve` is allocated and holds nothing. When a write finds the file system full, the file goes,
//! so that consumers can move their marks and logs can be written; blocks are tried again once there is
//! room for them *and* for the reserve, if there was one. On a file system in memory there is none: it
//! would take memory.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use rustix::fs::FallocateFlags;

use crate::{SpoolError, filesystem, format::Layout, rights};

/// The reserve of one spool.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    bytes: u64,
    is_held: bool,
    /// Whether the file system had room for it when it was last asked.
    is_real: bool,
    /// Whether the file system can set something aside at all.
    is_possible: bool,
}

impl Reserve {
    /// Nothing is allocated yet.
    pub(crate) fn new(layout: &Layout, bytes: u64) -> Self {
        let is_possible = bytes > 0 && !filesystem::is_in_memory(&layout.dir);
        Self {
            path: layout.reserve(),
            bytes,
            is_held: false,
            is_real: false,
            is_possible,
        }
    }

    /// The bytes that it is to take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that it takes, or took before they were given back.
    pub(crate) fn room(&self) -> u64 {
        if self.is_real { self.bytes } else { 0 }
    }

    /// Whether there is a reserve, or none is wanted.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_held || !self.is_possible
    }

    /// Allocates it, unless it is there.
    pub(crate) fn take(&mut self, layout: &Layout) -> Result<(), SpoolError> {
        if self.is_whole() {
            return Ok(());
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)
            .map_err(|error| SpoolError::io("create", &self.path, error))?;
        rights::settle(&file, &self.path, layout)?;
        let allocated = self.allocate(&file);
        self.is_real = allocated.is_ok();
        match allocated {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.is_possible = false,
            Err(error) => {
                let _ = fs::remove_file(&self.path);
                return Err(SpoolError::io("allocate", &self.path, error));
            }
            Ok(()) => self.is_held = true,
        }
        Ok(())
    }

    fn allocate(&self, file: &File) -> Result<(), std::io::Error> {
        let meta = file.metadata()?;
        if meta.len() != self.bytes || meta.blocks() * 512 < self.bytes {
            file.set_len(0)?;
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, self.bytes)?;
        }
        Ok(())
    }

    /// Gives the room back to the file system.
    pub(crate) fn give_back(&mut self) {
        self.is_held = false;
        let _ = fs::remove_file(&self.path);
    }
}

/// Gives back what an earlier writer set aside; whether it had.
pub(crate) fn give_back(layout: &Layout) -> bool {
    fs::remove_file(layout.reserve()).is_ok()
}
