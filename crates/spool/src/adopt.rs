//! Making an independent spool of a copy.
//!
//! A spool restored from a backup has the identity of the original, which may have continued: both
//! would give the same positions to different events. So the copy gets a new UUID; readers and
//! recovery still accept the files with the old one, which `spool.json` names as `formerly`.

use std::{collections::BTreeSet, path::Path};

use crate::{
    Access, SpoolError,
    consumers::{self, lock_file},
    folder::{Folder, IDENTITY},
    format::Identity,
    key, lease,
    lock::{Lock, Taken},
    mark, migrate, rights,
    spool::{folder_of, identity_of},
    start::Start,
};

/// The result of adopting a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The UUID before.
    pub old: String,
    /// The UUID now.
    pub new: String,
    /// Consumers whose marks were above the durable position of the copy and were lowered to it.
    pub lowered: Vec<String>,
}

/// Gives the spool in `dir` a new UUID. Events and marks stay; checkpoints of the old one no longer fit.
///
/// # Errors
/// `spool.locked` while a writer has it, `spool.consumer_busy` while a reader holds one of its consumers,
/// `spool.marks_busy`, `spool.not_a_spool`, `spool.rights`, `spool.corrupt`, `spool.io`.
pub fn adopt(dir: &Path, access: Access) -> Result<Adopted, SpoolError> {
    let (folder, mut identity) = open(dir, access)?;
    let _writer = Lock::writer(&folder)?;
    let _marks = Lock::marks(&folder)?;
    let _held = hold_consumers(&folder)?;
    migrate::identity(&folder, &mut identity)?;
    let lowered = lower_marks(&folder, &identity)?;
    key::renew(&folder)?;
    let drawn = Identity::random()
        .map_err(|error| SpoolError::io("draw a UUID for", &folder.root().join(IDENTITY), error))?;
    let mut new = identity.clone();
    new.formerly
        .push(std::mem::replace(&mut new.uuid, drawn.uuid));
    new.write(&folder)?;
    name_start(&folder, &new)?;
    tracing::warn!(code = "spool.adopted", dir = %dir.display(), old = identity.uuid, new = new.uuid,
        "a spool has a new identity");
    Ok(Adopted {
        old: identity.uuid,
        new: new.uuid,
        lowered,
    })
}

fn open(dir: &Path, access: Access) -> Result<(Folder, Identity), SpoolError> {
    let folder = folder_of(dir, access)?;
    let identity = identity_of(&folder)?;
    rights::check(&folder)?;
    Ok((folder, identity))
}

/// Takes all consumers. A reader that has not committed yet has a lock and no mark.
fn hold_consumers(folder: &Folder) -> Result<Vec<Lock>, SpoolError> {
    let mut names: BTreeSet<_> = consumers::names(folder, consumers::MARK)?
        .into_iter()
        .collect();
    names.extend(consumers::names(folder, consumers::LOCK)?);
    let hold = |name: &String| match Lock::take(folder.consumers()?, &lock_file(name), folder)? {
        Taken::Ours(lock) => Ok(lock),
        Taken::Theirs(other) => Err(lease::busy(folder, name, &other)),
    };
    names.iter().map(hold).collect()
}

/// Lowers marks above the durable position to it. Returns the names of their consumers. They were
/// copied later than the events: here their positions go to other events.
fn lower_marks(folder: &Folder, identity: &Identity) -> Result<Vec<String>, SpoolError> {
    let durable = mark::Mark::of(folder)?;
    let mut lowered = Vec::new();
    for mut mark in consumers::list(folder)? {
        if mark.committed > durable.position {
            mark.committed = durable.position;
            mark.epoch = durable.epoch;
            consumers::write(folder, identity, &mark)?;
            lowered.push(mark.name);
        }
    }
    Ok(lowered)
}

/// Writes the new UUID into the file `start`. The next writer rebuilds a damaged one.
fn name_start(folder: &Folder, identity: &Identity) -> Result<(), SpoolError> {
    let start = match Start::read(folder) {
        Err(SpoolError::Corrupt { .. }) => None,
        start => start?,
    };
    let uuid = identity.uuid.clone();
    start.map_or(Ok(()), |start| Start { uuid, ..start }.write(folder))
}
