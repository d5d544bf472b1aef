//! The demand of a subscription: how many elements are asked for, and when more are.

use ackline_core::UsageError;

use crate::{UNBOUNDED, refusal};

/// The demand of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub(super) initial: u64,
    /// The number of elements, requested or not yet taken, at which more are requested.
    pub(super) low: Option<u64>,
}

impl Demand {
    /// At most `most` elements are requested or wait to be taken at a time; more are requested when half of them are left.
    /// 2^63-1 is without bound.
    pub const fn automatic(most: u64) -> Self {
        Self {
            initial: most,
            low: Some(most / 2),
        }
    }

    /// As [`automatic`](Self::automatic), but more are requested when `low` of them are left.
    pub const fn with_low_water(most: u64, low: u64) -> Self {
        Self {
            initial: most,
            low: Some(low),
        }
    }

    /// The application requests elements by itself, beside `initial` ones.
    pub const fn by_hand(initial: u64) -> Self {
        Self { initial, low: None }
    }

    /// Without bound: the publisher sends as fast as it can. Elements that nobody takes fill the memory, or the 65,536 places
    /// for elements of the connection: then nothing more is read from it, for other streams either.
    pub const fn unbounded() -> Self {
        Self::by_hand(UNBOUNDED)
    }

    pub(super) fn check(self) -> Result<(), UsageError> {
        match self.low {
            _ if self.initial > UNBOUNDED => Err(refusal::INVALID_DEMAND),
            Some(low) if low >= self.initial => Err(refusal::INVALID_LOW_WATER),
            _ => Ok(()),
        }
    }

    /// The elements to be requested where so many are requested or wait; 0 is none.
    pub(super) const fn missing(self, outstanding: u64) -> u64 {
        match self.low {
            Some(low) if outstanding <= low && self.initial < UNBOUNDED => {
                self.initial.saturating_sub(outstanding)
            }
            _ => 0,
        }
    }
}
