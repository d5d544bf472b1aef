//! The reader's times: when things happened, and which timers are due.

use std::time::{Duration, Instant};

use crate::ReaderConfig;

/// The instants from which timers run.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    started: Option<Instant>,
    last_byte: Option<Instant>,
    last_sent: Option<Instant>,
    /// When a v2 window became pending while none was.
    pending_since: Option<Instant>,
    /// When the last pending window was acknowledged on the wire.
    settled: Option<Instant>,
    /// Since when the driver does not read.
    paused: Option<Instant>,
}

/// The conditions of the timers other than time.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not a state
pub(crate) struct Situation {
    /// Bytes are awaited; not after `stop`, and not while we are the slow side.
    pub(crate) listening: bool,
    /// A v2 window waits for its acknowledgement.
    pub(crate) v2_pending: bool,
    /// The peer's last frame was v2.
    pub(crate) v2_peer: bool,
    /// Any window waits.
    pub(crate) pending: bool,
    /// Inside a frame, an announced v2 window, or a v1 window with events.
    pub(crate) unfinished: bool,
    /// A v1 window holds events that may be handed on.
    pub(crate) tail: bool,
}

/// The timers of a reader.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    pub(crate) keepalive: Option<Instant>,
    pub(crate) tail: Option<Instant>,
    pub(crate) first_byte: Option<Instant>,
    pub(crate) stall: Option<Instant>,
    pub(crate) idle: Option<Instant>,
}

impl Due {
    pub(crate) fn first(&self) -> Option<Instant> {
        [
            self.keepalive,
            self.tail,
            self.first_byte,
            self.stall,
            self.idle,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Timing {
    /// The connection exists since the first time it is told of.
    pub(crate) fn touch(&mut self, now: Instant) {
        self.started.get_or_insert(now);
    }

    pub(crate) fn byte(&mut self, now: Instant) {
        self.last_byte = Some(now);
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        self.last_sent = Some(now);
    }

    pub(crate) fn pending(&mut self, now: Instant) {
        self.pending_since = Some(now);
    }

    pub(crate) fn settled(&mut self, now: Instant) {
        self.settled = Some(now);
    }

    /// While reading is off the peer cannot be blamed for silence: its timers continue where they
    /// stopped.
    pub(crate) fn reading(&mut self, now: Instant, on: bool) {
        if !on {
            self.paused.get_or_insert(now);
            return;
        }
        let Some(paused) = self.paused.take() else {
            return;
        };
        let pause = now.saturating_duration_since(paused);
        for instant in [&mut self.started, &mut self.last_byte, &mut self.settled] {
            *instant = instant.and_then(|instant| instant.checked_add(pause));
        }
    }

    pub(crate) fn due(&self, config: &ReaderConfig, at: Situation) -> Due {
        let mut due = Due::default();
        let awaited = if at.v2_pending {
            self.pending_since
        } else {
            self.paused.filter(|_| at.v2_peer)
        };
        if let Some(awaited) = awaited {
            due.keepalive = after(Some(awaited).max(self.last_sent), config.keepalive);
        }
        if !at.listening || self.paused.is_some() {
            return due;
        }
        if self.last_byte.is_none() {
            due.first_byte = after(self.started, config.first_byte_timeout);
        }
        if at.tail {
            due.tail = after(self.last_byte, config.tail_idle);
        }
        if at.unfinished {
            due.stall = after(self.last_byte, config.stall_timeout);
        }
        let quiet = !at.unfinished && !at.pending;
        if quiet && due.first_byte.is_none() {
            let since = self.started.max(self.last_byte).max(self.settled);
            due.idle = after(since, config.idle_timeout);
        }
        due
    }
}

fn after(since: Option<Instant>, wait: Option<Duration>) -> Option<Instant> {
    since?.checked_add(wait?)
}
