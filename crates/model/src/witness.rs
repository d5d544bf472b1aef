//! The events of one channel at both applications, and checks that they fit together. It does not know the protocol.

use crate::packet::{Count, Fault, Message, Operation, Outcome};

/// Sets of messages, one bit each.
type Set = u8;

/// One channel over all its lives, seen by its sending and its receiving application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// Messages handed over so far.
    pub next: Message,
    /// The first message of the present life. Earlier messages are over, and their fate was told.
    pub first: Message,
    /// The first message that was not acknowledged as consumed.
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
    /// The sender's application decides up to `count` of its life.
    pub fn decides(&mut self, operation: Operation, count: Count) {
        let set = range(self.first, count) & !(self.commits | self.rollbacks);
        match operation {
            Operation::Commit => self.commits |= set,
            Operation::Rollback => self.rollbacks |= set,
        }
    }

    /// The receiver's application gets a message.
    ///
    /// # Errors
    /// The message arrives twice, out of order, or from a life that is over.
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

    /// The receiver's application has consumed up to `count` of its life.
    pub fn consumes(&mut self, count: Count) {
        self.consumed = self.consumed.max(self.life + count);
    }

    /// Returns the last message of `count` in the receiver's life.
    pub fn message(&self, count: Count) -> Message {
        (self.life + count).saturating_sub(1)
    }

    /// The receiver's application hears of a decision.
    ///
    /// # Errors
    /// The decision was told before, or was not made so.
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

    /// The receiver's application answers the commits up to `count`.
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

    /// The sender's application is told of a `consumed`.
    ///
    /// # Errors
    /// The receiver has not consumed the messages.
    pub fn acknowledged(&mut self, count: Count) -> Result<(), Fault> {
        self.acknowledged = self.first + count;
        if self.acknowledged > self.consumed {
            Err(Fault::FalseAcknowledgement)
        } else {
            Ok(())
        }
    }

    /// The sender's application is told of an outcome.
    ///
    /// # Errors
    /// The outcome was told before, or is not the receiver's.
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

    /// The sender's application is told that the channel is gone, and how many of its messages are unacknowledged.
    ///
    /// # Errors
    /// The number of unacknowledged messages is wrong, or the receiver got some of them.
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

    /// Whether no life has begun.
    pub fn is_over(&self) -> bool {
        self.first == self.next
    }

    /// Whether the present life awaits nothing: all messages are consumed and, if `transactional`, decided and
    /// answered.
    pub fn is_settled(&self, transactional: bool) -> bool {
        let all = range(self.first, self.next - self.first);
        let decided =
            (self.commits | self.rollbacks) & all == all && self.commits & !self.told == 0;
        self.acknowledged == self.next && (!transactional || decided)
    }
}

/// Returns the set of the messages `first..first + count`.
fn range(first: Message, count: Count) -> Set {
    ((1 << count) - 1) << first
}
