//! Counts of refusals by code, and the rate limit of their log lines: a storm of refusals must not
//! become a storm of lines.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Refused;

/// Lines of one code that may come at once; then one per [`LINE_EVERY`].
const BURST: u32 = 5;
pub(super) const LINE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

#[derive(Debug)]
struct Count {
    all: u64,
    /// Refusals since the last line.
    unreported: u64,
    lines: u32,
    since: Instant,
    /// The last refusal without a line: it stands for all of them.
    last: Option<Refused>,
}

impl Count {
    /// Whether a line may be written now; if so, it counts as written.
    fn takes_line(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.since).as_secs() / LINE_EVERY.as_secs();
        if elapsed > 0 {
            let more = u32::try_from(elapsed).unwrap_or(BURST);
            self.lines = self.lines.saturating_add(more).min(BURST);
            self.since = now;
        }
        let left = self.lines.checked_sub(1);
        self.lines = left.unwrap_or(0);
        left.is_some()
    }
}

impl Refusals {
    /// Counts one refusal. If a line is due, its `times` says how many refusals the line reports.
    pub(super) fn count(&self, mut refused: Refused, now: Instant) -> Refused {
        let mut counts = self.lock();
        let count = counts.entry(refused.code).or_insert(Count {
            all: 0,
            unreported: 0,
            lines: BURST,
            since: now,
            last: None,
        });
        count.all += 1;
        count.unreported += 1;
        if count.takes_line(now) {
            count.last = None;
            refused.times = Some(std::mem::take(&mut count.unreported));
        } else {
            count.last = Some(refused.clone());
        }
        refused
    }

    /// The last refusal of each code that has refusals without a line, if a line is due; its
    /// `times` counts them. `None` asks for all of them at once.
    pub(super) fn unreported(&self, now: Option<Instant>) -> Vec<Refused> {
        let mut reported = Vec::new();
        for count in self.lock().values_mut().filter(|one| one.unreported > 0) {
            if now.is_some_and(|now| !count.takes_line(now)) {
                continue;
            }
            if let Some(mut last) = count.last.take() {
                last.times = Some(std::mem::take(&mut count.unreported));
                reported.push(last);
            }
        }
        reported
    }

    /// The number of refusals of each code.
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

    fn refused(code: &'static str) -> Refused {
        Refused {
            what: "connection",
            peer: "192.0.2.7:1".into(),
            code,
            message: String::new(),
            hit: None,
            option: None,
            offset: None,
            times: None,
        }
    }

    #[test]
    fn a_storm_has_few_lines_and_every_refusal_is_counted() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let count = |code, at| refusals.count(refused(code), at).times;
        let mut lines = Vec::new();
        for ms in 0..10_000_u64 {
            lines.extend(count("a", begin + Duration::from_millis(ms)));
        }
        assert_eq!(lines.len(), 5 + 9, "{lines:?}");
        assert_eq!(lines[..6], [1, 1, 1, 1, 1, 996]);
        let reported: u64 = lines.iter().sum();
        assert_eq!((reported, refusals.all()["a"]), (9_001, 10_000));
        assert_eq!(count("b", begin), Some(1), "each code has its own");
        let later = begin + Duration::from_secs(100);
        assert_eq!(count("a", later), Some(1_000));
    }

    #[test]
    fn a_refusal_without_a_line_gets_one_when_it_is_due_or_at_the_end() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let sums = |now| -> Vec<_> {
            let reported = refusals.unreported(now);
            reported.iter().map(|one| (one.code, one.times)).collect()
        };
        for _ in 0..50 {
            refusals.count(refused("a"), begin);
        }
        assert_eq!(sums(Some(begin)), []);
        let second = begin + LINE_EVERY;
        assert_eq!(sums(Some(second)), [("a", Some(45))]);
        refusals.count(refused("a"), second);
        assert_eq!(sums(Some(second)), [], "one a second");
        assert_eq!(sums(None), [("a", Some(1))], "the end waits for nothing");
        assert_eq!(sums(None), []);
        assert_eq!(refusals.all()["a"], 51);
    }
}
