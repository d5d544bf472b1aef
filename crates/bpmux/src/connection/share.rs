//! What the peer's open entities and requests cost as long as they are open, out of what all connections may keep.

use std::sync::Arc;

use ackline_core::{ProtocolError, Quota, Share};

use super::Connection;
use crate::Kind;

/// Bytes of open entities and requests that every connection has free of charge.
pub const FREE_BYTES: u64 = 64 << 10;

/// What a sink, stream or duplex of the peer's takes, about: its halves, its places in the tables here and in
/// what drives this, which may be half empty, and the credit that is announced for it.
pub const ENTITY_BYTES: u64 = 1_024;

/// The same of a request.
pub const REQUEST_BYTES: u64 = 512;

impl Connection {
    /// Charges what the peer has open to what all connections may keep: above [`FREE_BYTES`], with
    /// [`ENTITY_BYTES`] and [`REQUEST_BYTES`]. What there is no room for is `limit_exceeded`.
    pub fn share(&mut self, quota: Arc<Quota>) {
        self.share = Share::of(quota, self.cost(0, 0));
    }

    /// What drives this has no room for more of what the peer has begun: the connection is over.
    pub fn refuse(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let offset = self.offset;
        self.fail(kind, offset)
    }

    /// So many entities and requests of the peer's more are to be open.
    pub(super) fn keep_more(&mut self, entities: u64, requests: u64) -> Result<(), Kind> {
        let wanted = self.cost(entities, requests);
        self.share.change(wanted).map_err(|hit| Kind::Memory {
            what: "sinks, streams, duplexes and requests that are open",
            part: "half of what other connections leave of a quarter",
            hit,
        })
    }

    /// One of them is over.
    pub(super) fn keep_less(&mut self) {
        let kept = self.cost(0, 0);
        self.share.set(kept);
    }

    fn cost(&self, entities: u64, requests: u64) -> u64 {
        let cost = |open: usize, more: u64, each: u64| {
            let open = u64::try_from(open).unwrap_or(u64::MAX);
            open.saturating_add(more).saturating_mul(each)
        };
        // A cancel that has begun of a request that is not there keeps as much as one that is.
        let asking = self.asking.len().saturating_add(self.late_cancels());
        cost(self.peer.len(), entities, ENTITY_BYTES)
            .saturating_add(cost(asking, requests, REQUEST_BYTES))
            .saturating_sub(FREE_BYTES)
    }
}
