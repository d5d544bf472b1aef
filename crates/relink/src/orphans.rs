//! The links of a registry that have no transport: how many each sender has, and which of them have carried nothing.
//!
//! Decided here: which link goes when there are too many. Not here: how long an orphan is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An orphan.
#[derive(Debug)]
struct Orphan {
    link_id: u64,
    sender: Arc<str>,
    /// No message has gone over it, in either direction.
    is_empty: bool,
}

/// The orphans, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    by_age: BTreeMap<u64, Orphan>,
    ages: HashMap<u64, u64>,
    /// Orphans of each sender, and those of them that are empty.
    counts: HashMap<Arc<str>, (usize, usize)>,
    next_age: u64,
}

impl Orphans {
    /// The link has lost its transport, which this sender had opened.
    pub(crate) fn add(&mut self, link_id: u64, sender: Arc<str>, is_empty: bool) {
        self.remove(link_id);
        let count = self.counts.entry(Arc::clone(&sender)).or_default();
        count.0 = count.0.saturating_add(1);
        count.1 = count.1.saturating_add(usize::from(is_empty));
        self.ages.insert(link_id, self.next_age);
        let orphan = Orphan {
            link_id,
            sender,
            is_empty,
        };
        self.by_age.insert(self.next_age, orphan);
        self.next_age = self.next_age.saturating_add(1);
    }

    /// The link has a transport again, or is gone.
    pub(crate) fn remove(&mut self, link_id: u64) {
        let age = self.ages.remove(&link_id);
        let Some(orphan) = age.and_then(|age| self.by_age.remove(&age)) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&orphan.sender) {
            count.0 = count.0.saturating_sub(1);
            count.1 = count.1.saturating_sub(usize::from(orphan.is_empty));
            if count.0 == 0 {
                self.counts.remove(&orphan.sender);
            }
        }
    }

    /// Whether this sender has as many orphans as it may, of `max_links` in all: a quarter of the links is left
    /// to the others.
    pub(crate) fn is_full(&self, sender: &str, max_links: usize) -> bool {
        let (all, _) = self.counts.get(sender).copied().unwrap_or_default();
        all >= max_links.saturating_sub(max_links / 4)
    }

    /// The oldest empty orphan of this sender, if it has more of them than a sixteenth of `max_links`.
    pub(crate) fn surplus(&self, sender: &str, max_links: usize) -> Option<u64> {
        let (_, empty) = self.counts.get(sender).copied().unwrap_or_default();
        if empty <= max_links / 16 {
            return None;
        }
        self.oldest_empty(|orphan| *orphan.sender == *sender)
    }

    /// The oldest empty orphan of all.
    pub(crate) fn emptiest(&self) -> Option<u64> {
        self.oldest_empty(|_| true)
    }

    fn oldest_empty(&self, is_its: impl Fn(&Orphan) -> bool) -> Option<u64> {
        let mut orphans = self.by_age.values();
        let found = orphans.find(|orphan| orphan.is_empty && is_its(orphan));
        found.map(|orphan| orphan.link_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_keeps_few_empty_orphans_and_leaves_a_quarter_of_all_links() {
        let mut orphans = Orphans::default();
        for link_id in 0..3 {
            orphans.add(link_id, "a".into(), link_id != 0);
        }
        orphans.add(3, "b".into(), true);
        assert_eq!(orphans.surplus("a", 32), None, "two are a sixteenth");
        assert_eq!(orphans.surplus("a", 31), Some(1), "the oldest empty one");
        assert_eq!(orphans.emptiest(), Some(1));
        assert_eq!(
            (orphans.is_full("a", 4), orphans.is_full("a", 5)),
            (true, false)
        );
        orphans.remove(1);
        assert_eq!(orphans.emptiest(), Some(2));
        orphans.add(2, "a".into(), false);
        assert_eq!(orphans.emptiest(), Some(3));
        orphans.remove(3);
        assert_eq!((orphans.emptiest(), orphans.surplus("b", 1)), (None, None));
        assert_eq!(orphans.counts.len(), 1);
    }
}
