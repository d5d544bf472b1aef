//! A directory in which one process keeps its own state: made, checked and locked as a spool's is.
//! Its files belong to its user.

use std::{
    fs::{DirBuilder, File},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Access, SpoolError, disk::RealDisk, filesystem, folder::Folder, lock::Lock};

/// A directory that this process alone writes, until this is dropped or the process ends in any
/// way.
#[derive(Debug)]
pub struct StateDir {
    dir: PathBuf,
    _lock: Lock,
}

impl StateDir {
    /// Locks `dir`, which is made for the owner alone if it is missing; its parent must exist.
    ///
    /// # Errors
    /// [`SpoolError::Locked`] while another process, or this one, holds it;
    /// [`SpoolError::Filesystem`] if locks and syncs may have no effect there; it cannot be made.
    pub fn hold(dir: &Path) -> Result<Self, SpoolError> {
        make(dir)?;
        filesystem::check(dir, false)?;
        let lock = Lock::writer(&Folder::open(dir, Access::default(), Arc::new(RealDisk))?)?;
        Ok(Self {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

/// Makes the directory for its owner alone, unless it exists.
fn make(dir: &Path) -> Result<(), SpoolError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(SpoolError::io("create", dir, error)),
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| SpoolError::io("sync", parent, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_of_state_has_one_holder() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        let held = StateDir::hold(&dir).unwrap();
        let mode = dir.metadata().unwrap().permissions().mode();
        assert_eq!((held.path(), mode & 0o777), (&*dir, 0o700));
        let error = StateDir::hold(&dir).unwrap_err();
        assert!(matches!(error, SpoolError::Locked { .. }), "{error}");
        drop(held);
        StateDir::hold(&dir).unwrap();
    }
}
