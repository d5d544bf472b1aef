//! The timers of a link's transport: delayed acknowledgements, ping on silence, pong and packet deadlines.
//!
//! Its rules: REQ-RELINK-59, R-REL-34, R-RELINK-V8, R-RELINK-V21.

use std::time::{Duration, Instant};

use ackline_core::ProtocolError;

use super::Link;
use super::transport::Transport;
use crate::error::{PONG_TIMEOUT, silent};
use crate::{Kind, LinkConfig};

/// The instants at which the peer's silence has a consequence.
#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    ping: Option<Instant>,
    pong: Option<Instant>,
    packet: Option<Instant>,
}

impl Transport {
    fn silence(&self, config: &LinkConfig) -> Silence {
        if self.timing.paused.is_some() {
            return Silence::default();
        }
        let after = |since: Instant, wait: Option<Duration>| since.checked_add(wait?);
        let last_byte = self.timing.last_byte;
        let pong = self.pings.first().and_then(|ping| {
            let wait = config.pong_timeout?;
            after(
                ping.sent,
                Some(wait.saturating_add(ping.pause(self.timing.pause))),
            )
        });
        Silence {
            ping: after(last_byte, config.ping_after).filter(|_| self.pings.is_idle()),
            pong,
            packet: after(last_byte, config.packet_receive_timeout).filter(|_| self.timing.partial),
        }
    }
}

impl Link {
    /// The instant at which the next timer is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let transport = self.transport.as_ref().filter(|_| self.is_attached())?;
        let Silence { ping, pong, packet } = transport.silence(&self.config);
        let answer = transport.due.first().map(|(due, _)| *due);
        [answer, ping, pong, packet].into_iter().flatten().min()
    }

    /// Fires every timer that is due.
    pub(crate) fn timers(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        transport.check()?;
        if !transport.works() || self.end.is_over() {
            return Ok(());
        }
        let late = |due: Option<Instant>| now.checked_duration_since(due?);
        let silence = transport.silence(&self.config);
        if let Some(late) = late(silence.pong) {
            let allowed = self.config.pong_timeout;
            return Err(self.fail(silent(PONG_TIMEOUT, allowed, late)));
        }
        if let Some(late) = late(silence.packet) {
            let allowed = self.config.packet_receive_timeout;
            return Err(self.fail(silent("--packet-receive-timeout", allowed, late)));
        }
        if late(silence.ping).is_some() {
            transport.pings.want();
        }
        self.acknowledge_due(now);
        Ok(())
    }
}
