//! The invariants, checked in every state or at the step that could break them.

use stateright::Property;

use super::{
    Plan, State,
    disk::{has, range},
};

/// Returns the invariants that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A position was given to two events, or to one after it was noted as lost.
    Twice,
    /// A writer went on below a position that readers had seen.
    WentBack,
    /// A writer acknowledged an event that it began to write after it had been replaced.
    Unfenced,
    /// An event counts that is not on the disk.
    Unsynced,
    /// A spool goes on below a consumer's mark.
    Unnoticed,
    /// A spool was refused for a damage that it does not have.
    Misnamed,
}

/// The properties by name.
pub fn all() -> Vec<Property<Plan>> {
    vec![
        Property::always(KEPT, |_, state: &State| state.keeps_given_events()),
        Property::always(NAMED, |_, state: &State| state.names_damage()),
        Property::always(NOTHING_ELSE_NAMED, |_, state: &State| {
            state.losses & !state.past.damaged == 0
        }),
        Property::always(NEEDED, |_, state: &State| {
            state.past.is_restored || state.consumer.position >= state.start.first
        }),
        Property::always(ONCE, |_, state: &State| state.fault != Some(Fault::Twice)),
        Property::always(FORWARD, |_, state: &State| {
            state.fault != Some(Fault::WentBack)
        }),
        Property::always(FENCED, |_, state: &State| {
            state.fault != Some(Fault::Unfenced)
        }),
        Property::always(SYNCED, |_, state: &State| {
            state.fault != Some(Fault::Unsynced)
        }),
        Property::always(RESTORED, |_, state: &State| {
            !matches!(state.fault, Some(Fault::Unnoticed | Fault::Misnamed))
        }),
        Property::sometimes(FINISHES, |_, state: &State| {
            state.left.groups == 0 && state.is_open()
        }),
    ]
}

/// A reader of an open spool finds each published event, unless it was damaged or removed in order.
pub const KEPT: &str = "no event is lost or hidden";
/// Each position of an open spool is readable, or noted as lost, or its group does not fit its checksum.
pub const NAMED: &str = "damage is named";
/// No loss is invented.
pub const NOTHING_ELSE_NAMED: &str = "only damage is noted";
/// No consumer stands below the first position that is kept.
pub const NEEDED: &str = "retention takes only events that no consumer needs";
/// No position is given out twice.
pub const ONCE: &str = "no position has two events";
/// No writer goes on below a published position.
pub const FORWARD: &str = "positions never go back";
/// A replaced writer acknowledges nothing.
pub const FENCED: &str = "a replaced writer acknowledges nothing";
/// Checks that every counted event is on the disk, also after a loss of the page cache.
pub const SYNCED: &str = "events that count are on the disk";
/// A copy that was put back is refused for that, and no other spool is.
pub const RESTORED: &str = "a restored copy is noticed";
/// All groups are appended, and the spool is open.
pub const FINISHES: &str = "finishes";

impl State {
    /// Whether the newest writer runs.
    fn is_open(&self) -> bool {
        let newest = self.mark().epoch;
        let mut running = self.writers.iter().filter(|writer| writer.is_running());
        running.any(|writer| writer.epoch == newest)
    }

    fn keeps_given_events(&self) -> bool {
        let kept = (self.start.first..8).filter(|at| !has(self.past.damaged, *at));
        let mut given = kept.map(|at| (at, self.past.given[usize::from(at)]));
        !self.is_open() || given.all(|(at, id)| id == 0 || self.read(at) == Some(id))
    }

    fn names_damage(&self) -> bool {
        let mut kept = self.start.first..self.mark().position;
        let is_named = |at| has(self.losses, at) || self.is_torn(at);
        !self.is_open() || kept.all(|at| self.read(at).is_some() || is_named(at))
    }

    /// Notes the events that a writer publishes when it opens the spool.
    pub(crate) fn judge_opened(&mut self, position: u8) {
        let above = usize::from(position);
        if self.past.given[above..].iter().any(|id| *id != 0) {
            self.fault.get_or_insert(Fault::WentBack);
        }
        if self.consumer.position > position {
            self.fault.get_or_insert(Fault::Unnoticed);
        }
        for at in self.start.first..position {
            if let Some(id) = self.read(at) {
                self.judge_given(at, id);
            }
        }
        self.judge_durable(position);
    }

    /// Notes that readers find an event at a position.
    pub(crate) fn judge_given(&mut self, at: u8, id: u8) {
        let given = &mut self.past.given[usize::from(at)];
        let is_new = *given == 0 && self.losses & range(at, at + 1) == 0;
        if is_new {
            *given = id;
        } else if *given != id {
            self.fault.get_or_insert(Fault::Twice);
        }
    }

    /// Notes whether the events that count below a position are on the disk.
    pub(crate) fn judge_durable(&mut self, position: u8) {
        let counts = |at: &u8| self.read(*at).is_some() && !self.is_on_disk(*at);
        if (self.start.first..position).any(|at| counts(&at)) {
            self.fault.get_or_insert(Fault::Unsynced);
        }
    }
}
