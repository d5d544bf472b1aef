//! Counts of all that a connection keeps, for tests: nothing may stay of anything that is over.

use super::Connection;
use super::entity::{PeerEnd, Reader};
use crate::Target;

/// Counts of all that is kept.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub tables: TableCounts,
    pub sending: SendingCounts,
    pub credit: CreditCounts,
}

/// Counts of the tables.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableCounts {
    pub own_entities: usize,
    pub peer_entities: usize,
    pub own_requests: usize,
    pub peer_requests: usize,
    /// Payloads that have come in part.
    pub partials: usize,
    /// Own requests whose response has crossed their cancel.
    pub crossed: usize,
    /// Entities and requests of the peer that have come whole.
    pub peer_complete: usize,
    /// Closes of the peer's whose acknowledgement is held.
    pub held_closes: usize,
    /// Free ids that are kept.
    pub free_ids: usize,
}

/// Counts of the chunks and payloads that wait to be sent.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendingCounts {
    pub jobs: usize,
    /// Jobs that the close of the top-level waits for.
    pub before_close: usize,
    /// Chunks in the control queue.
    pub control: usize,
    /// Answers in the control queue that the peer has caused.
    pub owed: usize,
}

/// Bytes of credit.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreditCounts {
    pub set_aside: u64,
    pub windows_above_floor: u64,
    /// Credit of all halves that the peer has or will have.
    pub granted: u64,
    /// Bytes of all halves that have come and were not taken.
    pub unread: u64,
}

impl Connection {
    /// Counts all that is kept.
    #[doc(hidden)]
    pub fn counts(&self) -> Counts {
        Counts {
            tables: self.table_counts(),
            sending: SendingCounts {
                jobs: self.jobs.backlog().payloads,
                before_close: self.jobs.before_close(),
                control: self.control.backlog().payloads,
                owed: self.control.owed(),
            },
            credit: CreditCounts {
                set_aside: self.budget.set_aside(),
                windows_above_floor: self.budget.windows(),
                granted: self.sum(|reader| reader.grant.unused()),
                unread: self.sum(|reader| reader.window.unread()),
            },
        }
    }

    fn table_counts(&self) -> TableCounts {
        let (entities, requests) = (&self.tables.entities, &self.tables.requests);
        let count = |is_counted: fn(&Reader) -> bool| {
            entities.readers().filter(|it| is_counted(it)).count()
        };
        let sum = |one: usize, other: usize| one.saturating_add(other);
        let messages = count(|reader| reader.message.is_some());
        let incoming = usize::from(self.intake.role().is_some());
        TableCounts {
            own_entities: entities.own.len(),
            peer_entities: entities.peer.len(),
            own_requests: requests.own.len(),
            peer_requests: requests.peer.len(),
            partials: sum(self.tables.partials().len(), sum(messages, incoming)),
            crossed: requests.crossed(),
            peer_complete: sum(entities.peer_complete(), requests.peer_complete()),
            held_closes: count(|reader| reader.peer_end == PeerEnd::Held),
            free_ids: sum(entities.free_ids_kept(), requests.free_ids_kept()),
        }
    }

    fn sum(&self, of: fn(&Reader) -> u64) -> u64 {
        let readers = self.tables.entities.readers();
        readers.fold(0, |sum, reader| sum.saturating_add(of(reader)))
    }

    /// Credit that the peer has, or will have, for a half that this end reads.
    #[doc(hidden)]
    pub fn granted(&self, target: Target) -> Option<u64> {
        let entities = &self.tables.entities;
        let reader = match target {
            Target::Top => Some(&entities.top_reader),
            _ => entities.get(target)?.reader.as_ref(),
        };
        reader.map(|reader| reader.grant.unused())
    }
}
