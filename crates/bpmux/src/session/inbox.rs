//! The taking of a session's contents: messages whole or in parts, responses, and the entities and requests
//! that the peer begins.

use ackline_core::{AnswerRoom, LimitHit, Payload};
use bytes::Bytes;

use super::mailbox::{Mailbox, NOT_ACCEPTED};
use super::{Arrival, Part, Serial, Session, TOP, machine, wide};
use crate::{Error, Target, refusal};

/// Bytes of messages after which one call hands out no further message, 256 KiB: messages that were handed
/// out are no longer within the listener's memory.
pub const MOST_AT_ONCE: usize = 256 << 10;

impl<A: AnswerRoom> Session<A> {
    /// Takes the messages of a half that are there, at least one, up to `max`, and none behind one with which they have
    /// [`MOST_AT_ONCE`] bytes; none when no more can come.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet. [`Error::TooLarge`], as of [`take_message`](Self::take_message).
    pub fn take_messages(&mut self, serial: Serial, max: usize) -> Result<Vec<Payload>, Error> {
        let (mut messages, mut bytes) = (Vec::new(), 0_usize);
        while messages.len() < max.max(1) && bytes < MOST_AT_ONCE {
            match self.take_message(serial) {
                Ok(Some(message)) => {
                    bytes = bytes.saturating_add(message.bytes());
                    messages.push(message);
                }
                // The next call tells the error.
                Err(error) if messages.is_empty() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(messages)
    }

    /// Takes the next message of a half, whose credit the peer gets back; `None` when no more can come.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet. [`Error::TooLarge`]: it comes in parts, and is too long to be put together.
    pub fn take_message(&mut self, serial: Serial) -> Result<Option<Payload>, Error> {
        let message = self.next_message(serial)?;
        self.or_blocked(serial, message)
    }

    /// Takes the next part of a message of a half, whose credit the peer gets back; `None` when no more can come.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet.
    pub fn take_part(&mut self, serial: Serial) -> Result<Option<Part>, Error> {
        let part = self.next_part(serial);
        self.or_blocked(serial, part)
    }

    fn or_blocked<T>(&self, serial: Serial, found: Option<T>) -> Result<Option<T>, Error> {
        if found.is_none() && !self.has_message(serial) {
            return Err(Error::Blocked);
        }
        Ok(found)
    }

    /// Whether there is a message of a half, or no more can come.
    pub(super) fn has_message(&self, serial: Serial) -> bool {
        let is_over = |it: &Mailbox| it.gone || it.closed.is_some() || it.acknowledged.cancel;
        let place = self.places.get(&serial);
        place.is_none_or(|it| !it.parts.is_empty() || is_over(it))
    }

    /// The next message of a half. Parts of one that is not whole are put together.
    fn next_message(&mut self, serial: Serial) -> Result<Option<Payload>, Error> {
        loop {
            let Some(place) = self.places.get_mut(&serial) else {
                return Ok(None);
            };
            let Some(next) = place.parts.front() else {
                return Ok(None);
            };
            if place.begun.is_empty() && next.is_last {
                return Ok(self.next_part(serial).map(|part| part.payload));
            }
            let begun: usize = place.begun.iter().map(Payload::bytes).sum();
            let value = wide(begun.saturating_add(next.payload.bytes()));
            if value > self.limits.payload {
                return Err(Error::TooLarge(LimitHit {
                    value,
                    limit: self.limits.payload,
                    option: "max_payload_bytes",
                }));
            }
            let Some(Part { payload, is_last }) = place.parts.pop_front() else {
                return Ok(None);
            };
            // Its bytes are held until they are handed out.
            let (target, bytes) = (place.read_target(), wide(payload.bytes()));
            place.begun.push(payload);
            self.untaken.count = self.untaken.count.saturating_sub(1);
            if let Some(target) = target {
                self.machine.consumed(target, bytes);
            }
            if is_last {
                return Ok(self.take_begun(serial));
            }
        }
    }

    /// The parts that were put together of a message.
    fn take_begun(&mut self, serial: Serial) -> Option<Payload> {
        let begun = std::mem::take(&mut self.places.get_mut(&serial)?.begun);
        let pieces = begun
            .iter()
            .flat_map(|part| part.as_slice().iter().cloned());
        let payload = Payload::from_parts(pieces.collect::<Vec<_>>());
        self.untaken.bytes = self.untaken.bytes.saturating_sub(payload.bytes());
        Some(payload)
    }

    pub(super) fn next_part(&mut self, serial: Serial) -> Option<Part> {
        let place = self.places.get_mut(&serial)?;
        if !place.begun.is_empty() {
            let payload = self.take_begun(serial)?;
            let is_last = false;
            return Some(Part { payload, is_last });
        }
        let part = place.parts.pop_front()?;
        let target = place.read_target();
        self.taken(target, &part.payload);
        Some(part)
    }

    /// Takes the response to an own request, once.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it is not there yet. [`Error::Closed`]: the peer will not answer; [`Error::Cancelled`]: it
    /// refused every request before this one was sent; `already_ended`: it was taken before, or given up.
    pub fn take_response(&mut self, serial: Serial) -> Result<Payload, Error> {
        if let Some(response) = self.response(serial) {
            if self.places.get(&serial).is_some_and(|place| place.gone) {
                self.leave(serial);
            }
            return Ok(response);
        }
        match self.places.get(&serial) {
            Some(Mailbox {
                closed: Some(payload),
                ..
            }) => Err(Error::Closed(payload.clone())),
            Some(place) if !place.given_up.request => Err(if place.gone {
                Error::Cancelled(Bytes::new())
            } else {
                Error::Blocked
            }),
            _ => Err(self.refused(refusal::ALREADY_ENDED)),
        }
    }

    pub(super) fn response(&mut self, serial: Serial) -> Option<Payload> {
        let response = self.places.get_mut(&serial)?.response.take()?;
        self.taken(None, &response);
        Some(response)
    }

    /// Takes the next entity or request that the peer has begun; `None` when it will begin nothing more. Its close is
    /// acknowledged when it comes, or now if it has come.
    ///
    /// # Errors
    /// [`Error::Blocked`]: nothing is there yet.
    pub fn accept(&mut self) -> Result<Option<Arrival>, Error> {
        let arrival = self.accept_held()?;
        if let Some(arrival) = &arrival {
            self.release_close(arrival.serial);
        }
        Ok(arrival)
    }

    /// As [`accept`](Self::accept), but its close is not acknowledged before [`Self::release_close`].
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_held(&mut self) -> Result<Option<Arrival>, Error> {
        match self.held_arrival() {
            None if !self.is_last() => Err(Error::Blocked),
            arrival => Ok(arrival),
        }
    }

    fn held_arrival(&mut self) -> Option<Arrival> {
        let arrival = if self.has_request_in_turn() {
            let request = self.arrivals.take_request()?;
            self.accept_request(&request);
            request
        } else {
            self.arrivals.take_opening()?
        };
        self.taken(Some(Target::Top), &arrival.payload);
        Some(arrival)
    }

    /// Whether something that the peer has begun can be accepted now.
    pub(super) fn has_arrival(&mut self) -> bool {
        self.arrivals.has_opening() || self.has_request_in_turn()
    }

    /// Whether a request is the next to be accepted, and there is room for its response.
    fn has_request_in_turn(&mut self) -> bool {
        let can_begin = self.machine.can_begin_answer();
        let (now, request) = (self.now, self.arrivals.request_in_turn());
        request.is_some_and(|it| {
            let bytes = it.payload.bytes();
            self.answers.may_accept(now, bytes, can_begin)
        })
    }

    fn accept_request(&mut self, request: &Arrival) {
        let bytes = wide(request.payload.bytes());
        if let Some(place) = self.places.get_mut(&request.serial) {
            place.accepted = Some(bytes);
            self.answers.accept(bytes);
        }
    }

    /// Cancels everything that the peer has begun and closed and nobody has accepted: an acknowledgement would
    /// say that somebody has it.
    pub fn refuse_arrivals(&mut self) {
        let serials: Vec<Serial> = self.arrivals.serials().collect();
        for serial in serials {
            let place = self.places.get(&serial);
            if place.is_some_and(|place| place.closed.is_some()) {
                let payload = Bytes::from_static(NOT_ACCEPTED);
                let _ = self.cancel(serial, payload);
                self.release_close(serial);
            }
        }
    }

    /// Holds the acknowledgement of the close no longer.
    pub fn release_close(&mut self, serial: Serial) {
        // It may be over, or a half that this end only writes.
        let _ = self.with_target(serial, machine::Connection::release_close);
    }

    /// This end opened it, so nothing is held: the peer's close needs no handler here.
    pub(super) fn release_own(&mut self, id: u32) {
        // Where the opening waits for credit this is done again when that is sent.
        let _ = self.machine.release_close(Target::Own(id));
    }

    /// Whether the peer will begin nothing more.
    pub(super) fn is_last(&self) -> bool {
        let top = self.places.get(&TOP);
        top.is_some_and(|top| top.closed.is_some()) && self.arrivals.is_empty()
    }

    pub(super) fn taken(&mut self, target: Option<Target>, payload: &Payload) {
        let bytes = payload.bytes();
        self.untaken.remove(bytes);
        if let Some(target) = target {
            self.machine.consumed(target, wide(bytes));
        }
    }
}
