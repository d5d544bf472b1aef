//! The peer's subscriptions to publishers of this end.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::{DROPPED, Serial, Session, Wait};
use crate::{Error, refusal};

/// A subscription of the peer that waits for an answer.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The number of its place.
    pub serial: Serial,
    /// The publisher's name.
    pub publisher: Arc<str>,
    /// The elements that it takes at first.
    pub initial_demand: u64,
}

/// A subscription of the peer.
#[derive(Debug)]
pub(super) struct Outlet {
    id: u64,
    /// The publisher's name, until somebody has looked at it.
    publisher: Arc<str>,
    initial_demand: u64,
    /// The size of its elements, once it is accepted.
    element_size: Option<u64>,
    pub(super) state: State,
}

/// Where a subscription of the peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may be published to.
    Open,
    /// The peer has cancelled it, or has said goodbye.
    Cancelled,
    /// It has ended with the connection.
    Lost,
    /// This end has ended it.
    Ended,
}

/// Bytes that an element takes beside its own while it waits to be sent, about.
const QUEUED_BYTES: usize = 64;

/// Characters of a reason or an error that a peer is told; the rest is cut off.
const MOST_TEXT: usize = 4_096;

/// Elements that are published at once, at most.
const MOST_AT_ONCE: usize = 16_384;

impl Session {
    pub(super) fn subscribes(&mut self, publisher: String, id: u64, initial_demand: u64) {
        let serial = self.number();
        let outlet = Outlet {
            id,
            publisher: publisher.into(),
            initial_demand,
            element_size: None,
            state: State::Open,
        };
        self.names = self.names.saturating_add(outlet.publisher.len());
        self.outlets.insert(serial, outlet);
        self.theirs.insert(id, serial);
        self.arrivals.insert(serial);
    }

    /// Takes the next subscription of the peer; `None` when no more can come.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet.
    pub fn accept(&mut self) -> Result<Option<Arrival>, Error> {
        let first = self.arrivals.pop_first();
        if let Some((serial, outlet)) =
            first.and_then(|serial| Some((serial, self.outlets.get_mut(&serial)?)))
        {
            let publisher = std::mem::take(&mut outlet.publisher);
            self.names = self.names.saturating_sub(publisher.len());
            return Ok(Some(Arrival {
                serial,
                publisher,
                initial_demand: outlet.initial_demand,
            }));
        }
        if self.is_last() {
            return Ok(None);
        }
        Err(Error::Blocked)
    }

    /// Whether a subscription of the peer is there, or no more can come.
    pub(super) fn has_arrival(&self) -> bool {
        self.is_last() || !self.arrivals.is_empty()
    }

    /// Whether the peer has said goodbye, so that no subscription comes any more.
    fn is_last(&self) -> bool {
        self.said.goodbye.is_some()
    }

    /// The peer has cancelled a subscription, or is gone.
    pub(super) fn outlet_cancelled(&mut self, id: u64) {
        let Some(serial) = self.theirs.remove(&id) else {
            return;
        };
        if self.arrivals.remove(&serial) {
            // Nobody has looked at it.
            let outlet = self.outlets.remove(&serial);
            let bytes = outlet.map_or(0, |outlet| outlet.publisher.len());
            self.names = self.names.saturating_sub(bytes);
        } else if let Some(outlet) = self.outlets.get_mut(&serial) {
            outlet.state = match self.machine.lost() {
                Some(_) => State::Lost,
                None => State::Cancelled,
            };
        }
        self.wake(Wait::Write(serial));
    }

    fn outlet(&self, serial: Serial) -> Result<&Outlet, Error> {
        let Some(outlet) = self.outlets.get(&serial) else {
            return Err(self.refused(refusal::UNKNOWN_SUBSCRIBER));
        };
        match outlet.state {
            State::Open => Ok(outlet),
            State::Ended => Err(self.refused(refusal::ALREADY_ENDED)),
            State::Cancelled => Err(Error::Cancelled),
            // The link knows why.
            State::Lost => Err(match self.machine.fault() {
                Some(fault) => Error::Ended(ackline_core::End::Protocol(fault.clone())),
                None => Error::Blocked,
            }),
        }
    }

    /// As [`outlet`](Self::outlet), for verbs that do not wait.
    fn open_outlet(&self, serial: Serial) -> Result<u64, Error> {
        match self.outlet(serial) {
            Ok(outlet) => Ok(outlet.id),
            Err(Error::Blocked) => Err(self.refused(refusal::ALREADY_ENDED)),
            Err(error) => Err(error),
        }
    }

    /// Accepts a subscription; every element has `element_size` bytes, or any number if that is 0.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; `unknown_subscriber`: it was accepted before; `element_too_large`; [`Error::Ended`].
    pub fn admit(&mut self, serial: Serial, element_size: u64) -> Result<(), Error> {
        let id = self.open_outlet(serial)?;
        if element_size > self.machine.limits().max_element_bytes {
            return Err(refusal::ELEMENT_TOO_LARGE.into());
        }
        let accepted = self.machine.accept(id, element_size);
        self.told(accepted)?;
        if let Some(outlet) = self.outlets.get_mut(&serial) {
            outlet.element_size = Some(element_size);
        }
        Ok(())
    }

    /// Rejects a subscription, with a reason.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub fn reject(&mut self, serial: Serial, reason: &str) -> Result<(), Error> {
        let id = self.open_outlet(serial)?;
        let rejected = self.machine.reject(id, cut(reason));
        self.told(rejected)?;
        self.end_outlet(serial);
        Ok(())
    }

    /// Elements that a subscription takes now.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the subscriber has requested none, or those before are not sent. [`Error::Cancelled`];
    /// `already_ended`, `not_accepted`; [`Error::Ended`].
    pub fn room(&mut self, serial: Serial) -> Result<u64, Error> {
        let outlet = self.outlet(serial)?;
        let (id, size) = (outlet.id, outlet.element_size);
        if size.is_none() {
            return Err(self.refused(refusal::NOT_ACCEPTED));
        }
        let waiting = self.told(self.machine.waiting(id))?;
        let queued = self.told(self.machine.queued(id))?;
        if self.waiting() >= self.output.of_all {
            self.output.crowd.insert(serial);
            return Err(Error::Blocked);
        }
        if cost(waiting, queued) >= self.output.of_each {
            let wanted = self.machine.want_room(id);
            self.told(wanted)?;
            return Err(Error::Blocked);
        }
        match self.told(self.machine.demand(id))? {
            0 => Err(Error::Blocked),
            demand => Ok(demand),
        }
    }

    /// Bytes that all elements take that wait to be sent, about.
    fn waiting(&self) -> usize {
        cost(self.machine.waiting_bytes(), self.machine.queued_entries())
    }

    /// Wakes the subscriptions that wait until less is to be sent, once half of that is free.
    pub(super) fn look_at_crowd(&mut self) {
        if self.waiting() > self.output.of_all / 2 {
            return;
        }
        while let Some(serial) = self.output.crowd.pop_first() {
            self.wake(Wait::Write(serial));
        }
    }

    /// Publishes elements from the front of `elements`, as many as there are room and demand for, at least one; those are
    /// taken out.
    ///
    /// # Errors
    /// As [`room`](Self::room); `wrong_element_size`: nothing is published then.
    pub fn publish(&mut self, serial: Serial, elements: &mut VecDeque<Bytes>) -> Result<(), Error> {
        let demand = usize::try_from(self.room(serial)?).unwrap_or(usize::MAX);
        let outlet = self.outlet(serial)?;
        let (id, size) = (outlet.id, outlet.element_size.unwrap_or(0));
        let wrong = |element: &Bytes| size > 0 && u64::try_from(element.len()) != Ok(size);
        if elements.iter().any(wrong) {
            return Err(refusal::WRONG_ELEMENT_SIZE.into());
        }
        let largest = self.machine.limits().max_element_bytes;
        let is_large = |element: &Bytes| u64::try_from(element.len()).is_ok_and(|it| it > largest);
        if elements.iter().any(is_large) {
            return Err(refusal::ELEMENT_TOO_LARGE.into());
        }
        let (waiting, queued) = (self.machine.waiting(id), self.machine.queued(id));
        let (mut bytes, mut count) = (cost(self.told(waiting)?, self.told(queued)?), 0_usize);
        let most = demand.min(MOST_AT_ONCE);
        for element in elements.iter().take(most) {
            let more = cost(element.len(), 1);
            if count > 0 && bytes.saturating_add(more) > self.output.of_each {
                break;
            }
            bytes = bytes.saturating_add(more);
            count = count.saturating_add(1);
        }
        let published = self.machine.next(id, elements.drain(..count).collect());
        self.told(published)
    }

    /// Publishes elements of a fixed size from the front of `elements`, as many as there are room and demand for, at
    /// least one; those are taken out.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); `wrong_element_size` also on a stream without a fixed size.
    pub fn publish_packed(&mut self, serial: Serial, elements: &mut Bytes) -> Result<(), Error> {
        let demand = usize::try_from(self.room(serial)?).unwrap_or(usize::MAX);
        let outlet = self.outlet(serial)?;
        let size = usize::try_from(outlet.element_size.unwrap_or(0)).unwrap_or(usize::MAX);
        let id = outlet.id;
        if size == 0 || !elements.len().is_multiple_of(size) {
            return Err(refusal::WRONG_ELEMENT_SIZE.into());
        }
        let largest = self.machine.limits().max_element_bytes;
        if u64::try_from(size).is_ok_and(|size| size > largest) {
            return Err(refusal::ELEMENT_TOO_LARGE.into());
        }
        let waiting = self.told(self.machine.waiting(id))?;
        let room = self.output.of_each.saturating_sub(waiting);
        let room = room.checked_div(size).unwrap_or(0).max(1).min(demand);
        let bytes = room.saturating_mul(size).min(elements.len());
        let published = self.machine.next_packed(id, elements.split_to(bytes));
        self.told(published)
    }

    /// Completes a stream, behind the elements that were published.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; `already_ended`, `not_accepted`; [`Error::Ended`].
    pub fn complete(&mut self, serial: Serial) -> Result<(), Error> {
        let id = self.open_outlet(serial)?;
        let completed = self.machine.complete(id);
        self.told(completed)?;
        self.end_outlet(serial);
        Ok(())
    }

    /// Ends a stream with an error, behind the elements that were published.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn fail(&mut self, serial: Serial, error: &str) -> Result<(), Error> {
        let id = self.open_outlet(serial)?;
        let failed = self.machine.error(id, cut(error));
        self.told(failed)?;
        self.end_outlet(serial);
        Ok(())
    }

    /// Checks that the peer has not cancelled a subscription.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Blocked`]: it has ended with the connection, and the link knows why; `already_ended`: this end has ended it; [`Error::Ended`].
    pub fn is_wanted(&self, serial: Serial) -> Result<(), Error> {
        self.outlet(serial).map(|_| ())
    }

    fn end_outlet(&mut self, serial: Serial) {
        if let Some(outlet) = self.outlets.get_mut(&serial) {
            outlet.state = State::Ended;
            if self.theirs.get(&outlet.id) == Some(&serial) {
                self.theirs.remove(&outlet.id);
            }
        }
    }

    /// The handle of a subscription was dropped: an open one is ended with an error, or rejected.
    pub fn drop_publication(&mut self, serial: Serial) {
        let _ = match self.outlets.get(&serial).map(|outlet| outlet.element_size) {
            Some(Some(_)) => self.fail(serial, DROPPED),
            _ => self.reject(serial, DROPPED),
        };
        self.end_outlet(serial);
        self.outlets.remove(&serial);
        self.output.crowd.remove(&serial);
    }
}

/// Bytes that so many bytes in so many elements take, about.
const fn cost(bytes: usize, elements: usize) -> usize {
    bytes.saturating_add(elements.saturating_mul(QUEUED_BYTES))
}

/// The beginning of a text that is longer than a peer is told.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MOST_TEXT).map(|(at, _)| at);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}
