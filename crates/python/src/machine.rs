//! The part that all bare machines share for Python: bytes in, bytes out, the time given in milliseconds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue};
use bytes::{Buf, BytesMut};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::options::argument;

argument! {
    /// Milliseconds since the instant that the machine's user calls 0.
    Now(u64), "now", 0, u64::MAX
}

/// A machine, its unread input and the instant that its user calls 0.
pub(crate) struct Machine<C> {
    pub(crate) connection: C,
    input: BytesMut,
    start: Instant,
    protocol: &'static str,
}

/// Locks a machine; a machine goes on after a panic in one of its methods.
pub(crate) fn lock<C>(machine: &Mutex<Machine<C>>) -> MutexGuard<'_, Machine<C>> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `now` milliseconds after `start`.
fn after(start: Instant, now: Now) -> Instant {
    start
        .checked_add(Duration::from_millis(now.0))
        .unwrap_or(start)
}

impl<C: Connection> Machine<C> {
    pub(crate) fn new(protocol: &'static str, connection: C) -> Mutex<Self> {
        Self::made(protocol, Now(0), |_| connection)
    }

    /// Makes a machine with `now` as its first time.
    pub(crate) fn made(
        protocol: &'static str,
        now: Now,
        make: impl FnOnce(Instant) -> C,
    ) -> Mutex<Self> {
        let start = Instant::now();
        Mutex::new(Self {
            connection: make(after(start, now)),
            input: BytesMut::new(),
            start,
            protocol,
        })
    }

    pub(crate) fn at(&self, now: Now) -> Instant {
        after(self.start, now)
    }

    /// Runs a verb of the machine at that time.
    pub(crate) fn call<R>(&mut self, now: Now, verb: impl FnOnce(&mut C, Instant) -> R) -> R {
        let now = self.at(now);
        verb(&mut self.connection, now)
    }

    pub(crate) fn receive(&mut self, now: Now, data: &[u8]) -> PyResult<(&'static str, usize)> {
        self.input.extend_from_slice(data);
        let now = self.at(now);
        let need = self.connection.receive(now, &mut self.input);
        Ok(match need.map_err(|error| self.ended(&error))? {
            Need::Input { at_least } => ("input", at_least),
            Need::Room => ("room", 0),
            Need::Again => ("again", 0),
        })
    }

    /// Drops the input that was not taken, and returns it.
    pub(crate) fn leftover(&mut self) -> BytesMut {
        std::mem::take(&mut self.input)
    }

    pub(crate) fn receive_eof(&mut self, now: Now) -> PyResult<()> {
        let ended = self.call(now, C::receive_eof);
        ended.map_err(|error| self.ended(&error))
    }

    pub(crate) fn transmit<'py>(
        &mut self,
        py: Python<'py>,
        now: Now,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut queue = SendQueue::new();
        self.call(now, |connection, now| {
            connection.poll_transmit(now, &mut queue);
        });
        let len = queue.remaining();
        PyBytes::new_with(py, len, |bytes| {
            queue.copy_to_slice(bytes);
            Ok(())
        })
    }

    /// Rounded up: at the returned time the timer is due.
    pub(crate) fn timeout(&self) -> Option<u64> {
        let left = self
            .connection
            .poll_timeout()?
            .saturating_duration_since(self.start);
        u64::try_from(left.as_micros().div_ceil(1000)).ok()
    }

    pub(crate) fn handle_timeout(&mut self, now: Now) -> PyResult<()> {
        let handled = self.call(now, C::handle_timeout);
        handled.map_err(|error| self.ended(&error))
    }

    pub(crate) fn lifecycle(&self) -> &'static str {
        match self.connection.lifecycle() {
            Lifecycle::Open => "open",
            Lifecycle::Draining => "draining",
            Lifecycle::Closed => "closed",
            Lifecycle::Handover => "handover",
        }
    }

    fn ended(&self, error: &ProtocolError<C::Kind>) -> PyErr {
        errors::protocol(self.protocol, error)
    }
}
