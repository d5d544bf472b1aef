//! Commits and rollbacks of one channel's life, and how far they are answered. Both ends have such a record.

use crate::packet::{Count, Operation, Outcome};

/// A decision for each message so far, an outcome for each commit up to a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decisions {
    /// Messages decided: the shared pointer of R-REL-13.
    pub decided: Count,
    commits: u8,
    /// Messages up to the last outcome: the shared pointer of R-REL-14.
    pub answered: Count,
    failed: u8,
}

impl Decisions {
    /// Decides all messages after the pointer, up to `through`.
    pub fn decide(&mut self, operation: Operation, through: Count) {
        for index in self.decided..through {
            if operation == Operation::Commit {
                self.commits |= 1 << index;
            }
        }
        self.decided = through;
    }

    /// Answers every commit after the pointer, up to `through`.
    pub fn answer(&mut self, outcome: Outcome, through: Count) {
        for index in self.answered..through {
            if outcome == Outcome::Uncommitted && self.operation(index) == Operation::Commit {
                self.failed |= 1 << index;
            }
        }
        self.answered = through;
    }

    /// Returns the decision on the message at `index`, which is decided.
    pub fn operation(self, index: Count) -> Operation {
        if self.commits >> index & 1 == 1 {
            Operation::Commit
        } else {
            Operation::Rollback
        }
    }

    fn outcome(self, index: Count) -> Outcome {
        if self.failed >> index & 1 == 1 {
            Outcome::Uncommitted
        } else {
            Outcome::Committed
        }
    }

    /// The last decision, if there is one.
    pub fn last_operation(self) -> Option<Operation> {
        self.decided
            .checked_sub(1)
            .map(|index| self.operation(index))
    }

    /// The outcome of the last answered commit, if there is one.
    pub fn last_outcome(self) -> Option<Outcome> {
        self.answered
            .checked_sub(1)
            .map(|index| self.outcome(index))
    }

    /// The next commit without an outcome, as the count up to it.
    pub fn next_commit(self) -> Option<Count> {
        (self.answered..self.decided)
            .find(|&index| self.operation(index) == Operation::Commit)
            .map(|index| index + 1)
    }

    /// The last commit without an outcome.
    pub fn last_commit(self) -> Option<Count> {
        (self.answered..self.decided)
            .rfind(|&index| self.operation(index) == Operation::Commit)
            .map(|index| index + 1)
    }

    /// Commits after the outcome pointer, up to `through`.
    pub fn commits_through(self, through: Count) -> usize {
        (self.answered..through)
            .filter(|&index| self.operation(index) == Operation::Commit)
            .count()
    }

    /// The decisions after the outcome pointer, in runs of one kind (R-RELINK-V15).
    pub fn unanswered_runs(self) -> Vec<(Operation, Count)> {
        let mut runs: Vec<(Operation, Count)> = Vec::new();
        for index in self.answered..self.decided {
            let operation = self.operation(index);
            match runs.last_mut() {
                Some((last, through)) if *last == operation => *through = index + 1,
                _ => runs.push((operation, index + 1)),
            }
        }
        runs
    }

    /// Every outcome of this life, in runs of one kind, also across rolled back messages (R-RELINK-V15).
    pub fn outcome_runs(self) -> Vec<(Outcome, Count)> {
        let mut runs: Vec<(Outcome, Count)> = Vec::new();
        for index in (0..self.answered).filter(|&index| self.operation(index) == Operation::Commit)
        {
            let outcome = self.outcome(index);
            match runs.last_mut() {
                Some((last, through)) if *last == outcome => *through = index + 1,
                _ => runs.push((outcome, index + 1)),
            }
        }
        runs
    }
}
