//! How long a peer may leave sent bytes untaken. A ping cannot find it out: it waits behind the
//! blocked bytes.

use std::io;
use std::time::{Duration, Instant};

use ackline_core::StallTimeouts;

use crate::socket::{Taking, Writer};

/// When bytes last moved over a transport, as the driver sees it.
#[derive(Debug)]
pub(crate) struct StallTimer {
    bytes_in: u64,
    bytes_out: u64,
    /// Output waited at the last check.
    is_waiting: bool,
    /// When bytes last came.
    heard: Instant,
    /// When bytes were last taken, or no output waited.
    taken: Instant,
    /// Bytes that the peer's system had not taken at the last check, if there was one since.
    left: Option<u64>,
}

impl StallTimer {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            bytes_in: 0,
            bytes_out: 0,
            is_waiting: false,
            heard: now,
            taken: now,
            left: None,
        }
    }

    /// Records whether no output waits now, and the bytes that have come and gone.
    pub(crate) fn observe(&mut self, now: Instant, is_flushed: bool, came: u64, went: u64) {
        if came != self.bytes_in {
            (self.bytes_in, self.heard) = (came, now);
        }
        let has_begun = !std::mem::replace(&mut self.is_waiting, !is_flushed);
        if has_begun || is_flushed || went != self.bytes_out {
            (self.bytes_out, self.taken) = (went, now);
            self.left = None;
        }
    }

    /// When the peer is checked next, while output waits.
    pub(crate) fn due(&self, timeouts: StallTimeouts) -> Option<Instant> {
        let send = timeouts.send.map(|wait| (self.taken, wait));
        let last = self.taken.max(self.heard);
        let silence = timeouts.silence.map(|wait| (last, wait));
        // The first check is early: later ones are compared with it.
        let part = if self.left.is_none() { 8 } else { 1 };
        let due = |(since, wait): (Instant, Duration)| since.checked_add(wait / part);
        send.into_iter().chain(silence).filter_map(due).min()
    }

    /// Checks the peer, which is due. Returns whether it has taken nothing since the last check.
    pub(crate) fn is_stuck(&mut self, now: Instant, socket: Option<&Writer>) -> bool {
        let left = match socket.map(Writer::taking) {
            Some(Taking::Waits(left)) => left,
            _ => 0,
        };
        let before = self.left.replace(left);
        let has_taken = before.is_some_and(|before| left < before);
        if has_taken {
            // Although nothing more could be written.
            self.taken = now;
        }
        before.is_some() && !has_taken
    }

    /// The error of a peer that is given up.
    pub(crate) fn late(&self, now: Instant, waiting: usize) -> io::Error {
        let waited = now.saturating_duration_since(self.taken).as_secs();
        let text = format!(
            "the peer has taken nothing for {waited} s while {waiting} bytes or more waited"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}
