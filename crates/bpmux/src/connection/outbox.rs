//! What is sent, in which order. Acknowledgements, pongs, credit and whatever has its credit go first, in
//! the order of their causes; then those who have something to send take turns of equal bytes (deficit
//! round robin, R-BPM-32): each writer with credit, and all jobs that wait for top-level credit as one.

use ackline_core::SendQueue;
use bytes::Bytes;

use super::entity::{Ours, Standing, Theirs};
use super::jobs::is_answer;
use super::outgoing::put;
use super::receive::ANSWERS_PER_CALL;
use super::{Connection, wide};
use crate::chunk::{Carrier, Head};
use crate::connection::Event;
use crate::{EntityKind, Target};

/// What goes before payloads that wait.
#[derive(Debug)]
pub(super) enum Queued {
    /// A chunk without payload.
    Bare(Head),
    /// One that the peer has caused.
    Answer(Head),
    /// A whole payload whose credit is taken.
    Whole(Carrier, Bytes),
}

/// Who takes turns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    Writer(Target),
    Jobs,
}

/// What a chunk takes of a turn: its payload bytes, and some for the chunk, so that empty messages have an end
/// too.
fn cost(length: u64) -> i64 {
    i64::try_from(length)
        .unwrap_or(i64::MAX)
        .saturating_add(CHUNK_COST)
}

const CHUNK_COST: i64 = 16;

/// Places that are kept for what goes first.
const LANE_KEPT: usize = 256;

impl Connection {
    /// Bytes that answers take which the peer has not read: acknowledgements and pongs that it has caused, and
    /// responses that have their credit.
    pub const fn owed_bytes(&self) -> usize {
        let answers = self.owed.saturating_mul(size_of::<Queued>());
        answers.saturating_add(self.lane_bytes)
    }

    /// Bytes that answers of the next call of `receive` may take, while some wait for the transport.
    pub(super) const fn answers_step(&self) -> usize {
        if self.owed == 0 {
            return 0;
        }
        ANSWERS_PER_CALL.saturating_mul(size_of::<Queued>())
    }

    /// Encodes what may be sent while there is room.
    pub(super) fn encode(&mut self, out: &mut SendQueue) {
        loop {
            self.encode_lane(out);
            if out.room() == 0 || !self.turn(out) {
                return;
            }
        }
    }

    fn encode_lane(&mut self, out: &mut SendQueue) {
        while out.room() > 0 {
            let Some(queued) = self.lane.pop_front() else {
                break;
            };
            match queued {
                Queued::Bare(head) => put(out, head),
                Queued::Answer(head) => {
                    self.owed = self.owed.saturating_sub(1);
                    put(out, head);
                }
                Queued::Whole(carrier, payload) => {
                    let length = wide(&payload);
                    self.lane_bytes = self.lane_bytes.saturating_sub(payload.len());
                    put(out, Head::Payload { carrier, length });
                    self.stats.waiting_bytes =
                        self.stats.waiting_bytes.saturating_sub(payload.len());
                    out.put(payload);
                }
            }
        }
        if self.lane.is_empty() {
            // What a peer that did not read made it grow is given back.
            self.lane.shrink_to(LANE_KEPT);
        }
        while out.room() > 0 && self.lane.is_empty() {
            let Some(target) = self.granted.pop_front() else {
                return;
            };
            let Some(reader) = self.reader_mut(target) else {
                continue;
            };
            let amount = std::mem::take(&mut reader.due);
            if amount > 0 {
                put(out, Head::Credit { target, amount });
            }
        }
    }

    /// The next turn; `false` if nobody can go on.
    fn turn(&mut self, out: &mut SendQueue) -> bool {
        match self.ready.pop_front() {
            None => return false,
            Some(Turn::Writer(target)) => self.writer_turn(target, out),
            Some(Turn::Jobs) => self.jobs_turn(out),
        }
        true
    }

    /// What a turn adds: a quarter of a chunk, so that a large chunk is paid for by several turns.
    fn quantum(&self) -> i64 {
        i64::from(self.config.chunk_size / 4).max(1)
    }

    fn jobs_turn(&mut self, out: &mut SendQueue) {
        let chunk_size = self.config.chunk_size;
        self.jobs.queued = false;
        self.jobs.deficit = self.jobs.deficit.saturating_add(self.quantum());
        let mut goes_on = true;
        if self.may_announce()
            && let Some(carrier) = self.jobs.announce(out)
        {
            self.begun(carrier);
        }
        // What a job's end has put into the lane goes first.
        while self.jobs.deficit > 0 && out.room() > 0 && self.lane.is_empty() {
            let message = self.top_writer.in_parts();
            let credit = &mut self.top_writer.credit;
            let Some(sent) = self.jobs.send((credit, message), chunk_size, out) else {
                // There is no credit, or a message in parts goes first.
                goes_on = false;
                break;
            };
            self.jobs.deficit = self.jobs.deficit.saturating_sub(cost(sent.length));
            self.count_sent(sent.length, sent.is_last);
            if sent.is_last {
                self.sent(sent.carrier);
                self.queue_writer(Target::Top);
            } else {
                self.begun(sent.carrier);
            }
        }
        if goes_on || self.may_announce() {
            self.queue_jobs();
        }
        if !self.jobs.queued {
            self.jobs.deficit = self.jobs.deficit.min(0);
        }
    }

    /// The jobs may have become able to go on.
    pub(super) fn queue_jobs(&mut self) {
        if self.jobs.queued || self.jobs.is_empty() {
            return;
        }
        if self.top_writer.credit > 0 || self.may_announce() {
            self.jobs.queued = true;
            self.ready.push_back(Turn::Jobs);
        }
    }

    /// Whether an answer is to begin although there is no credit: two ends that ask each other could wait for each
    /// other without an end.
    fn may_announce(&mut self) -> bool {
        self.top_writer.credit == 0 && !self.asked.is_empty() && self.jobs.can_announce()
    }

    fn writer_turn(&mut self, target: Target, out: &mut SendQueue) {
        let (chunk_size, quantum) = (self.config.chunk_size, self.quantum());
        let (jobs, writer) = match target {
            Target::Top => (Some(&self.jobs), Some(&mut self.top_writer)),
            _ => (None, self.writer_mut(target)),
        };
        let Some(writer) = writer else {
            return;
        };
        if !writer.queued {
            return;
        }
        writer.deficit = writer.deficit.saturating_add(quantum);
        let (mut bytes, mut payloads) = (0_u64, 0_u64);
        let mut is_blocked = false;
        while writer.deficit > 0 && out.room() > 0 {
            let Some(next) = writer.messages.front_mut() else {
                break;
            };
            is_blocked = jobs.is_some_and(|jobs| !jobs.lets_go(next, writer.credit, chunk_size));
            if is_blocked {
                // It goes on when a job has ended.
                break;
            }
            let carrier = Carrier::Message(target);
            let Some((length, is_last)) = next.send(carrier, &mut writer.credit, chunk_size, out)
            else {
                break;
            };
            writer.deficit = writer.deficit.saturating_sub(cost(length));
            bytes = bytes.saturating_add(length);
            writer.waiting = writer
                .waiting
                .saturating_sub(usize::try_from(length).unwrap_or(usize::MAX));
            if is_last {
                writer.messages.pop_front();
                payloads = payloads.saturating_add(1);
            }
        }
        let goes_on = !is_blocked && writer.can_go_on();
        writer.queued = goes_on;
        if !goes_on {
            writer.deficit = writer.deficit.min(0);
        }
        let has_drained = writer.messages.is_empty();
        if goes_on {
            self.ready.push_back(Turn::Writer(target));
        }
        self.count_sent(bytes, false);
        self.stats.payloads_sent = self.stats.payloads_sent.saturating_add(payloads);
        self.give_room(target);
        if target == Target::Top {
            self.queue_jobs();
        }
        if has_drained {
            self.drained(target);
        }
    }

    fn count_sent(&mut self, length: u64, is_last: bool) {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(bytes);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(length);
        self.stats.payloads_sent = self.stats.payloads_sent.saturating_add(u64::from(is_last));
    }

    /// All messages of a writer have gone: now its close, and who waits for room.
    pub(super) fn drained(&mut self, target: Target) {
        if target == Target::Top {
            self.close_top_if_due();
            return;
        }
        let close = self
            .writer_mut(target)
            .and_then(|writer| writer.close.take());
        if let Some(payload) = close {
            self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(payload.len());
            self.submit(Carrier::Close(target), payload);
        }
    }

    /// The close of the top-level waits for what was called before it (R-BPMUX-V8).
    pub(super) fn close_top_if_due(&mut self) {
        let writer = &mut self.top_writer;
        if self.openings > 0 || !writer.messages.is_empty() {
            return;
        }
        if let Some(payload) = writer.close.take() {
            self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(payload.len());
            self.submit(Carrier::Close(Target::Top), payload);
        }
    }

    /// Tells who waits for room on a half that there is some, or that there never will be.
    pub(super) fn give_room(&mut self, target: Target) {
        let gives = self
            .writer_mut(target)
            .is_some_and(super::Writer::gives_room);
        if gives {
            self.tell(Event::Room { target });
        }
    }

    /// A writer may have become able to go on.
    pub(super) fn queue_writer(&mut self, target: Target) {
        let Some(writer) = self.writer_mut(target) else {
            return;
        };
        if !writer.queued && writer.can_go_on() {
            writer.queued = true;
            self.ready.push_back(Turn::Writer(target));
        }
    }

    /// Sends a payload that costs top-level credit: at once if its credit is there, else as a job.
    pub(super) fn submit(&mut self, carrier: Carrier, payload: Bytes) {
        let length = wide(&payload);
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_add(payload.len());
        if is_answer(carrier) {
            self.answers_given = self.answers_given.saturating_add(length);
        }
        let is_small = length <= u64::from(self.config.chunk_size)
            && length <= self.top_writer.credit
            && self.jobs.is_empty();
        if length > 0 && !is_small {
            if self.is_before_close(carrier) {
                self.openings = self.openings.saturating_add(1);
            }
            self.jobs.insert(carrier, payload, self.config.chunk_size);
            self.queue_jobs();
            return;
        }
        self.top_writer.credit = self.top_writer.credit.saturating_sub(length);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(length);
        self.stats.payloads_sent = self.stats.payloads_sent.saturating_add(1);
        self.lane_bytes = self.lane_bytes.saturating_add(payload.len());
        self.lane.push_back(Queued::Whole(carrier, payload));
        self.settle_sent(carrier);
    }

    /// Drops a job; whether something of it was sent, if there was one.
    pub(super) fn drop_job(&mut self, carrier: Carrier) -> Option<bool> {
        let job = self.jobs.remove(carrier)?;
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(job.rest.len());
        if self.is_before_close(carrier) {
            self.openings = self.openings.saturating_sub(1);
        }
        // A message may have waited for its end.
        self.queue_writer(Target::Top);
        Some(job.begun.is_some())
    }

    /// Whether a close of the top-level waits for it: the end of a half-sent request is the request's.
    fn is_before_close(&self, carrier: Carrier) -> bool {
        match carrier {
            Carrier::Open(..) | Carrier::Request(_) => true,
            Carrier::CancelRequest(id) => self.asked.get(&id).is_some_and(|asked| !asked.sent),
            _ => false,
        }
    }

    /// A job's first part has gone.
    fn begun(&mut self, carrier: Carrier) {
        let ours = match carrier {
            Carrier::Cancel(target) => self.reader_mut(target).map(|reader| &mut reader.ours),
            Carrier::Close(target) => self.writer_mut(target).map(|writer| &mut writer.ours),
            Carrier::CancelRequest(id) => self.asked.get_mut(&id).map(|asked| &mut asked.ours),
            Carrier::CloseResponse(id) => self.asking.get_mut(&id).map(|asking| &mut asking.ours),
            Carrier::Open(..)
            | Carrier::Request(_)
            | Carrier::Response(_)
            | Carrier::Message(_) => None,
        };
        if let Some(ours) = ours {
            *ours = Ours::Begun;
        }
    }

    /// A job has gone whole.
    fn sent(&mut self, carrier: Carrier) {
        if self.is_before_close(carrier) {
            self.openings = self.openings.saturating_sub(1);
        }
        match carrier {
            Carrier::Open(_, id) => self.tell(Event::Open { id }),
            Carrier::Response(id) => self.tell(Event::ResponseSent { id }),
            _ => {}
        }
        self.settle_sent(carrier);
        self.close_top_if_due();
    }

    /// What follows from having sent a payload whole.
    fn settle_sent(&mut self, carrier: Carrier) {
        match carrier {
            Carrier::Open(kind, id) => self.opening_sent(kind, id),
            Carrier::Request(id) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.sent = true;
                }
            }
            Carrier::Response(id) => self.forget_asking(id),
            Carrier::CancelRequest(id) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.ours = Ours::Sent;
                }
            }
            Carrier::CloseResponse(id) => {
                if let Some(asking) = self.asking.get_mut(&id) {
                    asking.ours = Ours::Sent;
                }
            }
            Carrier::Cancel(target) => self.cancel_sent(target),
            Carrier::Close(target) => {
                if let Some(writer) = self.writer_mut(target) {
                    writer.ours = Ours::Sent;
                }
            }
            Carrier::Message(_) => {}
        }
        self.finish();
    }

    fn opening_sent(&mut self, kind: EntityKind, id: u32) {
        if let Some(entity) = self.own.get_mut(&id) {
            entity.standing = Standing::Open;
        }
        if kind.is_read(true) {
            self.open_window(Target::Own(id));
        }
    }

    fn cancel_sent(&mut self, target: Target) {
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        reader.ours = Ours::Sent;
        let is_released = reader.theirs == Theirs::Released;
        if is_released {
            reader.theirs = Theirs::Done;
            self.answer(Head::AckClose(target));
        }
        // What is still on its way is dropped (R-BPM-15, R-BPM-27).
        self.give_up(Carrier::Message(target));
        if target == Target::Top {
            // The peer drops these (R-BPMUX-V10), and nothing tells of it.
            let is_refused = |carrier: &Carrier| {
                matches!(
                    carrier,
                    Carrier::Open(..) | Carrier::Request(_) | Carrier::Close(Target::Top)
                )
            };
            let coming = self.incoming.as_ref().map(|incoming| incoming.carrier);
            let partials = self.partials.keys().copied().chain(coming);
            let refused: Vec<_> = partials.filter(is_refused).collect();
            for carrier in refused {
                self.give_up(carrier);
            }
            return;
        }
        // No more credit (R-BPM-11).
        self.end_window(target);
    }
}
