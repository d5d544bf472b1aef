//! Runs that wait to be taken from a machine whose messages are landed: in the order in which they began, and the
//! last one of each key may still grow.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Runs in their order; `K` is what they are of.
#[derive(Debug)]
pub(crate) struct Runs<K, R> {
    ready: VecDeque<R>,
    /// Where the last one of each key stands among all runs.
    last: HashMap<K, u64>,
    /// Runs taken so far: the number of the next one.
    taken: u64,
}

impl<K, R> Default for Runs<K, R> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            last: HashMap::new(),
            taken: 0,
        }
    }
}

impl<K: Eq + Hash, R> Runs<K, R> {
    /// Runs that wait.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// The last run of a key, if it is not taken.
    pub(crate) fn last(&mut self, key: &K) -> Option<&mut R> {
        let number = *self.last.get(key)?;
        let at = usize::try_from(number.checked_sub(self.taken)?).ok()?;
        self.ready.get_mut(at)
    }

    /// A new run, behind all others.
    pub(crate) fn push(&mut self, key: K, run: R) {
        let number = self.taken.saturating_add(self.ready.len() as u64);
        self.last.insert(key, number);
        self.ready.push_back(run);
    }

    /// Takes the first run, with its number.
    pub(crate) fn pop(&mut self, key: impl FnOnce(&R) -> &K) -> Option<(u64, R)> {
        let run = self.ready.pop_front()?;
        let number = self.taken;
        self.taken = number.saturating_add(1);
        let key = key(&run);
        if self.last.get(key) == Some(&number) {
            self.last.remove(key);
        }
        Some((number, run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_in_order_and_what_is_taken_grows_no_more() {
        let mut runs = Runs::default();
        for (key, run) in [('a', "a0"), ('b', "b0"), ('a', "a1")] {
            runs.push(key, (key, run));
        }
        assert_eq!(runs.last(&'a'), Some(&mut ('a', "a1")));
        assert_eq!(runs.last(&'c'), None);
        let pop = |runs: &mut Runs<char, (char, &'static str)>| runs.pop(|run| &run.0);
        assert_eq!(pop(&mut runs), Some((0, ('a', "a0"))));
        assert_eq!(runs.last(&'a'), Some(&mut ('a', "a1")));
        assert_eq!(pop(&mut runs), Some((1, ('b', "b0"))));
        assert_eq!(runs.last(&'b'), None);
        assert_eq!(pop(&mut runs), Some((2, ('a', "a1"))));
        assert_eq!(runs.last(&'a'), None);
        assert_eq!((pop(&mut runs), runs.len()), (None, 0));
        assert!(runs.last.is_empty(), "nothing of them is kept");
    }
}
