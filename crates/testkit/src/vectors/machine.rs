//! Any [`Connection`] as an endpoint of a conversation.

use std::time::Instant;

use ackline_core::{Connection, ErrorKind, Lifecycle, Need, SendQueue};
use bytes::{Buf, BytesMut};
use serde_json::{Map, Value};

use super::{CallError, End, Endpoint};

/// Turns a [`Connection`] into an [`Endpoint`]: verbs and events of one role.
pub trait Role {
    /// The state machine.
    type Connection: Connection;

    /// Calls a verb.
    ///
    /// # Errors
    /// [`CallError`].
    fn call(
        &mut self,
        connection: &mut Self::Connection,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError>;

    /// The event as the vectors write it; `None` if it is not in their vocabulary.
    fn event(&mut self, event: <Self::Connection as Connection>::Event) -> Option<Value>;
}

/// A [`Connection`] with an input buffer, driven by the runner.
pub struct Machine<R: Role> {
    connection: R::Connection,
    role: R,
    input: BytesMut,
    events: Vec<Value>,
    error: Option<String>,
}

impl<R: Role> Machine<R> {
    /// A machine at the start of its transport.
    pub fn new(connection: R::Connection, role: R) -> Self {
        Self {
            connection,
            role,
            input: BytesMut::new(),
            events: Vec::new(),
            error: None,
        }
    }

    fn fail(&mut self, kind: &<R::Connection as Connection>::Kind) {
        let code = kind.code();
        let name = code.rsplit_once('.').map_or(code, |(_, name)| name);
        self.error = Some(name.to_owned());
    }

    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.connection.poll_event() {
            any = true;
            self.events.extend(self.role.event(event));
        }
        any
    }

    fn pump(&mut self, now: Instant) {
        while self.end().is_none() {
            match self.connection.receive(now, &mut self.input) {
                Ok(Need::Again) => {
                    self.collect();
                }
                Ok(Need::Room) if self.collect() => {}
                Ok(_) => break,
                Err(error) => self.fail(&error.kind),
            }
        }
        self.collect();
    }
}

impl<R: Role> Endpoint for Machine<R> {
    fn call(
        &mut self,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        let result = self.role.call(&mut self.connection, now, verb, args);
        self.pump(now);
        result
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.pump(now);
    }

    fn eof(&mut self, now: Instant) {
        if let Err(error) = self.connection.receive_eof(now) {
            self.fail(&error.kind);
        }
        self.collect();
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.connection.handle_timeout(now) {
            self.fail(&error.kind);
        }
        self.collect();
    }

    fn take_output(&mut self, now: Instant, into: &mut Vec<u8>) {
        loop {
            let mut queue = SendQueue::new();
            self.connection.poll_transmit(now, &mut queue);
            if !queue.has_remaining() {
                break;
            }
            into.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
        }
        self.collect();
    }

    fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    fn end(&self) -> Option<End> {
        if let Some(kind) = &self.error {
            return Some(End::Error(kind.clone()));
        }
        (self.connection.lifecycle() != Lifecycle::Open).then_some(End::Closed)
    }
}
