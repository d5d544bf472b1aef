//! Pings and pongs of one transport.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::SendQueue;

use crate::frame::{Packet, encode};

/// The pings of this end and the pongs that it owes.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    pongs_owed: u64,
    /// Pings still to be emitted.
    wanted: u32,
    /// Pings that wait for their pongs.
    emitted: VecDeque<Ping>,
}

/// A ping that waits for its pong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ping {
    pub(crate) sent: Instant,
    /// The position in the output at which it left.
    pub(crate) position: u64,
    /// How long reading had been off until then.
    paused: Duration,
}

impl Ping {
    /// How long reading was off since it left.
    pub(crate) const fn pause(&self, so_far: Duration) -> Duration {
        so_far.saturating_sub(self.paused)
    }
}

impl Pings {
    /// Wants one more ping.
    pub(crate) const fn want(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    /// Owes pongs.
    pub(crate) const fn owe(&mut self, pongs: u64) {
        self.pongs_owed = self.pongs_owed.saturating_add(pongs);
    }

    /// Whether no ping is wanted or waits for its pong.
    pub(crate) fn is_idle(&self) -> bool {
        self.wanted == 0 && self.emitted.is_empty()
    }

    /// Pings that are wanted or wait for their pong.
    pub(crate) fn unanswered(&self) -> u64 {
        let emitted = u64::try_from(self.emitted.len()).unwrap_or(u64::MAX);
        emitted.saturating_add(self.wanted.into())
    }

    /// The ping whose pong is due next.
    pub(crate) fn first(&self) -> Option<&Ping> {
        self.emitted.front()
    }

    /// A pong arrives. Returns the ping that it answers.
    pub(crate) fn answered(&mut self) -> Option<Ping> {
        self.emitted.pop_front()
    }

    /// Emits the pongs that are owed.
    pub(crate) fn put_pongs(&mut self, out: &mut SendQueue) {
        while self.pongs_owed > 0 && out.room() > 0 {
            self.pongs_owed = self.pongs_owed.saturating_sub(1);
            encode(&Packet::Pong, out);
        }
    }

    /// Emits the pings that are wanted. Each one takes the next position; `paused`: how long reading has been off.
    pub(crate) fn put(
        &mut self,
        now: Instant,
        paused: Duration,
        position: &mut u64,
        out: &mut SendQueue,
    ) {
        while self.wanted > 0 && out.room() > 0 {
            self.wanted = self.wanted.saturating_sub(1);
            encode(&Packet::Ping, out);
            *position = position.saturating_add(1);
            self.emitted.push_back(Ping {
                sent: now,
                position: *position,
                paused,
            });
        }
    }
}
