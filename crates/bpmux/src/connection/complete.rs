//! Payloads and acknowledgements that have come whole: their events, the acknowledgements of this
//! end (REQ-BPMUX-8), and the end of everything that is over, in any order of the two sides' ends
//! (REQ-BPMUX-33).

use ackline_core::{Payload, UsageError};
use bytes::Bytes;

use super::Connection;
use super::entity::{OwnEnd, PeerEnd, Status};
use crate::chunk::{Head, PayloadRole};
use crate::connection::Event;
use crate::error::Subject;
use crate::{EntityKind, Kind, Target, refusal};

impl Connection {
    /// A payload has come whole; it had so many bytes.
    pub(super) fn complete(&mut self, role: PayloadRole, payload: Payload, bytes: u64) {
        match role {
            PayloadRole::Open(kind, id) => self.opened(kind, id, payload, bytes),
            PayloadRole::Message(target) => self.message(target, payload, bytes),
            PayloadRole::Request(id) => self.requested(id, payload, bytes),
            PayloadRole::Response(id) => self.responded(id, payload, bytes),
            PayloadRole::CancelRequest(id) => self.request_cancelled(id, payload, bytes),
            PayloadRole::CloseResponse(id) => self.response_closed(id, payload),
            PayloadRole::Cancel(target) => self.cancelled(target, payload, bytes),
            PayloadRole::Close(target) => self.closed(target, payload, bytes),
        }
    }

    /// A refused entity is ended in order, first the half that it reads, and gives no events (R-BPMUX-V4).
    fn opened(&mut self, kind: EntityKind, id: u32, payload: Payload, bytes: u64) {
        let target = Target::Peer(id);
        let is_refused = self.tables.entities.refuses_openings();
        self.tables.entities.complete(id, is_refused);
        if !is_refused {
            if kind.is_read(false) {
                self.open_window(target);
            }
            self.events.push(Event::Opened { kind, id, payload });
            return;
        }
        self.consumed(Target::Top, bytes);
        if let Some(reader) = self.tables.entities.reader(target) {
            reader.own_end = OwnEnd::Sent;
            self.end(PayloadRole::Cancel(target));
        }
        if let Some(writer) = self.tables.entities.writer(target) {
            writer.own_end = OwnEnd::Sent;
            self.end(PayloadRole::Close(target));
        }
    }

    /// Ends something with an empty payload, which costs no credit.
    fn end(&mut self, role: PayloadRole) {
        self.control.push_payload(role, Bytes::new());
    }

    fn message(&mut self, target: Target, payload: Payload, bytes: u64) {
        let reader = self.tables.entities.reader(target);
        if reader.is_none_or(|reader| reader.own_end == OwnEnd::Sent) {
            self.consumed(target, bytes);
        } else {
            self.events.push(Event::Message { target, payload });
        }
    }

    fn requested(&mut self, id: u32, payload: Payload, bytes: u64) {
        let is_refused = self.tables.entities.refuses_openings();
        self.tables.requests.complete(id, is_refused);
        if is_refused {
            self.consumed(Target::Top, bytes);
            self.end(PayloadRole::CloseResponse(id));
        } else {
            self.events.push(Event::Request { id, payload });
        }
    }

    fn responded(&mut self, id: u32, payload: Payload, bytes: u64) {
        let Some(request) = self.tables.requests.own.get(&id) else {
            return;
        };
        if matches!(request.own_end, OwnEnd::Begun | OwnEnd::Sent) {
            // It crosses the cancel, whose acknowledgement frees the id (R-BPM-16, R-BPMUX-V3).
            self.tables.requests.response_crossed(id);
            self.consumed(Target::Top, bytes);
            self.finish();
            return;
        }
        self.drop_job(PayloadRole::CancelRequest(id));
        self.forget_own_request(id);
        self.events.push(Event::Response { id, payload });
        self.finish();
    }

    fn request_cancelled(&mut self, id: u32, payload: Payload, bytes: u64) {
        self.control.answer(Head::AckCancelRequest(id));
        let Some(request) = self.tables.requests.peer.get_mut(&id) else {
            // It was answered before (R-BPM-16).
            self.consumed(Target::Top, bytes);
            self.tables.keep_less();
            return;
        };
        let is_known = request.status == Status::Open;
        request.cancelled = true;
        if request.own_end != OwnEnd::Sent {
            // A response or close that is not sent whole is void (R-BPMUX-V7).
            self.drop_job(PayloadRole::Response(id));
            self.drop_job(PayloadRole::CloseResponse(id));
            self.forget_peer_request(id);
        }
        if is_known {
            self.events.push(Event::RequestCancelled { id, payload });
        } else {
            self.consumed(Target::Top, bytes);
        }
        self.finish();
    }

    fn response_closed(&mut self, id: u32, payload: Payload) {
        self.control.answer(Head::AckCloseResponse(id));
        if let Some(request) = self.tables.requests.own.get_mut(&id) {
            request.peer_end = PeerEnd::Done;
            if request.own_end != OwnEnd::Sent {
                self.drop_job(PayloadRole::CancelRequest(id));
                self.forget_own_request(id);
            }
        }
        self.events.push(Event::ResponseClosed { id, payload });
        self.finish();
    }

    fn cancelled(&mut self, target: Target, payload: Payload, bytes: u64) {
        let Some(writer) = self.tables.entities.writer(target) else {
            return;
        };
        let dropped = writer.cancel();
        let may_wait = !writer.has_sent_close();
        self.stats.waits_less(dropped);
        if may_wait {
            self.drop_job(PayloadRole::Close(target));
        }
        if target == Target::Top {
            self.drop_openings();
            // Jobs may have waited for the end of a message.
            self.queue_jobs();
        } else {
            self.control.answer(Head::AckCancel(target));
        }
        self.give_room(target);
        if self.tables.entities.is_refused(target) {
            self.consumed(Target::Top, bytes);
        } else {
            self.events.push(Event::Cancelled { target, payload });
        }
        self.forget_if_over(target);
        self.finish();
    }

    /// The peer has cancelled the top-level: entities and requests that wait to begin never will (R-BPMUX-V10).
    fn drop_openings(&mut self) {
        for role in self.jobs.openings() {
            self.drop_job(role);
            match role {
                PayloadRole::Open(_, id) => self.forget(Target::Own(id)),
                PayloadRole::Request(id) => self.forget_own_request(id),
                _ => {}
            }
        }
    }

    fn closed(&mut self, target: Target, payload: Payload, bytes: u64) {
        let is_refused = self.tables.entities.is_refused(target);
        let is_top = target == Target::Top;
        let Some(reader) = self.tables.entities.reader(target) else {
            return;
        };
        // The application is not told of refused entities, so it cannot acknowledge their closes.
        let may_hold = self.config.holds_close_acks && !is_refused && !is_top;
        let is_held = may_hold && !reader.is_released;
        let end = if is_held {
            PeerEnd::Held
        } else {
            PeerEnd::Done
        };
        if reader.close(end, is_top) {
            self.drop_job(PayloadRole::Cancel(target));
        }
        if !is_top {
            self.end_window(target);
        }
        if is_held {
            self.tables.entities.hold_close();
        } else if !is_top {
            self.control.answer(Head::AckClose(target));
        }
        if is_refused {
            self.consumed(Target::Top, bytes);
        } else {
            self.events.push(Event::Closed { target, payload });
        }
        self.forget_if_over(target);
        self.finish();
    }

    /// Acknowledges the peer's close of a half, of which [`Event::Closed`] has told, if the configuration
    /// [holds](crate::Config::holds_close_acks) these acknowledgements. If the half was cancelled too, the cancel
    /// goes first.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `not_closed`, `closed`.
    pub fn acknowledge_close(&mut self, target: Target) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.peer_end != PeerEnd::Held {
            return Err(refusal::NOT_CLOSED);
        }
        let goes_now = reader.release();
        self.tables.entities.release_close();
        if goes_now {
            self.control.answer(Head::AckClose(target));
            self.forget_if_over(target);
        }
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
        if reader.peer_end == PeerEnd::Held {
            self.acknowledge_close(target)?;
        }
        Ok(())
    }

    pub(super) fn close_acknowledged(&mut self, target: Target) -> Result<(), Kind> {
        let writer = self.tables.entities.writer(target);
        let writer = writer.filter(|it| target != Target::Top && it.own_end == OwnEnd::Sent);
        let Some(writer) = writer else {
            return Err(unexpected(Subject::Entity(target)));
        };
        writer.own_end = OwnEnd::Acknowledged;
        // A cancel of the peer's that is half received is void (R-BPMUX-V7).
        self.void(PayloadRole::Cancel(target));
        if !self.tables.entities.is_refused(target) {
            self.events.push(Event::CloseAcknowledged { target });
        }
        self.forget_if_over(target);
        Ok(())
    }

    pub(super) fn cancel_acknowledged(&mut self, target: Target) -> Result<(), Kind> {
        let reader = self.tables.entities.reader(target);
        let reader = reader.filter(|it| target != Target::Top && it.own_end == OwnEnd::Sent);
        let Some(reader) = reader else {
            return Err(unexpected(Subject::Entity(target)));
        };
        reader.own_end = OwnEnd::Acknowledged;
        if let Some(message) = reader.message.take() {
            self.drop_assembly(target, &message);
        }
        self.void(PayloadRole::Close(target));
        if !self.tables.entities.is_refused(target) {
            self.events.push(Event::CancelAcknowledged { target });
        }
        self.forget_if_over(target);
        Ok(())
    }

    pub(super) fn request_cancel_acknowledged(&mut self, id: u32) -> Result<(), Kind> {
        let request = self.tables.requests.own.get(&id);
        if request.is_none_or(|request| request.own_end != OwnEnd::Sent) {
            return Err(unexpected(Subject::OwnRequest(id)));
        }
        self.forget_own_request(id);
        self.events.push(Event::RequestCancelAcknowledged { id });
        self.finish();
        Ok(())
    }

    pub(super) fn response_close_acknowledged(&mut self, id: u32) -> Result<(), Kind> {
        let request = self.tables.requests.peer.get(&id);
        let Some(request) = request.filter(|request| request.own_end == OwnEnd::Sent) else {
            return Err(unexpected(Subject::PeerRequest(id)));
        };
        let is_refused = request.status == Status::Refused;
        self.forget_peer_request(id);
        self.void(PayloadRole::CancelRequest(id));
        if !is_refused {
            self.events.push(Event::ResponseCloseAcknowledged { id });
        }
        self.finish();
        Ok(())
    }
}

fn unexpected(what: Subject) -> Kind {
    Kind::UnexpectedAcknowledgement { what }
}
