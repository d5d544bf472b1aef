//! What a link's channels of the peer's cost as long as they are open, out of what all links may keep.

use std::sync::Arc;

use ackline_core::{LimitHit, Quota};

use super::Link;

/// A link's part of the quota; dropping it gives it back.
#[derive(Debug, Default)]
pub(crate) struct Share {
    quota: Option<Arc<Quota>>,
    charged: u64,
    /// What one channel costs.
    each: u64,
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
        let charged = cost(self.incoming.len(), each);
        quota.set(0, charged);
        self.share = Share {
            quota: Some(quota),
            charged,
            each,
        };
    }

    /// One channel of the peer's more is to be open.
    pub(crate) fn charge_one_more(&mut self) -> Result<(), LimitHit> {
        let wanted = cost(self.incoming.len().saturating_add(1), self.share.each);
        self.share.change(wanted)
    }

    /// One is closed.
    pub(crate) fn uncharge(&mut self) {
        let wanted = cost(self.incoming.len(), self.share.each);
        // Less is never refused.
        let _ = self.share.change(wanted);
    }
}

impl Share {
    fn change(&mut self, wanted: u64) -> Result<(), LimitHit> {
        let Some(quota) = self.quota.as_ref().filter(|_| wanted != self.charged) else {
            return Ok(());
        };
        quota
            .change(self.charged, wanted)
            .map_err(|limit| LimitHit {
                value: wanted,
                limit,
                option: "--memory",
            })?;
        self.charged = wanted;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(quota) = &self.quota {
            quota.set(self.charged, 0);
        }
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
