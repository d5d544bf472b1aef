//! The timers on the peer's silence: a ping of the top-level, the deadline of its pong, and that of a chunk
//! that has begun.

use std::time::{Duration, Instant};

use ackline_core::Timing;

use crate::error::PONG_TIMEOUT;
use crate::{Config, Target};

/// The peer's silence, and the ping that this end sends because of it.
#[derive(Debug)]
pub(super) struct Silence {
    timing: Timing,
    ping: Ping,
}

/// The ping that this end sends by itself.
#[derive(Debug, Clone, Copy)]
enum Ping {
    No,
    /// It is due, not sent.
    Due,
    /// Its pong is awaited.
    Sent {
        at: Instant,
        /// The time for which reading had been off then.
        pause: Duration,
    },
}

/// The times when the timers are due.
#[derive(Debug, Clone, Copy, Default)]
struct Deadlines {
    ping: Option<Instant>,
    pong: Option<Instant>,
    chunk: Option<Instant>,
}

impl Silence {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            timing: Timing::new(now),
            ping: Ping::No,
        }
    }

    /// `len` bytes of input are there.
    pub(super) fn input(&mut self, now: Instant, len: usize) {
        self.timing.input(now, len);
    }

    /// `left` bytes of input were not taken.
    pub(super) const fn taken(&mut self, left: usize, is_inside_a_chunk: bool) {
        self.timing.left = left;
        self.timing.partial = is_inside_a_chunk;
    }

    /// The driver stopped or resumed reading.
    pub(super) fn reading(&mut self, now: Instant, on: bool) {
        self.timing.reading(now, on);
    }

    pub(super) const fn last_byte(&self) -> Instant {
        self.timing.last_byte
    }

    fn deadlines(&self, config: &Config) -> Deadlines {
        if self.timing.paused.is_some() {
            return Deadlines::default();
        }
        let after = |since: Instant, wait: Option<Duration>| since.checked_add(wait?);
        let last_byte = self.timing.last_byte;
        let (ping, pong) = match self.ping {
            Ping::No => (after(last_byte, config.ping_after), None),
            Ping::Due => (None, None),
            Ping::Sent { at, pause } => {
                let pause = self.timing.pause.saturating_sub(pause);
                let wait = config.pong_timeout.map(|it| it.saturating_add(pause));
                (None, after(at, wait))
            }
        };
        let chunk = after(last_byte, config.chunk_receive_timeout);
        Deadlines {
            ping,
            pong,
            chunk: chunk.filter(|_| self.timing.partial),
        }
    }

    pub(super) fn next(&self, config: &Config) -> Option<Instant> {
        let Deadlines { ping, pong, chunk } = self.deadlines(config);
        [ping, pong, chunk].into_iter().flatten().min()
    }

    /// Every timer due at `now` fires.
    ///
    /// # Errors
    /// The peer was silent too long. The error is the option of the deadline.
    pub(super) fn fire(&mut self, now: Instant, config: &Config) -> Result<(), &'static str> {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let deadlines = self.deadlines(config);
        if is_due(deadlines.pong) {
            return Err(PONG_TIMEOUT);
        }
        if is_due(deadlines.chunk) {
            return Err("--chunk-receive-timeout");
        }
        if is_due(deadlines.ping) {
            self.ping = Ping::Due;
        }
        Ok(())
    }

    /// Whether a ping is to be sent now. Its pong is awaited from now on.
    pub(super) fn take_ping(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.ping, Ping::Due);
        if is_due {
            let pause = self.timing.pause;
            self.ping = Ping::Sent { at: now, pause };
        }
        is_due
    }

    /// A pong came: one of the top-level answers the own ping too. A pong that answers nothing is no fault
    /// (R-BPM-26).
    pub(super) fn ponged(&mut self, target: Target) {
        if target == Target::Top && matches!(self.ping, Ping::Sent { .. }) {
            self.ping = Ping::No;
        }
    }
}
