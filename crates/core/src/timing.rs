//! The times that timers on a peer's silence run from.

use std::time::{Duration, Instant};

use crate::Need;

/// The time when the peer was heard last, and for how long it could not be heard because reading was off.
#[derive(Debug)]
pub struct Timing {
    /// The time of the last byte received, at first the transport's start.
    pub last_byte: Instant,
    /// Bytes of input that were not taken.
    pub left: usize,
    /// Whether they are the beginning of a frame.
    pub partial: bool,
    /// The time since which reading is off.
    pub paused: Option<Instant>,
    /// The time for which the driver did not read in all: pings are that much older than they look.
    pub pause: Duration,
}

impl Timing {
    /// Begins at the start of a transport.
    pub const fn new(now: Instant) -> Self {
        Self {
            last_byte: now,
            left: 0,
            partial: false,
            paused: None,
            pause: Duration::ZERO,
        }
    }

    /// Notes new bytes: `len` bytes wait to be taken.
    pub fn input(&mut self, now: Instant, len: usize) {
        if len > self.left {
            self.last_byte = now;
        }
    }

    /// Notes the result of a call that took input: this many bytes are left, the beginning of a frame if more are needed.
    pub const fn taken<E>(&mut self, left: usize, need: &Result<Need, E>) {
        self.left = left;
        self.partial = left > 0 && matches!(need, Ok(Need::Input { .. }));
    }

    /// While reading is off the peer cannot be blamed for silence: its timers go on where they stood.
    pub fn reading(&mut self, now: Instant, on: bool) {
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
