//! A spool of format 1, opened by a writer of this release: its segments stay as they are, the
//! other files are written in format 2. Each step may be the last one of a process: the next writer
//! repeats it.

use crate::{
    SpoolError,
    folder::{Folder, MARK},
    format::{FORMAT, Identity},
    index::Index,
    losses::{Loss, LossWhy},
    mark,
    recovery::State,
};

/// Names the format in `spool.json` first, so that an older release refuses the later changes.
pub(crate) fn identity(folder: &Folder, identity: &mut Identity) -> Result<(), SpoolError> {
    if identity.format >= FORMAT {
        return Ok(());
    }
    let from = identity.format;
    identity.format = FORMAT;
    identity.write(folder)?;
    tracing::warn!(code = "spool.migrated", dir = %folder.dir().display(), from, to = FORMAT,
        "the spool has a newer format now: earlier releases cannot open it any more");
    Ok(())
}

/// Notes the gaps between segments, which format 1 did not note.
pub(crate) fn gaps(folder: &Folder, state: &mut State) -> Result<(), SpoolError> {
    if !is_old_mark_left(folder)? {
        return Ok(());
    }
    let dir = folder.segments()?;
    let kept: Vec<_> = state.kept.iter().copied().collect();
    for pair in kept.windows(2) {
        let [before, next] = pair else { continue };
        let Ok(index) = Index::open(dir, before.first) else {
            continue;
        };
        let mut covered = before.first;
        let mut number = 0;
        while let Some(entry) = index.entry(number)? {
            if entry.first >= next.first {
                break;
            }
            covered = covered.max(entry.end().min(next.first));
            number += 1;
        }
        if covered < next.first {
            state
                .losses
                .push(Loss::new(covered, next.first, LossWhy::Lost));
        }
    }
    Ok(())
}

/// Clears the slots of format 1, so that a reader of an earlier release ends instead of waiting for
/// ever.
pub(crate) fn old_slots(folder: &Folder, state: &State) -> Result<(), SpoolError> {
    if !is_old_mark_left(folder)? {
        return Ok(());
    }
    let path = folder.root().join(MARK);
    let zeros = [0; mark::OLD_BYTES];
    folder.disk().publish(&state.mark, &path, &zeros, 0)?;
    folder.disk().sync(&state.mark, &path)
}

/// Whether the durable mark still has slots of format 1.
fn is_old_mark_left(folder: &Folder) -> Result<bool, SpoolError> {
    let root = folder.root();
    mark::has_old_slots(&root.read_file(MARK)?, &root.join(MARK))
}
