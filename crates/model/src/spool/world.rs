//! The steps around the writers: retention, a consumer, and every fault.

use super::{
    Action, Break, Past, Plan, State,
    disk::{Bytes, Cell, Index, Segment, Slot, Start, range},
    writer::{Landing, Next, Opening, Writer},
};

/// A consumer's mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Consumer {
    /// Every event below is done with.
    pub position: u8,
    /// The epoch of the durable mark when it was written.
    pub epoch: u8,
}

/// A sweep of retention by this writer; `to`: the new first position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "a writer and a position")]
pub enum Retire {
    /// None.
    Idle,
    /// The consumer's mark is read.
    Looked { who: usize, to: u8, is_locked: bool },
    /// The lock is free, and the files have still to be removed.
    Removing { who: usize, to: u8 },
    /// The files are removed, before `start` is written.
    Removed { who: usize, to: u8 },
}

impl Retire {
    /// Whether it holds the lock that a seek back takes.
    pub fn is_locked(self) -> bool {
        matches!(
            self,
            Self::Looked {
                is_locked: true,
                ..
            } | Self::Removed { .. }
        )
    }

    /// Whether this writer does the sweep.
    pub fn is_of(self, writer: usize) -> bool {
        match self {
            Self::Idle => false,
            Self::Looked { who, .. } | Self::Removing { who, .. } | Self::Removed { who, .. } => {
                who == writer
            }
        }
    }
}

/// Damage on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Damage of a segment's group.
    Group(u8, usize),
    /// Damage of a segment's index.
    Index(u8),
    /// Damage of a slot of the durable mark.
    Slot(usize),
    /// A segment is removed by hand; its index stays.
    Unlink(u8),
}

/// A copy of a spool, without the consumer's mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backup {
    slots: [Cell<Option<Slot>>; 2],
    segments: Vec<Segment>,
    orphan: Option<(u8, u8)>,
    start: Start,
    losses: u8,
    past: Past,
}

impl Plan {
    /// Returns the next steps of the processes.
    pub(crate) fn work(state: &State, actions: &mut Vec<Action>) {
        for (who, writer) in state.writers.iter().enumerate() {
            match writer.next {
                Next::Gone => continue,
                Next::Ready if state.left.groups == 0 => {}
                _ => actions.push(Action::Step(who)),
            }
            let is_sweeping = state.retire != Retire::Idle || state.left.sweeps == 0;
            if writer.is_running() && !is_sweeping && Self::retirable(state, who).is_some() {
                actions.push(Action::Sweep(who));
            }
        }
        let free = state.writers.iter().position(|one| one.next == Next::Gone);
        let may_open = |one: &Writer| match one.next {
            Next::Gone => true,
            Next::Opening(_) => false,
            _ => state.left.intruders > 0,
        };
        if let Some(who) = free
            && state.left.opens > 0
            && state.writers.iter().all(may_open)
        {
            actions.push(Action::Open(who));
        }
        if state.retire != Retire::Idle {
            actions.push(Action::Retire);
        }
        if state.mark().position > state.consumer.position {
            actions.push(Action::Commit);
        }
        if state.left.seeks > 0 && !state.retire.is_locked() {
            actions.extend((state.start.first..state.consumer.position).map(Action::Seek));
        }
    }

    /// Returns the possible faults.
    pub(crate) fn disturb(state: &State, actions: &mut Vec<Action>) {
        let left = state.left;
        for (who, writer) in state.writers.iter().enumerate() {
            if left.kills > 0 && writer.next != Next::Gone {
                actions.push(Action::Kill(who));
            }
            match writer.next {
                Next::Landing(Landing::SyncGroup | Landing::SyncEntry) if left.failures > 0 => {
                    actions.push(Action::FailSync(who));
                }
                Next::Landing(Landing::CutFirst | Landing::CutSecond) if left.failures > 0 => {
                    actions.push(Action::FailCut(who));
                }
                _ => {}
            }
        }
        if left.cuts > 0 {
            actions.extend((0..3_u8.pow(state.dirty().min(4))).map(Action::Cut));
        }
        if state.writers.iter().any(|one| one.next != Next::Gone) {
            return;
        }
        if left.damages > 0 {
            state.damages(actions);
        }
        match &state.backup {
            None if left.restores > 0 && !state.segments.is_empty() => actions.push(Action::Backup),
            Some(_) if left.restores > 0 => actions.push(Action::Restore),
            _ => {}
        }
    }

    /// Returns the first position that the consumer's mark allows.
    fn retirable(state: &State, who: usize) -> Option<u8> {
        let lowest = state.consumer.position;
        let own = &state.writers[who];
        let next = state
            .segments
            .iter()
            .skip(1)
            .map(|next| Some(next.first))
            .chain([None]);
        let ends = state
            .segments
            .iter()
            .zip(next)
            .map_while(|(segment, next)| {
                let may_go = own.next == Next::Ready && segment.owner == own.epoch;
                next.or(may_go.then_some(own.position))
                    .filter(|end| *end <= lowest)
            });
        ends.last().filter(|to| *to > state.start.first)
    }

    /// Does an action that is not a step of a writer.
    pub(crate) fn happen(&self, state: &mut State, action: Action) {
        match action {
            Action::Step(_) | Action::FailSync(_) | Action::FailCut(_) => {}
            Action::Open(who) => self.begin(state, who),
            Action::Kill(who) => {
                state.left.kills -= 1;
                state.end(who);
            }
            Action::Cut(fates) => state.lose_power(fates),
            Action::Damage(damage) => state.damage(damage),
            Action::Sweep(who) => self.look(state, who),
            Action::Retire => self.retire(state),
            Action::Commit => state.commit(),
            Action::Seek(to) => {
                state.left.seeks -= 1;
                state.consumer.position = to;
            }
            Action::Backup => state.backup = Some(Box::new(state.copy())),
            Action::Restore => state.restore(),
        }
    }

    fn begin(&self, state: &mut State, who: usize) {
        state.left.opens -= 1;
        let is_alone = state.writers.iter().all(|one| one.next == Next::Gone);
        state.left.intruders -= u8::from(!is_alone);
        let is_early = self.has(Break::ScanBeforeRaise);
        let first = if is_early {
            Opening::Scan
        } else {
            Opening::Raise
        };
        state.writers[who].next = Next::Opening(first);
    }

    /// Takes the lock, and reads the consumer's mark. A writer does not go on with a segment that may be removed.
    fn look(&self, state: &mut State, who: usize) {
        if let Some(to) = Self::retirable(state, who) {
            state.left.sweeps -= 1;
            let active = &mut state.writers[who].active;
            *active = active.filter(|first| *first >= to);
            let is_locked = !self.has(Break::MarksUnlocked);
            state.retire = Retire::Looked { who, to, is_locked };
        }
    }

    /// Does the next step of a sweep.
    fn retire(&self, state: &mut State) {
        state.retire = match state.retire {
            Retire::Idle => Retire::Idle,
            Retire::Looked { who, to, .. } if self.has(Break::StartAfterRemoval) => {
                state.segments.retain(|segment| segment.first >= to);
                Retire::Removed { who, to }
            }
            Retire::Looked { who, to, .. } => {
                state.begin_at(who, to);
                Retire::Removing { who, to }
            }
            Retire::Removing { to, .. } => {
                state.segments.retain(|segment| segment.first >= to);
                Retire::Idle
            }
            Retire::Removed { who, to } => {
                state.begin_at(who, to);
                Retire::Idle
            }
        };
    }
}

impl State {
    /// Writes `start`. No value in it goes back.
    fn begin_at(&mut self, who: usize, to: u8) {
        let position = self.writers[who].position;
        self.start.first = self.start.first.max(to);
        self.start.position = self.start.position.max(position).max(to);
    }

    fn commit(&mut self) {
        let Slot {
            position, epoch, ..
        } = self.mark();
        self.consumer = Consumer { position, epoch };
    }

    /// Returns how many writes are not synced.
    fn dirty(&self) -> u32 {
        let slots = self.slots.iter().filter(|slot| slot.is_dirty).count();
        let groups = self.segments.iter().flat_map(|one| &one.groups);
        let indexes = self
            .segments
            .iter()
            .filter(|one| one.index.is_dirty)
            .count();
        let all = slots + indexes + groups.filter(|one| one.is_dirty).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    fn lose_power(&mut self, mut fates: u8) {
        self.left.cuts -= 1;
        self.end(0);
        self.end(1);
        for slot in &mut self.slots {
            slot.lose_power(&mut fates, None);
        }
        for segment in &mut self.segments {
            for group in &mut segment.groups {
                group.lose_power(&mut fates, Bytes::Torn);
            }
            segment.index.lose_power(&mut fates, Index::Torn);
            while segment
                .groups
                .pop_if(|one| one.disk == Bytes::Absent)
                .is_some()
            {}
        }
    }

    fn damages(&self, actions: &mut Vec<Action>) {
        for segment in self
            .segments
            .iter()
            .filter(|one| one.first >= self.start.first)
        {
            let first = segment.first;
            let named = usize::from(segment.known(true)).min(segment.groups.len());
            let groups = (0..named).map(|at| Damage::Group(first, at));
            let all = groups.chain([Damage::Index(first), Damage::Unlink(first)]);
            actions.extend(all.map(Action::Damage));
        }
        actions.extend([0, 1].map(|at| Action::Damage(Damage::Slot(at))));
    }

    fn damage(&mut self, damage: Damage) {
        self.left.damages -= 1;
        match damage {
            Damage::Slot(at) => self.slots[at] = Cell::durable(None),
            Damage::Index(first) => {
                if let Some(segment) = self.segment(first) {
                    segment.index = Cell::durable(Index::Torn);
                }
            }
            Damage::Group(first, at) => {
                self.past.damaged |= 1 << (usize::from(first) + at);
                if let Some(segment) = self.segment(first) {
                    segment.groups[at] = Cell::durable(Bytes::Torn);
                }
            }
            Damage::Unlink(first) => self.unlink(first),
        }
    }

    /// Removes a segment; its index stays if it names a group.
    fn unlink(&mut self, first: u8) {
        let Some(end) = self.segment(first).map(|segment| segment.end()) else {
            return;
        };
        self.segments.retain(|segment| segment.first != first);
        self.past.damaged |= range(first, end);
        self.orphan = Some((first, end)).filter(|_| end > first);
    }

    fn copy(&self) -> Backup {
        Backup {
            slots: self.slots,
            segments: self.segments.clone(),
            orphan: self.orphan,
            start: self.start,
            losses: self.losses,
            past: Past {
                is_restored: false,
                ..self.past
            },
        }
    }

    /// Puts the copy back, with the consumer's mark as it is.
    fn restore(&mut self) {
        let Some(backup) = self.backup.take() else {
            return;
        };
        self.left.restores -= 1;
        self.slots = backup.slots;
        self.segments = backup.segments;
        self.orphan = backup.orphan;
        self.start = backup.start;
        self.losses = backup.losses;
        self.past = Past {
            is_restored: true,
            ..backup.past
        };
    }
}
