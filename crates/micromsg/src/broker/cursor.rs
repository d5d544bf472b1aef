//! How far a broker has read a queue in its spool, and which messages of it are still to be acknowledged.

use std::collections::HashSet;

/// The part of a queue that is in memory: everything below `read_to`, or nothing is behind it.
#[derive(Debug)]
pub struct Cursor {
    /// All messages of the queue below this position were read, or were acknowledged.
    read_to: u64,
    /// The end of the last block that has become durable.
    settled_to: u64,
    /// Durable messages from `read_to` on are not in memory.
    is_behind: bool,
}

impl Cursor {
    /// At the mark of a queue, in a spool that ends at `durable`.
    pub const fn new(mark: u64, durable: u64) -> Self {
        Self {
            read_to: mark,
            settled_to: mark,
            is_behind: mark < durable,
        }
    }

    /// Where reading goes on.
    pub const fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Whether durable messages are not in memory.
    pub const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Messages from this position on are no longer in memory.
    pub const fn unread(&mut self, from: u64) {
        self.read_to = from;
        self.is_behind = true;
    }

    /// The queue was moved to this position, and ends before `end`.
    pub const fn restart(&mut self, first: u64, end: u64) {
        self.settled_to = end;
        self.unread(first);
    }

    /// Messages up to a position were read; `is_all`: nothing else was durable then.
    pub const fn took(&mut self, to: u64, is_all: bool) {
        self.read_to = to;
        self.is_behind = !is_all || self.settled_to > to;
    }

    /// A block is durable. Returns whether its messages stay in memory, which they do if they are wanted and come next.
    pub fn settled(&mut self, (first, end): (u64, u64), is_wanted: bool) -> bool {
        self.settled_to = self.settled_to.max(end);
        if first < self.read_to {
            return false;
        }
        if self.is_behind || !is_wanted {
            self.is_behind = true;
            return false;
        }
        self.read_to = end;
        true
    }

    /// Nothing of the queue is below this position, unless it is behind; returns whether it is not.
    pub fn advance(&mut self, durable: u64) -> bool {
        if !self.is_behind {
            self.read_to = self.read_to.max(durable);
        }
        !self.is_behind
    }
}

/// The messages of a queue that are not acknowledged.
#[derive(Debug)]
pub struct Unfinished {
    /// The first of them.
    pub from: u64,
    /// They end here.
    pub to: u64,
    /// From here on, all of them.
    pub all_from: u64,
    /// Before it, these.
    pub some: HashSet<u64>,
}

impl Unfinished {
    /// Whether the message at this position is one of them.
    pub fn has(&self, position: u64) -> bool {
        position < self.to && (position >= self.all_from || self.some.contains(&position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stay_in_memory_while_they_are_wanted_and_come_next() {
        let mut cursor = Cursor::new(5, 5);
        assert!(cursor.settled((5, 8), true));
        assert!(!cursor.settled((6, 7), true), "it was read");
        assert_eq!((cursor.read_to(), cursor.is_behind()), (8, false));
        assert!(!cursor.settled((9, 12), false) && cursor.is_behind());
        assert!(!cursor.settled((12, 15), true), "one before it is missing");
        assert!(!cursor.advance(20));
        cursor.took(12, true);
        assert!(cursor.is_behind(), "a block has come meanwhile");
        cursor.took(15, true);
        assert!(!cursor.is_behind() && cursor.advance(20));
        assert_eq!(cursor.read_to(), 20);
        assert!(cursor.advance(3) && cursor.read_to() == 20);
    }

    #[test]
    fn what_is_dropped_or_moved_is_read_again() {
        let mut cursor = Cursor::new(2, 9);
        assert!(cursor.is_behind());
        cursor.took(6, false);
        assert!(cursor.is_behind());
        cursor.took(9, true);
        cursor.unread(7);
        assert_eq!((cursor.read_to(), cursor.is_behind()), (7, true));
        cursor.restart(30, 40);
        cursor.took(39, true);
        assert!(cursor.is_behind());
        cursor.took(40, true);
        assert!(!cursor.is_behind());
    }

    #[test]
    fn messages_before_those_that_were_not_read_are_unfinished_one_by_one() {
        let left = Unfinished {
            from: 3,
            to: 20,
            all_from: 10,
            some: HashSet::from([3, 8]),
        };
        let has: Vec<u64> = (0..30).filter(|position| left.has(*position)).collect();
        assert!(has.into_iter().eq([3, 8].into_iter().chain(10..20)));
    }
}
