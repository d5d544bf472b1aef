//! What is sent, in which order. Acknowledgements, pongs, credit and whatever has its credit go first, in
//! the order of their causes; then those who have something to send take turns of equal bytes (deficit
//! round robin, R-BPM-32): each writer with credit, and each job that waits for top-level credit.

use ackline_core::SendQueue;
use bytes::Bytes;

use super::entity::{Ours, Standing};
use super::{Connection, wide};
use crate::chunk::{Carrier, Head, encode};
use crate::connection::Event;
use crate::{EntityKind, Target};

/// What goes before payloads that wait.
#[derive(Debug)]
pub(super) enum Queued {
    /// A chunk without payload.
    Bare(Head),
    /// A whole payload whose credit is taken.
    Whole(Carrier, Bytes),
}

/// A payload that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// What is still to be sent.
    pub(super) rest: Bytes,
    /// In parts, and the first has gone.
    pub(super) begun: bool,
}

impl Outgoing {
    pub(super) const fn new(payload: Bytes) -> Self {
        Self {
            rest: payload,
            begun: false,
        }
    }

    /// Sends the next chunk; how many bytes, and whether it was the last. Nothing if there is no credit for
    /// what is left.
    fn send(
        &mut self,
        carrier: Carrier,
        credit: &mut u64,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<(u64, bool)> {
        let left = wide(&self.rest);
        let length = left.min(*credit).min(u64::from(chunk_size));
        if length == 0 && left > 0 {
            return None;
        }
        if length < left && !self.begun {
            self.begun = true;
            put(out, Head::Partial { total: left });
        }
        *credit = credit.saturating_sub(length);
        put(out, Head::Payload { carrier, length });
        let length_here = usize::try_from(length).unwrap_or(usize::MAX);
        out.put(self.rest.split_to(length_here.min(self.rest.len())));
        Some((length, self.rest.is_empty()))
    }
}

fn put(out: &mut SendQueue, head: Head) {
    out.put_slice(encode(head).as_ref());
}

/// What a turn costs beside its payload bytes, so that empty messages have an end too.
const CHUNK_COST: i64 = 16;

impl Connection {
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
                Queued::Whole(carrier, payload) => {
                    let length = wide(&payload);
                    put(out, Head::Payload { carrier, length });
                    self.stats.waiting_bytes =
                        self.stats.waiting_bytes.saturating_sub(payload.len());
                    out.put(payload);
                }
            }
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

    /// The next turn, of a writer or of a job; `false` if nobody can go on.
    fn turn(&mut self, out: &mut SendQueue) -> bool {
        let has_job = !self.turns.is_empty() && self.top_writer.credit > 0;
        self.jobs_next = has_job && (self.jobs_next || self.ready.is_empty());
        if self.jobs_next {
            self.jobs_next = false;
            if let Some(carrier) = self.turns.pop_front() {
                self.job_turn(carrier, out);
                return true;
            }
        }
        self.jobs_next = has_job;
        let Some(target) = self.ready.pop_front() else {
            return false;
        };
        self.writer_turn(target, out);
        true
    }

    fn job_turn(&mut self, carrier: Carrier, out: &mut SendQueue) {
        let chunk_size = self.config.chunk_size;
        let credit = &mut self.top_writer.credit;
        let Some(job) = self.jobs.get_mut(&carrier) else {
            return;
        };
        let Some((length, is_last)) = job.send(carrier, credit, chunk_size, out) else {
            self.turns.push_back(carrier);
            return;
        };
        self.count_sent(length, is_last);
        if is_last {
            self.jobs.remove(&carrier);
            self.sent(carrier);
        } else {
            self.turns.push_back(carrier);
            self.begun(carrier);
        }
    }

    fn writer_turn(&mut self, target: Target, out: &mut SendQueue) {
        let chunk_size = self.config.chunk_size.max(1);
        let Some(writer) = self.writer_mut(target) else {
            return;
        };
        if !writer.queued {
            return;
        }
        let quantum = i64::from(chunk_size / 4).max(1);
        writer.deficit = writer.deficit.saturating_add(quantum);
        let (mut bytes, mut payloads) = (0_u64, 0_u64);
        while writer.deficit > 0 && out.room() > 0 {
            let Some(next) = writer.messages.front_mut() else {
                break;
            };
            let carrier = Carrier::Message(target);
            let Some((length, is_last)) = next.send(carrier, &mut writer.credit, chunk_size, out)
            else {
                break;
            };
            let cost = i64::try_from(length).unwrap_or(i64::MAX);
            writer.deficit = writer
                .deficit
                .saturating_sub(cost.saturating_add(CHUNK_COST));
            bytes = bytes.saturating_add(length);
            writer.waiting = writer
                .waiting
                .saturating_sub(usize::try_from(length).unwrap_or(usize::MAX));
            if is_last {
                writer.messages.pop_front();
                payloads = payloads.saturating_add(1);
            }
        }
        let goes_on = writer.can_go_on();
        writer.queued = goes_on;
        if !goes_on {
            writer.deficit = writer.deficit.min(0);
        }
        let has_drained = writer.messages.is_empty();
        if goes_on {
            self.ready.push_back(target);
        }
        self.count_sent(bytes, false);
        self.stats.payloads_sent = self.stats.payloads_sent.saturating_add(payloads);
        self.give_room(target);
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
            self.ready.push_back(target);
        }
    }

    /// Sends a payload that costs top-level credit: at once if its credit is there, else as a job.
    pub(super) fn submit(&mut self, carrier: Carrier, payload: Bytes) {
        let length = wide(&payload);
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_add(payload.len());
        let is_small = length <= u64::from(self.config.chunk_size)
            && length <= self.top_writer.credit
            && self.turns.is_empty();
        if length > 0 && !is_small {
            if matches!(carrier, Carrier::Open(..) | Carrier::Request(_)) {
                self.openings = self.openings.saturating_add(1);
            }
            self.jobs.insert(carrier, Outgoing::new(payload));
            self.compact_turns();
            self.turns.push_back(carrier);
            return;
        }
        self.top_writer.credit = self.top_writer.credit.saturating_sub(length);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(length);
        self.stats.payloads_sent = self.stats.payloads_sent.saturating_add(1);
        self.lane.push_back(Queued::Whole(carrier, payload));
        self.settle_sent(carrier);
    }

    /// Jobs that are gone keep no places for ever.
    fn compact_turns(&mut self) {
        if self.turns.len() > self.jobs.len().saturating_mul(2).saturating_add(64) {
            let jobs = &self.jobs;
            self.turns.retain(|carrier| jobs.contains_key(carrier));
        }
    }

    /// Drops a job; whether something of it was sent, if there was one.
    pub(super) fn drop_job(&mut self, carrier: Carrier) -> Option<bool> {
        let job = self.jobs.remove(&carrier)?;
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(job.rest.len());
        if matches!(carrier, Carrier::Open(..) | Carrier::Request(_)) {
            self.openings = self.openings.saturating_sub(1);
        }
        // The same carrier may come again: it gets a place of its own.
        if self.turns.front() == Some(&carrier) {
            self.turns.pop_front();
        } else {
            self.turns.retain(|other| *other != carrier);
        }
        Some(job.begun)
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
        if matches!(carrier, Carrier::Open(..) | Carrier::Request(_)) {
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
        if target == Target::Top {
            return;
        }
        // What is still on its way is dropped (R-BPM-15); no more credit (R-BPM-11).
        reader.take_back();
        let Some(mut message) = reader.message.take() else {
            return;
        };
        let held = message.held();
        message.discard();
        if let Some(reader) = self.reader_mut(target) {
            reader.message = Some(message);
        }
        self.held = self.held.saturating_sub(held);
    }
}
