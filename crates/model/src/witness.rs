//! The events of one channel at both applications, and whether they fit together. Knows nothing of the protocol.

use crate::packet::{Count, Fault, Message, Operation, Outcome};

/// Sets of messages, one bit each.
type Set = u8;

/// One channel over all its lives, seen by its sending and its receiving application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// Messages handed over so far.
    pub next: Message,
    /// The first one of the present life; what came before is over, and its fate was told.
    pub first: Message,
    /// Those before it were acknowledged as consumed.
    pub acknowledged: Message,
    commits: Set,
    rollbacks: Set,
    told: Set,
    life: Message,
    delivered: Message,
    consumed: Message,
    heard: Set,
    committed: Set,
    uncommitted: Set,
}

impl Witness {
    /// The sender's application decides through `count` of its life.
    pub fn decides(&mut self, operation: Operation, count: Count) {
        let set = range(self.first, count) & !(self.commits | self.rollbacks);
        match operation {
            Operation::Commit => self.commits |= set,
            Operation::Rollback => self.rollbacks |= set,
        }
    }

    /// The receiver's application gets a message: never twice, never out of order, never of a life that is over.
    ///
    /// # Errors
    /// It does.
    pub fn delivered(&mut self, count: Count, message: Message) -> Result<(), Fault> {
        if message < self.first {
            return Err(Fault::SentAgain);
        }
        if message < self.delivered {
            return Err(Fault::Duplicate);
        }
        if count == 1 {
            self.life = message;
        }
        let expected = if count == 1 {
            self.first
        } else {
            self.delivered
        };
        if message != expected || message + 1 != self.life + count {
            return Err(Fault::Gap);
        }
        self.delivered = message + 1;
        Ok(())
    }

    /// The receiver's application has consumed through `count` of its life.
    pub fn consumes(&mut self, count: Count) {
        self.consumed = self.consumed.max(self.life + count);
    }

    /// The message that `count` of the receiver's life ends with.
    pub fn message(&self, count: Count) -> Message {
        (self.life + count).saturating_sub(1)
    }

    /// The receiver's application hears of a decision: once, and as it was made.
    ///
    /// # Errors
    /// It does not.
    pub fn heard(&mut self, operation: Operation, count: Count) -> Result<(), Fault> {
        let set = range(self.life, count) & !self.heard;
        if set == 0 {
            return Err(Fault::DecidedTwice);
        }
        let made = if operation == Operation::Commit {
            self.commits
        } else {
            self.rollbacks
        };
        if set & !made != 0 {
            return Err(Fault::DecidedOtherwise);
        }
        self.heard |= set;
        Ok(())
    }

    /// The receiver's application answers the commits through `count`.
    pub fn answers(&mut self, outcome: Outcome, count: Count) {
        let set = range(self.life, count)
            & self.heard
            & self.commits
            & !(self.committed | self.uncommitted);
        match outcome {
            Outcome::Committed => self.committed |= set,
            Outcome::Uncommitted => self.uncommitted |= set,
        }
    }

    /// The sender's application is told of a `consumed`: only of what was.
    ///
    /// # Errors
    /// It was not.
    pub fn acknowledged(&mut self, count: Count) -> Result<(), Fault> {
        self.acknowledged = self.first + count;
        if self.acknowledged > self.consumed {
            Err(Fault::FalseAcknowledgement)
        } else {
            Ok(())
        }
    }

    /// The sender's application is told of an outcome: once for each commit, and the receiver's.
    ///
    /// # Errors
    /// It is not.
    pub fn told(&mut self, outcome: Outcome, count: Count) -> Result<(), Fault> {
        let all = range(self.first, count);
        let last = all & !range(self.first, count.saturating_sub(1));
        if last & self.commits == 0 {
            return Err(Fault::AnsweredRollback);
        }
        let set = all & self.commits & !self.told;
        if set == 0 {
            return Err(Fault::AnsweredTwice);
        }
        let given = if outcome == Outcome::Committed {
            self.committed
        } else {
            self.uncommitted
        };
        if set & !given != 0 {
            return Err(Fault::AnsweredOtherwise);
        }
        self.told |= set;
        Ok(())
    }

    /// The sender's application is told that the channel is gone, and how many messages are in doubt.
    ///
    /// # Errors
    /// The number is not that of the unacknowledged messages, or the receiver got some of them.
    pub fn closed(&mut self, unacknowledged: Count) -> Result<(), Fault> {
        if self.next - self.acknowledged != unacknowledged {
            return Err(Fault::Miscounted);
        }
        if self.consumed < self.next && self.delivered > self.first {
            return Err(Fault::HalfClosed);
        }
        self.over();
        Ok(())
    }

    /// The life is over: the channel was closed, or its link was lost.
    pub fn over(&mut self) {
        let next = self.next;
        *self = Self {
            next,
            first: next,
            acknowledged: next,
            delivered: next,
            consumed: next,
            ..Self::default()
        };
    }

    /// No life is going on.
    pub fn is_over(&self) -> bool {
        self.first == self.next
    }

    /// Nothing of the present life is awaited: all consumed and, if asked for, decided and answered.
    pub fn is_settled(&self, transactional: bool) -> bool {
        let all = range(self.first, self.next - self.first);
        let decided =
            (self.commits | self.rollbacks) & all == all && self.commits & !self.told == 0;
        self.acknowledged == self.next && (!transactional || decided)
    }
}

/// The messages `first..first + count`.
fn range(first: Message, count: Count) -> Set {
    ((1 << count) - 1) << first
}
