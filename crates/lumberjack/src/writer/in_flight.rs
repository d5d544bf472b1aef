//! The windows in flight, and the events that a number acknowledges in one of them.

use std::collections::VecDeque;

use ackline_core::Sequence;

/// The windows in flight, oldest first.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pub(super) windows: VecDeque<Flight>,
    /// Events that are not acknowledged.
    pub(super) events: u32,
    /// Bytes of the windows' plain frames.
    pub(super) bytes: u64,
    /// The number of the last event of the last completed window.
    pub(super) last_completed: Option<Sequence>,
}

/// A window that is in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) window: u64,
    pub(super) first: Sequence,
    pub(super) records: u32,
    /// The most events that it could have held.
    pub(super) allowed: u32,
    /// Bytes of its plain frames.
    pub(super) bytes: u64,
    /// Events acknowledged so far.
    pub(super) acked: u32,
    pub(super) skips_zero: bool,
}

impl Flight {
    /// The number of events that the number covers, if it belongs to this window.
    pub(super) fn covered(&self, number: Sequence) -> Option<u32> {
        let wrapped = number.0 < self.first.0;
        if self.skips_zero && number.0 == 0 {
            return None;
        }
        let skipped = u32::from(self.skips_zero && wrapped);
        let covered = number
            .since(self.first)
            .checked_sub(skipped)?
            .checked_add(1)?;
        (covered <= self.records).then_some(covered)
    }

    pub(super) const fn rest(&self) -> u32 {
        self.records.saturating_sub(self.acked)
    }
}
