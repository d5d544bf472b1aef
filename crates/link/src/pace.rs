//! Rates: how many connections are accepted in a second, and how many bytes a sender may send in one. A
//! rate makes wait; it closes nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::link::now;

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

/// A pace of several places, which take turns: one that wants much makes no other wait for more than one step.
#[derive(Debug)]
pub(crate) struct SharedPace {
    pace: Pace,
    queue: Mutex<Queue>,
}

/// The steps that wait.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Turn, Arc<Notify>>,
    /// The turn of the last step that each place has waited for.
    last: HashMap<Arc<str>, u64>,
    /// The turn of the step that was taken last.
    turn: u64,
    next: u64,
}

/// A turn, in which each place has one step, and a number.
type Turn = (u64, u64);

impl SharedPace {
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            pace: Pace::new(per_second),
            queue: Mutex::default(),
        }
    }

    /// Waits for the turn of the place and for the pace, and takes one. Cancel-safe.
    pub(crate) async fn take(&self, place: &Arc<str>) {
        let (turn, woken) = self.queue().join(place);
        let step = Step { shared: self, turn };
        loop {
            if !step.is_first() {
                woken.notified().await;
                continue;
            }
            let Some(due) = self.pace.due(now()) else {
                self.pace.take(now(), 1);
                self.queue().turn = turn.0;
                return;
            };
            // A step that comes before it meanwhile waits for the pace itself, and wakes the next one.
            let due = tokio::time::Instant::from_std(due);
            let _ = tokio::time::timeout_at(due, woken.notified()).await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn join(&mut self, place: &Arc<str>) -> (Turn, Arc<Notify>) {
        if self.last.len() > 2 * self.waiting.len() + PLACES {
            let turn = self.turn;
            self.last.retain(|_, last| *last > turn);
        }
        let last = self.last.entry(Arc::clone(place)).or_default();
        *last = self.turn.max(*last).saturating_add(1);
        let turn = (*last, self.next);
        self.next = self.next.wrapping_add(1);
        let woken = Arc::new(Notify::new());
        self.waiting.insert(turn, Arc::clone(&woken));
        (turn, woken)
    }
}

/// A step that waits; dropping it lets the next one go.
struct Step<'a> {
    shared: &'a SharedPace,
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

/// Places that are kept in mind before those that have had their turn are forgotten.
const PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_take_turns_and_a_step_that_gives_up_blocks_no_other() {
        let (pace, taken) = (
            Arc::new(SharedPace::new(10)),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let take = |place: &Arc<str>| {
            let (pace, place, taken) = (Arc::clone(&pace), Arc::clone(place), Arc::clone(&taken));
            tokio::spawn(async move {
                pace.take(&place).await;
                taken.lock().unwrap().push(place);
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
            .filter(|(_, place)| ***place == *one)
            .collect();
        assert!(
            ones.len() == 2 && ones[0].0 <= 1 && ones[1].0 <= 3,
            "{ones:?}"
        );
        assert_eq!(taken.len(), 100);
        assert!(pace.queue().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_have_had_their_turn_are_forgotten() {
        let pace = SharedPace::new(1_000_000);
        for number in 0..10_000 {
            pace.take(&number.to_string().into()).await;
        }
        assert!(pace.queue().last.len() <= 2 * PLACES);
    }

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
