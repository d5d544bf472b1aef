//! What waits for top-level credit, but for messages, and which of it goes next.
//!
//! All of it shares one credit: a peer that has room for one large payload cannot say which. The peer has to hold
//! what is sent in parts until it is whole, so that is little:
//!
//! * One payload of any size goes in parts, and few small ones beside it ([`BEGUN`], [`InParts`]), in turns.
//! * Answers may begin beside others. The peer may take no more requests before it has its answer, and has to know
//!   that the answer comes: so an end that asks itself begins an answer even without credit. Nothing else begins
//!   before that answer has ended.
//! * Of an answer and another payload the one with fewer bytes left goes first. So the peer holds little more than
//!   the larger of them.
//!
//! Payloads that fit whole go between the parts.

use std::collections::VecDeque;

use ackline_core::{SendQueue, Table};
use bytes::Bytes;

use super::outgoing::{Outgoing, Waiting};
use super::wide;
use crate::chunk::Carrier;

/// Jobs that are sent in part at once. More would only make all of them later.
const BEGUN: usize = 4;

/// Bytes of payloads that may go in parts beside the largest one: a peer with the least memory that Ackline takes,
/// 64 KiB, has room for them.
const BESIDE_BYTES: u64 = 8 << 10;

/// The same as a part of the largest one. The peer takes a payload of that size, so it has room for a little more.
const BESIDE_PART: u64 = 8;

/// The jobs. Places in the queues outlive their jobs, so that giving one up is cheap.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_carrier: Table<Carrier, Job>,
    /// Those that answer requests, and nothing of which was sent.
    waiting_answers: Queue,
    /// All others of which nothing was sent.
    waiting_others: Queue,
    /// Those that have gone in part, with all of their bytes, in the order of their turns.
    begun: Vec<(Carrier, u64)>,
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

/// Jobs that have not begun, by whether a chunk has room for all of each.
#[derive(Debug, Default)]
struct Queue {
    small: VecDeque<Place>,
    large: VecDeque<Place>,
}

/// A message of the top-level that has gone in part: it costs the same credit as jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageInParts {
    pub(super) bytes: u64,
    pub(super) left: u64,
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

/// Payloads that have gone in part: all of them can wait at the peer for their ends.
#[derive(Debug, Clone, Copy, Default)]
struct InParts {
    payloads: usize,
    bytes: u64,
    largest: u64,
}

impl InParts {
    fn with(self, bytes: u64) -> Self {
        Self {
            payloads: self.payloads.saturating_add(1),
            bytes: self.bytes.saturating_add(bytes),
            largest: self.largest.max(bytes),
        }
    }

    /// Whether a payload of so many bytes may begin to go in parts too.
    fn may_begin(self, bytes: u64) -> bool {
        let all = self.with(bytes);
        let beside = all.bytes.saturating_sub(all.largest);
        all.payloads <= BEGUN && beside <= BESIDE_BYTES.max(all.largest / BESIDE_PART)
    }
}

pub(super) const fn is_answer(carrier: Carrier) -> bool {
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
        let queue = self.queue(is_answer(carrier));
        if wide(&payload) <= u64::from(chunk_size) {
            queue.small.push_back(place);
        } else {
            queue.large.push_back(place);
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
        self.begun.retain(|(other, _)| *other != carrier);
        Some(job.outgoing)
    }

    const fn queue(&mut self, of_answers: bool) -> &mut Queue {
        if of_answers {
            &mut self.waiting_answers
        } else {
            &mut self.waiting_others
        }
    }

    /// Sends the next chunk of whoever's turn it is, if there is credit, beside a message that has gone in part.
    pub(super) fn send(
        &mut self,
        (credit, message): (&mut u64, Option<MessageInParts>),
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<Sent> {
        if *credit == 0 {
            return None;
        }
        let carrier = self.next(*credit, message)?;
        let outgoing = &mut self.by_carrier.get_mut(&carrier)?.outgoing;
        let (length, is_last) = outgoing.send(carrier, credit, chunk_size, out)?;
        if let Some(bytes) = outgoing.begun {
            // Behind the others.
            self.begun.retain(|(other, _)| *other != carrier);
            self.begun.push((carrier, bytes));
        }
        let sent = usize::try_from(length).unwrap_or(usize::MAX);
        self.count_less(carrier, sent);
        if is_last {
            self.remove(carrier);
        }
        Some(Sent {
            carrier,
            length,
            is_last,
        })
    }

    /// Whether an answer can begin without credit.
    pub(super) fn can_announce(&mut self) -> bool {
        self.drop_stale();
        self.place_to_begin(true, 0, None).is_some()
    }

    /// Begins an answer without credit.
    pub(super) fn announce(&mut self, out: &mut SendQueue) -> Option<Carrier> {
        self.drop_stale();
        let carrier = self.begin(true, 0, None)?;
        let bytes = self
            .by_carrier
            .get_mut(&carrier)?
            .outgoing
            .announce(carrier, out);
        self.begun.push((carrier, bytes));
        Some(carrier)
    }

    /// Whether the top-level's next message may be sent as it is, in parts or in one.
    pub(super) fn lets_go(&self, message: &Outgoing, credit: u64, chunk_size: u32) -> bool {
        let left = wide(&message.rest);
        if message.begun.is_some() {
            let answer = self.first_begun(true);
            return answer.is_none_or(|(_, of_answer)| left < of_answer);
        }
        let is_whole = left <= credit.min(chunk_size.into());
        is_whole || (!self.has_begun_answer() && self.in_parts(false, None).may_begin(left))
    }

    /// So many bytes of it are not to be sent any more.
    fn count_less(&mut self, carrier: Carrier, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if is_answer(carrier) {
            self.answers.bytes = self.answers.bytes.saturating_sub(bytes);
        }
    }

    /// What fits whole and what goes in parts take turns.
    fn next(&mut self, credit: u64, message: Option<MessageInParts>) -> Option<Carrier> {
        self.drop_stale();
        let small = self.whole(credit);
        let is_small_next = small.is_some() && !self.begun_next;
        if !is_small_next && let Some(carrier) = self.next_in_parts(credit, message) {
            self.begun_next = false;
            return Some(carrier);
        }
        self.begun_next = small.is_some();
        let of_answers = small?;
        let place = self.queue(of_answers).small.pop_front()?;
        Some(place.carrier)
    }

    /// Where the first job stands that the credit is enough for: among the answers, or among the others.
    fn whole(&self, credit: u64) -> Option<bool> {
        let fits = |queue: &Queue| {
            let place = queue.small.front().copied()?;
            (self.left(place.carrier) <= credit).then_some(place.number)
        };
        match (fits(&self.waiting_answers), fits(&self.waiting_others)) {
            (Some(answer), Some(other)) => Some(answer < other),
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (None, None) => None,
        }
    }

    fn next_in_parts(&mut self, credit: u64, message: Option<MessageInParts>) -> Option<Carrier> {
        if !self.has_begun_answer()
            && let Some(carrier) = self.begin(false, credit, message)
        {
            return Some(carrier);
        }
        if let Some(carrier) = self.begin(true, credit, message) {
            return Some(carrier);
        }
        let other = self.first_begun(false);
        let of_others = other.map(|(_, left)| left).into_iter();
        let of_others = of_others.chain(message.map(|message| message.left)).min();
        let answer = self.first_begun(true);
        let answer = answer.filter(|(_, left)| of_others.is_none_or(|others| *left <= others));
        answer.or(other).map(|(carrier, _)| carrier)
    }

    /// The next answer, or other job, that begins to go in parts.
    fn begin(
        &mut self,
        of_answers: bool,
        credit: u64,
        message: Option<MessageInParts>,
    ) -> Option<Carrier> {
        let is_large = self.place_to_begin(of_answers, credit, message)?;
        let queue = self.queue(of_answers);
        let queue = if is_large {
            &mut queue.large
        } else {
            &mut queue.small
        };
        Some(queue.pop_front()?.carrier)
    }

    /// Where it stands: among the large jobs, or the small ones, of which one that fits whole does not begin so.
    fn place_to_begin(
        &self,
        of_answers: bool,
        credit: u64,
        message: Option<MessageInParts>,
    ) -> Option<bool> {
        let queue = if of_answers {
            &self.waiting_answers
        } else {
            &self.waiting_others
        };
        let begun = self.in_parts(of_answers, message);
        let may_begin = |place: Option<&Place>, least: u64| {
            let left = place.map_or(0, |place| self.left(place.carrier));
            left > least && begun.may_begin(left)
        };
        if may_begin(queue.large.front(), 0) {
            return Some(true);
        }
        may_begin(queue.small.front(), credit).then_some(false)
    }

    /// The answers that have gone in part, or what else has.
    fn in_parts(&self, of_answers: bool, message: Option<MessageInParts>) -> InParts {
        let message = message.filter(|_| !of_answers).map(|message| message.bytes);
        let jobs = self.begun.iter().copied();
        let jobs = jobs.filter(|(carrier, _)| is_answer(*carrier) == of_answers);
        let all = jobs.map(|(_, bytes)| bytes).chain(message);
        all.fold(InParts::default(), InParts::with)
    }

    fn has_begun_answer(&self) -> bool {
        self.first_begun(true).is_some()
    }

    /// The answer that has gone in part and whose turn is next, or another job, and how many bytes of it are left.
    fn first_begun(&self, of_answers: bool) -> Option<(Carrier, u64)> {
        let mut begun = self.begun.iter();
        let (carrier, _) = begun.find(|(carrier, _)| is_answer(*carrier) == of_answers)?;
        Some((*carrier, self.left(*carrier)))
    }

    fn left(&self, carrier: Carrier) -> u64 {
        let job = self.by_carrier.get(&carrier);
        job.map_or(0, |job| wide(&job.outgoing.rest))
    }

    fn queues(&mut self) -> [&mut VecDeque<Place>; 4] {
        let (answers, others) = (&mut self.waiting_answers, &mut self.waiting_others);
        [
            &mut answers.small,
            &mut answers.large,
            &mut others.small,
            &mut others.large,
        ]
    }

    fn drop_stale(&mut self) {
        let jobs = std::mem::take(&mut self.by_carrier);
        for queue in self.queues() {
            while queue.front().is_some_and(|place| !lives(&jobs, place)) {
                queue.pop_front();
            }
        }
        self.by_carrier = jobs;
    }

    /// Jobs that are gone keep no places for ever.
    fn compact(&mut self) {
        let jobs = std::mem::take(&mut self.by_carrier);
        let most = jobs.len().saturating_mul(2).saturating_add(64);
        for queue in self.queues() {
            if queue.len() > most {
                queue.retain(|place| lives(&jobs, place));
            }
        }
        self.by_carrier = jobs;
    }
}

fn lives(jobs: &Table<Carrier, Job>, place: &Place) -> bool {
    let job = jobs.get(&place.carrier);
    job.is_some_and(|job| job.number == place.number)
}
