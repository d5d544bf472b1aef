//! Where each decision on an outgoing channel ends, and how much a transport has carried of what is decided and
//! not told: a peer that has to hold what it does not know to be decided shall not hold much.
//!
//! Its rules: R-REL-16, R-RELINK-V11, R-RELINK-V25.

use std::collections::VecDeque;

use ackline_core::Sequence;

/// The last messages of decisions, in order. A decision is told whole or not at all, also where it is told in
/// one run with its neighbours.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// The last one that was forgotten.
    floor: Sequence,
    ends: VecDeque<Sequence>,
}

impl Ends {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            floor: base,
            ends: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, end: Sequence) {
        self.ends.push_back(end);
    }

    /// The last end that is not behind `limit`.
    pub(crate) fn last(&self, limit: Sequence) -> Sequence {
        let count = self.ends.partition_point(|end| !end.is_after(limit));
        let last = count.checked_sub(1).and_then(|at| self.ends.get(at));
        last.copied().unwrap_or(self.floor)
    }

    /// The ends behind `from`, before `to`.
    pub(crate) fn between(
        &self,
        from: Sequence,
        to: Sequence,
    ) -> impl Iterator<Item = Sequence> + '_ {
        let begin = self.ends.partition_point(|end| !end.is_after(from));
        let rest = self.ends.iter().skip(begin).copied();
        rest.take_while(move |end| to.is_after(*end))
    }

    /// No message up to `through` is emitted any more.
    pub(crate) fn forget(&mut self, through: Sequence) {
        while let Some(end) = self.ends.front().filter(|end| !end.is_after(through)) {
            self.floor = *end;
            self.ends.pop_front();
        }
    }
}

/// What a transport has carried of messages whose decision was taken and not told on it: with what each costs
/// its receiver beside the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Of decisions whose messages have all been carried.
    pub(crate) whole: usize,
    /// Of those of which some have not.
    pub(crate) part: usize,
}

impl Untold {
    /// A message was emitted; `ends` says whether it is the last of its decision.
    pub(crate) const fn carried(&mut self, payload_bytes: usize, ends: bool) {
        self.part = self
            .part
            .saturating_add(payload_bytes)
            .saturating_add(MESSAGE_BYTES);
        if ends {
            self.whole = self.whole.saturating_add(self.part);
            self.part = 0;
        }
    }

    /// Whether decisions are told before more messages go out.
    pub(crate) const fn is_due(&self, most: usize) -> bool {
        self.whole > 0 && self.whole.saturating_add(self.part) >= most
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.whole = self.whole.saturating_add(other.whole);
        self.part = self.part.saturating_add(other.part);
    }

    pub(crate) const fn sub(&mut self, other: Self) {
        self.whole = self.whole.saturating_sub(other.whole);
        self.part = self.part.saturating_sub(other.part);
    }
}

/// What a message that is not decided costs its receiver beside the payload, about.
const MESSAGE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_across_the_wrap_and_forgotten_in_order() {
        let at = |number: u32| Sequence(u32::MAX).plus(number);
        let mut ends = Ends::new(at(0));
        for end in [2, 3, 7] {
            ends.push(at(end));
        }
        let found = |ends: &Ends| [0, 1, 2, 5, 7, 9].map(|limit| ends.last(at(limit)));
        assert_eq!(found(&ends), [0, 0, 2, 3, 7, 7].map(at));
        let between = |from, to| ends.between(at(from), at(to)).collect::<Vec<_>>();
        assert_eq!(between(0, 7), [at(2), at(3)]);
        assert_eq!(between(2, 8), [at(3), at(7)]);
        ends.forget(at(4));
        assert_eq!(found(&ends), [3, 3, 3, 3, 7, 7].map(at));
    }

    #[test]
    fn what_is_untold_is_due_only_where_something_can_be_told() {
        let mut untold = Untold::default();
        untold.carried(1_000, false);
        assert!(!untold.is_due(0), "the decision is not whole");
        untold.carried(1_000, true);
        assert_eq!((untold.whole, untold.part), (2_128, 0));
        assert!(untold.is_due(2_128) && !untold.is_due(2_129));
        untold.carried(1, false);
        assert!(untold.is_due(2_129), "what is not whole counts too");
    }
}
