//! The wait of a task for its receiver: it goes on as long as progress is made, and for the timeout without progress.

use std::time::{Duration, Instant};

/// The time since the last progress.
pub(super) struct StallTimer {
    timeout: Duration,
    most: u64,
    since: Instant,
}

impl StallTimer {
    /// Begins now, with `done` as the progress so far.
    pub(super) const fn new(timeout: Duration, now: Instant, done: u64) -> Self {
        Self {
            timeout,
            most: done,
            since: now,
        }
    }

    /// Begins the timeout again, because nothing was waited for until now.
    pub(super) const fn renew(&mut self, now: Instant) {
        self.since = now;
    }

    /// The rest of the timeout.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let waited = now.saturating_duration_since(self.since);
        self.timeout.saturating_sub(waited)
    }

    /// Whether the timeout has passed since more was done than ever before: repeated work is no progress.
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
        let mut stall = StallTimer::new(3 * second, start, 10);
        let mut at = |seconds: u32, done| stall.is_over(start + seconds * second, done);
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

    #[test]
    fn what_is_left_of_the_timeout_is_all_of_it_once_it_is_renewed() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut stall = StallTimer::new(3 * second, start, 10);
        assert_eq!(stall.left(start + second), 2 * second);
        assert_eq!(stall.left(start + 4 * second), Duration::ZERO);
        stall.renew(start + 4 * second);
        assert_eq!(stall.left(start + 4 * second), 3 * second);
        assert!(!stall.is_over(start + 6 * second, 10));
        assert!(stall.is_over(start + 7 * second, 10));
    }
}
