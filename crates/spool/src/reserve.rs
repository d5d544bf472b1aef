//! Reserved space for the small files on a full file system.
//!
//! `DIR/reserve` is allocated and holds nothing. A process that finds the file system full while it
//! writes a small file (a mark, a lease, the start file) shortens it by a piece and retries; the
//! writer extends it again when there is space. Blocks are retried when there is space for them
//! *and* for the reserve, if there was one. On a file system in memory the writer makes none: it
//! would take memory.
//!
//! A file of that name that no spool made is neither shortened nor removed.

use std::{fs::File, io::ErrorKind, os::unix::fs::MetadataExt, path::PathBuf};

use crate::{
    SpoolError,
    folder::{Folder, RESERVE},
    rights,
};

/// The reserve of one spool, as its writer keeps it.
#[derive(Debug)]
pub(crate) struct Reserve {
    folder: Folder,
    bytes: u64,
    /// Whether the file system had space for it at the last try.
    is_real: bool,
    /// Whether the file system can reserve space at all.
    is_possible: bool,
}

impl Reserve {
    /// Nothing is allocated yet.
    pub(crate) fn new(folder: &Folder, bytes: u64) -> Self {
        Self {
            folder: folder.clone(),
            bytes,
            is_real: false,
            is_possible: bytes > 0 && !folder.disk().is_in_memory(folder.root()),
        }
    }

    /// The bytes to reserve.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that it takes, or took before they were released.
    pub(crate) fn room(&self) -> u64 {
        if self.is_real { self.bytes } else { 0 }
    }

    /// Whether the reserve has its whole length, or none is wanted.
    pub(crate) fn is_whole(&self) -> bool {
        if !self.is_possible {
            return true;
        }
        let seen = self.folder.root().look(RESERVE).ok().flatten();
        self.is_real && seen.is_some_and(|seen| seen.kind.is_file() && seen.len == self.bytes)
    }

    /// Allocates it, or the pieces that were taken from it, unless it is whole.
    ///
    /// # Errors
    /// `spool.rights` when there is a file that no spool made, `spool.io`.
    pub(crate) fn take(&mut self) -> Result<(), SpoolError> {
        if self.is_whole() {
            return Ok(());
        }
        let (root, disk) = (self.folder.root(), self.folder.disk());
        let path = root.join(RESERVE);
        let (file, before) = match open(&self.folder)? {
            Some(found) => found,
            None => (self.folder.create(root, RESERVE)?, 0),
        };
        if before > self.bytes {
            disk.cut(&file, &path, self.bytes)?;
        }
        let Err(error) = disk.allocate(&file, &path, self.bytes) else {
            self.is_real = true;
            return Ok(());
        };
        // The part that was allocated before the disk was full would be missing elsewhere.
        self.is_real = before > 0;
        if before > 0 {
            disk.cut(&file, &path, before.min(self.bytes))?;
        } else {
            disk.remove(root, RESERVE)?;
        }
        let is_impossible = matches!(&error, SpoolError::Io { source, .. }
            if source.kind() == ErrorKind::Unsupported);
        if is_impossible {
            self.is_possible = false;
            return Ok(());
        }
        Err(error)
    }
}

/// Releases the whole reserve. Returns whether there was one.
pub(crate) fn give_back(folder: &Folder) -> bool {
    let is_there = matches!(open(folder), Ok(Some(_)));
    is_there && folder.disk().remove(folder.root(), RESERVE).is_ok()
}

/// Releases a piece, which is enough for a few small files. Returns whether there was one.
pub(crate) fn give_piece(folder: &Folder) -> bool {
    let Ok(Some((file, len))) = open(folder) else {
        return false;
    };
    let (disk, path) = (folder.disk(), path(folder));
    if len == 0
        || disk
            .cut(&file, &path, len.saturating_sub(PIECE_BYTES))
            .is_err()
    {
        return false;
    }
    // Some file systems reuse freed blocks only when their journal is written.
    let _ = disk.sync(&file, &path);
    true
}

/// The reserve and its bytes; `None` when there is none.
///
/// # Errors
/// `spool.rights` when no spool made it, `spool.io`.
fn open(folder: &Folder) -> Result<Option<(File, u64)>, SpoolError> {
    let (root, path) = (folder.root(), path(folder));
    let file = match folder.disk().open(root, RESERVE) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let meta = file
        .metadata()
        .map_err(|error| SpoolError::io("look at", &path, error))?;
    if meta.nlink() > 1 {
        return Err(rights::planted(&path, "it has a second name (a hard link)"));
    }
    let owner = root.look(".")?.map(|seen| seen.owner);
    let is_known = owner == Some(meta.uid()) || rustix::process::geteuid().as_raw() == meta.uid();
    if !is_known && !folder.access().group {
        return Err(rights::planted(&path, "it is another user's file"));
    }
    Ok(Some((file, meta.len())))
}

fn path(folder: &Folder) -> PathBuf {
    folder.root().join(RESERVE)
}

/// Bytes that are released at once: hundreds of small files, and a 64th of the reserve.
const PIECE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;
    use crate::{Access, disk::RealDisk};

    #[test]
    fn a_reserve_is_released_in_pieces_and_extended_again() {
        // Not in memory: there is no reserve there.
        let temp = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        let folder = Folder::open(temp.path(), Access::default(), Arc::new(RealDisk)).unwrap();
        let whole = 2 * PIECE_BYTES + 4_096;
        let mut reserve = Reserve::new(&folder, whole);
        if reserve.is_whole() {
            return;
        }
        assert!(!give_piece(&folder) && !give_back(&folder));
        let path = temp.path().join(RESERVE);
        let len = || fs::metadata(&path).unwrap().len();
        for _ in 0..2 {
            reserve.take().unwrap();
            assert!(reserve.is_whole());
            for left in [PIECE_BYTES + 4_096, 4_096, 0] {
                assert!(give_piece(&folder));
                assert_eq!((len(), reserve.is_whole()), (left, false));
            }
            assert!(!give_piece(&folder));
        }
        reserve.take().unwrap();
        let blocks = fs::metadata(&path).unwrap().blocks();
        assert!(len() == whole && blocks * 512 >= whole);
        // A later writer wants less, or finds it whole.
        let mut smaller = Reserve::new(&folder, PIECE_BYTES);
        smaller.take().unwrap();
        assert_eq!(len(), PIECE_BYTES);
        assert!(give_back(&folder) && !path.exists());
    }

    #[test]
    fn a_link_is_no_reserve() {
        let temp = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        let folder = Folder::open(temp.path(), Access::default(), Arc::new(RealDisk)).unwrap();
        let mut reserve = Reserve::new(&folder, PIECE_BYTES);
        if reserve.is_whole() {
            return;
        }
        let victim = temp.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, temp.path().join(RESERVE)).unwrap();
        assert_eq!(reserve.take().unwrap_err().code(), "spool.rights");
        fs::remove_file(temp.path().join(RESERVE)).unwrap();
        fs::hard_link(&victim, temp.path().join(RESERVE)).unwrap();
        assert_eq!(reserve.take().unwrap_err().code(), "spool.rights");
        assert!(!give_piece(&folder) && !give_back(&folder));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(reserve.room(), 0);
    }
}
