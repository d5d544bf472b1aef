//! The durable mark: the position below which events are durable, and the writer's epoch.
//!
//! Two slots, each in a sector of its own, are written in turn, so that a torn write leaves the
//! other one. Readers see nothing above the mark. A writer raises the epoch when it opens the spool
//! and checks it before each publication: a writer that finds a newer one has been replaced.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use crate::{
    SpoolError,
    folder::{Folder, MARK},
    format::{array, is_sealed, seal},
};

/// The content of one slot of the durable mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Every event below is durable.
    pub(crate) position: u64,
    /// The epoch of the writer that wrote it; 0 in format 1.
    pub(crate) epoch: u64,
    /// Counts the publications.
    pub(crate) generation: u64,
    /// The time for which writers have watched the spool, in microseconds.
    pub(crate) watched_us: u64,
}

impl Mark {
    /// The bytes of its slot, and their offset in the file.
    pub(crate) fn encode(&self) -> ([u8; SLOT_BYTES], u64) {
        let mut out = [0; SLOT_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..16].copy_from_slice(&self.position.to_le_bytes());
        out[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        out[24..32].copy_from_slice(&self.generation.to_le_bytes());
        out[32..40].copy_from_slice(&self.watched_us.to_le_bytes());
        seal(&mut out);
        (out, SLOTS[usize::from(self.generation % 2 == 1)])
    }

    /// A whole file with this mark in both slots.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        for generation in [self.generation, self.generation + 1] {
            let (slot, at) = Self {
                generation,
                ..*self
            }
            .encode();
            let at = usize::try_from(at).unwrap_or_default();
            bytes[at..at + SLOT_BYTES].copy_from_slice(&slot);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let sound = bytes[..8] == *MAGIC && is_sealed(bytes);
        sound.then(|| Self {
            position: u64::from_le_bytes(array(bytes, 8)),
            epoch: u64::from_le_bytes(array(bytes, 16)),
            generation: u64::from_le_bytes(array(bytes, 24)),
            watched_us: u64::from_le_bytes(array(bytes, 32)),
        })
    }

    /// The mark of the spool in this folder, as [`read`](Self::read) finds it.
    pub(crate) fn of(folder: &Folder) -> Result<Self, SpoolError> {
        let root = folder.root();
        Self::read(&root.read_file(MARK)?, &root.join(MARK))
    }

    /// The newest sound slot; in a spool of format 1 that no writer has opened since, the higher
    /// one.
    ///
    /// # Errors
    /// `spool.corrupt` when no slot is sound, `spool.io`.
    pub(crate) fn read(file: &File, path: &Path) -> Result<Self, SpoolError> {
        let slots = slots(file, path)?;
        let newest = slots.into_iter().flatten();
        if let Some(mark) = newest.max_by_key(|mark| (mark.epoch, mark.generation)) {
            return Ok(mark);
        }
        let old = old_slots(file, path)?.into_iter().flatten().max();
        let position =
            old.ok_or_else(|| SpoolError::corrupt(path, "no slot of the durable mark is sound"))?;
        Ok(Self {
            position,
            ..Self::default()
        })
    }
}

/// Whether the file is as format 1 wrote it.
pub(crate) fn is_old(file: &File, path: &Path) -> Result<bool, SpoolError> {
    let has_new = slots(file, path)?.iter().any(Option::is_some);
    Ok(!has_new && old_slots(file, path)?.iter().any(Option::is_some))
}

/// Whether slots of format 1 are still in the file.
pub(crate) fn has_old_slots(file: &File, path: &Path) -> Result<bool, SpoolError> {
    Ok(old_slots(file, path)?.iter().any(Option::is_some))
}

/// Names each unsound slot: the other one may be a group commit behind.
pub(crate) fn problems(file: &File, path: &Path) -> Result<Vec<String>, SpoolError> {
    let mut torn = vec![0, 1];
    let is_old = is_old(file, path)?;
    // A writer may be writing one of them: an unsound slot may be sound the next time.
    for _ in 0..3 {
        let sound = if is_old {
            old_slots(file, path)?.map(|slot| slot.is_some())
        } else {
            slots(file, path)?.map(|slot| slot.is_some())
        };
        torn.retain(|slot: &usize| !sound[*slot]);
    }
    let name = |slot: usize| {
        let (begin, len) = if is_old {
            (slot * OLD_SLOT_BYTES, OLD_SLOT_BYTES)
        } else {
            (usize::try_from(SLOTS[slot]).unwrap_or_default(), SLOT_BYTES)
        };
        let (end, path) = (begin + len, path.display());
        format!(
            "{path}: slot {slot} of the durable mark (bytes {begin} to {end}) is not sound; the other \
             one may hide newer events until a writer opens the spool"
        )
    };
    Ok(torn.into_iter().map(name).collect())
}

/// Both slots, as far as they are sound.
pub(crate) fn slots(file: &File, path: &Path) -> Result<[Option<Mark>; 2], SpoolError> {
    let mut found = [None; 2];
    for (slot, at) in found.iter_mut().zip(SLOTS) {
        let mut bytes = [0; SLOT_BYTES];
        read_at(file, path, &mut bytes, at)?;
        *slot = Mark::decode(&bytes);
    }
    Ok(found)
}

fn old_slots(file: &File, path: &Path) -> Result<[Option<u64>; 2], SpoolError> {
    let mut bytes = [0; 2 * OLD_SLOT_BYTES];
    read_at(file, path, &mut bytes, 0)?;
    let position = |slot: &[u8]| {
        let sound = slot[..8] == *OLD_MAGIC && is_sealed(slot);
        sound.then(|| u64::from_le_bytes(array(slot, 8)))
    };
    let (first, second) = bytes.split_at(OLD_SLOT_BYTES);
    Ok([position(first), position(second)])
}

/// Reads the existing bytes; bytes after the end of the file are 0.
fn read_at(file: &File, path: &Path, bytes: &mut [u8], at: u64) -> Result<(), SpoolError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SpoolError::io("read", path, error)),
        }
    }
    Ok(())
}

/// The bytes of the two slots of format 1, which are cleared when a spool is migrated.
pub(crate) const OLD_BYTES: usize = 2 * OLD_SLOT_BYTES;

const SLOT_BYTES: usize = 64;
const OLD_SLOT_BYTES: usize = 24;

/// Each slot in a sector of its own, whether sectors have 512 or 4,096 bytes.
const SLOTS: [u64; 2] = [4_096, 8_192];
const FILE_BYTES: usize = 8_192 + SLOT_BYTES;
const MAGIC: &[u8; 8] = b"ACKLDUR2";
const OLD_MAGIC: &[u8; 8] = b"ACKLDUR1";
