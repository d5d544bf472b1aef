//! What follows from what has come whole: events, acknowledgements (REQ-BPMUX-8), and the end of what is over,
//! in whatever order the ends of both sides come (REQ-BPMUX-33).

use ackline_core::{Payload, UsageError};
use bytes::Bytes;

use super::Connection;
use super::entity::{Ours, Standing, Theirs};
use super::outbox::Queued;
use crate::chunk::{Carrier, Head};
use crate::connection::Event;
use crate::error::Subject;
use crate::{EntityKind, Kind, Target, refusal};

impl Connection {
    /// A payload has come whole; it had so many bytes.
    pub(super) fn complete(&mut self, carrier: Carrier, payload: Payload, bytes: u64) {
        match carrier {
            Carrier::Open(kind, id) => self.opened(kind, id, payload, bytes),
            Carrier::Message(target) => self.message(target, payload, bytes),
            Carrier::Request(id) => self.requested(id, payload, bytes),
            Carrier::Response(id) => self.responded(id, payload, bytes),
            Carrier::CancelRequest(id) => self.request_cancelled(id, payload, bytes),
            Carrier::CloseResponse(id) => self.response_closed(id, payload),
            Carrier::Cancel(target) => self.cancelled(target, payload, bytes),
            Carrier::Close(target) => self.closed(target, payload, bytes),
        }
    }

    /// Whether what comes on the top-level is refused: its cancel was sent (R-BPM-27).
    pub(super) fn refuses(&self) -> bool {
        self.top_reader.ours == Ours::Sent
    }

    /// What is refused is ended in order, first what it reads, and gives no events (R-BPMUX-V4).
    fn opened(&mut self, kind: EntityKind, id: u32, payload: Payload, bytes: u64) {
        let refused = self.refuses();
        if let Some(entity) = self.peer.get_mut(&id) {
            entity.standing = standing(refused);
        }
        self.peer_open = self.peer_open.saturating_add(1);
        if !refused {
            if kind.is_read(false) {
                self.open_window(Target::Peer(id));
            }
            self.tell(Event::Opened { kind, id, payload });
            return;
        }
        self.consumed(Target::Top, bytes);
        let target = Target::Peer(id);
        if let Some(reader) = self.reader_mut(target) {
            reader.ours = Ours::Sent;
            self.end(Carrier::Cancel(target));
        }
        if let Some(writer) = self.writer_mut(target) {
            writer.ours = Ours::Sent;
            self.end(Carrier::Close(target));
        }
    }

    /// Ends something with an empty payload, which costs no credit.
    fn end(&mut self, carrier: Carrier) {
        self.lane.push_back(Queued::Whole(carrier, Bytes::new()));
    }

    fn message(&mut self, target: Target, payload: Payload, bytes: u64) {
        let ours = self.reader_mut(target).map(|reader| reader.ours);
        if ours.is_none_or(|ours| ours == Ours::Sent) {
            self.consumed(target, bytes);
        } else {
            self.tell(Event::Message { target, payload });
        }
    }

    fn requested(&mut self, id: u32, payload: Payload, bytes: u64) {
        let refused = self.refuses();
        if let Some(asking) = self.asking.get_mut(&id) {
            asking.standing = standing(refused);
            if refused {
                asking.ours = Ours::Sent;
            }
        }
        self.peer_open = self.peer_open.saturating_add(1);
        if refused {
            self.consumed(Target::Top, bytes);
            self.end(Carrier::CloseResponse(id));
        } else {
            self.tell(Event::Request { id, payload });
        }
    }

    fn responded(&mut self, id: u32, payload: Payload, bytes: u64) {
        let Some(asked) = self.asked.get_mut(&id) else {
            return;
        };
        if matches!(asked.ours, Ours::Begun | Ours::Sent) {
            // It crosses the cancel, whose acknowledgement frees the id (R-BPM-16, R-BPMUX-V3).
            asked.answered = true;
            self.answered = self.answered.saturating_add(1);
            self.consumed(Target::Top, bytes);
            self.finish();
            return;
        }
        self.drop_job(Carrier::CancelRequest(id));
        self.forget_asked(id);
        self.tell(Event::Response { id, payload });
        self.finish();
    }

    fn request_cancelled(&mut self, id: u32, payload: Payload, bytes: u64) {
        self.answer(Head::AckCancelRequest(id));
        let Some(asking) = self.asking.get_mut(&id) else {
            // It was answered before (R-BPM-16).
            self.consumed(Target::Top, bytes);
            self.keep_less();
            return;
        };
        let is_known = asking.standing == Standing::Open;
        asking.cancelled = true;
        if asking.ours != Ours::Sent {
            // A response or close that is not sent whole is void (R-BPMUX-V7).
            self.drop_job(Carrier::Response(id));
            self.drop_job(Carrier::CloseResponse(id));
            self.forget_asking(id);
        }
        if is_known {
            self.tell(Event::RequestCancelled { id, payload });
        } else {
            self.consumed(Target::Top, bytes);
        }
        self.finish();
    }

    fn response_closed(&mut self, id: u32, payload: Payload) {
        self.answer(Head::AckCloseResponse(id));
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.theirs = Theirs::Done;
            if asked.ours != Ours::Sent {
                self.drop_job(Carrier::CancelRequest(id));
                self.forget_asked(id);
            }
        }
        self.tell(Event::ResponseClosed { id, payload });
        self.finish();
    }

    fn cancelled(&mut self, target: Target, payload: Payload, bytes: u64) {
        let is_refused = self.is_refused(target);
        let Some(writer) = self.writer_mut(target) else {
            return;
        };
        writer.cancelled = true;
        let waiting = std::mem::take(&mut writer.waiting);
        writer.messages.clear();
        let close = writer.close.take().map_or(0, |close| close.len());
        let is_sent = matches!(writer.ours, Ours::Sent | Ours::Acknowledged);
        if !is_sent {
            writer.ours = Ours::No;
        }
        let freed = waiting.saturating_add(close);
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(freed);
        if !is_sent {
            self.drop_job(Carrier::Close(target));
        }
        if target == Target::Top {
            self.drop_openings();
            // Jobs may have waited for the end of a message.
            self.queue_jobs();
        } else {
            self.answer(Head::AckCancel(target));
        }
        self.give_room(target);
        if is_refused {
            self.consumed(Target::Top, bytes);
        } else {
            self.tell(Event::Cancelled { target, payload });
        }
        self.forget_if_over(target);
        self.finish();
    }

    /// The peer has cancelled the top-level: what waits to be opened or requested never will be
    /// (R-BPMUX-V10).
    fn drop_openings(&mut self) {
        let is_opening =
            |carrier: &Carrier| matches!(carrier, Carrier::Open(..) | Carrier::Request(_));
        let dropped: Vec<_> = self.jobs.carriers().filter(is_opening).collect();
        for carrier in dropped {
            self.drop_job(carrier);
            match carrier {
                Carrier::Open(_, id) => self.forget(Target::Own(id)),
                Carrier::Request(id) => self.forget_asked(id),
                _ => {}
            }
        }
    }

    fn closed(&mut self, target: Target, payload: Payload, bytes: u64) {
        let is_refused = self.is_refused(target);
        let holds_close_acks = self.config.holds_close_acks;
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        // The application never hears of what was refused.
        let may_hold = !is_refused && target != Target::Top;
        let is_held = holds_close_acks && may_hold && !reader.is_released;
        reader.theirs = if is_held { Theirs::Held } else { Theirs::Done };
        // Of the top-level a cancel that has begun goes on: nothing tells the peer that it is void.
        let is_void = match target {
            Target::Top => reader.ours == Ours::Waiting,
            // The acknowledgement of a held one goes behind the cancel.
            _ => !is_held && reader.ours != Ours::Sent,
        };
        if is_void {
            reader.ours = Ours::No;
            self.drop_job(Carrier::Cancel(target));
        }
        if target != Target::Top {
            self.end_window(target);
        }
        if is_held {
            self.held_closes = self.held_closes.saturating_add(1);
        } else if target != Target::Top {
            self.answer(Head::AckClose(target));
        }
        if is_refused {
            self.consumed(Target::Top, bytes);
        } else {
            self.tell(Event::Closed { target, payload });
        }
        self.forget_if_over(target);
        self.finish();
    }

    /// Acknowledges the peer's close of a half, of which [`Event::Closed`] has told: for who
    /// [holds](crate::Config::holds_close_acks) these acknowledgements. If the half was cancelled too, the cancel
    /// goes first.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `not_closed`, `closed`.
    pub fn acknowledge_close(&mut self, target: Target) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.theirs != Theirs::Held {
            return Err(refusal::NOT_CLOSED);
        }
        let waits = matches!(reader.ours, Ours::Waiting | Ours::Begun);
        reader.theirs = if waits {
            Theirs::Released
        } else {
            Theirs::Done
        };
        self.held_closes = self.held_closes.saturating_sub(1);
        if waits {
            return Ok(());
        }
        self.answer(Head::AckClose(target));
        self.forget_if_over(target);
        Ok(())
    }

    /// Ends the [hold](crate::Config::holds_close_acks) on one half: its close is acknowledged when it comes, or
    /// now if it has come.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn release_close(&mut self, target: Target) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        reader.is_released = true;
        if reader.theirs == Theirs::Held {
            self.acknowledge_close(target)?;
        }
        Ok(())
    }

    pub(super) fn close_acknowledged(&mut self, target: Target) -> Result<(), Kind> {
        let is_refused = self.is_refused(target);
        let writer = self
            .writer_mut(target)
            .filter(|writer| target != Target::Top && writer.ours == Ours::Sent);
        let Some(writer) = writer else {
            return Err(unexpected(Subject::Entity(target)));
        };
        writer.ours = Ours::Acknowledged;
        // A cancel of the peer's that is half received is void (R-BPMUX-V7).
        self.void(Carrier::Cancel(target));
        if !is_refused {
            self.tell(Event::CloseAcknowledged { target });
        }
        self.forget_if_over(target);
        Ok(())
    }

    pub(super) fn cancel_acknowledged(&mut self, target: Target) -> Result<(), Kind> {
        let is_refused = self.is_refused(target);
        let reader = self
            .reader_mut(target)
            .filter(|reader| target != Target::Top && reader.ours == Ours::Sent);
        let Some(reader) = reader else {
            return Err(unexpected(Subject::Entity(target)));
        };
        reader.ours = Ours::Acknowledged;
        let message = reader.message.take();
        self.drop_assembly(target, message);
        self.void(Carrier::Close(target));
        if !is_refused {
            self.tell(Event::CancelAcknowledged { target });
        }
        self.forget_if_over(target);
        Ok(())
    }

    pub(super) fn request_cancel_acknowledged(&mut self, id: u32) -> Result<(), Kind> {
        let asked = self.asked.get(&id);
        if asked.is_none_or(|asked| asked.ours != Ours::Sent) {
            return Err(unexpected(Subject::OwnRequest(id)));
        }
        self.forget_asked(id);
        self.tell(Event::RequestCancelAcknowledged { id });
        self.finish();
        Ok(())
    }

    pub(super) fn response_close_acknowledged(&mut self, id: u32) -> Result<(), Kind> {
        let asking = self.asking.get(&id);
        let asking = asking.filter(|asking| asking.ours == Ours::Sent);
        let Some(asking) = asking else {
            return Err(unexpected(Subject::PeerRequest(id)));
        };
        let is_refused = asking.standing == Standing::Refused;
        self.forget_asking(id);
        self.void(Carrier::CancelRequest(id));
        if !is_refused {
            self.tell(Event::ResponseCloseAcknowledged { id });
        }
        self.finish();
        Ok(())
    }

    /// A request of this end's is over, and its id free.
    pub(super) fn forget_asked(&mut self, id: u32) {
        if let Some(asked) = self.asked.remove(&id) {
            self.ids.requests.free(id);
            self.answered = self.answered.saturating_sub(usize::from(asked.answered));
        }
        self.void(Carrier::Response(id));
        self.void(Carrier::CloseResponse(id));
    }

    /// A request of the peer's is over.
    pub(super) fn forget_asking(&mut self, id: u32) {
        let asking = self.asking.remove(&id);
        if asking.is_some_and(|asking| asking.is_complete()) {
            self.peer_open = self.peer_open.saturating_sub(1);
        }
        self.keep_less();
        self.void(Carrier::Request(id));
    }
}

const fn standing(is_refused: bool) -> Standing {
    if is_refused {
        Standing::Refused
    } else {
        Standing::Open
    }
}

fn unexpected(what: Subject) -> Kind {
    Kind::UnexpectedAcknowledgement { what }
}
