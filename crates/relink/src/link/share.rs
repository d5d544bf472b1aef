//! The memory of the peer's open channels and of their kept outcomes, charged to the quota of all links.

use std::sync::Arc;

use ackline_core::{EVENTS_PER_CALL, Quota};

use super::Link;
use super::incoming::Incoming;
use crate::Kind;

/// A link's part of the quota.
#[derive(Debug, Default)]
pub(crate) struct Share {
    kept: ackline_core::Share,
    /// Bytes of one channel.
    each: u64,
    /// Channels in the state `Ended`: their `closed` has still to go out.
    ended: usize,
    /// Runs of outcomes that all channels keep.
    outcomes: usize,
}

impl Link {
    /// Charges the peer's open channels above [`FREE_CHANNELS`] to the quota of all links, each with its approximate
    /// memory. A channel for which there is no room is `limit_exceeded`.
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

    /// Charges one more channel of the peer, which is about to open.
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

    /// Frees the charge of a channel that has ended, also for a channel that the same bytes open.
    pub(crate) fn uncharge_ended(&mut self) {
        self.share.ended = self.share.ended.saturating_add(1);
        self.uncharge();
    }

    /// An ended channel is gone: its `closed` was emitted.
    pub(crate) fn uncharge_gone(&mut self) {
        self.share.ended = self.share.ended.saturating_sub(1);
        self.uncharge();
    }

    /// Charges all channels again: on a new transport, ended channels wait for the peer to repeat its close.
    pub(crate) fn charge_again(&mut self) {
        self.share.ended = 0;
        self.share.outcomes = self.outcome_runs();
        self.share.kept.set(self.share_of(0));
    }

    fn uncharge(&mut self) {
        // A lower charge is never refused.
        let _ = self.share.kept.change(self.share_of(0));
    }

    /// Charges one more run of outcomes, because the peer commits messages. If the link keeps many, a ping finds out which
    /// of them the peer knows.
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

    /// Charges the runs of outcomes that a channel keeps now in place of those before. This is never refused.
    pub(crate) fn count_outcomes(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        let others = self.share.outcomes.saturating_sub(before);
        self.share.outcomes = others.saturating_add(after);
        self.share.kept.set(self.share_of(0));
    }

    /// Whether the link is to forget the outcomes that the peer knows.
    pub(crate) const fn keeps_many_outcomes(&self) -> bool {
        self.share.outcomes > FREE_OUTCOMES / 2
    }

    fn outcome_runs(&self) -> usize {
        let runs = |(_, channel): &(_, Incoming)| channel.outcome_runs();
        self.incoming.iter().map(runs).sum()
    }

    /// The charge of the link with so many more channels.
    fn share_of(&self, more: usize) -> u64 {
        let channels = cost(self.charged_channels(more), self.share.each);
        channels.saturating_add(outcomes_cost(self.share.outcomes))
    }

    /// The channels to charge, if so many more open. Only a few ended ones are free, because the peer may not read its
    /// `closed`.
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

/// Runs of outcomes that every link keeps free of charge.
pub const FREE_OUTCOMES: usize = 1_024;
/// Approximate bytes of a run of outcomes.
pub const OUTCOME_BYTES: u64 = 32;
/// Channels that every link may have open free of charge.
pub const FREE_CHANNELS: usize = 128;
/// Approximate bytes of a channel: its state, its entries in the maps, and the receiver's own state for it.
pub const CHANNEL_BYTES: u64 = 512;
