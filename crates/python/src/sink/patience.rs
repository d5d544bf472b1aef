//! How long a task waits for its receiver: as long as something is done, and for its timeout when nothing is.

use std::time::{Duration, Instant};

/// Since when nothing was done.
pub(super) struct Patience {
    timeout: Duration,
    most: u64,
    since: Instant,
}

impl Patience {
    /// From now on, with so much that is done.
    pub(super) const fn new(timeout: Duration, now: Instant, done: u64) -> Self {
        Self {
            timeout,
            most: done,
            since: now,
        }
    }

    /// Whether the timeout has passed since more was done than ever before: what is done again is no progress.
    pub(super) fn is_over(&mut self, now: Instant, done: u64) -> bool {
        if done > self.most {
            (self.most, self.since) = (done, now);
            return false;
        }
        now.saturating_duration_since(self.since) >= self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_begins_the_timeout_anew_and_what_is_done_again_does_not() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut patience = Patience::new(3 * second, start, 10);
        let mut at = |seconds: u32, done| patience.is_over(start + seconds * second, done);
        assert!(!at(2, 10));
        assert!(!at(5, 11), "something was done, however late");
        assert!(!at(7, 11));
        assert!(!at(7, 9), "it begins again");
        assert!(at(8, 10));
        assert!(at(9, 11));
        assert!(!at(9, 12));
        assert!(!at(11, 12));
        assert!(at(12, 12));
    }
}
