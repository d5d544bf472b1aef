//! Rights of a spool's files: for its owner alone, or for its owner's group if requested.
//!
//! A spool holds received data, often logs with more in them than anybody intended. It is made with
//! modes 0700 and 0600 (0770 and 0660 with [`Access::group`]); a wider one is refused by name when
//! it is opened, because it may have been copied wrongly or given away.

use std::{
    fs::{File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use rustix::fs::{FileType, Gid, Mode, Uid};

use crate::{
    SpoolError,
    folder::{self, Dir, Folder, Seen},
};

/// Access to a spool's files for users other than their owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// The group of the files may read and write them, and they may belong to another user: for a
    /// receiver and a reader that run as different users of one group.
    pub group: bool,
}

impl Access {
    pub(crate) fn dir_mode(self) -> u32 {
        if self.group { 0o770 } else { 0o700 }
    }

    fn file_mode(self) -> u32 {
        if self.group { 0o660 } else { 0o600 }
    }

    /// The mode bits that no file may have.
    fn refused(self) -> u32 {
        if self.group { 0o007 } else { 0o077 }
    }
}

/// Refuses a spool that is open to other users, naming the first such file. Of the segments only
/// their directory is checked, and each file when it is opened: there may be 100,000 of them.
pub(crate) fn check(folder: &Folder) -> Result<(), SpoolError> {
    let root = folder.root();
    check_dir(root, folder)?;
    for name in folder::NAMES {
        check_name(root, name, folder)?;
    }
    match folder.consumers() {
        Ok(consumers) => {
            for name in consumers.names()? {
                check_name(consumers, &name, folder)?;
            }
            Ok(())
        }
        // It does not exist yet.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes an empty directory for a spool: it was made beforehand, with the usual wide mode.
pub(crate) fn take_over(folder: &Folder) -> Result<(), SpoolError> {
    let dir = folder.root();
    let seen = dir.look(".")?;
    let Some(seen) = seen else { return Ok(()) };
    check_owner(dir.path(), &seen, folder)?;
    if seen.mode & folder.access().refused() == 0 {
        return Ok(());
    }
    narrow(dir, folder)?;
    tracing::warn!(
        code = "spool.rights_tightened",
        dir = %dir.path().display(),
        from = format!("{:04o}", seen.mode),
        to = format!("{:04o}", folder.access().dir_mode()),
        "the empty directory was open to others"
    );
    Ok(())
}

/// Gives a newly created file the spool's rights, under any umask, and its owner: root may
/// maintain a spool without locking its owner out.
pub(crate) fn settle(file: &File, path: &Path, folder: &Folder) -> Result<(), SpoolError> {
    if folder.access().group {
        let mode = Permissions::from_mode(folder.access().file_mode());
        file.set_permissions(mode)
            .map_err(|error| SpoolError::io("set the rights of", path, error))?;
    }
    let Some((owner, group)) = other_owner(folder)? else {
        return Ok(());
    };
    std::os::unix::fs::fchown(file, Some(owner), Some(group))
        .map_err(|error| SpoolError::io("set the owner of", path, error))
}

/// Gives a newly made directory the spool's rights and owner.
pub(crate) fn settle_dir(dir: &Dir, folder: &Folder) -> Result<(), SpoolError> {
    if folder.access().group {
        narrow(dir, folder)?;
    }
    match other_owner(folder)? {
        Some((owner, group)) => give(dir, owner, group),
        None => Ok(()),
    }
}

/// Gives a spool's folder that root has just made to the owner of its parent directory.
pub(crate) fn settle_root(folder: &Folder, parent: &Path) -> Result<(), SpoolError> {
    let dir = folder.root();
    if folder.access().group {
        narrow(dir, folder)?;
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let above = Dir::open(parent)?;
    match above.look(".")? {
        Some(seen) if seen.owner != 0 => {
            let group = rustix::fs::fstat(&above)
                .map_err(|error| SpoolError::io("look at", parent, error.into()))?
                .st_gid;
            give(dir, seen.owner, group)
        }
        _ => Ok(()),
    }
}

fn give(dir: &Dir, owner: u32, group: u32) -> Result<(), SpoolError> {
    let (owner, group) = (Uid::from_raw(owner), Gid::from_raw(group));
    rustix::fs::fchown(dir, Some(owner), Some(group))
        .map_err(|error| SpoolError::io("set the owner of", dir.path(), error.into()))
}

/// The owner and group of the folder, if root makes files in another user's folder.
fn other_owner(folder: &Folder) -> Result<Option<(u32, u32)>, SpoolError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let stat = rustix::fs::fstat(folder.root())
        .map_err(|error| SpoolError::io("look at", folder.dir(), error.into()))?;
    Ok((stat.st_uid != 0).then_some((stat.st_uid, stat.st_gid)))
}

fn narrow(dir: &Dir, folder: &Folder) -> Result<(), SpoolError> {
    let failed =
        |error: rustix::io::Errno| SpoolError::io("set the rights of", dir.path(), error.into());
    let now = rustix::fs::fstat(dir).map_err(failed)?.st_mode;
    // The set-group-ID bit of a directory stays.
    let mode = (now & 0o2000) | folder.access().dir_mode();
    rustix::fs::fchmod(dir, Mode::from_raw_mode(mode)).map_err(failed)
}

fn check_dir(dir: &Dir, folder: &Folder) -> Result<(), SpoolError> {
    match dir.look(".")? {
        Some(seen) => check_seen(dir.path(), &seen, folder),
        None => Ok(()),
    }
}

/// Refuses a file that users other than its owner can read. A missing file, or one that is not the
/// spool's, is skipped.
pub(crate) fn check_name(dir: &Dir, name: &str, folder: &Folder) -> Result<(), SpoolError> {
    match dir.look(name)? {
        Some(seen) if seen.kind == FileType::Symlink => {
            Err(planted(&dir.join(name), "it is a link"))
        }
        Some(seen) => check_seen(&dir.join(name), &seen, folder),
        // It does not exist yet, or was retired since it was listed.
        None => Ok(()),
    }
}

fn check_seen(path: &Path, seen: &Seen, folder: &Folder) -> Result<(), SpoolError> {
    check_owner(path, seen, folder)?;
    let access = folder.access();
    if seen.mode & access.refused() == 0 {
        return Ok(());
    }
    let allowed = if seen.kind == FileType::Directory {
        access.dir_mode()
    } else {
        access.file_mode()
    };
    let dir = folder.dir().display();
    let cure = if access.group {
        format!("remove the wider rights with `chmod -R o= {dir}`")
    } else {
        format!(
            "remove the wider rights with `chmod -R go= {dir}`, or let its group in with the option group \
             (--group)"
        )
    };
    let mode = seen.mode;
    Err(SpoolError::Rights {
        path: path.to_owned(),
        detail: format!("its mode is {mode:04o}, wider than {allowed:04o}: {cure}"),
    })
}

fn check_owner(path: &Path, seen: &Seen, folder: &Folder) -> Result<(), SpoolError> {
    let user = rustix::process::geteuid();
    if folder.access().group || user.is_root() || seen.owner == user.as_raw() {
        return Ok(());
    }
    let (owner, user) = (seen.owner, user.as_raw());
    Err(SpoolError::Rights {
        path: path.to_owned(),
        detail: format!(
            "it belongs to user {owner}, this process is user {user}: run as the same user, or both in one \
             group with the option group (--group)"
        ),
    })
}

/// The error of a name in a spool that leads to a foreign file.
pub(crate) fn planted(path: &Path, what: &str) -> SpoolError {
    SpoolError::Rights {
        path: path.to_owned(),
        detail: format!(
            "{what}, which no spool makes: find out where it comes from and where it leads, and remove it"
        ),
    }
}
