//! The durable mark in recovery: opening, raising its epoch, and publishing.

use std::fs::File;

use super::State;
use crate::{
    SpoolError, consumers,
    folder::{Folder, MARK},
    mark::{self, Mark},
    start::Start,
};

/// Opens the durable mark and reads it.
pub(super) fn open_mark(
    folder: &Folder,
    start: Option<&Start>,
    firsts: &[u64],
) -> Result<(File, Mark), SpoolError> {
    let root = folder.root();
    let path = root.join(MARK);
    if !root.has(MARK)? {
        if !firsts.is_empty() || start.is_some() {
            say_rebuilt(folder, "it is missing");
        }
        // The mark is complete from its creation: a mark without a sound slot is damaged. Without a
        // start file a spool of format 1 has only its segments' names.
        let named = firsts.last().copied().unwrap_or(0);
        let mark = Mark {
            position: start.map_or(named, |start| start.position),
            ..Mark::default()
        };
        folder.replace(root, MARK, &mark.file())?;
    }
    let file = folder.disk().open(root, MARK)?;
    let mark = match Mark::read(&file, &path) {
        Ok(mark) => mark,
        Err(error @ SpoolError::Corrupt { .. }) => {
            let known = start.map(|start| start.position);
            let Some(position) = known.or(firsts.last().copied()) else {
                let detail = format!(
                    "{error}, and there is no segment to rebuild it from; the spool holds no events: move \
                     it away and begin a new one"
                );
                return Err(SpoolError::corrupt(&path, detail));
            };
            say_rebuilt(folder, "no slot of it is sound");
            Mark {
                position,
                ..Mark::default()
            }
        }
        Err(error) => return Err(error),
    };
    Ok((file, mark))
}

pub(super) fn say_rebuilt(folder: &Folder, why: &str) {
    tracing::error!(code = "spool.mark_rebuilt", dir = %folder.dir().display(), why,
        "the durable mark is rebuilt from the last segment, whose sound groups all count; what the disk may \
         have lost behind them cannot be told");
}

/// Raises the epoch in both slots of the durable mark, and checks that both hold it: an older
/// writer's pending publication may have overwritten one of them.
pub(super) fn raise(folder: &Folder, state: &mut State) -> Result<(), SpoolError> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| SpoolError::io("draw an epoch for", folder.dir(), error.into()))?;
    let random = u64::from(u32::from_le_bytes(random));
    let path = folder.root().join(MARK);
    let marks = consumers::newest_epoch(folder)?;
    let mut newest = state.former_epoch.max(marks).max(state.published.epoch);
    for _ in 0..MAX_RAISES {
        state.published.epoch = (newest >> 32).saturating_add(1) << 32 | random;
        publish(folder, state)?;
        let slots = mark::slots(&state.mark, &path)?;
        for slot in slots.into_iter().flatten() {
            state.recovered.position = state.recovered.position.max(slot.position);
        }
        let epochs = slots.map(|slot| slot.map_or(0, |slot| slot.epoch));
        if epochs == [state.published.epoch; 2] {
            return Ok(());
        }
        newest = epochs.into_iter().fold(state.published.epoch, u64::max);
    }
    Err(SpoolError::Fenced {
        dir: folder.dir().to_owned(),
        ours: state.published.epoch,
        newer: newest,
    })
}

/// Writes the durable mark into both slots, and syncs each.
pub(crate) fn publish(folder: &Folder, state: &mut State) -> Result<(), SpoolError> {
    let path = folder.root().join(MARK);
    for _ in 0..2 {
        state.published.generation += 1;
        state.published.watched_us = state.watch.watched_us();
        let (slot, at) = state.published.encode();
        folder.disk().publish(&state.mark, &path, &slot, at)?;
        // If one of them is damaged, the other one is sound.
        folder.disk().sync(&state.mark, &path)?;
    }
    Ok(())
}

/// An older writer publishes at most once after it was replaced.
const MAX_RAISES: u32 = 8;
