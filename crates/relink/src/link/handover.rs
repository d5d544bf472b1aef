//! The state of a link for another process that goes on with it, without the messages.
//!
//! The peer has every message that was sent, so the payloads stay behind. The other process can decide on these messages
//! and wait for their outcomes; it cannot send them again. If the peer has lost them, it does not know the channel at the
//! resume, and the link is lost.

use ackline_core::UsageError;

use super::Link;
use super::journal::Change;

impl Link {
    /// Returns the state from which another process [restores](Self::restore) this link. The caller makes sure that the
    /// peer has every message that was sent: all [were emitted](Self::is_emitted), and a ping sent after that was
    /// answered. Do not use this link any more.
    ///
    /// # Errors
    /// `not_connected` (the link is over), `journaled`, `shutting_down`, `channel_closing`; `unconsumed`: a delivered
    /// message of the peer is not consumed, or in a direction without transactions an own one is not.
    pub fn hand_over(&self) -> Result<Vec<Change>, UsageError> {
        if self.end.is_over() {
            return Err(OVER);
        }
        if self.journal.is_some() {
            return Err(JOURNALED);
        }
        if self.end.is_called() || self.end.is_peers() {
            return Err(SHUTTING_DOWN);
        }
        let mut incoming = self.incoming.iter();
        let keeps_own = self.own_transactions();
        let mut outgoing = self.outgoing.iter();
        if incoming.any(|(_, peers)| peers.progress.unconsumed() > 0)
            || outgoing.any(|(_, own)| !keeps_own && own.outstanding() > 0)
        {
            return Err(UNCONSUMED);
        }
        let mut state: Vec<Change> = Vec::new();
        for change in self.snapshot() {
            match change {
                Change::Closing { .. } | Change::CloseLeaves { .. } => return Err(CLOSING),
                Change::Sent {
                    channel, sequence, ..
                } => match state.last_mut() {
                    Some(Change::HandedOver {
                        channel: last,
                        through,
                    }) if *last == channel => *through = sequence,
                    _ => state.push(Change::HandedOver {
                        channel,
                        through: sequence,
                    }),
                },
                other => state.push(other),
            }
        }
        Ok(state)
    }

    /// Whether all own messages were emitted on the transport that the link has.
    pub fn is_emitted(&self) -> bool {
        self.is_attached() && self.outgoing.iter().all(|(_, own)| own.is_emitted())
    }

    /// Own messages that were not emitted yet on the transport that the link has; all, without one.
    pub fn unemitted(&self) -> u64 {
        let each = self.outgoing.iter().map(|(_, own)| {
            if self.is_attached() && !own.is_gated() {
                own.waiting()
            } else {
                own.outstanding()
            }
        });
        each.fold(0, |sum, count| sum.saturating_add(count.into()))
    }

    /// Pings that the transport still has to send or that wait for their pong.
    pub fn pings_unanswered(&self) -> u64 {
        let transport = self.transport.as_ref();
        transport.map_or(0, |transport| transport.pings.unanswered())
    }
}

const OVER: UsageError = UsageError::new("not_connected", "the link is over");
const JOURNALED: UsageError = UsageError::new(
    "journaled",
    "a link that is kept on disk goes on from there, not by being handed over",
);
const SHUTTING_DOWN: UsageError = UsageError::new(
    "shutting_down",
    "a link that is shut down cannot be handed over",
);
const CLOSING: UsageError = UsageError::new(
    "channel_closing",
    "a channel is being closed: hand the link over when it is",
);
const UNCONSUMED: UsageError = UsageError::new(
    "unconsumed",
    "messages wait to be consumed that the next process would not have",
);
