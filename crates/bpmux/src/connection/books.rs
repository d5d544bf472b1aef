//! What a connection keeps, for tests: nothing of what is over may stay.

use super::entity::Theirs;
use super::{Connection, Reader};
use crate::Target;

/// Counts of what is kept.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Books {
    pub own: usize,
    pub peer: usize,
    pub asked: usize,
    pub asking: usize,
    pub partials: usize,
    pub jobs: usize,
    pub openings: usize,
    pub lane: usize,
    pub owed: usize,
    pub answered: usize,
    pub peer_open: usize,
    /// Closes of the peer's whose acknowledgement is held.
    pub held_closes: usize,
    pub free_ids: usize,
    pub set_aside: u64,
    pub windows_above_floor: u64,
    /// Credit of all halves that the peer has or will have.
    pub granted: u64,
    /// Bytes of all halves that have come and were not taken.
    pub unread: u64,
}

impl Connection {
    /// What is kept.
    #[doc(hidden)]
    pub fn books(&self) -> Books {
        let entities = self.own.values().chain(self.peer.values());
        let readers = entities.filter_map(|entity| entity.reader.as_ref());
        let readers: Vec<&Reader> = readers.chain([&self.top_reader]).collect();
        let messages = readers.iter().filter(|reader| reader.message.is_some());
        let sum = |of: fn(&Reader) -> u64| {
            readers
                .iter()
                .fold(0_u64, |sum, reader| sum.saturating_add(of(reader)))
        };
        let held = readers.iter().filter(|it| it.theirs == Theirs::Held);
        let held_closes = held.count();
        Books {
            own: self.own.len(),
            peer: self.peer.len(),
            asked: self.asked.len(),
            asking: self.asking.len(),
            partials: self
                .partials
                .len()
                .saturating_add(messages.count())
                .saturating_add(usize::from(self.incoming.is_some())),
            jobs: self.jobs.carriers().count(),
            openings: self.openings,
            lane: self.lane.len(),
            owed: self.owed,
            answered: self.answered,
            peer_open: self.peer_open,
            held_closes,
            free_ids: self
                .ids
                .entities
                .kept()
                .saturating_add(self.ids.requests.kept()),
            set_aside: self.budget.set_aside(),
            windows_above_floor: self.budget.windows(),
            granted: sum(|reader| reader.granted),
            unread: sum(|reader| reader.window.unread()),
        }
    }

    /// Credit that the peer has, or will have, for a half that this end reads.
    #[doc(hidden)]
    pub fn granted(&self, target: Target) -> Option<u64> {
        match target {
            Target::Top => Some(self.top_reader.granted),
            _ => self.entity(target)?.reader.as_ref().map(|it| it.granted),
        }
    }
}
