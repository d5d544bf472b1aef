//! The calls of the application. No call can lead to a chunk that is invalid (REQ-BPMUX-7): such a call is refused and
//! nothing changes. No call blocks: payloads wait for their credit in the connection.

use ackline_core::UsageError;
use bytes::Bytes;

use super::Connection;
use super::entity::{Entity, OwnEnd, Reader, Writer};
use super::outgoing::Waiting;
use super::turns::Turn;
use crate::chunk::{Head, PayloadRole};
use crate::{EntityKind, Target, refusal};

impl Connection {
    /// Opens a sink, stream or duplex under an id of the caller's. It can be used at once, or, if `payload`
    /// has to wait for top-level credit, from [`Event::Open`](crate::Event::Open) on.
    ///
    /// # Errors
    /// `id_in_use`, `top_level_closed`, `closed`.
    pub fn open(&mut self, kind: EntityKind, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.may_open()?;
        self.tables.entities.insert_own(kind, id)?;
        self.submit(PayloadRole::Open(kind, id), payload);
        Ok(())
    }

    /// Returns the id that [`open`](Self::open) may be called with next: a small one that is free.
    ///
    /// # Errors
    /// `limit_reached`: every id is in use.
    pub fn free_id(&mut self) -> Result<u32, UsageError> {
        self.tables.entities.free_id()
    }

    /// Returns the id that [`request`](Self::request) may be called with next: a small one that is free.
    ///
    /// # Errors
    /// `limit_reached`: every id is in use.
    pub fn free_request_id(&mut self) -> Result<u32, UsageError> {
        self.tables.requests.free_id()
    }

    /// Whether an own entity or the peer's is open: its opening was sent, or has come, whole.
    pub fn is_open(&self, target: Target) -> bool {
        let entity = self.tables.entities.get(target);
        target == Target::Top || entity.is_some_and(Entity::is_complete)
    }

    /// Sends a message on a half that this end writes: after the earlier ones, as credit comes.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `top_level_closed`, `closed`.
    pub fn send(&mut self, target: Target, payload: Bytes) -> Result<(), UsageError> {
        let writer = self.writer_for(target)?;
        if writer.is_closed() {
            return Err(if target == Target::Top {
                refusal::TOP_LEVEL_CLOSED
            } else {
                refusal::ALREADY_ENDED
            });
        }
        let bytes = payload.len();
        writer.push(payload);
        if writer.enqueue() {
            self.ready.push_back(Turn::Writer(target));
        }
        self.stats.waits_more(bytes);
        Ok(())
    }

    /// Bytes that may be sent on a half without waiting for credit, those that wait already included.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn credit(&mut self, target: Target) -> Result<u64, UsageError> {
        let writer = self.writer_for(target)?;
        if writer.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        Ok(writer.credit.unused())
    }

    /// Bytes that were called to be sent on a half and have not been.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn waiting(&mut self, target: Target) -> Result<usize, UsageError> {
        Ok(self.writer_for(target)?.waiting)
    }

    /// Messages that were called to be sent on a half and have not been.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn backlog(&mut self, target: Target) -> Result<Waiting, UsageError> {
        Ok(self.writer_for(target)?.backlog())
    }

    /// All payloads but messages that wait: those that open, request, respond or end something and wait for top-level
    /// credit or the transport, with acknowledgements and pongs.
    pub fn top_backlog(&self) -> Waiting {
        self.control.backlog().plus(self.jobs.backlog())
    }

    /// Responses, and closes of responses, that wait for top-level credit or have gone in part.
    pub fn answers_backlog(&self) -> Waiting {
        self.jobs.answers()
    }

    /// Bytes of all responses, and closes of responses, that were called to be sent since the beginning.
    pub const fn answers_given(&self) -> u64 {
        self.jobs.answers_given()
    }

    /// Whether a response could begin to leave now: there is top-level credit, or this end asks too and announces it
    /// without credit.
    pub fn can_begin_answer(&self) -> bool {
        let has_credit = !self.tables.entities.top_writer.credit.is_empty();
        has_credit || !self.tables.requests.own.is_empty()
    }

    /// Asks for one [`Event::Room`](crate::Event::Room) when no more than `most` waits on the half, or when it
    /// ends; at once if that is so now.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn want_room(&mut self, target: Target, most: Waiting) -> Result<(), UsageError> {
        self.writer_for(target)?.wants_room = Some(most);
        self.give_room(target);
        Ok(())
    }

    /// Asks for one [`Event::Room`](crate::Event::Room) when the half has credit that nothing waits for, or
    /// when it ends; at once if that is so now.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn want_credit(&mut self, target: Target) -> Result<(), UsageError> {
        self.writer_for(target)?.wants_credit = true;
        self.give_room(target);
        Ok(())
    }

    /// Closes a half that this end writes, after its messages. The top-level's close waits for the
    /// requests and openings called before it too.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn close(&mut self, target: Target, payload: Bytes) -> Result<(), UsageError> {
        let before_close = self.jobs.before_close();
        let writer = self.writer_for(target)?;
        if writer.is_closed() {
            return Err(refusal::ALREADY_ENDED);
        }
        writer.own_end = OwnEnd::Waiting;
        let waits = !writer.messages.is_empty() || (target == Target::Top && before_close > 0);
        if waits {
            let bytes = payload.len();
            writer.close = Some(payload);
            self.stats.waits_more(bytes);
        } else {
            self.submit(PayloadRole::Close(target), payload);
        }
        self.give_room(target);
        Ok(())
    }

    /// Cancels a half that this end reads. Messages that are on their way are dropped. A half whose close is not
    /// acknowledged, since that is [held](crate::Config::holds_close_acks), can be cancelled too.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn cancel(&mut self, target: Target, payload: Bytes) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_uncancellable() {
            return Err(refusal::ALREADY_ENDED);
        }
        reader.own_end = OwnEnd::Waiting;
        self.submit(PayloadRole::Cancel(target), payload);
        Ok(())
    }

    /// Gives the peer credit for a half that this end reads.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `credit_overflow`, `closed`.
    pub fn grant_credit(&mut self, target: Target, amount: u64) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        let added = reader.grant.add(amount);
        if added.map_err(|_| refusal::CREDIT_OVERFLOW)? {
            self.control.announce(target);
        }
        Ok(())
    }

    /// Pings a half that this end reads, or the top-level: [`Event::Pong`](crate::Event::Pong) answers.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn ping(&mut self, target: Target) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        let pong = false;
        self.control.push(Head::Heartbeat { pong, target });
        Ok(())
    }

    /// Sends a request under an id of the caller's.
    ///
    /// # Errors
    /// `id_in_use`, `top_level_closed`, `closed`.
    pub fn request(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.may_open()?;
        self.tables.requests.insert_own(id)?;
        self.submit(PayloadRole::Request(id), payload);
        Ok(())
    }

    /// Cancels an own request. One of which nothing was sent is just dropped, and its id is free; otherwise
    /// the id is free once the peer has acknowledged or answered.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn cancel_request(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.is_usable()?;
        let request = self.tables.requests.own.get_mut(&id);
        let request = request.ok_or(refusal::UNKNOWN_ID)?;
        if request.own_end.is_called() {
            return Err(refusal::ALREADY_ENDED);
        }
        request.own_end = OwnEnd::Waiting;
        if !request.sent
            && let Some(dropped) = self.drop_job(PayloadRole::Request(id))
            && !dropped.was_begun
        {
            self.forget_own_request(id);
            self.close_top_if_due();
            return Ok(());
        }
        self.submit(PayloadRole::CancelRequest(id), payload);
        self.close_top_if_due();
        Ok(())
    }

    /// Pings an own request: [`Event::RequestPong`](crate::Event::RequestPong) answers, unless the response
    /// is on its way.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn ping_request(&mut self, id: u32) -> Result<(), UsageError> {
        self.is_usable()?;
        let request = self.tables.requests.own.get(&id);
        let request = request.filter(|request| request.sent);
        if request.ok_or(refusal::UNKNOWN_ID)?.own_end.is_called() {
            return Err(refusal::ALREADY_ENDED);
        }
        self.control.push(Head::PingRequest(id));
        Ok(())
    }

    /// Answers a request of the peer.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn respond(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.is_usable()?;
        self.tables.requests.unanswered(id)?.responded = true;
        self.submit(PayloadRole::Response(id), payload);
        Ok(())
    }

    /// Ends a request of the peer without a response.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn close_response(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.is_usable()?;
        self.tables.requests.unanswered(id)?.own_end = OwnEnd::Waiting;
        self.submit(PayloadRole::CloseResponse(id), payload);
        Ok(())
    }

    fn is_usable(&self) -> Result<(), UsageError> {
        if self.phase.is_open() {
            Ok(())
        } else {
            Err(refusal::CLOSED)
        }
    }

    fn may_open(&self) -> Result<(), UsageError> {
        self.is_usable()?;
        if self.tables.entities.top_writer.is_closed() {
            return Err(refusal::TOP_LEVEL_CLOSED);
        }
        Ok(())
    }

    fn writer_for(&mut self, target: Target) -> Result<&mut Writer, UsageError> {
        self.is_usable()?;
        self.tables.entities.open_writer(target)
    }

    pub(super) fn reader_for(&mut self, target: Target) -> Result<&mut Reader, UsageError> {
        self.is_usable()?;
        self.tables.entities.open_reader(target)
    }
}
