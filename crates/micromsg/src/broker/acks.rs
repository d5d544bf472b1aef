//! The messages of one publisher that are not acknowledged yet: acknowledgements are cumulative, so one message that is
//! unfinished holds back those behind it.

use std::collections::VecDeque;

/// Positions on one connection, from 1.
#[derive(Debug, Default)]
pub struct Acks {
    /// Messages up to here are finished.
    through: u64,
    /// Those behind it: whether each is finished. The first one is not.
    behind: VecDeque<bool>,
}

impl Acks {
    /// Adds the next message.
    pub fn add(&mut self, is_finished: bool) {
        if is_finished && self.behind.is_empty() {
            self.through = self.through.saturating_add(1);
        } else {
            self.behind.push_back(is_finished);
        }
    }

    /// A message is finished.
    pub fn finish(&mut self, position: u64) {
        let at = position.checked_sub(self.through.saturating_add(1));
        let at = at.and_then(|at| usize::try_from(at).ok());
        if let Some(one) = at.and_then(|at| self.behind.get_mut(at)) {
            *one = true;
        }
        while self.behind.front() == Some(&true) {
            self.behind.pop_front();
            self.through = self.through.saturating_add(1);
        }
    }

    /// The last message before the first unfinished one.
    pub const fn through(&self) -> u64 {
        self.through
    }
}

/// Positions to acknowledge, by publisher.
#[derive(Debug)]
pub struct Finished<P>(Vec<(P, Vec<u64>)>);

impl<P> Default for Finished<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: PartialEq> Finished<P> {
    /// Adds positions of a publisher.
    pub fn add(&mut self, publisher: P, positions: impl IntoIterator<Item = u64>) {
        match self.0.last_mut() {
            Some((last, all)) if *last == publisher => all.extend(positions),
            _ => self.0.push((publisher, positions.into_iter().collect())),
        }
    }

    /// Acknowledges them.
    pub fn tell(self, acknowledge: impl Fn(&P, Vec<u64>)) {
        for (publisher, positions) in self.0 {
            acknowledge(&publisher, positions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_a_row_of_one_publisher_are_told_together() {
        let mut finished = Finished::default();
        for (publisher, positions) in [('a', 1..3), ('a', 3..4), ('b', 1..2), ('a', 4..5)] {
            finished.add(publisher, positions);
        }
        let told = std::cell::RefCell::new(Vec::new());
        finished.tell(|publisher, positions| told.borrow_mut().push((*publisher, positions)));
        let expected = [('a', vec![1, 2, 3]), ('b', vec![1]), ('a', vec![4])];
        assert_eq!(told.into_inner(), expected);
    }

    #[test]
    fn an_unfinished_message_holds_back_those_behind_it() {
        let mut acks = Acks::default();
        for is_finished in [true, false, true, false, true] {
            acks.add(is_finished);
        }
        assert_eq!(acks.through(), 1);
        acks.finish(4);
        assert_eq!(acks.through(), 1);
        acks.finish(2);
        assert_eq!(acks.through(), 5);
        acks.finish(2);
        acks.finish(9);
        acks.add(true);
        assert_eq!(acks.through(), 6);
    }
}
