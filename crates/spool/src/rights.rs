//! Who may read a spool: its owner alone, or its owner's group where that was asked for.
//!
//! A spool holds what others sent, often logs with more in them than anybody meant. It is made 0700 and
//! 0600 (0770 and 0660 with [`Access::group`]); one that is wider by the time it is opened is refused by
//! name, because whoever widened it may have copied it wrongly or given it away.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::ErrorKind,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{SpoolError, disk::Disk, format::Layout};

/// Who may have access to a spool's files beside their owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// The group of the files may read and write them, and they may belong to another user: for a
    /// receiver and a reader that run as different users of one group.
    pub group: bool,
}

impl Access {
    fn dir_mode(self) -> u32 {
        if self.group { 0o770 } else { 0o700 }
    }

    fn file_mode(self) -> u32 {
        if self.group { 0o660 } else { 0o600 }
    }

    /// The bits that nobody may have.
    fn refused(self) -> u32 {
        if self.group { 0o007 } else { 0o077 }
    }
}

/// Refuses a spool that is open to others, naming the first file that is.
pub(crate) fn check(layout: &Layout) -> Result<(), SpoolError> {
    let (identity, durable) = (layout.identity(), layout.durable());
    let (lock, reserve, retired) = (layout.lock(), layout.reserve(), layout.retired());
    let key = layout.key();
    for path in [
        &layout.dir,
        &identity,
        &durable,
        &lock,
        &reserve,
        &retired,
        &key,
    ] {
        check_one(path, layout)?;
    }
    for dir in [layout.segments(), layout.consumers()] {
        check_one(&dir, layout)?;
        for path in names_in(&dir)? {
            check_one(&path, layout)?;
        }
    }
    Ok(())
}

/// Makes a directory with the spool's rights, unless it is there.
pub(crate) fn make_dir(
    disk: &mut dyn Disk,
    path: &Path,
    layout: &Layout,
) -> Result<(), SpoolError> {
    let new = !path.exists();
    disk.make_dir(path)?;
    if new && layout.access.group {
        narrow(path, layout)?;
    }
    Ok(())
}

/// Takes an empty directory for a spool: somebody made it beforehand, as wide as directories are.
pub(crate) fn take_over(layout: &Layout) -> Result<(), SpoolError> {
    let dir = &layout.dir;
    let meta = fs::metadata(dir).map_err(|error| SpoolError::io("read", dir, error))?;
    check_owner(dir, &meta, layout)?;
    if meta.mode() & layout.access.refused() == 0 {
        return Ok(());
    }
    narrow(dir, layout)?;
    tracing::warn!(
        code = "spool.rights_tightened",
        dir = %dir.display(),
        from = format!("{:04o}", meta.mode() & 0o7777),
        to = format!("{:04o}", layout.access.dir_mode()),
        "the empty directory was open to others"
    );
    Ok(())
}

/// Gives a file that was just created the spool's rights, whatever the umask is, and its owner: root may
/// look after a spool without locking its owner out.
pub(crate) fn settle(file: &File, path: &Path, layout: &Layout) -> Result<(), SpoolError> {
    if layout.access.group {
        let mode = Permissions::from_mode(layout.access.file_mode());
        file.set_permissions(mode)
            .map_err(|error| SpoolError::io("set the rights of", path, error))?;
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let dir = &layout.dir;
    let owner = fs::metadata(dir).map_err(|error| SpoolError::io("read", dir, error))?;
    if owner.uid() == 0 {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()))
        .map_err(|error| SpoolError::io("set the owner of", path, error))
}

fn narrow(dir: &Path, layout: &Layout) -> Result<(), SpoolError> {
    let meta = fs::metadata(dir).map_err(|error| SpoolError::io("read", dir, error))?;
    // Where the directory hands its group on to what is made in it, that stays so.
    let mode = (meta.mode() & 0o2000) | layout.access.dir_mode();
    fs::set_permissions(dir, Permissions::from_mode(mode))
        .map_err(|error| SpoolError::io("set the rights of", dir, error))
}

fn names_in(dir: &Path) -> Result<Vec<PathBuf>, SpoolError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SpoolError::io("list", dir, error)),
    };
    entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| SpoolError::io("list", dir, error))
}

fn check_one(path: &Path, layout: &Layout) -> Result<(), SpoolError> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        // Not made yet, or retired since it was listed.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(SpoolError::io("read", path, error)),
    };
    check_owner(path, &meta, layout)?;
    if meta.mode() & layout.access.refused() == 0 {
        return Ok(());
    }
    let allowed = if meta.is_dir() {
        layout.access.dir_mode()
    } else {
        layout.access.file_mode()
    };
    let dir = layout.dir.display();
    let cure = if layout.access.group {
        format!("take away what is wider with `chmod -R o= {dir}`")
    } else {
        format!(
            "take away what is wider with `chmod -R go= {dir}`, or let its group in with the option group \
             (--group)"
        )
    };
    let mode = meta.mode() & 0o7777;
    Err(SpoolError::Rights {
        path: path.to_owned(),
        detail: format!("its mode is {mode:04o}, wider than {allowed:04o}: {cure}"),
    })
}

fn check_owner(path: &Path, meta: &Metadata, layout: &Layout) -> Result<(), SpoolError> {
    let user = rustix::process::geteuid();
    if layout.access.group || user.is_root() || meta.uid() == user.as_raw() {
        return Ok(());
    }
    let (owner, user) = (meta.uid(), user.as_raw());
    Err(SpoolError::Rights {
        path: path.to_owned(),
        detail: format!(
            "it belongs to user {owner}, this process is user {user}: run as the same user, or both in one \
             group with the option group (--group)"
        ),
    })
}
