//! The room for a session's output: messages on each half, and requests and openings on the top-level.

use ackline_bpmux::{Target, Waiting};
use bytes::Bytes;

use super::{Serial, Session, WAITING_BYTES, wide};
use crate::bpmux::error::Error;

impl Session {
    /// Sends a message if there is room.
    pub(in crate::bpmux) fn send(&mut self, serial: Serial, payload: Bytes) -> Result<(), Error> {
        self.is_not_cancelled(serial)?;
        let (target, waiting) = self.waiting(serial)?;
        if !self.is_room(waiting, payload.len()) {
            self.want_room(target, payload.len())?;
            self.take();
            return Err(Error::Blocked);
        }
        let sent = self.machine.send(target, payload);
        self.told(sent)
    }

    /// A half that this end writes, and the messages that wait there.
    fn waiting(&mut self, serial: Serial) -> Result<(Target, Waiting), Error> {
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

    /// Asks to be told when half of the room, and so many bytes, are free.
    fn want_room(&mut self, target: Target, bytes: usize) -> Result<(), Error> {
        let most = self.most();
        let half = Waiting {
            bytes: most.bytes.saturating_sub(bytes).min(most.bytes / 2),
            payloads: most.payloads / 2,
        };
        let wanted = self.machine.want_room(target, half);
        self.told(wanted)
    }

    /// Whether there is room for a message.
    pub(in crate::bpmux) fn has_room(&mut self, serial: Serial) -> Result<bool, Error> {
        self.is_not_cancelled(serial)?;
        let (target, waiting) = self.waiting(serial)?;
        let has_room = waiting.bytes < self.limits.send_bytes && self.is_room(waiting, 0);
        if !has_room {
            self.want_room(target, 0)?;
        }
        Ok(has_room)
    }

    /// Whether a message of so many bytes would be taken.
    pub(in crate::bpmux) fn has_room_for(
        &mut self,
        serial: Serial,
        bytes: usize,
    ) -> Result<bool, Error> {
        self.is_not_cancelled(serial)?;
        let (target, waiting) = self.waiting(serial)?;
        let has_room = self.is_room(waiting, bytes);
        if !has_room {
            self.want_room(target, bytes)?;
        }
        Ok(has_room)
    }

    /// Whether a request of a caller that did not wait would be taken, or refused.
    pub(in crate::bpmux) fn has_request_room(&self) -> bool {
        self.beginners.may_begin(None) && self.has_top_room()
    }

    /// Whether there is room for a request, or for an opening.
    pub(super) fn has_top_room(&self) -> bool {
        let (waiting, most) = (self.machine.top_backlog(), self.most());
        waiting.bytes < most.bytes && waiting.payloads < most.payloads
    }

    /// Whether every message has gone to the transport.
    pub(in crate::bpmux) fn is_flushed(&mut self, serial: Serial) -> Result<bool, Error> {
        self.is_not_cancelled(serial)?;
        let (target, waiting) = self.waiting(serial)?;
        let is_flushed = waiting.payloads == 0;
        if !is_flushed {
            let wanted = self.machine.want_room(target, Waiting::default());
            self.told(wanted)?;
        }
        Ok(is_flushed)
    }

    /// Bytes of credit that no message waits for.
    pub(in crate::bpmux) fn capacity(&mut self, serial: Serial) -> Result<u64, Error> {
        self.is_not_cancelled(serial)?;
        let (target, waiting) = self.waiting(serial)?;
        let waiting = wide(waiting.bytes);
        let credit = self.machine.credit(target);
        let capacity = self.told(credit)?.saturating_sub(waiting);
        if capacity == 0 {
            let wanted = self.machine.want_credit(target);
            self.told(wanted)?;
        }
        Ok(capacity)
    }
}

/// Messages, requests and openings that may wait to be sent however few bytes may.
const LEAST_PAYLOADS: usize = 1_024;
