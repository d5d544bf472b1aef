//! A writer: its steps, and its writes of the durable mark.

use super::{
    Plan, State,
    disk::{Segment, Slot, Start},
    opening::Found,
    world::Retire,
};

/// A writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Its next step.
    pub next: Next,
    /// Its epoch.
    pub epoch: u8,
    /// The position of the next event.
    pub position: u8,
    /// The first position of the segment that it writes.
    pub active: Option<u8>,
    /// The generation of the mark that it wrote last.
    pub(super) generation: u8,
    /// The event that it is making durable.
    pub(super) id: u8,
    /// Whether it had been replaced when it began to write that event.
    pub(super) is_late: bool,
    /// `start` when it opened the spool.
    pub(super) start: Start,
    pub(super) found: Found,
}

/// The next step of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Next {
    /// It does not run.
    #[default]
    Gone,
    /// It opens the spool.
    Opening(Opening),
    /// It waits for an event.
    Ready,
    /// It makes an event durable.
    Landing(Landing),
}

/// The steps of opening, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the diagram of the model has them")]
pub enum Opening {
    Raise,
    RaiseOther,
    ReadBack,
    Scan,
    Note,
    Settle,
    SetAside,
    Rewrite,
    RewriteOther,
    Shorten,
    Publish,
    WriteStart,
}

/// The steps of making a group durable, in order; the last two follow a failed sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the diagram of the model has them")]
pub enum Landing {
    Write,
    SyncGroup,
    SyncEntry,
    Check,
    Publish,
    Ack,
    CutFirst,
    CutSecond,
}

impl Writer {
    /// Whether the spool is open.
    pub fn is_running(&self) -> bool {
        matches!(self.next, Next::Ready | Next::Landing(_))
    }
}

impl Plan {
    /// The next step of a writer.
    pub(crate) fn step(&self, state: &mut State, who: usize) {
        match state.writers[who].next {
            Next::Gone => {}
            Next::Opening(step) => self.open(state, who, step),
            Next::Ready => self.admit(state, who),
            Next::Landing(step) => self.land(state, who, step),
        }
    }
}

impl State {
    /// The segment that a writer has open, if it is still in its place.
    pub(crate) fn own(&mut self, who: usize) -> Option<&mut Segment> {
        let Writer { active, epoch, .. } = self.writers[who];
        self.segment(active?)
            .filter(|segment| segment.owner == epoch)
    }

    /// Ends a writer, and its retention.
    pub(crate) fn end(&mut self, who: usize) {
        self.writers[who] = Writer::default();
        if self.retire.is_of(who) {
            self.retire = Retire::Idle;
        }
    }

    /// Writes one slot of the mark, which the writer's generation selects.
    pub(crate) fn publish(&mut self, who: usize, position: u8, is_synced: bool) {
        self.writers[who].generation += 1;
        let Writer {
            epoch, generation, ..
        } = self.writers[who];
        let slot = &mut self.slots[usize::from(generation % 2)];
        slot.write(Some(Slot {
            epoch,
            generation,
            position,
        }));
        if is_synced {
            slot.sync();
        }
    }

    /// Publishes in both slots, durably.
    pub(crate) fn publish_both(&mut self, who: usize, position: u8) {
        self.publish(who, position, true);
        self.publish(who, position, true);
    }
}
