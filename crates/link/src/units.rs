//! The clock, and numbers of bytes as the budget counts them.

use std::time::Instant;

/// Tokio's clock, so that paused-time tests run an hour in microseconds.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A number of bytes; no machine has more than 2^64.
pub(crate) fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
