//! Payloads that wait for top-level credit, but for messages, and which of them goes next.
//!
//! All of them share one credit: a peer that has room for one large payload cannot say which. The peer has to hold a
//! payload that is sent in parts until it is whole, so few bytes are sent so:
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

use ackline_core::{Credit, SendQueue, Table};
use bytes::Bytes;

use super::outgoing::{Outgoing, SentChunk, Waiting};
use super::turns::TurnState;
use super::wide;
use crate::chunk::PayloadRole;

/// Jobs that are sent in part at once. More would only make all of them later.
const BEGUN: usize = 4;

/// Bytes of payloads that may go in parts beside the largest one: a peer with the least memory that Ackline takes,
/// 64 KiB, has room for them.
const BESIDE_BYTES: u64 = 8 << 10;

/// The same as a part of the largest one. The peer takes a payload of that size, so it has room for a little more.
const BESIDE_PART: u64 = 8;

/// The jobs of a connection. Places in the queues outlive their jobs, so that dropping a job is cheap.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_carrier: Table<PayloadRole, Job>,
    /// Answers to requests of which nothing was sent.
    waiting_answers: Queue,
    /// All other jobs of which nothing was sent.
    waiting_others: Queue,
    /// Jobs that have gone in part, in the order of their turns.
    begun: Vec<Begun>,
    totals: Totals,
    /// Whether a job that goes in parts is next, and not one that fits whole.
    is_begun_next: bool,
    next_number: u64,
    pub(super) turn: TurnState,
}

/// Sums over jobs.
#[derive(Debug, Default)]
struct Totals {
    /// Bytes of all jobs that are still to be sent.
    bytes: usize,
    /// The part of the backlog that answers requests.
    answers: Waiting,
    /// Bytes of all answers that were called to be sent, as jobs or not.
    answers_given: u64,
    /// The number of jobs that the close of the top-level waits for.
    before_close: usize,
}

/// Jobs that have not begun, by whether a chunk has room for all of each.
#[derive(Debug, Default)]
struct Queue {
    small: VecDeque<Place>,
    large: VecDeque<Place>,
}

/// A job that has gone in part.
#[derive(Debug, Clone, Copy)]
struct Begun {
    role: PayloadRole,
    /// All of its bytes.
    bytes: u64,
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
    /// Whether the close of the top-level waits for it.
    is_before_close: bool,
}

/// A place of a job in a queue. The job may be gone, and its role may have come again.
#[derive(Debug, Clone, Copy)]
struct Place {
    role: PayloadRole,
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

const fn is_answer(role: PayloadRole) -> bool {
    matches!(
        role,
        PayloadRole::Response(_) | PayloadRole::CloseResponse(_)
    )
}

/// A chunk that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) role: PayloadRole,
    pub(super) chunk: SentChunk,
}

/// A job that was dropped.
#[derive(Debug)]
pub(super) struct Dropped {
    /// Bytes that were still to be sent.
    pub(super) bytes: usize,
    /// Whether a part of it was sent.
    pub(super) was_begun: bool,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.by_carrier.is_empty()
    }

    pub(super) fn backlog(&self) -> Waiting {
        Waiting {
            bytes: self.totals.bytes,
            payloads: self.by_carrier.len(),
        }
    }

    /// Returns the backlog of responses and closes of responses.
    pub(super) const fn answers(&self) -> Waiting {
        self.totals.answers
    }

    /// Bytes of all responses, and closes of responses, that were called to be sent.
    pub(super) const fn answers_given(&self) -> u64 {
        self.totals.answers_given
    }

    /// The number of jobs that the close of the top-level waits for.
    pub(super) const fn before_close(&self) -> usize {
        self.totals.before_close
    }

    /// Returns the jobs that open or request something, in the order in which they were added.
    pub(super) fn openings(&self) -> Vec<PayloadRole> {
        let is_opening =
            |role: &PayloadRole| matches!(role, PayloadRole::Open(..) | PayloadRole::Request(_));
        let jobs = self.by_carrier.iter();
        let mut openings: Vec<_> = jobs.filter(|(role, _)| is_opening(role)).collect();
        openings.sort_unstable_by_key(|(_, job)| job.number);
        openings.into_iter().map(|(role, _)| *role).collect()
    }

    /// Counts a payload that was called to be sent, whether it becomes a job or not.
    pub(super) const fn count_given(&mut self, role: PayloadRole, length: u64) {
        if is_answer(role) {
            self.totals.answers_given = self.totals.answers_given.saturating_add(length);
        }
    }

    /// Whether a payload goes at once and not as a job: it fits into a chunk, nothing goes before it, and its credit,
    /// which is taken then, is there.
    pub(super) fn passes(&self, length: u64, credit: &mut Credit, chunk_size: u32) -> bool {
        let is_small = length <= u64::from(chunk_size) && self.is_empty();
        length == 0 || (is_small && credit.spend(length))
    }

    /// Adds a job, which the close of the top-level may have to wait for.
    pub(super) fn insert(
        &mut self,
        role: PayloadRole,
        payload: Bytes,
        chunk_size: u32,
        is_before_close: bool,
    ) {
        self.next_number = self.next_number.wrapping_add(1);
        let number = self.next_number;
        let place = Place { role, number };
        let queue = self.queue(is_answer(role));
        if wide(&payload) <= u64::from(chunk_size) {
            queue.small.push_back(place);
        } else {
            queue.large.push_back(place);
        }
        let totals = &mut self.totals;
        totals.bytes = totals.bytes.saturating_add(payload.len());
        if is_answer(role) {
            let waiting = Waiting {
                bytes: payload.len(),
                payloads: 1,
            };
            totals.answers = totals.answers.plus(waiting);
        }
        let more = usize::from(is_before_close);
        totals.before_close = totals.before_close.saturating_add(more);
        let job = Job {
            number,
            outgoing: Outgoing::new(payload),
            is_before_close,
        };
        self.by_carrier.insert(role, job);
        self.compact();
    }

    /// Drops a job, if there is one.
    pub(super) fn remove(&mut self, role: PayloadRole) -> Option<Dropped> {
        let job = self.by_carrier.remove(&role)?;
        let dropped = Dropped {
            bytes: job.outgoing.rest.len(),
            was_begun: job.outgoing.begun.is_some(),
        };
        self.count_less(role, dropped.bytes);
        let totals = &mut self.totals;
        let less = usize::from(is_answer(role));
        totals.answers.payloads = totals.answers.payloads.saturating_sub(less);
        let less = usize::from(job.is_before_close);
        totals.before_close = totals.before_close.saturating_sub(less);
        self.begun.retain(|begun| begun.role != role);
        Some(dropped)
    }

    /// Drops all jobs.
    pub(super) fn clear(&mut self) {
        let answers_given = self.totals.answers_given;
        *self = Self::default();
        self.totals.answers_given = answers_given;
    }

    const fn queue(&mut self, of_answers: bool) -> &mut Queue {
        if of_answers {
            &mut self.waiting_answers
        } else {
            &mut self.waiting_others
        }
    }

    /// Sends the next chunk of the job whose turn it is, if there is credit, beside a message that has gone in part.
    pub(super) fn send(
        &mut self,
        credit: &mut Credit,
        message: Option<MessageInParts>,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<Sent> {
        if credit.is_empty() {
            return None;
        }
        let role = self.next(*credit, message)?;
        let outgoing = &mut self.by_carrier.get_mut(&role)?.outgoing;
        let chunk = outgoing.send(role, credit, chunk_size, out)?;
        if let Some(bytes) = outgoing.begun {
            // Behind the others.
            self.begun.retain(|begun| begun.role != role);
            self.begun.push(Begun { role, bytes });
        }
        let sent = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        self.count_less(role, sent);
        if chunk.is_last {
            self.remove(role);
        }
        Some(Sent { role, chunk })
    }

    /// Whether an answer can begin without credit.
    pub(super) fn can_announce(&mut self) -> bool {
        self.drop_stale();
        self.place_to_begin(true, Credit::default(), None).is_some()
    }

    /// Begins an answer without credit.
    pub(super) fn announce(&mut self, out: &mut SendQueue) -> Option<PayloadRole> {
        self.drop_stale();
        let role = self.begin(true, Credit::default(), None)?;
        let outgoing = &mut self.by_carrier.get_mut(&role)?.outgoing;
        let bytes = outgoing.announce(role, out);
        self.begun.push(Begun { role, bytes });
        Some(role)
    }

    /// Whether the top-level's next message may be sent as it is, in parts or in one.
    pub(super) fn lets_go(&self, message: &Outgoing, credit: Credit, chunk_size: u32) -> bool {
        let left = wide(&message.rest);
        if message.begun.is_some() {
            let answer = self.first_begun(true);
            return answer.is_none_or(|answer| left < self.left(answer));
        }
        let is_whole = left <= credit.unused().min(chunk_size.into());
        let may_begin = || self.in_parts(false, None).may_begin(left);
        is_whole || (!self.has_begun_answer() && may_begin())
    }

    /// So many bytes of a job are not to be sent any more.
    const fn count_less(&mut self, role: PayloadRole, bytes: usize) {
        let totals = &mut self.totals;
        totals.bytes = totals.bytes.saturating_sub(bytes);
        if is_answer(role) {
            totals.answers.bytes = totals.answers.bytes.saturating_sub(bytes);
        }
    }

    /// Jobs that fit whole and jobs that go in parts take turns.
    fn next(&mut self, credit: Credit, message: Option<MessageInParts>) -> Option<PayloadRole> {
        self.drop_stale();
        let small = self.whole(credit);
        let is_small_next = small.is_some() && !self.is_begun_next;
        if !is_small_next && let Some(role) = self.next_in_parts(credit, message) {
            self.is_begun_next = false;
            return Some(role);
        }
        self.is_begun_next = small.is_some();
        let of_answers = small?;
        let place = self.queue(of_answers).small.pop_front()?;
        Some(place.role)
    }

    /// Returns whether the first job that the credit is enough for stands among the answers.
    fn whole(&self, credit: Credit) -> Option<bool> {
        let fits = |queue: &Queue| {
            let place = queue.small.front().copied()?;
            (self.left(place.role) <= credit.unused()).then_some(place.number)
        };
        match (fits(&self.waiting_answers), fits(&self.waiting_others)) {
            (Some(answer), Some(other)) => Some(answer < other),
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (None, None) => None,
        }
    }

    fn next_in_parts(
        &mut self,
        credit: Credit,
        message: Option<MessageInParts>,
    ) -> Option<PayloadRole> {
        if !self.has_begun_answer()
            && let Some(role) = self.begin(false, credit, message)
        {
            return Some(role);
        }
        if let Some(role) = self.begin(true, credit, message) {
            return Some(role);
        }
        let other = self.first_begun(false);
        let of_others = other.map(|other| self.left(other)).into_iter();
        let of_others = of_others.chain(message.map(|message| message.left)).min();
        let answer = self.first_begun(true);
        let answer =
            answer.filter(|answer| of_others.is_none_or(|left| self.left(*answer) <= left));
        answer.or(other)
    }

    /// Returns the next answer, or other job, that begins to go in parts, and takes it off its queue.
    fn begin(
        &mut self,
        of_answers: bool,
        credit: Credit,
        message: Option<MessageInParts>,
    ) -> Option<PayloadRole> {
        let is_large = self.place_to_begin(of_answers, credit, message)?;
        let queue = self.queue(of_answers);
        let queue = if is_large {
            &mut queue.large
        } else {
            &mut queue.small
        };
        Some(queue.pop_front()?.role)
    }

    /// Returns whether the next job to begin stands among the large jobs. Of the small ones a job that fits whole does
    /// not begin so.
    fn place_to_begin(
        &self,
        of_answers: bool,
        credit: Credit,
        message: Option<MessageInParts>,
    ) -> Option<bool> {
        let queue = if of_answers {
            &self.waiting_answers
        } else {
            &self.waiting_others
        };
        let begun = self.in_parts(of_answers, message);
        let may_begin = |place: Option<&Place>, least: u64| {
            let left = place.map_or(0, |place| self.left(place.role));
            left > least && begun.may_begin(left)
        };
        if may_begin(queue.large.front(), 0) {
            return Some(true);
        }
        may_begin(queue.small.front(), credit.unused()).then_some(false)
    }

    /// Sums up the answers that have gone in part, or all other payloads that have.
    fn in_parts(&self, of_answers: bool, message: Option<MessageInParts>) -> InParts {
        let message = message.filter(|_| !of_answers).map(|message| message.bytes);
        let jobs = self.begun.iter();
        let jobs = jobs.filter(|begun| is_answer(begun.role) == of_answers);
        let all = jobs.map(|begun| begun.bytes).chain(message);
        all.fold(InParts::default(), InParts::with)
    }

    fn has_begun_answer(&self) -> bool {
        self.first_begun(true).is_some()
    }

    /// Returns the answer, or other job, that has gone in part and whose turn is next.
    fn first_begun(&self, of_answers: bool) -> Option<PayloadRole> {
        let mut roles = self.begun.iter().map(|begun| begun.role);
        roles.find(|role| is_answer(*role) == of_answers)
    }

    fn left(&self, role: PayloadRole) -> u64 {
        let job = self.by_carrier.get(&role);
        job.map_or(0, |job| wide(&job.outgoing.rest))
    }

    fn drop_stale(&mut self) {
        let jobs = &self.by_carrier;
        for queue in [&mut self.waiting_answers, &mut self.waiting_others] {
            for places in [&mut queue.small, &mut queue.large] {
                while places.front().is_some_and(|place| !place.lives(jobs)) {
                    places.pop_front();
                }
            }
        }
    }

    /// Drops the places of jobs that are gone, once there are many.
    fn compact(&mut self) {
        let jobs = &self.by_carrier;
        let most = jobs.len().saturating_mul(2).saturating_add(64);
        for queue in [&mut self.waiting_answers, &mut self.waiting_others] {
            for places in [&mut queue.small, &mut queue.large] {
                if places.len() > most {
                    places.retain(|place| place.lives(jobs));
                }
            }
        }
    }
}

impl Place {
    /// Whether its job is still there.
    fn lives(&self, jobs: &Table<PayloadRole, Job>) -> bool {
        let job = jobs.get(&self.role);
        job.is_some_and(|job| job.number == self.number)
    }
}
