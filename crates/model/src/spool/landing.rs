//! The steps in which a writer makes a group durable, and those after a failed sync.

use super::{
    Break, EMPTY, Plan, State,
    disk::{Bytes, Cell, Index, Segment, len},
    properties::Fault,
    writer::{Landing, Next, Writer},
};

impl Plan {
    /// Takes an event, unless a newer writer is there.
    pub(crate) fn admit(&self, state: &mut State, who: usize) {
        if state.left.groups == 0 {
            return;
        }
        state.left.groups -= 1;
        state.writers[who].id = state.left.groups + 1;
        self.check(state, who, Landing::Write);
    }

    /// Goes on with a step if this is the newest writer, and its segment is still in its place.
    fn check(&self, state: &mut State, who: usize, next: Landing) {
        let Writer { epoch, active, .. } = state.writers[who];
        let is_in_place = active.is_none_or(|first| {
            state
                .segment(first)
                .is_some_and(|segment| segment.owner == epoch)
        });
        let is_skipped = match self.broken {
            Some(Break::SkipCheck) => true,
            Some(Break::CheckBefore) => next == Landing::Publish,
            _ => false,
        };
        if is_skipped || (state.mark().epoch == epoch && is_in_place) {
            state.writers[who].next = Next::Landing(next);
        } else {
            state.end(who);
        }
    }

    pub(crate) fn land(&self, state: &mut State, who: usize, step: Landing) {
        let next = match step {
            Landing::Write => self.write(state, who),
            Landing::SyncGroup => Some(sync_group(state, who)),
            Landing::SyncEntry => Some(sync_entry(state, who)),
            Landing::Check => return self.check(state, who, Landing::Publish),
            Landing::Publish => Some(publish_landed(state, who)),
            Landing::Ack => return ack(state, who),
            Landing::CutFirst => self.cut(state, who, !self.has(Break::CutBodyFirst)),
            Landing::CutSecond => self.cut(state, who, self.has(Break::CutBodyFirst)),
        };
        let next = match next {
            Some(Landing::SyncEntry) if self.has(Break::PublishBeforeSync) => Some(Landing::Check),
            next => next,
        };
        if state.writers[who].next != Next::Gone {
            state.writers[who].next = next.map_or(Next::Ready, Next::Landing);
        }
    }

    /// Writes a group, into a new segment if need be.
    fn write(&self, state: &mut State, who: usize) -> Option<Landing> {
        let newest = state.mark().epoch;
        let writer = &mut state.writers[who];
        let Writer {
            epoch,
            position,
            id,
            active,
            ..
        } = *writer;
        writer.is_late = newest != epoch;
        let is_full = |segment: &Segment| segment.groups.len() >= SEGMENT_GROUPS;
        let active = active.filter(|first| !state.segment(*first).is_some_and(|one| is_full(one)));
        let first = active.unwrap_or(position);
        if active.is_none() {
            let is_taken = state.segment(first).is_some();
            if is_taken && newest != epoch && !self.has(Break::RemoveForeign) {
                state.end(who);
                return None;
            }
            state.insert(Segment {
                first,
                owner: epoch,
                groups: Vec::new(),
                index: Cell::durable(EMPTY),
            });
            state.writers[who].active = Some(first);
        }
        if let Some(segment) = state.own(who) {
            let mut group = Cell::durable(Bytes::Absent);
            group.write(Bytes::Sound(id));
            segment.groups.push(group);
        }
        Some(Landing::SyncGroup)
    }

    /// The sync that a writer waits for fails.
    pub(crate) fn fail_sync(&self, state: &mut State, who: usize) {
        state.left.failures -= 1;
        let next = state.writers[who].next;
        if let Some(segment) = state.own(who) {
            match segment.groups.last_mut() {
                Some(group) if next == Next::Landing(Landing::SyncGroup) => group.fail(),
                _ => segment.index.fail(),
            }
        }
        if self.has(Break::SkipCut) {
            state.writers[who].next = Next::Ready;
        } else if !self.has(Break::RetrySync) {
            state.writers[who].next = Next::Landing(Landing::CutFirst);
        }
    }

    /// Leaves a failed segment as it is.
    pub(crate) fn fail_cut(&self, state: &mut State, who: usize) {
        state.left.failures -= 1;
        self.leave(state, who);
    }

    /// Cuts the entry or the group that a failed sync may have left.
    fn cut(&self, state: &mut State, who: usize, is_entry: bool) -> Option<Landing> {
        let Writer { position, next, .. } = state.writers[who];
        if let Some(segment) = state.own(who) {
            let count = position - segment.first;
            if is_entry {
                segment.index = Cell::durable(Index::Names(count));
            } else {
                segment.groups.truncate(usize::from(count));
            }
        }
        if next == Next::Landing(Landing::CutFirst) {
            return Some(Landing::CutSecond);
        }
        self.leave(state, who);
        None
    }

    /// Leaves a failed segment, and removes its files if they have no durable group and this writer made them.
    fn leave(&self, state: &mut State, who: usize) {
        let Writer {
            position,
            epoch,
            active,
            ..
        } = state.writers[who];
        let removes_all = self.has(Break::RemoveForeign);
        if active == Some(position) {
            state
                .segments
                .retain(|one| one.first != position || (one.owner != epoch && !removes_all));
        }
        state.writers[who].active = None;
        state.writers[who].next = Next::Ready;
    }
}

/// Syncs a group, and writes its entry.
fn sync_group(state: &mut State, who: usize) -> Landing {
    if let Some(segment) = state.own(who) {
        segment.groups.iter_mut().for_each(Cell::sync);
        segment.index.write(Index::Names(len(&segment.groups)));
    }
    Landing::SyncEntry
}

/// Syncs an entry.
fn sync_entry(state: &mut State, who: usize) -> Landing {
    if let Some(segment) = state.own(who) {
        segment.index.sync();
    }
    Landing::Check
}

/// Publishes a group, unsynced.
fn publish_landed(state: &mut State, who: usize) -> Landing {
    let Writer { position, id, .. } = state.writers[who];
    state.publish(who, position + 1, false);
    state.judge_given(position, id);
    state.writers[who].position += 1;
    Landing::Ack
}

/// Acknowledges a group.
fn ack(state: &mut State, who: usize) {
    let Writer {
        position, is_late, ..
    } = state.writers[who];
    if is_late {
        state.fault.get_or_insert(Fault::Unfenced);
    }
    state.judge_durable(position);
    let writer = &mut state.writers[who];
    writer.next = Next::Ready;
    (writer.id, writer.is_late) = (0, false);
}

/// Groups of a full segment.
const SEGMENT_GROUPS: usize = 2;
