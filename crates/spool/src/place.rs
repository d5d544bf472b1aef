//! Whether what is written is still what readers will find.
//!
//! A file that was removed, or moved away with its directory, is written and synced without an error:
//! its events would be acknowledged and lost. So its name is looked at before anything is settled.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{SpoolError, format::Layout};

/// A file by its name, and what stood there when it was opened. Who makes one keeps the file open: its
/// inode cannot be given to another one then.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    key: (u64, u64),
    _open: Option<File>,
}

impl Place {
    /// Where an open file belongs.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self, SpoolError> {
        Self::new(path, file.metadata(), None)
    }

    /// The files of a spool that stay while it is written: identity, mark and lock. The lock, which is
    /// held, must not be opened again.
    pub(crate) fn all(layout: &Layout, mark: &File) -> Result<Vec<Self>, SpoolError> {
        let identity = layout.identity();
        let file =
            File::open(&identity).map_err(|error| SpoolError::io("open", &identity, error))?;
        Ok(vec![
            Self::new(&identity, file.metadata(), Some(file))?,
            Self::of(mark, &layout.durable())?,
            Self::new(&layout.lock(), fs::metadata(layout.lock()), None)?,
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

    /// Whether the name still leads to the file.
    ///
    /// # Errors
    /// `spool.moved`.
    pub(crate) fn check(&self) -> Result<(), SpoolError> {
        let detail = match fs::metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.key => return Ok(()),
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
