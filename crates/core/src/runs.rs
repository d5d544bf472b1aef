//! Runs of messages between a machine whose messages are landed and the spool: those that wait to be taken, in the order
//! in which they began, where the last one of each key may still grow; and those that were taken and are not settled.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Messages with consecutive numbers that become one block.
pub trait OneRun {
    /// The source of its messages.
    type Key: Clone + Eq + Hash;

    /// Its source.
    fn key(&self) -> Self::Key;

    /// Its messages, and their payload bytes.
    fn size(&self) -> (usize, usize);
}

/// The runs of a machine; `W` is kept of each that was taken.
#[derive(Debug)]
pub struct Runs<R: OneRun, W> {
    ready: VecDeque<R>,
    /// Payload bytes in them.
    ready_bytes: usize,
    /// The number of the last run of each source.
    last: HashMap<R::Key, u64>,
    /// Runs taken so far: the number of the next one.
    taken: u64,
    waiting: HashMap<u64, Waiting<W>>,
    /// Bytes that are charged for runs and messages beside the payloads.
    extra: usize,
}

/// A run that was taken and is not settled.
#[derive(Debug)]
struct Waiting<W> {
    kept: W,
    /// Bytes that are charged for it beside its payloads.
    extra: usize,
}

impl<R: OneRun, W> Default for Runs<R, W> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            ready_bytes: 0,
            last: HashMap::new(),
            taken: 0,
            waiting: HashMap::new(),
            extra: 0,
        }
    }
}

impl<R: OneRun, W> Runs<R, W> {
    /// The last run of a source, if it is not taken and may grow.
    pub fn last(&mut self, key: &R::Key) -> Option<&mut R> {
        let number = *self.last.get(key)?;
        let at = usize::try_from(number.checked_sub(self.taken)?).ok()?;
        let run = self.ready.get_mut(at)?;
        let (messages, bytes) = run.size();
        (messages < RUN_MESSAGES && bytes < RUN_BYTES).then_some(run)
    }

    /// A new run, behind all others. Its messages are [charged](Self::charge) apart.
    pub fn push(&mut self, run: R) {
        let number = self.taken.saturating_add(to_u64(self.ready.len()));
        self.last.insert(run.key(), number);
        self.extra = self.extra.saturating_add(RUN_COST);
        self.ready.push_back(run);
    }

    /// So many messages, of so many payload bytes, became part of runs.
    pub fn charge(&mut self, messages: usize, bytes: usize) {
        let beside = messages.saturating_mul(MESSAGE_BYTES);
        self.extra = self.extra.saturating_add(beside);
        self.ready_bytes = self.ready_bytes.saturating_add(bytes);
    }

    /// Takes the first run, with its token, and keeps of it the value that `keep` returns.
    pub fn take(&mut self, keep: impl FnOnce(&mut R) -> W) -> Option<(u64, R)> {
        let mut run = self.ready.pop_front()?;
        let token = self.taken;
        self.taken = token.saturating_add(1);
        let key = run.key();
        if self.last.get(&key) == Some(&token) {
            self.last.remove(&key);
        }
        let (messages, bytes) = run.size();
        self.ready_bytes = self.ready_bytes.saturating_sub(bytes);
        let beside = messages.saturating_mul(MESSAGE_BYTES);
        let waiting = Waiting {
            kept: keep(&mut run),
            extra: beside.saturating_add(RUN_COST),
        };
        self.waiting.insert(token, waiting);
        Some((token, run))
    }

    /// The run is durable and still to be settled: nothing is charged beside its payloads any more.
    pub fn landed(&mut self, token: u64) -> Option<&mut W> {
        let run = self.waiting.get_mut(&token)?;
        self.extra = self.extra.saturating_sub(std::mem::take(&mut run.extra));
        Some(&mut run.kept)
    }

    /// The run is settled, once.
    pub fn settle(&mut self, token: u64) -> Option<W> {
        let run = self.waiting.remove(&token)?;
        self.extra = self.extra.saturating_sub(run.extra);
        Some(run.kept)
    }

    /// Runs that are not settled, taken or not.
    pub fn unsettled(&self) -> usize {
        self.ready.len().saturating_add(self.waiting.len())
    }

    /// Whether runs must be taken before more input is looked at.
    pub fn is_full(&self) -> bool {
        self.ready.len() >= READY_RUNS || self.ready_bytes >= READY_BYTES
    }

    /// Bytes that are charged for runs and messages beside the payloads.
    pub const fn extra(&self) -> usize {
        self.extra
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The cost of a run beside its messages, about.
pub const RUN_COST: usize = 256;
/// The cost of a message beside its payload, about.
const MESSAGE_BYTES: usize = 64;
/// A run is cut here at the latest.
pub const RUN_MESSAGES: usize = 65_536;
const RUN_BYTES: usize = 4 << 20;
/// Runs, and bytes in them, that may wait to be taken before input stays where it is.
const READY_RUNS: usize = 1_024;
const READY_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    impl OneRun for (char, &'static str) {
        type Key = char;

        fn key(&self) -> char {
            self.0
        }

        fn size(&self) -> (usize, usize) {
            (1, 10)
        }
    }

    #[test]
    fn runs_are_taken_in_order_and_a_run_that_is_taken_grows_no_more() {
        let mut runs = Runs::<(char, &'static str), ()>::default();
        for run in [('a', "a0"), ('b', "b0"), ('a', "a1")] {
            runs.push(run);
        }
        assert_eq!(runs.last(&'a'), Some(&mut ('a', "a1")));
        assert_eq!(runs.last(&'c'), None);
        let take = |runs: &mut Runs<_, _>| runs.take(|_| ());
        assert_eq!(take(&mut runs), Some((0, ('a', "a0"))));
        assert_eq!(runs.last(&'a'), Some(&mut ('a', "a1")));
        assert_eq!(take(&mut runs), Some((1, ('b', "b0"))));
        assert_eq!(runs.last(&'b'), None);
        assert_eq!(take(&mut runs), Some((2, ('a', "a1"))));
        assert_eq!(runs.last(&'a'), None);
        assert_eq!((take(&mut runs), runs.ready.len()), (None, 0));
        assert!(runs.last.is_empty(), "nothing of them is kept");
    }

    #[test]
    fn a_run_is_charged_until_it_has_landed_and_unsettled_until_it_is_settled() {
        let mut runs = Runs::default();
        runs.push(('a', "a0"));
        runs.charge(1, 10);
        assert_eq!(
            (runs.extra(), runs.unsettled()),
            (RUN_COST + MESSAGE_BYTES, 1)
        );
        let (token, _) = runs.take(|run| run.1).unwrap();
        assert_eq!(
            (runs.extra(), runs.ready_bytes),
            (RUN_COST + MESSAGE_BYTES, 0)
        );
        assert_eq!(runs.landed(token), Some(&mut "a0"));
        assert_eq!(runs.landed(token), Some(&mut "a0"), "charged once");
        assert_eq!((runs.extra(), runs.unsettled()), (0, 1));
        assert_eq!(runs.settle(token), Some("a0"));
        assert_eq!((runs.settle(token), runs.unsettled()), (None, 0));
        assert_eq!(runs.landed(token), None);
    }

    #[test]
    fn runs_that_wait_are_bounded_by_their_number_and_by_their_bytes() {
        let mut runs = Runs::<_, ()>::default();
        for _ in 1..READY_RUNS {
            runs.push(('a', ""));
        }
        assert!(!runs.is_full());
        runs.push(('a', ""));
        assert!(runs.is_full());
        let mut runs = Runs::<(char, &'static str), ()>::default();
        runs.charge(1, READY_BYTES - 1);
        assert!(!runs.is_full());
        runs.charge(1, 1);
        assert!(runs.is_full());
    }
}
