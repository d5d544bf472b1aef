//! The instants that a transport's timers run from.

use std::time::{Duration, Instant};

/// The instants that a transport's timers run from.
#[derive(Debug)]
pub(crate) struct Timing {
    /// The last byte received, at first the transport's start (R-RELINK-V21).
    pub(crate) last_byte: Instant,
    /// Input that was not taken.
    pub(crate) left: usize,
    /// It is the beginning of a packet.
    pub(crate) partial: bool,
    pub(crate) paused: Option<Instant>,
    /// For how long the driver did not read in all: pings are that much older than they look.
    pub(crate) pause: Duration,
}

impl Timing {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            last_byte: now,
            left: 0,
            partial: false,
            paused: None,
            pause: Duration::ZERO,
        }
    }

    /// Looks for new bytes.
    pub(crate) fn input(&mut self, now: Instant, len: usize) {
        if len > self.left {
            self.last_byte = now;
        }
    }

    /// While reading is off the peer cannot be blamed for silence: its timers go on where they stood.
    pub(crate) fn reading(&mut self, now: Instant, on: bool) {
        if !on {
            self.paused.get_or_insert(now);
            return;
        }
        let Some(paused) = self.paused.take() else {
            return;
        };
        let pause = now.saturating_duration_since(paused);
        self.last_byte = self.last_byte.checked_add(pause).unwrap_or(self.last_byte);
        self.pause = self.pause.saturating_add(pause);
    }
}
