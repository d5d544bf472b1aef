//! The order of sending. The control queue goes first: acknowledgements, pongs, payloads that have their credit, and
//! credit, in the order of their causes. Then the writers with credit and the jobs take turns (`turns.rs`).

use ackline_core::SendQueue;
use bytes::Bytes;

use super::entity::{OwnEnd, Writer};
use super::jobs::Dropped;
use super::outgoing::put;
use super::turns::{Turn, quantum};
use super::{Connection, wide};
use crate::chunk::{Head, PayloadRole};
use crate::connection::Event;
use crate::{EntityKind, Target};

impl Connection {
    /// Bytes that answers take which the peer has not read: acknowledgements and pongs that it has caused, and
    /// responses that have their credit.
    pub const fn owed_bytes(&self) -> usize {
        self.control.owed_bytes()
    }

    /// Encodes chunks that may be sent while there is room.
    pub(super) fn encode(&mut self, out: &mut SendQueue) {
        loop {
            self.encode_control(out);
            if out.room() == 0 || !self.turn(out) {
                return;
            }
        }
    }

    fn encode_control(&mut self, out: &mut SendQueue) {
        let sent = self.control.encode(out);
        self.stats.waits_less(sent);
        while out.room() > 0
            && let Some(target) = self.control.next_announcement()
        {
            let reader = self.tables.entities.reader(target);
            let amount = reader.map_or(0, |reader| reader.grant.announce());
            if amount > 0 {
                put(out, Head::Credit { target, amount });
            }
        }
    }

    /// Takes the next turn. Returns `false` if nobody can go on.
    fn turn(&mut self, out: &mut SendQueue) -> bool {
        match self.ready.pop_front() {
            None => return false,
            Some(Turn::Writer(target)) => self.writer_turn(target, out),
            Some(Turn::Jobs) => self.jobs_turn(out),
        }
        true
    }

    fn jobs_turn(&mut self, out: &mut SendQueue) {
        let chunk_size = self.config.chunk_size;
        let _ = self.jobs.turn.begin(quantum(chunk_size));
        let mut goes_on = true;
        if self.may_announce()
            && let Some(role) = self.jobs.announce(out)
        {
            self.begun(role);
        }
        // Chunks that a job's end has put into the control queue go first.
        while self.jobs.turn.has_bytes() && out.room() > 0 && self.control.is_empty() {
            let top = &mut self.tables.entities.top_writer;
            let message = top.in_parts();
            let Some(sent) = self.jobs.send(&mut top.credit, message, chunk_size, out) else {
                // There is no credit, or a message in parts goes first.
                goes_on = false;
                break;
            };
            self.jobs.turn.pay(sent.chunk.length);
            self.stats
                .sent(sent.chunk.length, u64::from(sent.chunk.is_last));
            if sent.chunk.is_last {
                self.sent(sent.role);
                self.queue_writer(Target::Top);
            } else {
                self.begun(sent.role);
            }
        }
        if goes_on || self.may_announce() {
            self.queue_jobs();
        }
        self.jobs.turn.end();
    }

    /// The jobs may have become able to go on.
    pub(super) fn queue_jobs(&mut self) {
        if self.jobs.turn.is_queued() || self.jobs.is_empty() {
            return;
        }
        let has_credit = !self.tables.entities.top_writer.credit.is_empty();
        if (has_credit || self.may_announce()) && self.jobs.turn.enqueue() {
            self.ready.push_back(Turn::Jobs);
        }
    }

    /// Whether an answer is to begin although there is no credit: two ends that ask each other could wait for each
    /// other without an end.
    fn may_announce(&mut self) -> bool {
        self.tables.entities.top_writer.credit.is_empty()
            && !self.tables.requests.own.is_empty()
            && self.jobs.can_announce()
    }

    fn writer_turn(&mut self, target: Target, out: &mut SendQueue) {
        let jobs = (target == Target::Top).then_some(&self.jobs);
        let Some(writer) = self.tables.entities.writer(target) else {
            return;
        };
        let Some(sent) = writer.take_turn(target, jobs, self.config.chunk_size, out) else {
            return;
        };
        let has_drained = writer.messages.is_empty();
        if writer.gives_room() {
            self.events.push(Event::Room { target });
        }
        if sent.goes_on {
            self.ready.push_back(Turn::Writer(target));
        }
        self.stats.sent(sent.bytes, sent.messages);
        if target == Target::Top {
            self.queue_jobs();
        }
        if has_drained {
            self.drained(target);
        }
    }

    /// All messages of a writer have gone: now its close goes.
    fn drained(&mut self, target: Target) {
        if target == Target::Top {
            self.close_top_if_due();
            return;
        }
        let writer = self.tables.entities.writer(target);
        if let Some(payload) = writer.and_then(|writer| writer.close.take()) {
            self.stats.waits_less(payload.len());
            self.submit(PayloadRole::Close(target), payload);
        }
    }

    /// Closes the top-level if that was called and all payloads that were called before it have gone (R-BPMUX-V8).
    pub(super) fn close_top_if_due(&mut self) {
        let writer = &mut self.tables.entities.top_writer;
        if self.jobs.before_close() > 0 || !writer.messages.is_empty() {
            return;
        }
        if let Some(payload) = writer.close.take() {
            self.stats.waits_less(payload.len());
            self.submit(PayloadRole::Close(Target::Top), payload);
        }
    }

    /// Tells the application, if it waits for room on a half, that there is some, or that there never will be.
    pub(super) fn give_room(&mut self, target: Target) {
        let writer = self.tables.entities.writer(target);
        if writer.is_some_and(Writer::gives_room) {
            self.events.push(Event::Room { target });
        }
    }

    /// A writer may have become able to go on.
    pub(super) fn queue_writer(&mut self, target: Target) {
        let writer = self.tables.entities.writer(target);
        if writer.is_some_and(Writer::enqueue) {
            self.ready.push_back(Turn::Writer(target));
        }
    }

    /// Sends a payload that costs top-level credit: at once if its credit is there, else as a job.
    pub(super) fn submit(&mut self, role: PayloadRole, payload: Bytes) {
        let (length, chunk_size) = (wide(&payload), self.config.chunk_size);
        self.stats.waits_more(payload.len());
        self.jobs.count_given(role, length);
        let credit = &mut self.tables.entities.top_writer.credit;
        if !self.jobs.passes(length, credit, chunk_size) {
            let is_before_close = self.is_before_close(role);
            self.jobs.insert(role, payload, chunk_size, is_before_close);
            self.queue_jobs();
            return;
        }
        self.stats.passed(length);
        self.control.push_payload(role, payload);
        self.settle_sent(role);
    }

    /// Drops a job, if there is one.
    pub(super) fn drop_job(&mut self, role: PayloadRole) -> Option<Dropped> {
        let dropped = self.jobs.remove(role)?;
        self.stats.waits_less(dropped.bytes);
        // A message may have waited for its end.
        self.queue_writer(Target::Top);
        Some(dropped)
    }

    /// Whether a close of the top-level waits for a payload: the end of a half-sent request is the request's.
    fn is_before_close(&self, role: PayloadRole) -> bool {
        match role {
            PayloadRole::Open(..) | PayloadRole::Request(_) => true,
            PayloadRole::CancelRequest(id) => {
                let request = self.tables.requests.own.get(&id);
                request.is_some_and(|request| !request.sent)
            }
            _ => false,
        }
    }

    /// Returns the state of the end that a payload of this end brings.
    fn own_end(&mut self, role: PayloadRole) -> Option<&mut OwnEnd> {
        let (entities, requests) = (&mut self.tables.entities, &mut self.tables.requests);
        Some(match role {
            PayloadRole::Cancel(target) => &mut entities.reader(target)?.own_end,
            PayloadRole::Close(target) => &mut entities.writer(target)?.own_end,
            PayloadRole::CancelRequest(id) => &mut requests.own.get_mut(&id)?.own_end,
            PayloadRole::CloseResponse(id) => &mut requests.peer.get_mut(&id)?.own_end,
            PayloadRole::Open(..)
            | PayloadRole::Request(_)
            | PayloadRole::Response(_)
            | PayloadRole::Message(_) => return None,
        })
    }

    /// A job's first part has gone.
    fn begun(&mut self, role: PayloadRole) {
        if let Some(own_end) = self.own_end(role) {
            *own_end = OwnEnd::Begun;
        }
    }

    /// A job has gone whole.
    fn sent(&mut self, role: PayloadRole) {
        match role {
            PayloadRole::Open(_, id) => self.events.push(Event::Open { id }),
            PayloadRole::Response(id) => self.events.push(Event::ResponseSent { id }),
            _ => {}
        }
        self.settle_sent(role);
        self.close_top_if_due();
    }

    /// A payload was sent whole.
    fn settle_sent(&mut self, role: PayloadRole) {
        match role {
            PayloadRole::Open(kind, id) => self.opening_sent(kind, id),
            PayloadRole::Request(id) => {
                if let Some(request) = self.tables.requests.own.get_mut(&id) {
                    request.sent = true;
                }
            }
            PayloadRole::Response(id) => self.forget_peer_request(id),
            PayloadRole::Cancel(target) => self.cancel_sent(target),
            PayloadRole::CancelRequest(_)
            | PayloadRole::CloseResponse(_)
            | PayloadRole::Close(_) => {
                if let Some(own_end) = self.own_end(role) {
                    *own_end = OwnEnd::Sent;
                }
            }
            PayloadRole::Message(_) => {}
        }
        self.finish();
    }

    fn opening_sent(&mut self, kind: EntityKind, id: u32) {
        self.tables.entities.opening_sent(id);
        if kind.is_read(true) {
            self.open_window(Target::Own(id));
        }
    }

    fn cancel_sent(&mut self, target: Target) {
        let Some(reader) = self.tables.entities.reader(target) else {
            return;
        };
        if reader.cancel_sent() {
            self.control.answer(Head::AckClose(target));
        }
        // Bytes that are still on their way are dropped (R-BPM-15, R-BPM-27).
        self.give_up(PayloadRole::Message(target));
        if target == Target::Top {
            self.refuse_openings();
        } else {
            // No more credit (R-BPM-11).
            self.end_window(target);
        }
    }

    /// The peer drops its openings, requests and close of the top-level (R-BPMUX-V10), and nothing tells of it.
    fn refuse_openings(&mut self) {
        let is_refused = |role: &PayloadRole| {
            matches!(
                role,
                PayloadRole::Open(..) | PayloadRole::Request(_) | PayloadRole::Close(Target::Top)
            )
        };
        let roles = self.tables.partials().chain(self.intake.role());
        let refused: Vec<_> = roles.filter(is_refused).collect();
        for role in refused {
            self.give_up(role);
        }
    }
}
