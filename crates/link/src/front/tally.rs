//! What was turned away, counted by code, and which of it may have a line: a storm of refusals must not
//! become a storm of lines.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one code that may come at once; then one for each [`LINE_EVERY`].
const BURST: u32 = 5;
const LINE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

#[derive(Debug)]
struct Count {
    all: u64,
    /// Since the last line.
    untold: u64,
    lines: u32,
    since: Instant,
}

impl Tally {
    /// Counts one; if a line is due, for how many it stands.
    pub(super) fn count(&self, code: &'static str, now: Instant) -> Option<u64> {
        let mut counts = self.lock();
        let count = counts.entry(code).or_insert(Count {
            all: 0,
            untold: 0,
            lines: BURST,
            since: now,
        });
        count.all += 1;
        count.untold += 1;
        let elapsed = now.saturating_duration_since(count.since).as_secs() / LINE_EVERY.as_secs();
        if elapsed > 0 {
            let more = u32::try_from(elapsed).unwrap_or(BURST);
            count.lines = count.lines.saturating_add(more).min(BURST);
            count.since = now;
        }
        count.lines = count.lines.checked_sub(1)?;
        Some(std::mem::take(&mut count.untold))
    }

    /// How many of each code.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.lock();
        counts
            .iter()
            .map(|(code, count)| (*code, count.all))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_has_few_lines_and_every_refusal_is_counted() {
        let tally = Tally::default();
        let begin = Instant::now();
        let mut lines = Vec::new();
        for ms in 0..10_000_u64 {
            lines.extend(tally.count("a", begin + Duration::from_millis(ms)));
        }
        assert_eq!(lines.len(), 5 + 9, "{lines:?}");
        assert_eq!(lines[..6], [1, 1, 1, 1, 1, 996]);
        let told: u64 = lines.iter().sum();
        assert_eq!((told, tally.all()["a"]), (9_001, 10_000));
        assert_eq!(tally.count("b", begin), Some(1), "each code has its own");
        let later = begin + Duration::from_secs(100);
        assert_eq!(tally.count("a", later), Some(1_000));
    }
}
