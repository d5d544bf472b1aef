//! Rate limits: connections accepted per second, and bytes per second of a sender. A rate limit
//! delays; it closes nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::units::now;

/// A token bucket that holds one second's worth. A larger amount is taken as debt, and nothing more
/// is due until it is paid: so a single large step is allowed, and the rate holds over time.
#[derive(Debug)]
pub struct RateLimit {
    per_second: u64,
    /// When the debt is paid.
    paid: Mutex<Option<Instant>>,
}

impl RateLimit {
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

    /// Takes `count` tokens.
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

/// The rate limits of all senders. One without debt is dropped once nobody uses it.
#[derive(Debug)]
pub(crate) struct SenderRates {
    per_second: u64,
    of: Mutex<HashMap<Arc<str>, Arc<RateLimit>>>,
}

impl SenderRates {
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            per_second,
            of: Mutex::default(),
        }
    }

    /// The rate limit of a sender: the same for all its connections, also for a sender that comes
    /// back.
    pub(crate) fn of(&self, sender: &Arc<str>, now: Instant) -> Arc<RateLimit> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.contains_key(sender) && of.len() == of.capacity() {
            of.retain(|_, rate| Arc::strong_count(rate) > 1 || rate.due(now).is_some());
        }
        let rate = of
            .entry(Arc::clone(sender))
            .or_insert_with(|| Arc::new(RateLimit::new(self.per_second)));
        Arc::clone(rate)
    }
}

/// A rate limit of several origins that take turns: an origin that wants much delays the others by
/// one step only.
#[derive(Debug)]
pub(crate) struct SharedRate {
    rate: RateLimit,
    queue: Mutex<Queue>,
}

/// The waiting steps.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Turn, Arc<Notify>>,
    /// The last turn that each origin has waited for.
    last: HashMap<Arc<str>, u64>,
    /// The turn of the last step taken.
    turn: u64,
    next: u64,
}

/// A turn, in which each origin has one step, and a number.
type Turn = (u64, u64);

impl SharedRate {
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            rate: RateLimit::new(per_second),
            queue: Mutex::default(),
        }
    }

    /// Waits for the origin's turn and for the rate, and takes one. Cancel-safe.
    pub(crate) async fn take(&self, origin: &Arc<str>) {
        let (turn, woken) = self.queue().join(origin);
        let step = Step { shared: self, turn };
        loop {
            if !step.is_first() {
                woken.notified().await;
                continue;
            }
            let Some(due) = self.rate.due(now()) else {
                self.rate.take(now(), 1);
                self.queue().turn = turn.0;
                return;
            };
            // An earlier step that arrives meanwhile waits for the rate itself, and wakes the next
            // one.
            let due = tokio::time::Instant::from_std(due);
            let _ = tokio::time::timeout_at(due, woken.notified()).await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn join(&mut self, origin: &Arc<str>) -> (Turn, Arc<Notify>) {
        if self.last.len() > 2 * self.waiting.len() + ORIGINS {
            let turn = self.turn;
            self.last.retain(|_, last| *last > turn);
        }
        let last = self.last.entry(Arc::clone(origin)).or_default();
        *last = self.turn.max(*last).saturating_add(1);
        let turn = (*last, self.next);
        self.next = self.next.wrapping_add(1);
        let woken = Arc::new(Notify::new());
        self.waiting.insert(turn, Arc::clone(&woken));
        (turn, woken)
    }
}

/// A waiting step; dropping it releases the next one.
struct Step<'a> {
    shared: &'a SharedRate,
    turn: Turn,
}

impl Step<'_> {
    fn is_first(&self) -> bool {
        let queue = self.shared.queue();
        queue.waiting.keys().next() == Some(&self.turn)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.waiting.remove(&self.turn);
        if let Some(first) = queue.waiting.values().next() {
            first.notify_one();
        }
    }
}

/// Origins that are remembered before those that have had their turn are forgotten.
const ORIGINS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn origins_take_turns_and_a_step_that_gives_up_blocks_no_other() {
        let (rate, taken) = (
            Arc::new(SharedRate::new(10)),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let take = |origin: &Arc<str>| {
            let (rate, origin, taken) = (Arc::clone(&rate), Arc::clone(origin), Arc::clone(&taken));
            tokio::spawn(async move {
                rate.take(&origin).await;
                taken.lock().unwrap().push(origin);
            })
        };
        for _ in 0..11 {
            take(&many).await.unwrap();
        }
        taken.lock().unwrap().clear();
        let mut steps: Vec<_> = (0..100).map(|_| take(&many)).collect();
        tokio::task::yield_now().await;
        steps.remove(0).abort();
        steps.remove(50).abort();
        steps.push(take(&one));
        steps.push(take(&one));
        for step in steps {
            step.await.unwrap();
        }
        let taken = taken.lock().unwrap();
        let ones: Vec<_> = taken
            .iter()
            .enumerate()
            .filter(|(_, origin)| ***origin == *one)
            .collect();
        assert!(
            ones.len() == 2 && ones[0].0 <= 1 && ones[1].0 <= 3,
            "{ones:?}"
        );
        assert_eq!(taken.len(), 100);
        assert!(rate.queue().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn origins_without_waiting_steps_are_forgotten() {
        let rate = SharedRate::new(1_000_000);
        for number in 0..10_000 {
            rate.take(&number.to_string().into()).await;
        }
        assert!(rate.queue().last.len() <= 2 * ORIGINS);
    }

    #[test]
    fn a_second_may_come_at_once_and_then_the_rate_holds() {
        let rate = RateLimit::new(1_000);
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        assert_eq!(rate.due(begin), None);
        rate.take(begin, 1_000);
        assert_eq!(rate.due(begin), None, "one second's worth is free");
        rate.take(begin, 500);
        assert_eq!(rate.due(begin), Some(after(500)));
        assert_eq!(rate.due(after(500)), None);
        rate.take(after(10_000), 1_500);
        assert_eq!(
            rate.due(after(10_000)),
            Some(after(10_500)),
            "no more is saved up"
        );
    }

    #[test]
    fn a_senders_connections_share_its_rate_limit_and_a_debt_is_remembered() {
        let rates = SenderRates::new(10);
        let now = Instant::now();
        let (one, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        rates.of(&one, now).take(now, 1_000);
        assert!(rates.of(&one, now).due(now).is_some());
        assert!(rates.of(&other, now).due(now).is_none());
        for number in 0..100_000 {
            drop(rates.of(&number.to_string().into(), now));
        }
        assert!(
            rates.of.lock().unwrap().len() < 1_000,
            "strangers are forgotten"
        );
        assert!(rates.of(&one, now).due(now).is_some());
    }
}
