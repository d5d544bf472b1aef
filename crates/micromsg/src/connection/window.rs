//! Sequence numbers and windows: how many messages of one direction wait for their acknowledgement.
//!
//! Numbers go from 1 to 65,535 and then begin again at 1 (R-MM-6); an acknowledgement of one number acknowledges all up to
//! and including it, also across that wrap (REQ-MM-28, REQ-MM-29, R-MM-26). A window counts messages, so one of up to 65,534 is unambiguous.

use std::time::Instant;

use ackline_core::UsageError;

use crate::{Kind, refusal};

/// The number behind this one (REQ-MM-30).
pub(crate) const fn after(number: u16) -> u16 {
    match number {
        u16::MAX => 1,
        number => number.wrapping_add(1),
    }
}

/// Steps from one number to another, 0 to 65,534.
fn steps(from: u16, to: u16) -> u16 {
    match to.checked_sub(from) {
        Some(steps) => steps,
        // Across the wrap there is no 0.
        None => to.wrapping_sub(from).wrapping_sub(1),
    }
}

/// The messages that this end sends.
#[derive(Debug)]
pub(super) struct Sending {
    /// The number of the next message.
    next: u16,
    /// Messages that wait for their acknowledgement.
    pending: u16,
    /// The number that was acknowledged last.
    last: Option<u16>,
}

impl Sending {
    pub(super) const fn new(next: u16) -> Self {
        Self {
            next,
            pending: 0,
            last: None,
        }
    }

    /// Whether a further message may be sent (REQ-MM-5).
    pub(super) fn has_room(&self, window: Option<u16>) -> bool {
        window.is_none_or(|window| self.pending < window)
    }

    /// The number of the next message, which waits from now on, if there are acknowledgements.
    pub(super) fn begin(&mut self, window: Option<u16>) -> u16 {
        let number = self.next;
        self.next = after(number);
        if window.is_some() {
            self.pending = self.pending.saturating_add(1);
        }
        number
    }

    pub(super) const fn pending(&self) -> u16 {
        self.pending
    }

    /// Takes an acknowledgement; returns whether it acknowledges anything. A repeat of the last one is ignored (R-MM-23).
    pub(super) fn acknowledged(&mut self, through: u16) -> Result<bool, Kind> {
        let left = steps(through, self.next);
        if through == 0 || left == 0 || left > self.pending {
            return match self.last {
                Some(last) if last == through => Ok(false),
                _ => Err(Kind::OutOfRange { number: through }),
            };
        }
        self.pending = left.wrapping_sub(1);
        self.last = Some(through);
        Ok(true)
    }
}

/// The messages that this end receives.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The number of the next message.
    next: u16,
    /// Messages that have come, as far as repeats of them are recognized.
    came: u16,
    /// Delivered messages that were not acknowledged.
    pending: u16,
    /// Those of them, the oldest, that the application has processed.
    processed: u16,
    /// The time since which one of them waits.
    since: Option<Instant>,
}

/// A message, compared with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// It is the next one.
    New,
    /// It has come before; whether it was acknowledged.
    Repeat(bool),
}

impl Receiving {
    pub(super) const fn new(next: u16) -> Self {
        Self {
            next,
            came: 0,
            pending: 0,
            processed: 0,
            since: None,
        }
    }

    /// Judges the number of a message that begins. Only where there are acknowledgements do numbers matter (R-MM-V3).
    pub(super) fn judge(&self, number: u16, window: Option<u16>) -> Result<Order, Kind> {
        let Some(window) = window else {
            return Ok(Order::New);
        };
        let back = steps(number, self.next);
        if back == 0 {
            if self.pending >= window {
                return Err(Kind::WindowExceeded { window });
            }
            return Ok(Order::New);
        }
        // R-MM-V6.
        if back <= self.came.min(window) {
            return Ok(Order::Repeat(back > self.pending));
        }
        let (came, next) = (number, self.next);
        Err(Kind::SequenceMismatch { came, next })
    }

    /// A message was delivered.
    pub(super) fn deliver(&mut self, number: u16, window: Option<u16>) {
        if window.is_some() {
            self.next = after(number);
            self.came = self.came.saturating_add(1);
            self.pending = self.pending.saturating_add(1);
        }
    }

    /// The number that was acknowledged last, if any was.
    pub(super) fn last(&self) -> u16 {
        let mut back = self.pending.saturating_add(1);
        let mut number = self.next;
        // A window is small beside the numbers: this subtracts, across the wrap.
        if number <= back {
            back = back.wrapping_sub(number);
            number = u16::MAX;
        }
        number.wrapping_sub(back)
    }

    /// The messages up to this one: it must be delivered and not acknowledged (R-MM-V5).
    fn through(&self, number: u16) -> Result<u16, UsageError> {
        let left = steps(number, self.next);
        if number == 0 || left == 0 || left > self.pending {
            return Err(refusal::OUT_OF_RANGE);
        }
        Ok(self.pending.wrapping_sub(left).wrapping_add(1))
    }

    /// Acknowledges everything up to this message; any acknowledgement stops the timer (R-MM-V12).
    pub(super) fn ack(&mut self, number: u16) -> Result<(), UsageError> {
        let acked = self.through(number)?;
        self.pending = self.pending.wrapping_sub(acked);
        self.processed = self.processed.saturating_sub(acked);
        self.since = None;
        Ok(())
    }

    /// Everything up to this message is processed. Returns whether it is time to acknowledge.
    pub(super) fn process(
        &mut self,
        now: Instant,
        number: u16,
        window: u16,
    ) -> Result<bool, UsageError> {
        self.processed = self.processed.max(self.through(number)?);
        self.since.get_or_insert(now);
        Ok(self.processed >= window)
    }

    /// The last processed message, if one waits to be acknowledged.
    pub(super) fn last_processed(&self) -> Option<u16> {
        let behind = self.pending.checked_sub(self.processed)?;
        if self.processed == 0 {
            return None;
        }
        let all = Self {
            pending: behind,
            ..*self
        };
        Some(all.last())
    }

    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }

    pub(super) const fn pending(&self) -> u16 {
        self.pending
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A number so many steps on, counted one by one.
    fn plus(number: u16, steps: u16) -> u16 {
        (0..steps).fold(number, |number, _| after(number))
    }

    #[test]
    fn after_the_last_number_comes_one() {
        assert_eq!((after(1), after(65_534), after(65_535)), (2, 65_535, 1));
        assert_eq!(steps(65_535, 1), 1);
        assert_eq!(steps(1, 65_535), 65_534);
        assert_eq!((steps(2, 1), steps(7, 7)), (65_534, 0));
    }

    proptest! {
        #[test]
        fn steps_count_what_after_does(number in 1_u16..=65_535, far in 0_u16..65_535) {
            prop_assert_eq!(steps(number, plus(number, far)), far);
        }

        #[test]
        fn the_last_acknowledged_number_stands_before_those_that_wait(
            first in 1_u16..=65_535, came in 1_u16..600, acked in 1_u16..600,
        ) {
            prop_assume!(acked <= came);
            let mut receiving = Receiving::new(first);
            let mut number = first;
            for _ in 0..came {
                receiving.deliver(number, Some(700));
                number = after(number);
            }
            let through = plus(first, acked - 1);
            receiving.ack(through).unwrap();
            prop_assert_eq!(receiving.last(), through);
            prop_assert_eq!(receiving.pending(), came - acked);
            prop_assert_eq!(receiving.ack(through), Err(refusal::OUT_OF_RANGE));
        }
    }
}
