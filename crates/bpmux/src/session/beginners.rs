//! Callers that wait to request or open something take turns: the caller that has waited longest goes first,
//! and no caller that comes later overtakes it.

use std::collections::VecDeque;

/// A place in the queue.
pub type Ticket = u64;

/// The queue of one connection.
#[derive(Debug, Default)]
pub(super) struct Beginners {
    queue: VecDeque<Ticket>,
    next: Ticket,
}

impl Beginners {
    /// Whether no caller is before this one; `None` for a caller that has not waited.
    #[inline]
    pub(super) fn may_begin(&self, ticket: Option<Ticket>) -> bool {
        let first = self.queue.front();
        first.is_none_or(|first| ticket == Some(*first))
    }

    pub(super) fn join(&mut self) -> Ticket {
        self.next = self.next.wrapping_add(1);
        self.queue.push_back(self.next);
        self.next
    }

    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.queue.retain(|other| *other != ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_waited_longest_is_first_and_who_leaves_holds_nobody_up() {
        let mut all = Beginners::default();
        assert!(all.may_begin(None));
        let [one, two, three] = std::array::from_fn(|_| all.join());
        assert!(!all.may_begin(None), "nobody overtakes");
        assert_eq!(
            [one, two, three].map(|ticket| all.may_begin(Some(ticket))),
            [true, false, false]
        );
        all.leave(two);
        all.leave(one);
        assert!(all.may_begin(Some(three)));
        all.leave(three);
        assert!(all.may_begin(None));
    }
}
