//! The room for a session's output: messages on each half, and requests and openings on the top-level.

use ackline_core::{AnswerRoom, UsageError};
use bytes::Bytes;

use super::{Serial, Session, WAITING_BYTES, machine, wide};
use crate::{Error, Target, Waiting};

impl<A: AnswerRoom> Session<A> {
    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Blocked`]: there is no room. [`Error::Cancelled`], [`Error::Usage`], [`Error::Ended`].
    pub fn send(&mut self, serial: Serial, payload: Bytes) -> Result<(), Error> {
        let room = self.room(serial, payload.len());
        if matches!(room, Err(Error::Blocked)) {
            self.take();
        }
        let target = room?;
        let sent = self.machine.send(target, payload);
        self.told(sent)
    }

    /// The target of a half with room for a message of so many bytes.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn room(&mut self, serial: Serial, bytes: usize) -> Result<Target, Error> {
        let (target, waiting) = self.waiting(serial)?;
        if self.is_room(waiting, bytes) {
            return Ok(target);
        }
        // Told when half of the room, and so many bytes, are free.
        let most = self.most();
        let half = Waiting {
            bytes: most.bytes.saturating_sub(bytes).min(most.bytes / 2),
            payloads: most.payloads / 2,
        };
        Err(self.blocked(|it| it.want_room(target, half)))
    }

    /// Refuses a half whose messages have not all gone to the transport.
    ///
    /// # Errors
    /// [`Error::Blocked`]: some have not gone. [`Error::Cancelled`], [`Error::Usage`], [`Error::Ended`].
    pub fn flushed(&mut self, serial: Serial) -> Result<(), Error> {
        let (target, waiting) = self.waiting(serial)?;
        if waiting.payloads == 0 {
            return Ok(());
        }
        Err(self.blocked(|it| it.want_room(target, Waiting::default())))
    }

    /// Bytes of credit that no message waits for, at least one.
    ///
    /// # Errors
    /// [`Error::Blocked`]: there are none. [`Error::Cancelled`], [`Error::Usage`], [`Error::Ended`].
    pub fn capacity(&mut self, serial: Serial) -> Result<u64, Error> {
        let (target, waiting) = self.waiting(serial)?;
        let credit = self.machine.credit(target);
        let capacity = self.told(credit)?.saturating_sub(wide(waiting.bytes));
        if capacity > 0 {
            return Ok(capacity);
        }
        Err(self.blocked(|it| it.want_credit(target)))
    }

    /// The error of a verb that waits, once the machine is asked to tell when it can go on.
    fn blocked(
        &mut self,
        want: impl FnOnce(&mut machine::Connection) -> Result<(), UsageError>,
    ) -> Error {
        let wanted = want(&mut self.machine);
        self.told(wanted).err().unwrap_or(Error::Blocked)
    }

    /// A half that this end writes and nobody has cancelled, and the messages that wait there.
    fn waiting(&mut self, serial: Serial) -> Result<(Target, Waiting), Error> {
        self.is_not_cancelled(serial)?;
        let waiting = self.target(serial).and_then(|target| {
            let waiting = self.machine.backlog(target)?;
            Ok((target, waiting))
        });
        self.told(waiting)
    }

    /// Bytes and payloads that may wait on one half. Empty messages are limited too.
    fn most(&self) -> Waiting {
        Waiting {
            bytes: self.limits.send_bytes,
            payloads: (self.limits.send_bytes / WAITING_BYTES).max(LEAST_PAYLOADS),
        }
    }

    /// Whether so many bytes may wait there too. A message that is larger than all that may wait waits alone.
    fn is_room(&self, waiting: Waiting, bytes: usize) -> bool {
        let most = self.most();
        let fits = waiting.bytes.saturating_add(bytes) <= most.bytes;
        (waiting.bytes == 0 || fits) && waiting.payloads < most.payloads
    }

    /// Whether a request of a caller that did not wait would be taken, or refused.
    pub(super) fn has_request_room(&self) -> bool {
        self.beginners.may_begin(None) && self.has_top_room()
    }

    /// Whether there is room for a request, or for an opening.
    pub(super) fn has_top_room(&self) -> bool {
        let (waiting, most) = (self.machine.top_backlog(), self.most());
        waiting.bytes < most.bytes && waiting.payloads < most.payloads
    }
}

/// Messages, requests and openings that may wait to be sent however few bytes may.
const LEAST_PAYLOADS: usize = 1_024;
