//! The steps in which a writer opens the spool.

use super::{
    Break, Plan, State,
    disk::{Bytes, Cell, Index, Segment, Slot, range},
    properties::Fault,
    writer::{Next, Opening, Writer},
};

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Found {
    pub(super) position: u8,
    /// Positions that cannot be read: a bit for each.
    pub(super) lost: u8,
    /// The position after the events that are lost at the end, or with a segment; 0 for none.
    pub(super) bare: u8,
    /// Segments without a sound group, and those below the start.
    pub(super) aside: Vec<u8>,
    /// The last segment with a group, and how many of its groups are kept.
    pub(super) last: Option<(u8, u8)>,
}

impl Plan {
    pub(crate) fn open(&self, state: &mut State, who: usize, step: Opening) {
        let next = match step {
            Opening::Raise | Opening::RaiseOther => raise(state, who, step),
            Opening::ReadBack => self.read_back(state, who),
            Opening::Scan => self.scan(state, who),
            Opening::Note => note(state, who),
            Opening::Settle => settle(state, who),
            Opening::SetAside => set_aside(state, who),
            Opening::Rewrite | Opening::RewriteOther => self.rewrite(state, who, step),
            Opening::Shorten => shorten(state, who),
            Opening::Publish => publish_opened(state, who),
            Opening::WriteStart => self.write_start(state, who),
        };
        // The step may have ended the writer.
        if state.writers[who].next != Next::Gone {
            state.writers[who].next = match next {
                Some(step) => Next::Opening(step),
                None => self.after(state, who, step),
            };
        }
    }

    /// The order of the steps of opening.
    fn after(&self, state: &State, who: usize, step: Opening) -> Next {
        let is_early = self.has(Break::ScanBeforeRaise);
        let is_note_last = self.has(Break::NoteLast);
        let is_aside_first = self.has(Break::AsideFirst);
        let last = state.writers[who].found.last;
        let rewrites = last.is_some_and(|(_, count)| count > 0) && !self.has(Break::SkipRewrite);
        let rewrite = if rewrites {
            Opening::Rewrite
        } else {
            Opening::Shorten
        };
        Next::Opening(match step {
            Opening::Raise => Opening::RaiseOther,
            Opening::RaiseOther => Opening::ReadBack,
            Opening::ReadBack if is_early => Opening::Note,
            Opening::ReadBack => Opening::Scan,
            Opening::Scan if is_early => Opening::Raise,
            Opening::Scan if is_aside_first => Opening::SetAside,
            Opening::Scan if is_note_last => Opening::Settle,
            Opening::SetAside if is_aside_first => Opening::Note,
            Opening::Scan => Opening::Note,
            Opening::Note if is_note_last => Opening::Publish,
            Opening::Note => Opening::Settle,
            Opening::Settle if is_aside_first => rewrite,
            Opening::Settle => Opening::SetAside,
            Opening::SetAside => rewrite,
            Opening::Rewrite => Opening::RewriteOther,
            Opening::RewriteOther => Opening::Shorten,
            Opening::Shorten if is_note_last => Opening::Note,
            Opening::Shorten => Opening::Publish,
            Opening::Publish => Opening::WriteStart,
            Opening::WriteStart => return Next::Ready,
        })
    }

    /// Raises the epoch again if a replaced writer has written over a slot after its last check: its next check must
    /// find the epoch in the other slot.
    fn read_back(&self, state: &State, who: usize) -> Option<Opening> {
        let epoch = state.writers[who].epoch;
        let is_ours =
            |slot: &Cell<Option<Slot>>| slot.cache.is_some_and(|slot| slot.epoch == epoch);
        let is_raised = self.has(Break::SkipReadBack) || state.slots.iter().all(is_ours);
        (!is_raised).then_some(Opening::Raise)
    }

    /// Scans the spool without a change.
    fn scan(&self, state: &mut State, who: usize) -> Option<Opening> {
        let (mark, start) = (state.mark(), state.start);
        let mut found = Found {
            position: mark.position,
            ..Found::default()
        };
        if !self.has(Break::StartWithoutPosition) {
            found.position = found.position.max(start.position);
        }
        if let Some((first, end)) = state.orphan.filter(|(first, _)| *first >= start.first) {
            let next = state.segments.iter().find(|one| one.first > first);
            found.lost |= range(first, next.map_or(end, |next| end.min(next.first)));
            found.position = found.position.max(end);
            found.bare = end;
        }
        let mut below = u8::MAX;
        for segment in state.segments.iter().rev() {
            if segment.first < start.first || found.last.is_some() {
                if segment.first < start.first {
                    found.aside.push(segment.first);
                }
                continue;
            }
            let kept = self.examine(segment, &mut below, &mut found);
            if kept == 0 {
                found.aside.push(segment.first);
            } else {
                found.last = Some((segment.first, kept));
            }
        }
        if self.has(Break::MarkAlone) {
            found.position = mark.position;
        }
        state.writers[who].found = found;
        self.look_at_marks(state, who);
        None
    }

    /// Returns how many groups of a segment count, up to the last sound one.
    fn examine(&self, segment: &Segment, below: &mut u8, found: &mut Found) -> u8 {
        let room = below.saturating_sub(segment.first);
        let known = segment.known(!self.has(Break::NoSeals)).min(room);
        let last = (0..known).rfind(|at| segment.group(*at).is_some());
        let kept = last.map_or(0, |last| last + 1);
        let holes = (0..kept).filter(|at| segment.group(*at).is_none());
        found.lost |= holes.fold(0, |all, at| all | 1 << (segment.first + at));
        let (end, claimed) = (segment.first + kept, segment.first + known);
        found.position = found.position.max(claimed);
        if end < found.position {
            found.lost |= range(end, found.position);
            found.bare = found.position;
            if !self.has(Break::IgnoreBelow) {
                *below = segment.first;
            }
        }
        kept
    }

    /// Refuses a spool that ends below a consumer's mark.
    fn look_at_marks(&self, state: &mut State, who: usize) {
        let (consumer, mark) = (state.consumer, state.mark());
        if self.has(Break::SkipMarks) || consumer.position <= state.writers[who].found.position {
            return;
        }
        let newest = if self.has(Break::RestoredByMark) {
            mark.epoch.max(state.start.epoch)
        } else {
            state.start.epoch
        };
        let says_restored = consumer.epoch > newest;
        if says_restored != state.past.is_restored
            || !(state.past.is_restored || state.past.damaged != 0)
        {
            state.fault = Some(Fault::Misnamed);
        }
        state.writers[who] = Writer::default();
    }

    /// Writes the last group anew: its index first if it replaces one, so that no entry of a replaced writer
    /// counts; the segment first if both are new, so that no index is without a segment.
    fn rewrite(&self, state: &mut State, who: usize, step: Opening) -> Option<Opening> {
        let is_alone = state.writers[who]
            .found
            .last
            .is_some_and(|(_, kept)| kept == 1);
        let is_index_first = is_alone || self.has(Break::IndexFirst);
        if is_index_first == (step == Opening::Rewrite) {
            rewrite_index(state, who)
        } else {
            rewrite_group(state, who)
        }
    }

    /// Writes `start`, under the lock.
    fn write_start(&self, state: &mut State, who: usize) -> Option<Opening> {
        if state.retire.is_locked() {
            return Some(Opening::WriteStart);
        }
        let Writer {
            epoch,
            start,
            position,
            ..
        } = state.writers[who];
        if self.has(Break::StartFromMemory) {
            state.start = start;
        }
        state.start.epoch = state.start.epoch.max(epoch);
        state.start.position = state.start.position.max(position);
        None
    }
}

/// Raises the epoch, in one slot. The position is the higher one of both slots.
fn raise(state: &mut State, who: usize, step: Opening) -> Option<Opening> {
    let position = state
        .slots
        .iter()
        .filter_map(|slot| slot.cache)
        .map(|slot| slot.position);
    let position = position.max().unwrap_or(state.mark().position);
    if step == Opening::Raise {
        let mark = state.mark();
        let known = mark.epoch.max(state.start.epoch).max(state.consumer.epoch);
        let writer = &mut state.writers[who];
        (writer.epoch, writer.generation) = (known + 1, mark.generation);
        writer.start = state.start;
    }
    state.publish(who, position, true);
    None
}

/// Notes the positions that cannot be read.
fn note(state: &mut State, who: usize) -> Option<Opening> {
    state.losses |= state.writers[who].found.lost;
    None
}

/// Publishes the position, if the group that has it goes.
fn settle(state: &mut State, who: usize) -> Option<Opening> {
    let bare = state.writers[who].found.bare;
    if bare > 0 {
        let position = bare.max(state.mark().position);
        state.publish_both(who, position);
    }
    None
}

/// Sets aside the segments without a sound group.
fn set_aside(state: &mut State, who: usize) -> Option<Opening> {
    let aside = &state.writers[who].found.aside;
    state
        .segments
        .retain(|segment| !aside.contains(&segment.first));
    state.orphan = None;
    None
}

/// Writes the last group anew as a segment of its own.
fn rewrite_group(state: &mut State, who: usize) -> Option<Opening> {
    let Writer {
        epoch, ref found, ..
    } = state.writers[who];
    let (first, kept) = found.last?;
    let (last, was_alone) = (first + kept - 1, kept == 1);
    let old = state.segments.iter().find(|one| one.first == first);
    let Some((old, Some(id))) = old.map(|old| (old, old.group(kept - 1))) else {
        // A replaced writer has cut the segment since the scan; the next writer finds the rest.
        state.end(who);
        return None;
    };
    let group = Cell::durable(Bytes::Sound(id));
    let index = if was_alone {
        old.index
    } else {
        Cell::durable(Index::Torn)
    };
    let is_indexed = state.orphan == Some((last, last + 1));
    state.orphan = state.orphan.filter(|_| !is_indexed);
    state.insert(Segment {
        first: last,
        owner: epoch,
        groups: vec![group],
        index: if is_indexed {
            Cell::durable(Index::Names(1))
        } else {
            index
        },
    });
    None
}

/// Writes the index of the last group anew.
fn rewrite_index(state: &mut State, who: usize) -> Option<Opening> {
    let Writer {
        epoch, ref found, ..
    } = state.writers[who];
    let (first, kept) = found.last?;
    let last = first + kept - 1;
    match state.segment(last) {
        Some(segment) if segment.group(0).is_some() => {
            segment.index = Cell::durable(Index::Names(1));
            segment.owner = epoch;
        }
        // A replaced writer has cut the group since the scan.
        Some(_) => state.end(who),
        None if kept == 1 => state.end(who),
        None => state.orphan = Some((last, last + 1)),
    }
    None
}

/// Ends the old segment before the group that was written anew.
fn shorten(state: &mut State, who: usize) -> Option<Opening> {
    let Writer {
        epoch, ref found, ..
    } = state.writers[who];
    let (first, kept) = found.last?;
    let has_moved = state
        .segments
        .iter()
        .any(|one| kept > 1 && one.first == first + kept - 1);
    let kept = if has_moved { kept - 1 } else { kept };
    let segment = state.segment(first)?;
    segment.owner = epoch;
    segment.groups.truncate(usize::from(kept));
    if has_moved || segment.index.cache != Index::Names(kept) {
        segment.index = Cell::durable(Index::Names(kept));
    }
    None
}

/// Publishes the position that the scan has found.
fn publish_opened(state: &mut State, who: usize) -> Option<Opening> {
    let position = std::mem::take(&mut state.writers[who].found).position;
    state.writers[who].position = position;
    state.publish_both(who, position);
    state.judge_opened(position);
    None
}
