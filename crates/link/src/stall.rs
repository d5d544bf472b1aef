//! How long a peer may leave untaken what is sent to it. A ping cannot find it out: it waits behind what is blocked.

use std::io;
use std::time::{Duration, Instant};

use ackline_core::StallTimeouts;

use crate::socket::{Taking, Writer};

/// When bytes last moved over a transport, as the driver sees it.
#[derive(Debug)]
pub(crate) struct StallTimer {
    bytes_in: u64,
    bytes_out: u64,
    /// Something waited at the last look.
    is_waiting: bool,
    /// When something last came.
    heard: Instant,
    /// When something was last taken, or nothing waited.
    taken: Instant,
    /// Bytes that the peer's system had not taken at the last look, if there was one since.
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

    /// Whether nothing waits now, and the bytes that have come and gone.
    pub(crate) fn see(&mut self, now: Instant, is_flushed: bool, (came, went): (u64, u64)) {
        if came != self.bytes_in {
            (self.bytes_in, self.heard) = (came, now);
        }
        let has_begun = !std::mem::replace(&mut self.is_waiting, !is_flushed);
        if has_begun || is_flushed || went != self.bytes_out {
            (self.bytes_out, self.taken) = (went, now);
            self.left = None;
        }
    }

    /// When the peer is to be looked at next, while something waits.
    pub(crate) fn due(&self, stall_timeouts: StallTimeouts) -> Option<Instant> {
        let send = stall_timeouts.send.map(|wait| (self.taken, wait));
        let last = self.taken.max(self.heard);
        let silence = stall_timeouts.silence.map(|wait| (last, wait));
        // Soon for the first time: later looks are compared with that one.
        let part = if self.left.is_none() { 8 } else { 1 };
        let due = |(since, wait): (Instant, Duration)| since.checked_add(wait / part);
        send.into_iter().chain(silence).filter_map(due).min()
    }

    /// Looks at the peer, which is due. Whether it has left everything untaken since the last look.
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

    /// The end of a peer that is given up.
    pub(crate) fn late(&self, now: Instant, waiting: usize) -> io::Error {
        let waited = now.saturating_duration_since(self.taken).as_secs();
        let text = format!(
            "the peer has taken nothing for {waited} s while {waiting} bytes or more waited"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}
