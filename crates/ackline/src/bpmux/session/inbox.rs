//! The taking of a session's contents: messages whole or in parts, responses, and the entities and requests
//! that the peer begins.

use ackline_bpmux::{self as machine, Target};
use ackline_core::{LimitHit, Payload};
use bytes::Bytes;

use super::{Arrival, Serial, Session, TOP, wide};
use crate::bpmux::MOST_AT_ONCE;
use crate::bpmux::error::Error;
use crate::bpmux::mailbox::{NOT_ACCEPTED, Part};

impl Session {
    /// Adds the messages of a half that are there, up to `max` of them in all, at least one; none behind one with which
    /// they have [`MOST_AT_ONCE`] bytes.
    ///
    /// # Errors
    /// As [`next_message`](Self::next_message), for the one behind those that were added.
    pub(in crate::bpmux) fn next_messages(
        &mut self,
        serial: Serial,
        max: usize,
        messages: &mut Vec<Payload>,
    ) -> Result<(), Error> {
        let mut bytes: usize = messages.iter().map(Payload::bytes).sum();
        while messages.len() < max.max(1) && bytes < MOST_AT_ONCE {
            let Some(message) = self.next_message(serial)? else {
                break;
            };
            bytes = bytes.saturating_add(message.bytes());
            messages.push(message);
        }
        Ok(())
    }

    /// The next message of a half, whose credit the peer gets back. Parts of one that is not whole are
    /// put together.
    pub(in crate::bpmux) fn next_message(
        &mut self,
        serial: Serial,
    ) -> Result<Option<Payload>, Error> {
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

    /// The next part of a message, whose credit the peer gets back.
    pub(in crate::bpmux) fn next_part(&mut self, serial: Serial) -> Option<Part> {
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

    /// The response to an own request.
    pub(in crate::bpmux) fn response(&mut self, serial: Serial) -> Option<Payload> {
        let response = self.places.get_mut(&serial)?.response.take()?;
        self.taken(None, &response);
        Some(response)
    }

    /// The next entity or request that the peer has begun. Its close is acknowledged when it comes, or now if
    /// it has come.
    pub(in crate::bpmux) fn arrival(&mut self) -> Option<Arrival> {
        let arrival = self.held_arrival()?;
        self.release_close(arrival.serial);
        Some(arrival)
    }

    /// The next entity or request that the peer has begun. Its close is not acknowledged before
    /// [`Self::release_close`].
    pub(in crate::bpmux) fn held_arrival(&mut self) -> Option<Arrival> {
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
    pub(in crate::bpmux) fn has_arrival(&mut self) -> bool {
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
    pub(in crate::bpmux) fn refuse_arrivals(&mut self) {
        let serials: Vec<Serial> = self.arrivals.serials().collect();
        for serial in serials {
            let place = self.places.get(&serial);
            if place.is_some_and(|place| place.closed.is_some()) {
                let payload = Bytes::from_static(NOT_ACCEPTED);
                let _ = self.with_target(serial, |it, target| it.cancel(target, payload));
                self.release_close(serial);
            }
        }
    }

    /// Holds the acknowledgement of the close no longer.
    pub(in crate::bpmux) fn release_close(&mut self, serial: Serial) {
        // It may be over, or a half that this end only writes.
        let _ = self.with_target(serial, machine::Connection::release_close);
    }

    /// This end opened it, so nothing is held: the peer's close needs no handler here.
    pub(super) fn release_own(&mut self, id: u32) {
        // Where the opening waits for credit this is done again when that is sent.
        let _ = self.machine.release_close(Target::Own(id));
    }

    /// Whether the peer will begin nothing more.
    pub(in crate::bpmux) fn is_last(&self) -> bool {
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
