//! How long a spool has been watched: time that passed while a writer was there, by a clock that
//! cannot be set. Events are removed by age only as far as that time has passed since, so that a
//! step of the wall clock removes nothing.

use std::time::{Duration, Instant};

/// Counts the time for which a spool is watched, over all its writers, and notices steps of the
/// wall clock.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    /// The time of the writers before this one, in microseconds.
    before_us: u64,
    opened: Instant,
    /// The last reading of both clocks.
    looked: Instant,
    wall_us: i64,
}

impl Watch {
    /// Begins to watch a spool that has been watched for so long, while the wall clock shows
    /// `wall_us`.
    pub(crate) fn begin(before_us: u64, wall_us: i64) -> Self {
        let now = Instant::now();
        Self {
            before_us,
            opened: now,
            looked: now,
            wall_us,
        }
    }

    /// The time for which the spool has been watched, in microseconds.
    pub(crate) fn watched_us(&self) -> u64 {
        let own = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.before_us.saturating_add(own)
    }

    /// By how many microseconds the wall clock was set since the last reading, if that is more than
    /// a clock's own error.
    pub(crate) fn step(&mut self, wall_us: i64) -> Option<i64> {
        let now = Instant::now();
        let passed = i64::try_from((now - self.looked).as_micros()).unwrap_or(i64::MAX);
        let step = wall_us.saturating_sub(self.wall_us).saturating_sub(passed);
        (self.looked, self.wall_us) = (now, wall_us);
        (step.unsigned_abs() > STEP_US).then_some(step)
    }
}

/// The age of an event, by both clocks: the shorter one counts.
pub(crate) fn age(now_us: i64, last_us: i64, watched_us: u64, then_us: u64) -> Duration {
    let by_wall = now_us.saturating_sub(last_us).max(0).unsigned_abs();
    Duration::from_micros(by_wall.min(watched_us.saturating_sub(then_us)))
}

/// A clock that is off by more than this between two readings was set.
const STEP_US: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: i64 = 86_400_000_000;

    #[test]
    fn a_clock_that_is_set_makes_nothing_older() {
        // Written in 1970, or a moment before the clock advanced by eight days.
        for (now, last) in [(20_000 * DAY_US, 5), (8 * DAY_US + 7, 7)] {
            assert_eq!(age(now, last, 9_000_000, 2_000_000), Duration::from_secs(7));
        }
        assert_eq!(age(5, 20_000 * DAY_US, 9_000_000, 0), Duration::ZERO);
        assert_eq!(
            age(9_000_000, 2_000_000, 1 << 60, 0),
            Duration::from_secs(7)
        );
    }

    #[test]
    fn a_clock_step_is_reported_once_with_its_size() {
        let mut watch = Watch::begin(0, 1_000);
        assert_eq!(watch.step(1_001), None);
        let step = watch.step(1_001 + 8 * DAY_US).unwrap();
        assert!((step - 8 * DAY_US).abs() < 1_000_000, "{step}");
        assert_eq!(watch.step(1_002 + 8 * DAY_US), None);
        assert!(watch.step(5).unwrap() < -7 * DAY_US);
    }
}
