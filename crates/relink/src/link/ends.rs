//! The ends of the decisions on an outgoing channel.
//!
//! Its rules: R-REL-16.

use std::collections::VecDeque;

use ackline_core::Sequence;

/// The last messages of decisions, in order. A decision is told as a whole, also where it is told in one run with its
/// neighbours.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// The last end that was forgotten.
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

    /// The last end up to `limit`.
    pub(crate) fn last(&self, limit: Sequence) -> Sequence {
        let count = self.ends.partition_point(|end| !end.is_after(limit));
        let last = count.checked_sub(1).and_then(|at| self.ends.get(at));
        last.copied().unwrap_or(self.floor)
    }

    /// The ends after `from` and before `to`.
    pub(crate) fn between(
        &self,
        from: Sequence,
        to: Sequence,
    ) -> impl Iterator<Item = Sequence> + '_ {
        let begin = self.ends.partition_point(|end| !end.is_after(from));
        let rest = self.ends.iter().skip(begin).copied();
        rest.take_while(move |end| to.is_after(*end))
    }

    /// Forgets the ends up to `through`: no message up to there is emitted any more.
    pub(crate) fn forget(&mut self, through: Sequence) {
        while let Some(end) = self.ends.front().filter(|end| !end.is_after(through)) {
            self.floor = *end;
            self.ends.pop_front();
        }
    }
}

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
}
