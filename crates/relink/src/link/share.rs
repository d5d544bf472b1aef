//! What a link's channels of the peer's cost as long as they are open, out of what all links may keep.

use std::sync::Arc;

use ackline_core::{EVENTS_PER_CALL, Quota};

use super::Link;
use super::channels::Key;
use crate::Kind;

/// A link's part of the quota.
#[derive(Debug, Default)]
pub(crate) struct Share {
    kept: ackline_core::Share,
    /// What one channel costs.
    each: u64,
    /// Channels that are over, but for a `closed` that has still to go out.
    ended: usize,
}

impl Link {
    /// Charges the peer's open channels to what all links may keep: those above [`FREE_CHANNELS`] with
    /// about what each takes in memory. A channel for which there is no room is `limit_exceeded`.
    pub fn share(&mut self, quota: Arc<Quota>) {
        let each = if self.peer_transactions() {
            2 * CHANNEL_BYTES
        } else {
            CHANNEL_BYTES
        };
        let ended = self.share.ended;
        let charged = cost(self.charged_channels(0), each);
        self.share = Share {
            kept: ackline_core::Share::of(quota, charged),
            each,
            ended,
        };
    }

    /// One channel of the peer's more is to be open.
    pub(crate) fn charge_one_more(&mut self) -> Result<(), Kind> {
        let wanted = cost(self.charged_channels(1), self.share.each);
        self.share.kept.change(wanted).map_err(|hit| Kind::Memory {
            what: "the link's open channels",
            part: "a quarter",
            hit,
        })
    }

    /// Nothing is open on this channel any more: what it was charged is free for the next one, also for one
    /// that the same bytes open.
    pub(crate) fn uncharge_ended(&mut self, key: Key) {
        let Some(channel) = self.incoming.get_mut(key) else {
            return;
        };
        if channel.closed_ready && channel.close_came && !channel.is_uncharged {
            channel.is_uncharged = true;
            self.share.ended = self.share.ended.saturating_add(1);
            self.uncharge();
        }
    }

    /// Its `closed` has gone out, and it is gone.
    pub(crate) fn uncharge_gone(&mut self) {
        self.share.ended = self.share.ended.saturating_sub(1);
        self.uncharge();
    }

    /// With a new transport, channels that were over wait for another close.
    pub(crate) fn charge_again(&mut self) {
        self.share.ended = 0;
        let wanted = cost(self.incoming.len(), self.share.each);
        self.share.kept.set(wanted);
    }

    fn uncharge(&mut self) {
        let wanted = cost(self.charged_channels(0), self.share.each);
        // Less is never refused.
        let _ = self.share.kept.change(wanted);
    }

    /// Those that are open, and so many more. A peer that does not read its `closed` has but a few ended
    /// ones free of charge.
    fn charged_channels(&self, more: usize) -> usize {
        let ended = self.share.ended.min(EVENTS_PER_CALL);
        self.incoming
            .held()
            .saturating_sub(ended)
            .saturating_add(more)
    }
}

fn cost(channels: usize, each: u64) -> u64 {
    let above = channels.saturating_sub(FREE_CHANNELS);
    u64::try_from(above)
        .unwrap_or(u64::MAX)
        .saturating_mul(each)
}

/// Channels that every link may have open free of charge.
pub const FREE_CHANNELS: usize = 128;
/// What a channel takes, about: its state, its place in the maps, and what its receiver keeps of it.
pub const CHANNEL_BYTES: u64 = 512;
