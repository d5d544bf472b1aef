//! What waits for top-level credit, but for messages, and which of it goes next.
//!
//! All of it shares one credit: a peer that has room for one large payload cannot say which. What is sent in
//! parts at once is what the peer has to hold before any of it is whole, so it is little ([`BEGUN`]); what fits
//! whole goes between the parts.

use std::collections::VecDeque;

use ackline_core::{SendQueue, Table};
use bytes::Bytes;

use super::outgoing::{Outgoing, Waiting};
use super::wide;
use crate::chunk::Carrier;

/// Jobs that are sent in part at once. More would only make all of them later.
const BEGUN: usize = 4;

/// The jobs. Places in the queues outlive their jobs, so that giving one up is cheap.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_carrier: Table<Carrier, Job>,
    /// Nothing of them was sent, and a chunk has room for all of each.
    small: VecDeque<Place>,
    /// Nothing of them was sent.
    large: VecDeque<Place>,
    /// In the order of their turns.
    begun: VecDeque<Place>,
    in_parts: usize,
    /// What of them is still to be sent.
    bytes: usize,
    /// The part of them that answers requests.
    answers: Waiting,
    begun_next: bool,
    next_number: u64,
    /// They have a place among those that can go on.
    pub(super) queued: bool,
    /// Bytes of their turn that are left, or that they took too many.
    pub(super) deficit: i64,
}

#[derive(Debug)]
struct Job {
    number: u64,
    outgoing: Outgoing,
}

/// A job, unless it has gone: the same carrier may have come again.
#[derive(Debug, Clone, Copy)]
struct Place {
    carrier: Carrier,
    number: u64,
}

const fn is_answer(carrier: Carrier) -> bool {
    matches!(carrier, Carrier::Response(_) | Carrier::CloseResponse(_))
}

/// A chunk that went.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) carrier: Carrier,
    pub(super) length: u64,
    pub(super) is_last: bool,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.by_carrier.is_empty()
    }

    pub(super) fn backlog(&self) -> Waiting {
        Waiting {
            bytes: self.bytes,
            payloads: self.by_carrier.len(),
        }
    }

    /// Responses and closes of responses.
    pub(super) const fn answers(&self) -> Waiting {
        self.answers
    }

    pub(super) fn carriers(&self) -> impl Iterator<Item = Carrier> + '_ {
        self.by_carrier.keys().copied()
    }

    pub(super) fn insert(&mut self, carrier: Carrier, payload: Bytes, chunk_size: u32) {
        self.next_number = self.next_number.wrapping_add(1);
        let number = self.next_number;
        let place = Place { carrier, number };
        if wide(&payload) <= u64::from(chunk_size) {
            self.small.push_back(place);
        } else {
            self.large.push_back(place);
        }
        self.bytes = self.bytes.saturating_add(payload.len());
        if is_answer(carrier) {
            self.answers.bytes = self.answers.bytes.saturating_add(payload.len());
            self.answers.payloads = self.answers.payloads.saturating_add(1);
        }
        let outgoing = Outgoing::new(payload);
        self.by_carrier.insert(carrier, Job { number, outgoing });
        self.compact();
    }

    /// Gives a job up, if there is one.
    pub(super) fn remove(&mut self, carrier: Carrier) -> Option<Outgoing> {
        let job = self.by_carrier.remove(&carrier)?;
        self.count_less(carrier, job.outgoing.rest.len());
        if is_answer(carrier) {
            self.answers.payloads = self.answers.payloads.saturating_sub(1);
        }
        if job.outgoing.begun {
            self.in_parts = self.in_parts.saturating_sub(1);
        }
        Some(job.outgoing)
    }

    /// Sends the next chunk of whoever's turn it is, if there is credit.
    pub(super) fn send(
        &mut self,
        credit: &mut u64,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<Sent> {
        if *credit == 0 {
            return None;
        }
        let place = self.next(*credit)?;
        let carrier = place.carrier;
        let outgoing = &mut self.by_carrier.get_mut(&carrier)?.outgoing;
        let was_begun = outgoing.begun;
        let (length, is_last) = outgoing.send(carrier, credit, chunk_size, out)?;
        if outgoing.begun && !was_begun {
            self.in_parts = self.in_parts.saturating_add(1);
        }
        let sent = usize::try_from(length).unwrap_or(usize::MAX);
        self.count_less(carrier, sent);
        if is_last {
            self.remove(carrier);
        } else {
            self.begun.push_back(place);
        }
        Some(Sent {
            carrier,
            length,
            is_last,
        })
    }

    /// So many bytes of it are not to be sent any more.
    fn count_less(&mut self, carrier: Carrier, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if is_answer(carrier) {
            self.answers.bytes = self.answers.bytes.saturating_sub(bytes);
        }
    }

    /// What fits whole and what goes in parts take turns.
    fn next(&mut self, credit: u64) -> Option<Place> {
        self.drop_stale();
        let small = self.small.front().copied();
        let fits = small.is_some_and(|place| self.left(place) <= credit);
        if fits && !(self.begun_next && self.has_parts()) {
            self.begun_next = true;
            return self.small.pop_front();
        }
        self.begun_next = false;
        if self.in_parts < BEGUN {
            if let Some(place) = self.large.pop_front() {
                return Some(place);
            }
            if !fits && let Some(place) = self.small.pop_front() {
                return Some(place);
            }
        }
        self.begun.pop_front()
    }

    fn has_parts(&self) -> bool {
        !self.begun.is_empty() || !self.large.is_empty()
    }

    fn left(&self, place: Place) -> u64 {
        let job = self.by_carrier.get(&place.carrier);
        job.map_or(0, |job| wide(&job.outgoing.rest))
    }

    fn drop_stale(&mut self) {
        let jobs = &self.by_carrier;
        for queue in [&mut self.small, &mut self.large, &mut self.begun] {
            while queue.front().is_some_and(|place| !lives(jobs, place)) {
                queue.pop_front();
            }
        }
    }

    /// Jobs that are gone keep no places for ever.
    fn compact(&mut self) {
        let jobs = &self.by_carrier;
        let most = jobs.len().saturating_mul(2).saturating_add(64);
        for queue in [&mut self.small, &mut self.large, &mut self.begun] {
            if queue.len() > most {
                queue.retain(|place| lives(jobs, place));
            }
        }
    }
}

fn lives(jobs: &Table<Carrier, Job>, place: &Place) -> bool {
    let job = jobs.get(&place.carrier);
    job.is_some_and(|job| job.number == place.number)
}
