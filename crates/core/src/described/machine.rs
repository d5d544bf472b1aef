//! Machines of any protocol: bytes in, bytes out, verbs and events as values.

use std::time::Instant;

use bytes::BytesMut;

use super::args::{Args, Misuse};
use crate::{Connection, ErrorKind, Lifecycle, Members, Need, ProtocolError, SendQueue, Value};

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub members: Members,
}

impl Event {
    /// An event with its values.
    pub const fn new(name: &'static str, members: Members) -> Self {
        Self { name, members }
    }
}

/// The end of a transport by an error: what a [`ProtocolError`] says, of any protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stable name of the kind.
    pub code: &'static str,
    /// The option that changes the rule behind it, if there is one.
    pub option: Option<&'static str>,
    /// Bytes received before the offending frame.
    pub offset: u64,
    /// The sentence.
    pub message: String,
}

impl<K: ErrorKind> From<&ProtocolError<K>> for Failure {
    fn from(error: &ProtocolError<K>) -> Self {
        Self {
            code: error.kind.code(),
            option: error.kind.option(),
            offset: error.offset,
            message: error.to_string(),
        }
    }
}

/// A [`Connection`] of any protocol with its input, or several of them that make one end. As there, `now` never goes
/// back. An error is no answer: it ends the transport, and [`failure`](Self::failure) keeps it.
pub trait Machine: Send {
    /// Calls a verb of the role with arguments that have their shapes.
    ///
    /// # Errors
    /// The machine refuses, or the arguments contradict each other.
    fn call(&mut self, now: Instant, verb: &str, args: &Args) -> Result<Value, Misuse>;

    /// Takes bytes; without any it goes on where it needed room or time.
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Need;

    /// The peer has ended its direction.
    fn receive_eof(&mut self, now: Instant);

    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;

    /// Appends the bytes to send.
    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue);

    /// When the next timer is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The timers that are due fire.
    fn handle_timeout(&mut self, now: Instant);

    /// Reading stopped or resumed.
    fn reading(&mut self, now: Instant, on: bool);

    /// Where the transport is in its life.
    fn lifecycle(&self) -> Lifecycle;

    /// The error that ended the transport.
    fn failure(&self) -> Option<&Failure>;

    /// The highest number of a transport so far, from 1.
    fn transports(&self) -> u64 {
        1
    }

    /// Chooses the transport that later calls are about, but for verbs and events. Returns whether the machine can have
    /// a transport of this number: most have one alone, number 1.
    #[must_use]
    fn select(&mut self, transport: u64) -> bool {
        transport == 1
    }
}

/// The verbs and events of a [`Connection`].
pub trait Vocabulary: Send {
    /// The state machine.
    type Connection: Connection + Send;

    /// Calls a verb.
    ///
    /// # Errors
    /// The machine refuses, or the arguments contradict each other.
    fn call(
        &mut self,
        connection: &mut Self::Connection,
        now: Instant,
        verb: &str,
        args: &Args,
    ) -> Result<Value, Misuse>;

    /// The event as values; `None` if the role does not tell it.
    fn event(&mut self, event: <Self::Connection as Connection>::Event) -> Option<Event>;

    /// The next of several events that the last one stands for.
    fn more(&mut self) -> Option<Event> {
        None
    }
}

/// A [`Connection`] and its vocabulary: the machine of a protocol with one transport.
pub struct Driven<V: Vocabulary> {
    connection: V::Connection,
    vocabulary: V,
    input: BytesMut,
    failure: Option<Failure>,
}

impl<V: Vocabulary + 'static> Driven<V> {
    /// A machine whose time begins `now`.
    pub fn boxed(now: Instant, connection: V::Connection, vocabulary: V) -> Box<dyn Machine> {
        let mut made = Self {
            connection,
            vocabulary,
            input: BytesMut::new(),
            failure: None,
        };
        made.receive(now, &[]);
        Box::new(made)
    }

    fn ended(&mut self, error: &ProtocolError<<V::Connection as Connection>::Kind>) {
        self.failure.get_or_insert_with(|| error.into());
    }
}

impl<V: Vocabulary + 'static> Machine for Driven<V> {
    fn call(&mut self, now: Instant, verb: &str, args: &Args) -> Result<Value, Misuse> {
        let connection = &mut self.connection;
        self.vocabulary.call(connection, now, verb, args)
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Need {
        self.input.extend_from_slice(bytes);
        let needed = self.connection.receive(now, &mut self.input);
        needed.unwrap_or_else(|error| {
            self.ended(&error);
            Need::Input { at_least: 1 }
        })
    }

    fn receive_eof(&mut self, now: Instant) {
        if let Err(error) = self.connection.receive_eof(now) {
            self.ended(&error);
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(more) = self.vocabulary.more() {
                return Some(more);
            }
            let event = self.connection.poll_event()?;
            if let Some(told) = self.vocabulary.event(event) {
                return Some(told);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.connection.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.connection.handle_timeout(now) {
            self.ended(&error);
        }
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.connection.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        self.connection.lifecycle()
    }

    fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}
