//! The timers of a link's transport: delayed acknowledgements, ping on silence, pong and packet deadlines.
//!
//! Its rules: REQ-RELINK-59, R-REL-34, R-RELINK-V8, R-RELINK-V21.

use std::time::{Duration, Instant};

use ackline_core::ProtocolError;

use super::Link;
use super::transport::{Answer, Transport};
use crate::error::{PONG_TIMEOUT, silent};
use crate::{Kind, LinkConfig};

/// The timers on the peer's silence.
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
        let pinged = self.pings_wanted > 0 || !self.pings.is_empty();
        let pong = self.pings.front().and_then(|ping| {
            let wait = config.pong_timeout?;
            after(
                ping.sent,
                Some(wait.saturating_add(ping.pause(self.timing.pause))),
            )
        });
        Silence {
            ping: after(last_byte, config.ping_after).filter(|_| !pinged),
            pong,
            packet: after(last_byte, config.packet_receive_timeout).filter(|_| self.timing.partial),
        }
    }

    /// How long reading was off so far, for a ping that leaves now.
    pub(crate) const fn paused_so_far(&self) -> Duration {
        self.timing.pause
    }
}

impl Link {
    /// When a timer is due next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let transport = self.transport.as_ref().filter(|_| self.is_attached())?;
        let Silence { ping, pong, packet } = transport.silence(&self.config);
        let answer = transport.due.first().map(|(due, _)| *due);
        [answer, ping, pong, packet].into_iter().flatten().min()
    }

    /// Every timer that is due fires.
    pub(crate) fn timers(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        if let Some(error) = &transport.fault {
            return Err(error.clone());
        }
        if !transport.works() || self.over.is_some() {
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
            transport.pings_wanted = 1;
        }
        self.acknowledge_due(now);
        Ok(())
    }

    /// The delayed acknowledgements whose time has come are owed at once: the oldest first, and those of one
    /// instant by ascending channel (R-RELINK-V1).
    fn acknowledge_due(&mut self, now: Instant) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        let mut all = Vec::new();
        while let Some((due, key)) = transport
            .due
            .first()
            .copied()
            .filter(|(due, _)| *due <= now)
        {
            transport.due.pop_first();
            all.push((due, key));
        }
        let incoming = &self.incoming;
        all.sort_by_key(|(due, key)| (*due, incoming.entry(*key).map(|(id, _)| id)));
        for (_, key) in all {
            if let Some(channel) = self.incoming.get_mut(key) {
                channel.due = None;
                channel.consumed_owed = true;
                if !channel.queued {
                    channel.queued = true;
                    transport.answers.push_back(Answer::Channel(key));
                }
            }
        }
    }
}
