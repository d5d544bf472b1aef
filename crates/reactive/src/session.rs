//! A connection's machine with the elements that its application has still to take: the one thing that a driver drives.
//!
//! It takes the machine's events as they come and sorts them by their subscriptions, so that a slow subscriber holds back
//! no other; the waiting elements are bounded by demand. A verb that returns [`Error::Blocked`] has changed nothing and is
//! tried again when its [`Wait`] is woken.

mod demand;
mod events;
mod inbox;
mod outlet;
mod waits;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

pub use ackline_core::Serial;
use ackline_core::{
    Connection as _, End, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts, Table,
    UsageError, Wakes,
};
use bytes::BytesMut;

pub use demand::Demand;
use inbox::Inbox;
pub use inbox::{MOST_AT_ONCE, Part};
pub use outlet::Arrival;
use outlet::Outlet;
pub use waits::{Interest, Wait};

use crate::message::Field;
use crate::{Config, Connection, Error, Event, Kind, Role};

/// A connection's machine with the elements that wait for its application.
#[derive(Debug)]
pub struct Session {
    machine: Connection,
    /// This end's subscriptions, also those that have ended and still have a handle.
    inboxes: Table<Serial, Inbox>,
    /// The peer's, likewise.
    outlets: Table<Serial, Outlet>,
    /// The numbers of this end's subscriptions by their ids, while these are theirs.
    own: Table<u64, Serial>,
    /// The numbers of the peer's.
    theirs: Table<u64, Serial>,
    /// Subscriptions of the peer that nobody has looked at, in the order in which they came.
    arrivals: BTreeSet<Serial>,
    /// Bytes of the names in them.
    names: usize,
    next: Serial,
    untaken: Untaken,
    wakes: Wakes,
    said: Said,
    output: Output,
}

/// The room for elements that wait to be sent.
#[derive(Debug)]
struct Output {
    /// Bytes of elements that may wait for each subscription of the peer.
    of_each: usize,
    /// Bytes that may wait for all of them.
    of_all: usize,
    /// Subscriptions that wait until less does.
    crowd: BTreeSet<Serial>,
}

/// Everything that the peer has said beside its streams.
#[derive(Debug, Default)]
struct Said {
    /// The extensions that both ends support, once the peer's hello has come.
    extensions: Option<Vec<u64>>,
    /// Messages of extensions that were not taken.
    messages: VecDeque<(u64, Vec<Field>)>,
    /// The reason of its goodbye.
    goodbye: Option<Arc<str>>,
}

/// Elements that wait to be taken.
#[derive(Debug, Default)]
struct Untaken {
    /// Packed ones that came together count once.
    count: usize,
    bytes: usize,
}

impl Untaken {
    fn add(&mut self, bytes: usize) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn remove(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The connection's own place.
pub const TOP: Serial = 1;

/// Elements that may wait to be taken; they may be empty. Above it nothing more is read.
const MOST_WAITING: usize = 65_536;

/// Streams that may have as many bytes waiting to be sent as each may have; more of them share that.
const STREAMS: usize = 16;

/// Bytes that one of them takes beside its own, about.
const WAITING_BYTES: usize = 64;

/// The text in place of the reason of a goodbye that gives none.
pub const NO_REASON: &str = "the peer has said goodbye";

/// The payload of an end that a dropped handle causes.
const DROPPED: &str = "the publisher has dropped the subscription";

impl Session {
    /// Begins a connection. `send_bytes` of elements may wait to be sent for each subscription of the peer, and 16 times as
    /// many for all of them.
    pub fn new(now: Instant, role: Role, config: Config, send_bytes: usize) -> Self {
        let mut machine = Connection::new(now, role, config);
        // It was made just now.
        let _ = machine.connect(now);
        Self {
            machine,
            inboxes: Table::default(),
            outlets: Table::default(),
            own: Table::default(),
            theirs: Table::default(),
            arrivals: BTreeSet::new(),
            names: 0,
            next: TOP.wrapping_add(1),
            untaken: Untaken::default(),
            wakes: Wakes::default(),
            said: Said::default(),
            output: Output {
                of_each: send_bytes,
                of_all: send_bytes.saturating_mul(STREAMS),
                crowd: BTreeSet::new(),
            },
        }
    }

    fn number(&mut self) -> Serial {
        let serial = self.next;
        self.next = serial.wrapping_add(1);
        serial
    }

    /// The extensions that both ends support, ascending.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the peer's hello has not come. [`Error::Ended`].
    pub fn connected(&self) -> Result<Vec<u64>, Error> {
        match &self.said.extensions {
            Some(extensions) => Ok(extensions.clone()),
            None => Err(self.over().map_or(Error::Blocked, Error::Ended)),
        }
    }

    /// Sends a message of an active extension.
    ///
    /// # Errors
    /// `extension_not_active`, `closing`, `not_connected`; [`Error::Ended`].
    pub fn send_extension(&mut self, message_type: u64, fields: Vec<Field>) -> Result<(), Error> {
        let sent = self.machine.send_extension(message_type, fields);
        self.told(sent)
    }

    /// Takes the next message of an extension: its type and its fields; `None` once the peer has said goodbye.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet.
    pub fn take_extension(&mut self) -> Result<Option<(u64, Vec<Field>)>, Error> {
        match self.said.messages.pop_front() {
            Some(message) => {
                self.untaken.remove(field_bytes(&message.1));
                Ok(Some(message))
            }
            None if self.said.goodbye.is_some() => Ok(None),
            None => Err(Error::Blocked),
        }
    }

    /// The reason of the peer's goodbye, once it has come.
    pub fn goodbye_reason(&self) -> Option<Arc<str>> {
        self.said.goodbye.clone()
    }

    /// Ends the connection in good order: elements that were published go out, then a goodbye. All streams end now.
    ///
    /// # Errors
    /// `closing`, `not_connected`; [`Error::Ended`].
    pub fn goodbye(&mut self, reason: &str) -> Result<(), Error> {
        let said = self.machine.goodbye(reason);
        self.take();
        self.told(said)
    }

    /// Why nothing can be done any more, once both sides are done or the peer has broken a rule: the transport
    /// may still come to its end.
    pub fn over(&self) -> Option<End<Kind>> {
        if let Some(fault) = self.machine.fault() {
            return Some(End::Protocol(fault.clone()));
        }
        match self.machine.lifecycle() {
            Lifecycle::Open => None,
            Lifecycle::Draining => Some(End::Closed),
            Lifecycle::Closed | Lifecycle::Handover => Some(End::Eof),
        }
    }

    /// Open subscriptions of this end's and of the peer's, and bytes of elements that are not sent.
    pub fn open(&self) -> (usize, usize, usize) {
        let waiting = self.machine.waiting_bytes();
        (self.own.len(), self.theirs.len(), waiting)
    }

    /// The error of a refused verb; the end of the connection, if the connection is over.
    fn refused(&self, error: UsageError) -> Error {
        self.over().map_or(Error::Usage(error), Error::Ended)
    }

    fn told<T>(&self, result: Result<T, UsageError>) -> Result<T, Error> {
        result.map_err(|error| self.refused(error))
    }

    /// Wakes those that wait for this, so that they look again.
    fn wake(&mut self, wait: Wait) {
        self.wakes.wake(wait.key());
    }
}

/// Bytes that fields are charged.
fn field_bytes(fields: &[Field]) -> usize {
    let bytes = fields.iter().map(|field| match field {
        Field::Varint(_) => 0,
        Field::String(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
    });
    let beside = fields.len().saturating_mul(size_of::<Field>());
    bytes.fold(beside, usize::saturating_add)
}

impl ackline_core::Connection for Session {
    // Everything is taken from the machine as it comes.
    type Event = std::convert::Infallible;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        if self.untaken.count >= MOST_WAITING {
            return Ok(Need::Room);
        }
        let need = self.machine.receive(now, input);
        let took = self.take();
        // Streams that the peer has cancelled leave room.
        self.look_at_crowd();
        match need {
            Ok(Need::Room) if took => Ok(Need::Again),
            need => need,
        }
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let ended = self.machine.receive_eof(now);
        self.take();
        ended
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.machine.poll_transmit(now, out);
        self.look_at_crowd();
        while let Some(id) = self.machine.drained() {
            if let Some(serial) = self.theirs.get(&id).copied() {
                self.wake(Wait::Write(serial));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let handled = self.machine.handle_timeout(now);
        self.take();
        handled
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.machine.detached(now);
        self.take();
        goes_on
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        self.machine.lifecycle()
    }

    fn held_bytes(&self) -> usize {
        let held = self.machine.held_bytes().saturating_add(self.names);
        held.saturating_add(self.complete_bytes())
    }

    fn complete_bytes(&self) -> usize {
        let beside = self.untaken.count.saturating_mul(WAITING_BYTES);
        self.untaken.bytes.saturating_add(beside)
    }

    fn coming_bytes(&self) -> usize {
        self.machine.coming_bytes()
    }

    fn finished(&self) -> u64 {
        self.machine.finished()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop()
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods // a test needs some instant
)]
mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test needs some instant
mod tests;
