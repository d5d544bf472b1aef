//! Checks that the written files are those that readers will find.
//!
//! A file that was removed, moved away with its directory, or cut can still be written and synced
//! without an error: its events would be acknowledged and lost. So each name is checked before
//! anything is settled.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    SpoolError,
    folder::{Folder, IDENTITY, LOCK, MARK},
};

/// A file's name, and its identity when it was opened. Keep the file open as long as this: its
/// inode cannot be reused then.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    key: (u64, u64),
    _open: Option<File>,
}

impl Place {
    /// The place of an open file.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self, SpoolError> {
        Self::new(path, file.metadata(), None)
    }

    /// The files of a spool that stay while it is written: identity, mark and lock.
    pub(crate) fn all(folder: &Folder, mark: &File) -> Result<Vec<Self>, SpoolError> {
        let root = folder.root();
        let (identity, lock) = (root.read_file(IDENTITY)?, root.read_file(LOCK)?);
        let (identity_meta, lock_meta) = (identity.metadata(), lock.metadata());
        Ok(vec![
            Self::new(&root.join(IDENTITY), identity_meta, Some(identity))?,
            Self::of(mark, &root.join(MARK))?,
            Self::new(&root.join(LOCK), lock_meta, Some(lock))?,
        ])
    }

    fn new(
        path: &Path,
        meta: std::io::Result<fs::Metadata>,
        open: Option<File>,
    ) -> Result<Self, SpoolError> {
        let meta = meta.map_err(|error| SpoolError::io("look at", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            key: (meta.dev(), meta.ino()),
            _open: open,
        })
    }

    /// Checks that the name still leads to the file.
    ///
    /// # Errors
    /// `spool.moved`.
    pub(crate) fn check(&self) -> Result<(), SpoolError> {
        self.look().map(drop)
    }

    /// Checks that the name still leads to the file, and that it has the bytes that were written.
    ///
    /// # Errors
    /// `spool.moved`, `spool.changed`.
    pub(crate) fn check_written(&self, written: u64) -> Result<(), SpoolError> {
        let found = self.look()?;
        if found == written {
            return Ok(());
        }
        Err(SpoolError::Changed {
            path: self.path.clone(),
            written,
            found,
        })
    }

    /// The bytes of the file.
    fn look(&self) -> Result<u64, SpoolError> {
        let detail = match fs::symlink_metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.key => return Ok(meta.len()),
            Ok(_) => "is another file now".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "is gone".to_owned(),
            Err(error) => format!("cannot be seen any more ({error})"),
        };
        Err(SpoolError::Moved {
            path: self.path.clone(),
            detail,
        })
    }
}
