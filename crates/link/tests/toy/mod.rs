//! A toy protocol: a 32-bit length, then that many bytes; every frame is an event and is echoed.
//!
//! Payloads with a meaning: `!` breaks the protocol, `@` closes and leaves the rest to the next
//! driver, `.` drains, `>` hands over. A connection that `survives` continues without a transport.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::VecDeque;
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline_core::{
    Connection, ErrorKind, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts,
};
use bytes::{Buf, Bytes, BytesMut};

/// The driver's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a bad frame")]
pub(crate) struct Bad {
    pub(crate) is_silence: bool,
}

impl ErrorKind for Bad {
    fn code(&self) -> &'static str {
        "toy.bad"
    }

    fn is_silence(&self) -> bool {
        self.is_silence
    }
}

#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
pub(crate) struct Toy {
    /// Keys whose waits are to be re-run.
    pub(crate) wakes: Vec<u64>,
    /// Events before `Need::Room`.
    pub(crate) room: usize,
    /// Frames that make a window: their bytes are held until `settle` after the last of them.
    pub(crate) window: usize,
    pub(crate) echo: bool,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) reading: Vec<bool>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) events: VecDeque<Bytes>,
    pub(crate) out: VecDeque<Bytes>,
    pub(crate) due: Option<Instant>,
    pub(crate) held: usize,
    pub(crate) offset: u64,
    pub(crate) error: Option<ProtocolError<Bad>>,
    /// Answers that an error does not cut off.
    pub(crate) owed: usize,
    pub(crate) hung_up: bool,
    /// The result of `detached`.
    pub(crate) survives: bool,
    /// Transports that were detached.
    pub(crate) detached: usize,
    pub(crate) stall_timeouts: StallTimeouts,
    /// How often it shows that it is alive before it gives the peer up.
    pub(crate) signs: Option<u32>,
    /// A timer of its own is always due, and it does nothing.
    pub(crate) spins: bool,
    /// Received bytes count so many times more, with so many bytes each.
    pub(crate) copies: (usize, usize),
}

impl Default for Toy {
    fn default() -> Self {
        Self {
            room: 1_000,
            window: 0,
            echo: true,
            keepalive: None,
            stall_timeouts: StallTimeouts::default(),
            signs: None,
            reading: Vec::new(),
            wakes: Vec::new(),
            lifecycle: Lifecycle::Open,
            events: VecDeque::new(),
            out: VecDeque::new(),
            due: None,
            held: 0,
            offset: 0,
            error: None,
            owed: 0,
            hung_up: false,
            survives: false,
            detached: 0,
            spins: false,
            copies: (0, 0),
        }
    }
}

impl Toy {
    pub(crate) fn send(&mut self, payload: impl Into<Bytes>) {
        self.out.push_back(payload.into());
    }

    pub(crate) fn take(&mut self, _: Instant) -> Poll<Bytes> {
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }

    /// A whole window, settled.
    pub(crate) fn take_window(&mut self, _: Instant) -> Poll<usize> {
        if self.events.len() < self.window {
            return Poll::Pending;
        }
        let bytes = self
            .events
            .drain(..self.window)
            .map(|event| event.len())
            .sum();
        self.held -= bytes;
        Poll::Ready(bytes)
    }

    pub(crate) fn start_keepalive(&mut self, now: Instant, every: Duration) {
        self.keepalive = Some(every);
        self.due = Some(now + every);
    }

    fn frame(&mut self, payload: Bytes) -> Result<(), ProtocolError<Bad>> {
        match &payload[..] {
            b"!" => {
                self.send("bye");
                let error = ProtocolError {
                    kind: Bad { is_silence: false },
                    offset: self.offset,
                };
                self.error = Some(error.clone());
                return Err(error);
            }
            b"@" => self.lifecycle = Lifecycle::Closed,
            b"." => self.lifecycle = Lifecycle::Draining,
            b">" => {
                self.send("over");
                self.lifecycle = Lifecycle::Handover;
            }
            _ => {
                if self.echo {
                    self.send(payload.clone());
                }
                if self.window > 0 {
                    self.held += payload.len();
                }
                self.events.push_back(payload);
            }
        }
        Ok(())
    }
}

impl Connection for Toy {
    type Event = Bytes;
    type Kind = Bad;

    fn receive(&mut self, _: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Bad>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        while self.lifecycle == Lifecycle::Open {
            if self.copies.0 > 0 {
                self.copies.0 -= 1;
                self.held += self.copies.1;
                return Ok(Need::Again);
            }
            let Some(head) = input.first_chunk::<4>() else {
                return Ok(Need::Input { at_least: 4 });
            };
            let whole = 4 + usize::try_from(u32::from_be_bytes(*head)).unwrap();
            if input.len() < whole {
                return Ok(Need::Input { at_least: whole });
            }
            if self.events.len() >= self.room {
                return Ok(Need::Room);
            }
            let mut frame = input.split_to(whole).freeze();
            frame.advance(4);
            self.frame(frame)?;
            self.offset += u64::try_from(whole).unwrap();
        }
        Ok(Need::Input { at_least: 1 })
    }

    fn receive_eof(&mut self, _: Instant) -> Result<(), ProtocolError<Bad>> {
        self.lifecycle = if self.owed > 0 {
            Lifecycle::Closed
        } else {
            Lifecycle::Draining
        };
        Ok(())
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.stall_timeouts
    }

    fn step_bytes(&self) -> usize {
        if self.copies.0 > 0 { self.copies.1 } else { 0 }
    }

    fn owes_answers(&self) -> bool {
        self.owed > 0
    }

    fn hang_up(&mut self) {
        self.hung_up = true;
    }

    fn detached(&mut self, _: Instant) -> bool {
        self.detached += 1;
        if self.survives {
            self.lifecycle = Lifecycle::Open;
            self.error = None;
            self.offset = 0;
        }
        self.survives
    }

    fn poll_event(&mut self) -> Option<Bytes> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut SendQueue) {
        while out.room() > 0 {
            let Some(payload) = self.out.pop_front() else {
                return;
            };
            out.put_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
            out.put(payload);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.spins {
            return Some(now());
        }
        self.due
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Bad>> {
        if let (Some(due), Some(every)) = (self.due, self.keepalive)
            && due <= now
        {
            if self.signs == Some(0) {
                let kind = Bad { is_silence: true };
                let error = ProtocolError { kind, offset: 0 };
                return Err(self.error.insert(error).clone());
            }
            self.signs = self.signs.map(|signs| signs - 1);
            self.due = Some(due + every);
            self.send("alive");
        }
        Ok(())
    }

    fn reading(&mut self, _: Instant, on: bool) {
        self.reading.push(on);
    }

    fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    fn held_bytes(&self) -> usize {
        self.held
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop()
    }

    fn complete_bytes(&self) -> usize {
        let whole = match self.window {
            0 => 0,
            window => self.events.len() - self.events.len() % window,
        };
        self.events.iter().take(whole).map(Bytes::len).sum()
    }
}

/// The wire form of `payloads`.
pub(crate) fn frames(payloads: &[&[u8]]) -> Vec<u8> {
    let mut wire = Vec::new();
    for payload in payloads {
        wire.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        wire.extend_from_slice(payload);
    }
    wire
}
