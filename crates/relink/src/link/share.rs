//! The cost of the peer's open channels, and of the outcomes that are kept of them, out of what all links may keep.

use std::sync::Arc;

use ackline_core::{EVENTS_PER_CALL, Quota};

use super::Link;
use super::channels::Key;
use super::incoming::Incoming;
use super::transactions::Outcomes;
use crate::Kind;

/// A link's part of the quota.
#[derive(Debug, Default)]
pub(crate) struct Share {
    kept: ackline_core::Share,
    /// What one channel costs.
    each: u64,
    /// Channels that are over, but for a `closed` that has still to go out.
    ended: usize,
    /// Runs of outcomes that are kept of all channels.
    outcomes: usize,
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
        self.share = Share {
            kept: ackline_core::Share::of(quota, 0),
            each,
            ended,
            outcomes: self.outcome_runs(),
        };
        self.share.kept.set(self.share_of(0));
    }

    /// One channel of the peer's more is to be open.
    pub(crate) fn charge_one_more(&mut self) -> Result<(), Kind> {
        self.share
            .kept
            .change(self.share_of(1))
            .map_err(|hit| Kind::Memory {
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
        self.share.outcomes = self.outcome_runs();
        self.share.kept.set(self.share_of(0));
    }

    fn uncharge(&mut self) {
        // Less is never refused.
        let _ = self.share.kept.change(self.share_of(0));
    }

    /// The peer commits messages: there must be room to keep one run of outcomes more. Where many are kept, a
    /// ping finds out which of them the peer knows.
    pub(crate) fn charge_outcome(&mut self) -> Result<(), Kind> {
        if self.keeps_many_outcomes() {
            self.ping_for_outcomes();
        }
        let more = outcomes_cost(self.share.outcomes.saturating_add(1));
        let before = outcomes_cost(self.share.outcomes);
        if more == before {
            return Ok(());
        }
        let wanted = self.share_of(0).saturating_sub(before).saturating_add(more);
        self.share.kept.change(wanted).map_err(|hit| Kind::Memory {
            what: "outcomes of transactions, which the peer has not been seen to know,",
            part: "a quarter",
            hit,
        })
    }

    /// A channel keeps so many runs of outcomes, and kept so many before: it cannot be refused any more.
    pub(crate) fn count_outcomes(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        let others = self.share.outcomes.saturating_sub(before);
        self.share.outcomes = others.saturating_add(after);
        self.share.kept.set(self.share_of(0));
    }

    /// Whether those that the peer knows are to be forgotten.
    pub(crate) const fn keeps_many_outcomes(&self) -> bool {
        self.share.outcomes > FREE_OUTCOMES / 2
    }

    fn outcome_runs(&self) -> usize {
        let runs = |channel: &Incoming| channel.outcomes.as_ref().map_or(0, Outcomes::history_len);
        self.incoming.iter().map(|(_, channel)| runs(channel)).sum()
    }

    /// The charge of the link with so many channels more.
    fn share_of(&self, more: usize) -> u64 {
        let channels = cost(self.charged_channels(more), self.share.each);
        channels.saturating_add(outcomes_cost(self.share.outcomes))
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

fn outcomes_cost(runs: usize) -> u64 {
    let above = runs.saturating_sub(FREE_OUTCOMES);
    u64::try_from(above)
        .unwrap_or(u64::MAX)
        .saturating_mul(OUTCOME_BYTES)
}

/// Runs of outcomes that are kept for every link free of charge.
pub const FREE_OUTCOMES: usize = 1_024;
/// Bytes of a run of outcomes, about.
pub const OUTCOME_BYTES: u64 = 32;
/// Channels that every link may have open free of charge.
pub const FREE_CHANNELS: usize = 128;
/// What a channel takes, about: its state, its place in the maps, and what its receiver keeps of it.
pub const CHANNEL_BYTES: u64 = 512;
