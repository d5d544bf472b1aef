//! The reliability of file systems, and their free space.

use std::path::Path;

use rustix::fs::StatFs;

use crate::{SpoolError, folder::Dir};

/// The kinds of file systems, by reliability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Any file system that is not known to be otherwise.
    Full,
    /// Its writes are durable, but not over a restart of the machine or container.
    Weak(&'static str),
    /// Its locks or syncs may have no effect.
    None(&'static str),
}

/// Returns the kind of the file system with this `magic` number (`f_type` of statfs).
pub(crate) fn trust(magic: u64) -> Trust {
    let of = |table: &[(u64, &'static str)]| {
        let found = table.iter().find(|(known, _)| *known == magic);
        found.map(|(_, name)| *name)
    };
    match (of(UNSAFE), of(WEAK)) {
        (Some(name), _) => Trust::None(name),
        (None, Some(name)) => Trust::Weak(name),
        (None, None) => Trust::Full,
    }
}

/// Refuses a directory on a file system that may not keep acknowledged writes, or warns of it.
///
/// # Errors
/// `spool.filesystem`.
pub(crate) fn check(dir: &Path, is_allowed: bool) -> Result<(), SpoolError> {
    let Ok(found) = rustix::fs::statfs(dir) else {
        return Ok(());
    };
    judge(dir, magic_of(&found), is_allowed)
}

fn judge(dir: &Path, magic: u64, is_allowed: bool) -> Result<(), SpoolError> {
    match trust(magic) {
        Trust::None(kind) if !is_allowed => {
            return Err(SpoolError::Filesystem {
                dir: dir.to_owned(),
                kind,
            });
        }
        Trust::None(kind) => {
            tracing::warn!(code = "spool.filesystem_unsafe", dir = %dir.display(), kind,
                "this file system may lose acknowledged events; it was allowed explicitly");
        }
        Trust::Weak(kind) => {
            tracing::warn!(code = "spool.filesystem_weak", dir = %dir.display(), kind,
                "this file system does not outlive its machine or container: acknowledged events may be lost");
        }
        Trust::Full => {}
    }
    Ok(())
}

/// Whether it keeps its files in memory.
pub(crate) fn is_in_memory(dir: &Dir) -> bool {
    let found = rustix::fs::fstatfs(dir).ok();
    found.is_some_and(|found| [TMPFS, RAMFS].contains(&magic_of(&found)))
}

/// The bytes that an ordinary user may still write.
#[cfg(test)]
pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn magic_of(found: &StatFs) -> u64 {
    // The numbers have 32 bits; the field is signed on some machines.
    u64::try_from(found.f_type).unwrap_or(0) & 0xFFFF_FFFF
}

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58F6;

/// statfs(2): file systems on another machine or in another process.
const UNSAFE: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x786F_4256, "a VirtualBox shared folder"),
    (0xBACB_ACBC, "a VMware shared folder"),
];

/// statfs(2): file systems that are gone with the machine's memory or the container.
const WEAK: &[(u64, &str)] = &[
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (0x794C_7630, "overlayfs"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_allowed_explicitly() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0x6573_5546, "FUSE"),
        ] {
            let error = judge(Path::new("/x"), magic, false).unwrap_err();
            assert_eq!(error.code(), "spool.filesystem");
            assert!(error.to_string().contains(name), "{error}");
            assert!(judge(Path::new("/x"), magic, true).is_ok());
        }
    }

    #[test]
    fn memory_and_overlays_are_warned_of_and_disks_are_not() {
        for magic in [TMPFS, RAMFS, 0x794C_7630] {
            assert!(matches!(trust(magic), Trust::Weak(_)));
            assert!(judge(Path::new("/x"), magic, false).is_ok());
        }
        // ext4, XFS, btrfs, ZFS.
        for magic in [0xEF53, 0x5846_5342, 0x9123_683E, 0x2FC1_2FC1] {
            assert_eq!(trust(magic), Trust::Full);
        }
    }
}
