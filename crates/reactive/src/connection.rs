//! One end of a connection: the handshake, the verbs, and the end.
//!
//! The client may go on without the server's hello (REQ-RS-5, REQ-RS-10); this end's server waits for the client's and has
//! one version (REQ-RS-11, R-RS-10, R-RS-V1). Of a connection that has ended nothing is left (REQ-RS-30).

use std::sync::Arc;
use std::time::Instant;

use ackline_core::{
    Block, EVENTS_PER_CALL, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts, Timing,
    UsageError,
};
use bytes::{Bytes, BytesMut};

use crate::message::{Field, FieldKind, Message, Streams, decode, put, type_of, types};
use crate::varint::Stop;
use crate::{Config, Kind, Role, UNBOUNDED, VERSION, refusal};

mod ends;
mod event;
mod outgoing;
mod publications;
mod receive;
mod subscriptions;
mod waiting;

pub use event::Event;
use event::EventQueue;
use outgoing::{Outgoing, Waiting};
use publications::Publications;
use subscriptions::Subscriptions;

/// Bytes of memory that a subscription of the peer is charged, besides its elements.
pub const SUBSCRIPTION_BYTES: usize = 256;
/// Bytes of answers that the peer has caused and not read: from here on nothing more is read from it.
const OWED_BYTES: usize = 64 << 10;

/// One end of a connection.
///
/// Ids of both directions are independent (R-RS-27): this end's subscriptions and those of the peer may have the same.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    role: Role,
    state: State,
    timing: Timing,
    offset: u64,
    /// Whole messages that have come.
    messages: u64,
    subscriptions: Subscriptions,
    publications: Publications,
    events: EventQueue,
    outgoing: Outgoing,
    block: Block,
}

/// The place of a connection in its life.
#[derive(Debug)]
struct State {
    life: Life,
    /// Whether the peer's hello has come.
    has_hello: bool,
    /// Whether this end has said goodbye.
    has_goodbye: bool,
    /// The time when that was sent.
    goodbye_sent: Option<Instant>,
    /// The time when the connection was made.
    since: Option<Instant>,
    /// The extensions that both ends support, ascending.
    active: Vec<u64>,
    error: Option<ProtocolError<Kind>>,
    /// The reason that streams were given where the connection ended without a goodbye of the peer's.
    lost: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// `connect` was not called.
    Idle,
    /// Messages go in both directions.
    Running,
    /// It is over.
    Ended,
}

impl Connection {
    /// A connection before its beginning.
    pub fn new(now: Instant, role: Role, config: Config) -> Self {
        Self {
            config,
            role,
            state: State {
                life: Life::Idle,
                has_hello: false,
                has_goodbye: false,
                goodbye_sent: None,
                since: None,
                active: Vec::new(),
                error: None,
                lost: None,
            },
            timing: Timing::new(now),
            offset: 0,
            messages: 0,
            subscriptions: Subscriptions::default(),
            publications: Publications::default(),
            events: EventQueue::default(),
            outgoing: Outgoing::default(),
            block: Block::default(),
        }
    }

    /// A connection whose hellos were exchanged, without extensions.
    pub fn established(now: Instant, role: Role, config: Config) -> Self {
        let mut made = Self::new(now, role, config);
        made.state.life = Life::Running;
        made.state.has_hello = true;
        made
    }

    /// Begins the connection: the client says hello (REQ-RS-4), the server waits for the client's.
    ///
    /// # Errors
    /// `not_connected`: the connection is over or was begun before.
    pub fn connect(&mut self, now: Instant) -> Result<(), UsageError> {
        if self.state.life != Life::Idle {
            return Err(refusal::NOT_CONNECTED);
        }
        self.state.life = Life::Running;
        self.state.since = Some(now);
        if self.role == Role::Client {
            self.say_hello();
        }
        Ok(())
    }

    fn say_hello(&mut self) {
        self.outgoing.put(&Message::Hello {
            is_client: self.role == Role::Client,
            version: VERSION,
            extensions: self.config.extensions.clone(),
        });
    }

    fn check_connected(&self) -> Result<(), UsageError> {
        let may_speak = self.state.has_hello || self.role == Role::Client;
        if self.state.life != Life::Running || !may_speak {
            return Err(refusal::NOT_CONNECTED);
        }
        Ok(())
    }

    /// Whether verbs are allowed now.
    fn check(&self) -> Result<(), UsageError> {
        self.check_connected()?;
        if self.state.has_goodbye {
            return Err(refusal::CLOSING);
        }
        Ok(())
    }

    /// An id for a new subscription: one that has ended by itself, or the lowest that was never used (R-RS-13).
    pub fn free_id(&self) -> u64 {
        self.subscriptions.free_id()
    }

    /// Subscribes to a publisher of the peer.
    ///
    /// # Errors
    /// `not_connected`, `closing`; `invalid_demand` above 2^63-1; `subscriber_in_use`.
    pub fn subscribe(
        &mut self,
        publisher: &str,
        subscriber: u64,
        initial_demand: u64,
    ) -> Result<(), UsageError> {
        self.check()?;
        self.subscriptions.check_free(subscriber)?;
        if initial_demand > UNBOUNDED {
            return Err(refusal::INVALID_DEMAND);
        }
        self.subscriptions.open(subscriber, initial_demand);
        self.outgoing.put(&Message::Subscribe {
            publisher: publisher.to_owned(),
            subscriber,
            initial_demand,
        });
        Ok(())
    }

    /// Requests more elements; the sum saturates at 2^63-1, which is without bound (R-RS-18).
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`; `invalid_demand`: 0, or above 2^63-1.
    pub fn request(&mut self, subscriber: u64, demand: u64) -> Result<(), UsageError> {
        self.check()?;
        let subscription = self.subscriptions.get_mut(subscriber)?;
        if demand == 0 || demand > UNBOUNDED {
            return Err(refusal::INVALID_DEMAND);
        }
        subscription.request(demand);
        self.outgoing.put(&Message::Request { subscriber, demand });
        Ok(())
    }

    /// The elements of a subscription that were requested and have not come.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn requested(&self, subscriber: u64) -> Result<u64, UsageError> {
        self.check()?;
        self.subscriptions.demand(subscriber)
    }

    /// Elements of a subscription that have come in part and are not handed out: none where parts are handed out as they come.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn begun(&self, subscriber: u64) -> Result<usize, UsageError> {
        self.check()?;
        let begun = self.subscriptions.begun(subscriber)?;
        Ok(if self.config.parts { 0 } else { begun })
    }

    /// Ends a subscription. Elements that still come are dropped, and its id is not used again (R-RS-13).
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn cancel(&mut self, subscriber: u64) -> Result<(), UsageError> {
        self.check()?;
        self.subscriptions.get_mut(subscriber)?;
        self.subscriptions.drop_input(subscriber);
        self.outgoing.put(&Message::Cancel { subscriber });
        Ok(())
    }

    /// Accepts a subscription of the peer; every element has `element_size` bytes, or any number if that is 0.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn accept(&mut self, subscriber: u64, element_size: u64) -> Result<(), UsageError> {
        self.check()?;
        self.publications.accept(subscriber, element_size)?;
        self.outgoing.answer(&Message::Subscribed {
            subscriber,
            element_size,
        });
        Ok(())
    }

    /// Rejects a subscription of the peer (R-RS-17).
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn reject(&mut self, subscriber: u64, error: &str) -> Result<(), UsageError> {
        self.check()?;
        self.publications.reject(subscriber)?;
        self.outgoing.answer(&Message::Subscribed {
            subscriber,
            element_size: 0,
        });
        self.outgoing.answer(&Message::Error {
            subscriber,
            error: error.to_owned(),
        });
        Ok(())
    }

    /// The elements that a subscription of the peer has requested and that were not published yet.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn demand(&self, subscriber: u64) -> Result<u64, UsageError> {
        self.check()?;
        self.publications.demand(subscriber)
    }

    /// Publishes elements, all or none. On a stream of fixed-size elements they are packed.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`, `not_accepted`, `wrong_element_size`, `no_demand`.
    pub fn next(&mut self, subscriber: u64, elements: Vec<Bytes>) -> Result<(), UsageError> {
        self.check()?;
        let turn = self.publications.next(subscriber, elements)?;
        self.outgoing.turn(turn);
        Ok(())
    }

    /// Publishes elements of a stream of fixed size that stand one behind the other, all or none.
    ///
    /// # Errors
    /// As [`next`](Self::next); `wrong_element_size` also on a stream without a fixed size.
    pub fn next_packed(&mut self, subscriber: u64, elements: Bytes) -> Result<(), UsageError> {
        self.check()?;
        let turn = self.publications.next_packed(subscriber, elements)?;
        self.outgoing.turn(turn);
        Ok(())
    }

    /// Completes a stream, behind the elements that were published.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`, `not_accepted`.
    pub fn complete(&mut self, subscriber: u64) -> Result<(), UsageError> {
        self.check()?;
        let turn = self.publications.end(subscriber, None)?;
        self.outgoing.turn(turn);
        Ok(())
    }

    /// Ends a stream with an error, behind the elements that were published.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`, `not_accepted`.
    pub fn error(&mut self, subscriber: u64, error: &str) -> Result<(), UsageError> {
        self.check()?;
        let turn = self.publications.end(subscriber, Some(error.to_owned()))?;
        self.outgoing.turn(turn);
        Ok(())
    }

    /// Ends the connection in good order: elements that were published go out, then a goodbye, and the end comes with
    /// the peer's (REQ-RS-31). All streams end now (REQ-RS-32).
    ///
    /// # Errors
    /// `not_connected`, `closing`.
    pub fn goodbye(&mut self, reason: &str) -> Result<(), UsageError> {
        self.check()?;
        self.state.has_goodbye = true;
        self.outgoing.goodbye = Some(reason.to_owned());
        self.tell_ends(reason);
        self.publications.finish();
        Ok(())
    }

    /// The extensions that both ends support, ascending.
    ///
    /// # Errors
    /// `not_connected`.
    pub fn extensions(&self) -> Result<&[u64], UsageError> {
        self.check_connected()?;
        Ok(&self.state.active)
    }

    /// Sends a message of an active extension (REQ-RS-8). An extension that changes what other messages mean
    /// negotiates that by messages of its own (REQ-RS-9).
    ///
    /// # Errors
    /// `not_connected`, `closing`; `extension_not_active`: the message has other fields, or both ends do not support it.
    pub fn send_extension(
        &mut self,
        message_type: u64,
        fields: Vec<Field>,
    ) -> Result<(), UsageError> {
        self.check()?;
        let kinds: Vec<FieldKind> = fields.iter().map(Field::kind).collect();
        if self.known().extension(message_type) != Some(&kinds[..]) {
            return Err(refusal::EXTENSION_NOT_ACTIVE);
        }
        self.outgoing.put(&Message::Extension {
            message_type,
            fields,
        });
        Ok(())
    }

    fn known(&self) -> Known<'_> {
        Known {
            subscriptions: &self.subscriptions,
            config: &self.config,
            active: &self.state.active,
        }
    }

    fn deadlines(&self) -> [(Option<Instant>, &'static str); 3] {
        let (state, timing) = (&self.state, &self.timing);
        if state.life != Life::Running || timing.paused.is_some() {
            return [(None, ""); 3];
        }
        let after = |since: Option<Instant>, wait: Option<std::time::Duration>| {
            since
                .zip(wait)
                .and_then(|(since, wait)| since.checked_add(wait))
        };
        let since = state.since.filter(|_| !state.has_hello);
        let partial = timing.partial.then_some(timing.last_byte);
        let config = &self.config;
        [
            (after(since, config.hello_timeout), "--hello-timeout"),
            (
                after(partial, config.message_receive_timeout),
                "--message-receive-timeout",
            ),
            (after(state.goodbye_sent, config.goodbye_timeout), ""),
        ]
    }
}

/// The knowledge of a connection that messages are read with.
struct Known<'a> {
    subscriptions: &'a Subscriptions,
    config: &'a Config,
    active: &'a [u64],
}

impl Streams for Known<'_> {
    fn element_size(&self, subscriber: u64) -> Option<u64> {
        self.subscriptions.element_size(subscriber)
    }

    fn extension(&self, message_type: u64) -> Option<&[FieldKind]> {
        let mut found = self.config.extension_messages.iter();
        let is_active = |extension| self.active.contains(extension);
        let found = found.find(|one| one.message_type == message_type && is_active(&one.extension));
        found.map(|one| one.fields.as_slice())
    }
}

impl ackline_core::Connection for Connection {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.timing.input(now, input.len());
        let need = self.take_input(input);
        self.timing.taken(input.len(), &need);
        need
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let Some(error) = &self.state.error {
            return Err(error.clone());
        }
        if self.state.life == Life::Ended {
            return Ok(());
        }
        if !self.state.has_goodbye {
            self.tell_lost("the peer has ended the connection without a goodbye");
        }
        self.end(None);
        Ok(())
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        if let Event::Complete { subscriber } | Event::Error { subscriber, .. } = &event {
            // Events of the stream that had the id before are behind the application now.
            self.subscriptions.release(*subscriber);
        }
        Some(event)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        let threshold = usize::try_from(self.config.split_threshold).unwrap_or(usize::MAX);
        while out.room() > 0 {
            match self.outgoing.waiting.pop_front() {
                Some(Waiting::Messages(bytes, owed)) => {
                    self.outgoing.owed = self.outgoing.owed.saturating_sub(owed);
                    out.put_slice(&bytes);
                }
                Some(Waiting::Turn(turn)) => {
                    let again = self.publications.transmit(turn, out, threshold.max(1));
                    self.outgoing.turn(again);
                }
                None => {
                    if let Some(reason) = self.outgoing.goodbye.take() {
                        let mut goodbye = Vec::new();
                        put(&mut goodbye, &Message::Goodbye { reason });
                        out.put_slice(&goodbye);
                        self.state.goodbye_sent = Some(now);
                    }
                    return;
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines().into_iter().filter_map(|(at, _)| at).min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let due = self.deadlines().into_iter();
        let due = due.filter(|(at, _)| at.is_some_and(|at| at <= now));
        match due.map(|(_, option)| option).next() {
            None => Ok(()),
            Some("") => {
                self.end(None);
                Ok(())
            }
            Some(option) => Err(self.fail(Kind::Timeout { option })),
        }
    }

    fn reading(&mut self, now: Instant, on: bool) {
        let before = self.timing.pause;
        self.timing.reading(now, on);
        let pause = self.timing.pause.saturating_sub(before);
        // Bytes that the peer has sent meanwhile were not read.
        for since in [&mut self.state.since, &mut self.state.goodbye_sent] {
            *since = since.and_then(|since| since.checked_add(pause));
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state.life {
            Life::Ended if self.state.error.is_some() => Lifecycle::Closed,
            Life::Ended => Lifecycle::Draining,
            _ => Lifecycle::Open,
        }
    }

    fn held_bytes(&self) -> usize {
        let open = self.publications.len().saturating_mul(SUBSCRIPTION_BYTES);
        let held = self
            .events
            .bytes()
            .saturating_add(self.subscriptions.held());
        held.saturating_add(open).saturating_add(self.outgoing.owed)
    }

    fn complete_bytes(&self) -> usize {
        self.events.bytes()
    }

    fn coming_bytes(&self) -> usize {
        self.subscriptions.held()
    }

    fn finished(&self) -> u64 {
        self.messages
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts {
            send: Some(ackline_core::SEND_TIMEOUT),
            silence: None,
        }
    }

    fn detached(&mut self, _now: Instant) -> bool {
        if self.state.life != Life::Ended {
            if !self.state.has_goodbye {
                self.tell_lost("the connection is gone");
            }
            self.end(None);
        }
        false
    }
}
