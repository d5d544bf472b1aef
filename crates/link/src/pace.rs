//! Rates: how many connections are accepted in a second, and how many bytes a sender may send in one. A
//! rate makes wait; it closes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A token bucket that holds one second's worth. What is taken beyond it is owed, and nothing more is due
/// until it is paid: so a single large step is allowed, and the rate holds over time.
#[derive(Debug)]
pub struct Pace {
    per_second: u64,
    /// When all that was taken is paid.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    /// A full bucket, refilled at this rate (at least 1).
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            paid: Mutex::new(None),
        }
    }

    /// When something may be taken again, if not now.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.paid().filter(|paid| *paid > now)
    }

    /// Takes so many.
    pub fn take(&self, now: Instant, count: u64) {
        let nanos = u128::from(count) * 1_000_000_000 / u128::from(self.per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let full = now.checked_sub(BURST).unwrap_or(now);
        let mut paid = self.paid();
        let from = paid.unwrap_or(full).max(full);
        *paid = Some(from.checked_add(cost).unwrap_or(from));
    }

    fn paid(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const BURST: Duration = Duration::from_secs(1);

/// The paces of all senders; one that owes nothing is forgotten once nobody uses it.
#[derive(Debug)]
pub(crate) struct Paces {
    per_second: u64,
    of: Mutex<HashMap<Arc<str>, Arc<Pace>>>,
}

impl Paces {
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            per_second,
            of: Mutex::default(),
        }
    }

    /// The pace of a sender: the same for all its connections, also for one that comes back.
    pub(crate) fn of(&self, sender: &Arc<str>, now: Instant) -> Arc<Pace> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.contains_key(sender) && of.len() == of.capacity() {
            of.retain(|_, pace| Arc::strong_count(pace) > 1 || pace.due(now).is_some());
        }
        let pace = of
            .entry(Arc::clone(sender))
            .or_insert_with(|| Arc::new(Pace::new(self.per_second)));
        Arc::clone(pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_may_come_at_once_and_then_the_rate_holds() {
        let pace = Pace::new(1_000);
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        assert_eq!(pace.due(begin), None);
        pace.take(begin, 1_000);
        assert_eq!(pace.due(begin), None, "one second's worth is free");
        pace.take(begin, 500);
        assert_eq!(pace.due(begin), Some(after(500)));
        assert_eq!(pace.due(after(500)), None);
        pace.take(after(10_000), 1_500);
        assert_eq!(
            pace.due(after(10_000)),
            Some(after(10_500)),
            "no more is saved up"
        );
    }

    #[test]
    fn a_senders_connections_share_its_pace_and_who_owes_is_remembered() {
        let paces = Paces::new(10);
        let now = Instant::now();
        let (one, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        paces.of(&one, now).take(now, 1_000);
        assert!(paces.of(&one, now).due(now).is_some());
        assert!(paces.of(&other, now).due(now).is_none());
        for number in 0..100_000 {
            drop(paces.of(&number.to_string().into(), now));
        }
        assert!(
            paces.of.lock().unwrap().len() < 1_000,
            "strangers are forgotten"
        );
        assert!(paces.of(&one, now).due(now).is_some());
    }
}
