//! The timers on the peer's silence: a ping of the top-level, the deadline of its pong, and that of a chunk
//! that has begun.

use std::time::{Duration, Instant};

use ackline_core::ProtocolError;

use super::Connection;
use super::outbox::Queued;
use crate::chunk::Head;
use crate::error::PONG_TIMEOUT;
use crate::{Kind, Target};

/// A ping that this end sends by itself.
#[derive(Debug, Default)]
pub(super) struct Pinging {
    wanted: bool,
    sent: Option<Instant>,
    /// How long reading had been off when it was sent.
    paused: Duration,
}

/// When the timers are due.
#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    ping: Option<Instant>,
    pong: Option<Instant>,
    chunk: Option<Instant>,
}

impl Connection {
    fn silence(&self) -> Silence {
        if self.timing.paused.is_some() || !self.is_alive() {
            return Silence::default();
        }
        let config = &self.config;
        let after = |since: Instant, wait: Option<Duration>| since.checked_add(wait?);
        let last_byte = self.timing.last_byte;
        let pinging = self.pinging.wanted || self.pinging.sent.is_some();
        let pong = self.pinging.sent.and_then(|sent| {
            let pause = self.timing.pause.saturating_sub(self.pinging.paused);
            after(sent, Some(config.pong_timeout?.saturating_add(pause)))
        });
        Silence {
            ping: after(last_byte, config.ping_after).filter(|_| !pinging),
            pong,
            chunk: after(last_byte, config.chunk_receive_timeout).filter(|_| self.timing.partial),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let Silence { ping, pong, chunk } = self.silence();
        [ping, pong, chunk].into_iter().flatten().min()
    }

    pub(super) fn timers(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let Some(error) = &self.fault {
            return Err(error.clone());
        }
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let silence = self.silence();
        let offset = self.offset;
        if is_due(silence.pong) {
            let option = PONG_TIMEOUT;
            return Err(self.fail(Kind::Timeout { option }, offset));
        }
        if is_due(silence.chunk) {
            let option = "--chunk-receive-timeout";
            return Err(self.fail(Kind::Timeout { option }, offset));
        }
        if is_due(silence.ping) {
            self.pinging.wanted = true;
        }
        Ok(())
    }

    /// A ping that is due leaves now; its pong is awaited from now on.
    pub(super) fn ping_if_due(&mut self, now: Instant) {
        if !std::mem::take(&mut self.pinging.wanted) {
            return;
        }
        self.pinging.sent = Some(now);
        self.pinging.paused = self.timing.pause;
        let (pong, target) = (false, Target::Top);
        self.lane
            .push_back(Queued::Bare(Head::Heartbeat { pong, target }));
    }

    /// A pong came: one of the top-level answers the own ping too. One that nobody asked for is no fault
    /// (R-BPM-26).
    pub(super) fn ponged(&mut self, target: Target) {
        if target == Target::Top {
            self.pinging.sent = None;
        }
    }
}
