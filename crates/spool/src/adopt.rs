//! Making a spool of its own out of a copy.
//!
//! A spool restored from a backup has the identity of the original, which may have gone on: both would
//! give out the same positions for different events. So the copy gets a new UUID; readers and recovery
//! go on to accept the files that carry the old one, which `spool.json` names as `formerly`.

use std::{collections::BTreeSet, fs::File, path::Path};

use crate::{
    Access, SpoolError,
    consumers::{self, lock_file, replace},
    disk::RealDisk,
    format::{DurableMark, Identity, Layout},
    key, lease,
    lock::{Lock, Taken},
    rights,
};

/// What adopting a spool did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The UUID before.
    pub old: String,
    /// The UUID now.
    pub new: String,
    /// Consumers whose marks stood above the durable position of the copy and were lowered to it.
    pub lowered: Vec<String>,
}

/// Gives the spool in `dir` a new UUID. Events and marks stay; checkpoints of the old one no longer fit.
///
/// # Errors
/// `spool.locked` while a writer has it, `spool.consumer_busy` while a reader holds one of its consumers,
/// `spool.not_a_spool`, `spool.rights`, `spool.corrupt`, `spool.io`.
pub fn adopt(dir: &Path, access: Access) -> Result<Adopted, SpoolError> {
    let layout = Layout::new(dir).with(access);
    let path = layout.identity();
    let identity = Identity::read(&path)?.ok_or_else(|| SpoolError::NotASpool {
        dir: dir.to_owned(),
        detail: "it has no spool.json".to_owned(),
    })?;
    rights::check(&layout)?;
    let _writer = Lock::writer(&layout)?;
    let marks = consumers::list(&layout)?;
    let mut held = Vec::new();
    // A reader that has not committed yet has a lock and no mark.
    let locks = consumers::names(&layout, consumers::LOCK)?;
    let marked = marks.iter().map(|mark| mark.name.clone());
    for name in marked.chain(locks).collect::<BTreeSet<_>>() {
        match Lock::take(&lock_file(&layout, &name), &layout)? {
            Taken::Ours(lock) => held.push(lock),
            Taken::Theirs(other) => return Err(lease::busy(&layout, &name, &other)),
        }
    }
    let mut new =
        Identity::random().map_err(|error| SpoolError::io("draw a UUID for", &path, error))?;
    new.formerly.clone_from(&identity.formerly);
    new.formerly.push(identity.uuid.clone());
    let durable = layout.durable();
    let mark = File::open(&durable).map_err(|error| SpoolError::io("open", &durable, error))?;
    let durable = DurableMark::read(&mark, &durable)?;
    let mut lowered = Vec::new();
    for mut mark in marks {
        // It was copied later than the events: what it counts as done was given to others here.
        if mark.committed > durable {
            mark.committed = durable;
            consumers::write(&mut RealDisk, &layout, &identity, &mark)?;
            lowered.push(mark.name);
        }
    }
    key::renew(&mut RealDisk, &layout)?;
    let temporary = path.with_extension("json.tmp");
    replace(&mut RealDisk, &layout, &path, &temporary, &new.encode())?;
    tracing::warn!(code = "spool.adopted", dir = %dir.display(), old = identity.uuid, new = new.uuid,
        "a spool has a new identity");
    Ok(Adopted {
        old: identity.uuid,
        new: new.uuid,
        lowered,
    })
}
