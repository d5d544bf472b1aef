//! What an application can ask for. No call can lead to a chunk that is invalid (REQ-BPMUX-7): it is refused
//! and nothing changes. No call blocks: payloads wait for their credit in the connection.

use ackline_core::UsageError;
use bytes::Bytes;

use super::Connection;
use super::entity::{Asked, Entity, Ours, Reader, Standing, Writer};
use super::outbox::Queued;
use super::outgoing::{Outgoing, Waiting};
use crate::chunk::{Carrier, Head};
use crate::{EntityKind, Target, refusal};

impl Connection {
    /// Opens a sink, stream or duplex under an id of the caller's. It can be used at once, or, if `payload`
    /// has to wait for top-level credit, from [`Event::Open`](crate::Event::Open) on.
    ///
    /// # Errors
    /// `id_in_use`, `top_level_closed`, `closed`.
    pub fn open(&mut self, kind: EntityKind, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.may_open()?;
        if self.own.contains_key(&id) {
            return Err(refusal::ID_IN_USE);
        }
        self.own.insert(id, Entity::new(kind, true));
        self.submit(Carrier::Open(kind, id), payload);
        Ok(())
    }

    /// The id that [`open`](Self::open) may be called with next: a small one that is free.
    ///
    /// # Errors
    /// `limit_reached`: every id is in use.
    pub fn free_id(&mut self) -> Result<u32, UsageError> {
        let own = &self.own;
        self.ids.entities.free_one(|id| own.contains_key(&id))
    }

    /// The id that [`request`](Self::request) may be called with next: a small one that is free.
    ///
    /// # Errors
    /// `limit_reached`: every id is in use.
    pub fn free_request_id(&mut self) -> Result<u32, UsageError> {
        let asked = &self.asked;
        self.ids.requests.free_one(|id| asked.contains_key(&id))
    }

    /// Whether an own entity or the peer's is open: its opening was sent, or has come, whole.
    pub fn is_open(&self, target: Target) -> bool {
        target == Target::Top || self.entity(target).is_some_and(Entity::is_complete)
    }

    /// Sends a message on what this end writes: behind those before it, as credit comes.
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
        writer.waiting = writer.waiting.saturating_add(bytes);
        writer.messages.push_back(Outgoing::new(payload));
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_add(bytes);
        self.queue_writer(target);
        Ok(())
    }

    /// Bytes that may be sent on a half without waiting for credit: those that wait already count in.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn credit(&mut self, target: Target) -> Result<u64, UsageError> {
        let writer = self.writer_for(target)?;
        if writer.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        Ok(writer.credit)
    }

    /// Bytes that were called to be sent on a half and have not been.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn waiting(&mut self, target: Target) -> Result<usize, UsageError> {
        Ok(self.writer_for(target)?.waiting)
    }

    /// What was called to be sent on a half and has not been.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `closed`.
    pub fn backlog(&mut self, target: Target) -> Result<Waiting, UsageError> {
        Ok(self.writer_for(target)?.backlog())
    }

    /// The same of what is no message: what opens, requests, responds or ends something and waits for top-level
    /// credit or the transport, with acknowledgements and pongs.
    pub fn top_backlog(&self) -> Waiting {
        let (lane, jobs) = (self.lane_backlog(), self.jobs.backlog());
        Waiting {
            bytes: lane.bytes.saturating_add(jobs.bytes),
            payloads: lane.payloads.saturating_add(jobs.payloads),
        }
    }

    /// Responses, and closes of responses, that wait for top-level credit or have gone in part.
    pub fn answers_backlog(&self) -> Waiting {
        self.jobs.answers()
    }

    /// Bytes of all responses, and closes of responses, that were called to be sent since the beginning.
    pub const fn answers_given(&self) -> u64 {
        self.answers_given
    }

    /// Whether a response could begin to leave now: there is top-level credit, or this end asks too and announces it
    /// without credit.
    pub fn can_begin_answer(&self) -> bool {
        self.top_writer.credit > 0 || !self.asked.is_empty()
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

    /// Closes what this end writes, behind its messages. The top-level's close waits for the requests and
    /// openings called before it too.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn close(&mut self, target: Target, payload: Bytes) -> Result<(), UsageError> {
        let openings = self.openings;
        let writer = self.writer_for(target)?;
        if writer.is_closed() {
            return Err(refusal::ALREADY_ENDED);
        }
        writer.ours = Ours::Waiting;
        let waits = !writer.messages.is_empty() || (target == Target::Top && openings > 0);
        if waits {
            let bytes = payload.len();
            writer.close = Some(payload);
            self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_add(bytes);
        } else {
            self.submit(Carrier::Close(target), payload);
        }
        self.give_room(target);
        Ok(())
    }

    /// Cancels what this end reads. What is on its way is dropped. A half whose close is not acknowledged, since
    /// that is [held](crate::Config::holds_close_acks), can be cancelled too.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn cancel(&mut self, target: Target, payload: Bytes) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_uncancellable() {
            return Err(refusal::ALREADY_ENDED);
        }
        reader.ours = Ours::Waiting;
        self.submit(Carrier::Cancel(target), payload);
        Ok(())
    }

    /// Gives the peer credit for what this end reads.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `credit_overflow`, `closed`.
    pub fn grant_credit(&mut self, target: Target, amount: u64) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        let sum = reader.granted.checked_add(amount);
        reader.granted = sum.ok_or(refusal::CREDIT_OVERFLOW)?;
        self.announce(target, amount);
        Ok(())
    }

    /// Pings what this end reads, or the top-level: [`Event::Pong`](crate::Event::Pong) answers.
    ///
    /// # Errors
    /// `unknown_id`, `wrong_direction`, `already_ended`, `closed`.
    pub fn ping(&mut self, target: Target) -> Result<(), UsageError> {
        let reader = self.reader_for(target)?;
        if reader.is_closed() && target != Target::Top {
            return Err(refusal::ALREADY_ENDED);
        }
        let pong = false;
        self.lane
            .push_back(Queued::Bare(Head::Heartbeat { pong, target }));
        Ok(())
    }

    /// Sends a request under an id of the caller's.
    ///
    /// # Errors
    /// `id_in_use`, `top_level_closed`, `closed`.
    pub fn request(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.may_open()?;
        if self.asked.contains_key(&id) {
            return Err(refusal::ID_IN_USE);
        }
        self.asked.insert(id, Asked::default());
        self.submit(Carrier::Request(id), payload);
        Ok(())
    }

    /// Gives an own request up. One of which nothing was sent is just dropped, and its id is free; otherwise
    /// the id is free once the peer has acknowledged or answered.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn cancel_request(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.is_usable()?;
        let asked = self.asked.get_mut(&id).ok_or(refusal::UNKNOWN_ID)?;
        if asked.ours.is_called() {
            return Err(refusal::ALREADY_ENDED);
        }
        if !asked.sent {
            let was_begun = self.drop_job(Carrier::Request(id));
            if was_begun == Some(false) {
                self.forget_asked(id);
                self.close_top_if_due();
                return Ok(());
            }
        }
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.ours = Ours::Waiting;
        }
        self.submit(Carrier::CancelRequest(id), payload);
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
        let asked = self.asked.get(&id).filter(|asked| asked.sent);
        if asked.ok_or(refusal::UNKNOWN_ID)?.ours.is_called() {
            return Err(refusal::ALREADY_ENDED);
        }
        self.lane.push_back(Queued::Bare(Head::PingRequest(id)));
        Ok(())
    }

    /// Answers a request of the peer's.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn respond(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.request_for(id)?.responded = true;
        self.submit(Carrier::Response(id), payload);
        Ok(())
    }

    /// Ends a request of the peer's without a response.
    ///
    /// # Errors
    /// `unknown_id`, `already_ended`, `closed`.
    pub fn close_response(&mut self, id: u32, payload: Bytes) -> Result<(), UsageError> {
        self.request_for(id)?.ours = Ours::Waiting;
        self.submit(Carrier::CloseResponse(id), payload);
        Ok(())
    }

    fn is_usable(&self) -> Result<(), UsageError> {
        if self.is_alive() {
            Ok(())
        } else {
            Err(refusal::CLOSED)
        }
    }

    fn may_open(&self) -> Result<(), UsageError> {
        self.is_usable()?;
        if self.top_writer.is_closed() {
            return Err(refusal::TOP_LEVEL_CLOSED);
        }
        Ok(())
    }

    fn writer_for(&mut self, target: Target) -> Result<&mut Writer, UsageError> {
        self.is_usable()?;
        if target == Target::Top {
            return Ok(&mut self.top_writer);
        }
        let entity = self.usable_entity(target)?;
        entity.writer.as_mut().ok_or(refusal::WRONG_DIRECTION)
    }

    pub(super) fn reader_for(&mut self, target: Target) -> Result<&mut Reader, UsageError> {
        self.is_usable()?;
        if target == Target::Top {
            return Ok(&mut self.top_reader);
        }
        let entity = self.usable_entity(target)?;
        entity.reader.as_mut().ok_or(refusal::WRONG_DIRECTION)
    }

    fn usable_entity(&mut self, target: Target) -> Result<&mut Entity, UsageError> {
        let entity = self.entity_mut(target);
        let usable = entity.filter(|entity| entity.standing == Standing::Open);
        usable.ok_or(refusal::UNKNOWN_ID)
    }

    fn request_for(&mut self, id: u32) -> Result<&mut super::Asking, UsageError> {
        self.is_usable()?;
        let asking = self.asking.get_mut(&id);
        let asking = asking.filter(|asking| asking.standing == Standing::Open);
        let asking = asking.ok_or(refusal::UNKNOWN_ID)?;
        if asking.responded || asking.ours.is_called() || asking.cancelled {
            return Err(refusal::ALREADY_ENDED);
        }
        Ok(asking)
    }
}
