//! The counters and gauges of a receiver, as its `stats` line has them.

use std::collections::BTreeMap;

use ackline_spool::{CommitStats, now_us, rfc3339};
use serde::Serialize;
use serde_json::Value;

use super::operator::ConsumerLag;

/// Counters since the start and gauges of now. The `stats` line has the members of all of its parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReceiverStats {
    /// Connections open now.
    pub connections: u64,
    /// Windows and events received, of any outcome.
    #[serde(flatten)]
    pub received: ReceivedStats,
    /// Events acknowledged, and durable ones that could not be.
    #[serde(flatten)]
    pub acked: AckedStats,
    /// The spool, and the events that wait for its consumers.
    #[serde(flatten)]
    pub spool: SpoolStats,
    /// Connections that were not served.
    #[serde(flatten)]
    pub refusals: RefusalStats,
    /// `ok`, `stalled_budget`, `stalled_disk`, `stalled_descriptors`, `failed` or `draining`.
    pub state: &'static str,
    /// Bytes charged to the memory budget.
    pub memory_bytes: u64,
    /// Reason for which reading waits: `memory`, `budget`, `disk_full`, `descriptors`, or `sender_share` for senders
    /// that have their share of the spool.
    pub paused: Option<&'static str>,
}

/// The part of [`ReceiverStats`] on windows and events that came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedStats {
    /// Complete windows received.
    pub windows: u64,
    /// Events in them.
    pub events: u64,
    /// Bytes of them on the wire.
    pub bytes: u64,
    /// Windows received whose acknowledgement their senders wait for.
    pub unacked_windows: u64,
    /// Events in them.
    pub unacked: u64,
    /// Events that were compared with the events that their sender had landed before: none while links are
    /// healthy.
    pub compared: u64,
    /// Those of them that were recognised as sent before.
    pub repeats: u64,
}

/// The part of [`ReceiverStats`] on events that nobody waits for any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AckedStats {
    /// Events whose acknowledgement was handed to their connection.
    pub acked_events: u64,
    /// Those of them that are durable in the spool.
    pub landed: u64,
    /// Those of them that were set aside: as many as their windows announced.
    pub quarantined: u64,
    /// Events durable in the spool whose connection had ended before they could be acknowledged: they
    /// will come again.
    pub landed_unacked: u64,
    /// The same for events set aside.
    pub quarantined_unacked: u64,
}

/// The part of [`ReceiverStats`] on the spool: zeros without one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SpoolStats {
    /// The spool's UUID; empty without a spool.
    #[serde(rename = "spool")]
    pub uuid: String,
    /// Events handed to the spool.
    pub accepted: u64,
    /// Windows that are durable and wait for a commit.
    pub uncommitted_windows: u64,
    /// Events in them.
    pub uncommitted: u64,
    /// The first position that is kept.
    pub first_kept: u64,
    /// Kept positions whose events are lost or damaged; `None` without a spool.
    pub lost: Option<u64>,
    /// Positions below this are durable.
    pub durable: u64,
    /// Bytes of the spool on disk.
    #[serde(rename = "spool_bytes")]
    pub bytes: u64,
    /// The bytes it may take.
    pub budget: u64,
    /// The commits to disk.
    #[serde(flatten)]
    pub commits: CommitStats,
    /// The spool's consumers, as of the last look a second ago at the most.
    pub consumers: Vec<ConsumerLag>,
    /// Seconds since the receipt of the first kept event that some consumer has not committed (without consumers: of
    /// the first kept event); 0 if there is none; `None` without a spool.
    pub oldest_uncommitted_age_s: Option<f64>,
}

/// The part of [`ReceiverStats`] on connections that were not served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RefusalStats {
    /// Connections ended for their input, or turned away before it.
    pub refused: u64,
    /// Those of them that were turned away before their protocol saw a byte or, of Relink, before they had a
    /// link, by code.
    pub turned_away: BTreeMap<&'static str, u64>,
    /// Connections that ended before their first byte, as TCP health checks do.
    pub health_checks: u64,
}

impl ReceiverStats {
    /// The members of the `stats` line.
    pub fn to_json(&self) -> Value {
        let mut line = serde_json::to_value(self).unwrap_or_default();
        line["event"] = "stats".into();
        line["time"] = rfc3339(now_us()).into();
        if self.spool.uuid.is_empty() {
            line["spool"] = Value::Null;
        }
        line
    }
}
