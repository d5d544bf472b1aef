//! A connection's machine with everything that its application has still to take: the one thing that a driver drives.
//!
//! Messages, commands and frames of extensions wait apart. A verb that returns [`Error::Blocked`] has changed nothing and is
//! tried again when its [`Wait`] is woken. Messages have positions, counted from 1 in each direction and never repeated,
//! in place of the sequence numbers on the wire.

mod inbox;
mod outbox;
mod outgoing;
mod waits;

use std::sync::Arc;
use std::time::Instant;

pub use ackline_core::Serial;
use ackline_core::{
    Connection as _, End, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts, UsageError,
    Wakes,
};
use bytes::BytesMut;

use inbox::Inbox;
pub use inbox::{Arrival, Received};
pub use outbox::Delivery;
use outbox::Outbox;
pub use outgoing::Outgoing;
pub use waits::{Interest, Wait};

use crate::text::{Extension, check_destination, shown};
use crate::{Config, Connected, Connection, Error, Event, Kind, Proposal, Role, refusal};

/// The connection's own place.
pub const TOP: Serial = 1;

/// Messages, commands and frames that may wait to be taken; they may be empty. Above it nothing more is read.
const MOST_WAITING: usize = 65_536;

/// Extensions whose frames the connection makes itself.
const OWN_FRAMES: [&str; 3] = ["ack", "batch-ack", "dotnet"];

/// A connection's machine with everything that waits for its application.
#[derive(Debug)]
pub struct Session {
    machine: Connection,
    inbox: Inbox,
    outbox: Outbox,
    wakes: Wakes,
    agreement: Agreement,
    /// The reason of the peer's ERROR frame.
    failed: Option<Arc<str>>,
    /// Whether the peer has ended its direction.
    has_eof: bool,
    /// How this end has ended the connection.
    own_end: Option<OwnEnd>,
    /// Whether a peer that has ended its own direction gets no further acknowledgements.
    has_hung_up: bool,
    now: Instant,
}

/// How far the handshake is.
#[derive(Debug)]
enum Agreement {
    /// The peer's part is awaited.
    Awaited,
    /// The application answers the peer.
    Proposed(Box<Proposal>),
    /// It has ended.
    Made(Connected),
}

/// How this end ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnEnd {
    /// In order, or with an ERROR frame.
    Closed,
    /// At once.
    Aborted,
}

impl Session {
    /// Begins a connection. About `send_bytes` may wait to be sent.
    pub fn new(now: Instant, role: Role, config: Config, send_bytes: usize) -> Self {
        let policy = config.ack_policy;
        let mut machine = Connection::new(now, role, config);
        // Its identity and lists were checked before.
        let _ = machine.connect(now);
        Self {
            machine,
            inbox: Inbox::new(policy),
            outbox: Outbox::new(send_bytes),
            wakes: Wakes::default(),
            agreement: Agreement::Awaited,
            failed: None,
            has_eof: false,
            own_end: None,
            has_hung_up: false,
            now,
        }
    }

    /// The result of the handshake.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it has not ended. [`Error::Failed`]; [`Error::Ended`].
    pub fn connected(&self) -> Result<Connected, Error> {
        self.made().cloned()
    }

    fn made(&self) -> Result<&Connected, Error> {
        match &self.agreement {
            Agreement::Made(connected) => Ok(connected),
            _ => Err(self.over().unwrap_or(Error::Blocked)),
        }
    }

    const fn is_connected(&self) -> bool {
        matches!(self.agreement, Agreement::Made(_))
    }

    /// The peer's proposal, where the negotiation is manual. It stays until it is answered.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the peer has not said it. `nothing_proposed`: the handshake has ended, or the connection answers by
    /// itself. [`Error::Failed`]; [`Error::Ended`].
    pub fn proposal(&self) -> Result<Proposal, Error> {
        if let Some(over) = self.over() {
            return Err(over);
        }
        match &self.agreement {
            Agreement::Proposed(proposal) => Ok(Proposal::clone(proposal)),
            Agreement::Awaited if self.machine.is_manual() => Err(Error::Blocked),
            _ => Err(Error::Usage(refusal::NOTHING_PROPOSED)),
        }
    }

    /// Answers what the peer proposes: see [`Connection::answer`].
    ///
    /// # Errors
    /// `nothing_proposed`, `invalid_answer`, `out_of_range`; the end.
    pub fn answer(
        &mut self,
        required: Vec<Extension>,
        optional: Vec<Extension>,
    ) -> Result<(), Error> {
        let answered = self.machine.answer(self.now, required, optional);
        self.told(answered)?;
        self.agreement = Agreement::Awaited;
        // At a client the handshake has ended.
        self.take();
        Ok(())
    }

    /// Whether the handshake agreed on an extension.
    pub fn has_extension(&self, name: &str) -> bool {
        self.machine.has_extension(name)
    }

    /// The extensions of the connection, in the order of their numbers.
    pub fn extensions(&self) -> &[Extension] {
        self.machine.extensions()
    }

    /// Sends bytes of an extension.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the handshake has not ended, or no room. `extension_not_negotiated`; `reserved_extension`: the
    /// connection makes its frames itself; the end.
    pub fn send_extension(&mut self, name: &str, payload: &[u8]) -> Result<(), Error> {
        if OWN_FRAMES.contains(&name) {
            return Err(Error::Usage(refusal::RESERVED_EXTENSION));
        }
        self.ready(payload.len())?;
        let sent = self.machine.send_extension(name, payload);
        self.told(sent)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the handshake has not ended, or no room. `invalid_name`; the end.
    pub fn command(&mut self, name: &str, properties: &[(String, String)]) -> Result<(), Error> {
        self.ready(0)?;
        let sent = self.machine.command(name, properties);
        self.told(sent)
    }

    /// Subscribes to a topic or a queue of the peer.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the handshake has not ended, or no room. `not_ascii`, `out_of_range`: no message can have this
    /// destination. `extension_not_negotiated`, `invalid_filter`; the end.
    pub fn subscribe(&mut self, topic: &str, filter: Option<&str>) -> Result<(), Error> {
        check_destination(topic)?;
        self.ready(0)?;
        let sent = self.machine.subscribe(topic, filter);
        self.told(sent)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn unsubscribe(&mut self, topic: &str) -> Result<(), Error> {
        check_destination(topic)?;
        self.ready(0)?;
        let sent = self.machine.unsubscribe(topic);
        self.told(sent)
    }

    /// Whether the handshake has ended and a frame of so many bytes would be taken.
    fn ready(&mut self, bytes: usize) -> Result<(), Error> {
        self.made()?;
        if self.machine.is_running() && !self.has_frame_room(bytes) {
            return Err(Error::Blocked);
        }
        Ok(())
    }

    /// Ends the connection with an ERROR frame, behind everything that waits.
    ///
    /// # Errors
    /// The connection is over.
    pub fn fail(&mut self, message: &str) -> Result<(), Error> {
        let failed = self.machine.fail(message);
        if failed.is_ok() {
            self.own_end = Some(OwnEnd::Closed);
        }
        self.has_hung_up = true;
        self.wake_all();
        self.told(failed)
    }

    /// Ends the connection with an ERROR frame, in place of the messages that wait: the peer does not read them.
    ///
    /// # Errors
    /// The connection is over.
    pub fn cut(&mut self, message: &str) -> Result<(), Error> {
        self.outbox.clear();
        self.machine.drop_messages();
        self.fail(message)
    }

    /// Ends the connection in order: messages that the application has taken are acknowledged where that is automatic, and
    /// everything that waits goes out.
    ///
    /// # Errors
    /// The connection is over.
    pub fn close(&mut self) -> Result<(), Error> {
        self.inbox.processed_all(&mut self.machine, self.now);
        let closed = self.machine.close();
        if closed.is_ok() {
            self.own_end = Some(OwnEnd::Closed);
        }
        self.has_hung_up = true;
        self.wake_all();
        self.told(closed)
    }

    /// Notes that this end ends the connection at once.
    pub fn abandon(&mut self) {
        if self.over().is_none() {
            self.own_end = Some(OwnEnd::Aborted);
            self.wake_all();
        }
    }

    /// Why nothing can be done any more, once the connection is over: the transport may still come to its end.
    pub fn over(&self) -> Option<Error> {
        if let Some(reason) = &self.failed {
            return Some(Error::Failed(Arc::clone(reason)));
        }
        self.end().map(Error::Ended)
    }

    fn end(&self) -> Option<End<Kind>> {
        if let Some(fault) = self.machine.fault() {
            return Some(End::Protocol(fault.clone()));
        }
        if self.own_end == Some(OwnEnd::Aborted) {
            return Some(End::Aborted);
        }
        match self.machine.lifecycle() {
            Lifecycle::Open => None,
            Lifecycle::Draining if self.own_end.is_some() => Some(End::Closed),
            _ => Some(End::Eof),
        }
    }

    /// The error of a refused verb; the end of the connection, if the connection is over.
    fn told<T>(&self, result: Result<T, UsageError>) -> Result<T, Error> {
        result.map_err(|error| self.over().unwrap_or(Error::Usage(error)))
    }

    /// Takes the machine's events; returns whether there were any.
    fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.take_one(event);
        }
        if any {
            self.outbox.fill(&mut self.machine);
        }
        any
    }

    fn take_one(&mut self, event: Event) {
        match event {
            Event::Proposed(proposal) => {
                self.agreement = Agreement::Proposed(Box::new(proposal));
                self.wake(Wait::Connected);
            }
            Event::Connected(connected) => {
                self.agreement = Agreement::Made(connected);
                self.wake_all();
            }
            Event::Message(message) => {
                self.inbox.push_message(message);
                self.wake(Wait::Message);
            }
            Event::Acknowledged { .. } => {
                self.outbox.acknowledged(&self.machine);
                self.wake(Wait::Room);
                self.wake(Wait::Acknowledged);
            }
            Event::Command(command) => self.arrived(Arrival::Command(command)),
            Event::Subscribe(one) => self.arrived(Arrival::Subscribe(one)),
            Event::Unsubscribe { topic } => self.arrived(Arrival::Unsubscribe(topic)),
            Event::Extension { name, payload } => {
                self.inbox.push_extension(name, payload);
                self.wake(Wait::Extension);
            }
            Event::Error { message } => {
                self.failed = Some(shown(&message).into());
                self.wake_all();
            }
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        self.inbox.push_arrival(arrival);
        self.wake(Wait::Arrival);
    }

    /// Wakes those that wait for this, so that they look again.
    fn wake(&mut self, wait: Wait) {
        self.wakes.wake(wait.key());
    }

    fn wake_all(&mut self) {
        for wait in Wait::ALL {
            self.wake(wait);
        }
    }

    /// The machine is over, by whatever: all waits look again.
    fn after(&mut self, had_end: bool) {
        self.take();
        if !had_end && self.over().is_some() {
            self.wake_all();
        }
    }
}

impl ackline_core::Connection for Session {
    // Everything is taken from the machine as it comes.
    type Event = std::convert::Infallible;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.now = now;
        if self.inbox.len() >= MOST_WAITING || self.inbox.is_full() {
            return Ok(Need::Room);
        }
        let had_end = self.over().is_some();
        let need = self.machine.receive(now, input);
        let took = self.take();
        self.after(had_end);
        match need {
            Ok(Need::Room) if took => Ok(Need::Again),
            need => need,
        }
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.now = now;
        let had_end = self.over().is_some();
        let ended = self.machine.receive_eof(now);
        self.has_eof = true;
        self.after(had_end);
        ended
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.now = now;
        self.outbox.fill(&mut self.machine);
        self.machine.poll_transmit(now, out);
        // It has room again.
        self.outbox.fill(&mut self.machine);
        if self.outbox.has_waiters(&self.machine) {
            self.wake(Wait::Room);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.now = now;
        let had_end = self.over().is_some();
        let handled = self.machine.handle_timeout(now);
        self.after(had_end);
        handled
    }

    fn detached(&mut self, now: Instant) -> bool {
        self.now = now;
        let had_end = self.over().is_some();
        let goes_on = self.machine.detached(now);
        self.after(had_end);
        goes_on
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        if self.owes_answers() {
            return Lifecycle::Closed;
        }
        self.machine.lifecycle()
    }

    fn held_bytes(&self) -> usize {
        self.machine.held_bytes().saturating_add(self.inbox.bytes())
    }

    fn complete_bytes(&self) -> usize {
        let machine = self.machine.complete_bytes();
        machine.saturating_add(self.inbox.bytes())
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

    /// After the peer's end: messages that came before it are not acknowledged yet.
    fn owes_answers(&self) -> bool {
        self.machine.is_half_open() && self.machine.unacknowledged() > 0 && !self.has_hung_up
    }

    fn hang_up(&mut self) {
        self.has_hung_up = true;
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
mod tests;
