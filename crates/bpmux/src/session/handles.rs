//! The verbs of handles: on a sink, stream or duplex, on a request, and on the connection.

use ackline_core::{AnswerRoom, UsageError};
use bytes::Bytes;

use super::beginners::Ticket;
use super::mailbox::{DROPPED, Mailbox};
use super::{Serial, Session, TOP, machine};
use crate::{EntityKind, Error, Subject, Target, refusal};

impl<A: AnswerRoom> Session<A> {
    /// Begins a request or an opening in the turn of the caller, whose place in the queue is kept in `ticket`.
    ///
    /// # Errors
    /// Those of `begin`; [`Error::Blocked`] also before the caller's turn.
    pub fn in_turn(
        &mut self,
        ticket: &mut Option<Ticket>,
        begin: impl FnOnce(&mut Self) -> Result<Serial, Error>,
    ) -> Result<Serial, Error> {
        let begun = if self.beginners.may_begin(*ticket) {
            begin(self)
        } else {
            Err(Error::Blocked)
        };
        if matches!(begun, Err(Error::Blocked)) {
            ticket.get_or_insert_with(|| self.beginners.join());
        } else {
            self.leave_queue(ticket);
        }
        begun
    }

    /// Gives the turn of a caller to the next one.
    pub fn leave_queue(&mut self, ticket: &mut Option<Ticket>) {
        if let Some(ticket) = ticket.take() {
            self.beginners.leave(ticket);
        }
    }

    /// Opens a sink, stream or duplex.
    ///
    /// # Errors
    /// [`Error::Blocked`], [`Error::Usage`], [`Error::Ended`].
    pub fn open(&mut self, kind: EntityKind, payload: Bytes) -> Result<Serial, Error> {
        let id = self.with_top_room(|it| {
            let id = it.free_id()?;
            it.open(kind, id, payload).map(|()| id)
        })?;
        self.release_own(id);
        Ok(self.begin(Subject::Entity(Target::Own(id)), handles_of(kind)))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn request(&mut self, payload: Bytes) -> Result<Serial, Error> {
        let id = self.with_top_room(|it| {
            let id = it.free_request_id()?;
            it.request(id, payload).map(|()| id)
        })?;
        Ok(self.begin(Subject::OwnRequest(id), 1))
    }

    /// As [`request`](Self::request), unless other callers wait.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn try_request(&mut self, payload: Bytes) -> Result<Serial, Error> {
        if !self.beginners.may_begin(None) {
            return Err(Error::Blocked);
        }
        self.request(payload)
    }

    fn with_top_room<T>(
        &mut self,
        begin: impl FnOnce(&mut machine::Connection) -> Result<T, UsageError>,
    ) -> Result<T, Error> {
        if !self.has_top_room() {
            return Err(Error::Blocked);
        }
        let begun = begin(&mut self.machine);
        self.told(begun)
    }

    /// Checks that the opening is sent.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it is not sent. [`Error::Cancelled`]: the peer has cancelled the top-level meanwhile.
    pub fn opened(&mut self, serial: Serial) -> Result<(), Error> {
        if !self.is_open(serial) {
            return Err(Error::Blocked);
        }
        if self.target(serial).is_err() {
            self.is_not_cancelled(TOP)?;
        }
        Ok(())
    }

    /// Whether its opening has been sent, or it is over.
    pub(super) fn is_open(&self, serial: Serial) -> bool {
        self.target(serial)
            .map_or(true, |target| self.machine.is_open(target))
    }

    /// Closes the half that this end writes.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the reader has cancelled it. [`Error::Usage`], [`Error::Ended`].
    pub fn close(&mut self, serial: Serial, payload: Bytes) -> Result<(), Error> {
        self.is_not_cancelled(serial)?;
        self.with_target(serial, |it, target| it.close(target, payload))
    }

    /// Checks that the peer has acknowledged the close; it never acknowledges that of the top-level.
    ///
    /// # Errors
    /// [`Error::Blocked`]: not yet. [`Error::Cancelled`]: it has cancelled the half.
    pub fn close_acknowledged(&self, serial: Serial) -> Result<(), Error> {
        if serial == TOP {
            return Ok(());
        }
        self.is_not_cancelled(serial)?;
        blocked_unless(self.place(serial).is_none_or(|it| it.acknowledged.close))
    }

    /// Cancels the half that this end reads.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Ended`].
    pub fn cancel(&mut self, serial: Serial, payload: Bytes) -> Result<(), Error> {
        self.with_target(serial, |it, target| it.cancel(target, payload))
    }

    /// Checks that the peer has acknowledged the cancel; it never acknowledges that of the top-level.
    ///
    /// # Errors
    /// [`Error::Blocked`]: not yet.
    pub fn cancel_acknowledged(&self, serial: Serial) -> Result<(), Error> {
        let is_done = |it: &Mailbox| it.gone || it.acknowledged.cancel;
        blocked_unless(serial == TOP || self.place(serial).is_none_or(is_done))
    }

    /// Gives the peer credit beside the automatic credit.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Ended`].
    pub fn grant_credit(&mut self, serial: Serial, bytes: u64) -> Result<(), Error> {
        self.with_target(serial, |it, target| it.grant_credit(target, bytes))
    }

    /// Closes the top-level.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Ended`].
    pub fn close_top(&mut self, payload: Bytes) -> Result<(), Error> {
        self.with_target(TOP, |it, top| it.close(top, payload))
    }

    /// Ends both directions of the top-level, where that has not been done: nothing new is begun from either side.
    pub fn end_top(&mut self) {
        let _ = self.close_top(Bytes::new());
        let _ = self.cancel(TOP, Bytes::new());
    }

    /// The payload with which the peer has cancelled the half that this end writes, or its request.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it has not. [`Error::Usage`], [`Error::Ended`]: the half is over.
    pub fn cancelled(&self, serial: Serial) -> Result<Bytes, Error> {
        match self.place(serial) {
            Some(Mailbox {
                cancelled: Some(payload),
                ..
            }) => Ok(payload.clone()),
            Some(place) if place.gone && matches!(place.subject, Subject::Entity(_)) => {
                Err(self.refused(refusal::ALREADY_ENDED))
            }
            _ => Err(Error::Blocked),
        }
    }

    /// Refuses a half, or a request, that the peer has cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn is_not_cancelled(&self, serial: Serial) -> Result<(), Error> {
        let cancelled = self.place(serial).and_then(|it| it.cancelled.clone());
        cancelled.map_or(Ok(()), |payload| Err(Error::Cancelled(payload)))
    }

    /// The payload with which the peer has closed the half that this end reads.
    pub fn closed(&self, serial: Serial) -> Option<Bytes> {
        self.place(serial)?.closed.clone()
    }

    /// Sends a ping of an entity or of an own request; the number of earlier pongs.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Ended`].
    pub fn ping(&mut self, serial: Serial) -> Result<u64, Error> {
        let before = self.place(serial).map_or(0, |it| it.pongs);
        match self.told(self.subject(serial))? {
            Subject::Entity(_) => self.with_target(serial, machine::Connection::ping),
            _ => self.with_request(serial, machine::Connection::ping_request),
        }?;
        Ok(before)
    }

    /// Checks that a pong has come behind so many earlier ones.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it has not come. [`Error::Usage`], [`Error::Ended`]: a subject that is over gives none.
    pub fn ponged(&self, serial: Serial, before: u64) -> Result<(), Error> {
        let place = self.place(serial);
        if place.is_some_and(|it| it.pongs > before) {
            return Ok(());
        }
        let subject = self.subject(serial);
        self.told(subject).and(Err(Error::Blocked))
    }

    /// Answers a request of the peer's by a verb, and lets its handle go.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the peer has given it up. [`Error::Usage`], [`Error::Ended`].
    pub fn answer(
        &mut self,
        serial: Serial,
        verb: impl FnOnce(&mut machine::Connection, u32) -> Result<(), UsageError>,
    ) -> Result<(), Error> {
        let answered = match self.is_not_cancelled(serial) {
            Ok(()) => self.with_request(serial, verb),
            cancelled => cancelled,
        };
        self.leave(serial);
        answered
    }

    /// Closes a request of the peer's whose handle was dropped.
    pub fn drop_request(&mut self, serial: Serial) {
        let payload = Bytes::from_static(DROPPED);
        // It may have been cancelled.
        let _ = self.with_request(serial, |it, id| it.close_response(id, payload));
        self.leave(serial);
    }

    /// Gives an own request up.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Ended`].
    pub fn cancel_request(&mut self, serial: Serial, payload: Bytes) -> Result<(), Error> {
        self.with_request(serial, |it, id| it.cancel_request(id, payload))?;
        if let Some(place) = self.places.get_mut(&serial) {
            place.given_up.request = true;
        }
        Ok(())
    }

    /// Gives an own request up whose handle was dropped.
    pub fn drop_response(&mut self, serial: Serial) {
        // It may be over.
        let _ = self.cancel_request(serial, Bytes::new());
        self.leave(serial);
    }

    /// A verb of the machine's on a sink, stream or duplex.
    pub(super) fn with_target<T>(
        &mut self,
        serial: Serial,
        verb: impl FnOnce(&mut machine::Connection, Target) -> Result<T, UsageError>,
    ) -> Result<T, Error> {
        let target = self.told(self.target(serial))?;
        let result = verb(&mut self.machine, target);
        let result = self.told(result);
        self.take();
        self.settle(Subject::Entity(target));
        result
    }

    /// A verb of the machine's on a request.
    pub(super) fn with_request<T>(
        &mut self,
        serial: Serial,
        verb: impl FnOnce(&mut machine::Connection, u32) -> Result<T, UsageError>,
    ) -> Result<T, Error> {
        let subject = self.told(self.subject(serial))?;
        let (Subject::OwnRequest(id) | Subject::PeerRequest(id)) = subject else {
            return Err(refusal::UNKNOWN_ID.into());
        };
        let result = verb(&mut self.machine, id);
        let result = self.told(result);
        self.take();
        self.settle(subject);
        result
    }

    fn place(&self, serial: Serial) -> Option<&Mailbox> {
        self.places.get(&serial)
    }
}

/// The handles of an entity: one for each half.
pub(super) const fn handles_of(kind: EntityKind) -> u8 {
    match kind {
        EntityKind::Duplex => 2,
        EntityKind::Sink | EntityKind::Stream => 1,
    }
}

const fn blocked_unless(is_so: bool) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Blocked) }
}
