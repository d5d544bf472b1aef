//! Runs of adjacent messages with one decision.

use std::collections::VecDeque;

use ackline_core::Sequence;

use crate::frame::Operation;

/// Adjacent messages with one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) operation: Operation,
    pub(crate) through: Sequence,
}

/// Decided messages after `base`, in runs.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    base: Sequence,
    runs: VecDeque<Run>,
}

impl Runs {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            base,
            runs: VecDeque::new(),
        }
    }

    /// The last decided message.
    pub(crate) fn through(&self) -> Sequence {
        self.runs.back().map_or(self.base, |run| run.through)
    }

    pub(crate) const fn base(&self) -> Sequence {
        self.base
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Run> + '_ {
        self.runs.iter().copied()
    }

    pub(crate) fn push(&mut self, operation: Operation, through: Sequence) {
        match self.runs.back_mut() {
            Some(last) if last.operation == operation => last.through = through,
            _ => self.runs.push_back(Run { operation, through }),
        }
    }

    /// The distance of a number from `base`.
    const fn offset(&self, at: Sequence) -> u32 {
        at.since(self.base)
    }

    /// The index of the run that holds a decided message.
    fn at(&self, sequence: Sequence) -> Option<usize> {
        let wanted = self.offset(sequence);
        let at = self
            .runs
            .partition_point(|run| self.offset(run.through) < wanted);
        (wanted > 0 && at < self.runs.len()).then_some(at)
    }

    pub(crate) fn is_commit(&self, sequence: Sequence) -> bool {
        self.run(sequence)
            .is_some_and(|run| run.operation == Operation::Commit)
    }

    /// The first committed message.
    pub(crate) fn next_commit(&self) -> Option<Sequence> {
        let mut before = self.base;
        for run in &self.runs {
            if run.operation == Operation::Commit {
                return Some(before.next());
            }
            before = run.through;
        }
        None
    }

    /// Committed messages up to a number.
    pub(crate) fn commits(&self, through: Sequence) -> u32 {
        let end = self.offset(through);
        let (mut before, mut count) = (0_u32, 0_u32);
        for run in &self.runs {
            let until = self.offset(run.through).min(end);
            if run.operation == Operation::Commit {
                count = count.saturating_add(until.saturating_sub(before));
            }
            before = until;
            if until == end {
                break;
            }
        }
        count
    }

    /// The run that holds a decided message.
    pub(super) fn run(&self, sequence: Sequence) -> Option<Run> {
        self.runs.get(self.at(sequence)?).copied()
    }

    /// Forgets everything up to a decided number.
    pub(crate) fn settle(&mut self, through: Sequence) {
        let wanted = self.offset(through);
        while let Some(run) = self.runs.front() {
            if self.offset(run.through) > wanted {
                break;
            }
            self.runs.pop_front();
        }
        self.base = through;
    }

    /// Whether no commit waits for its outcome.
    pub(crate) fn is_answered(&self) -> bool {
        self.runs
            .iter()
            .all(|run| run.operation == Operation::Rollback)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)] // the model counts a few messages
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The decisions of messages, one by one.
    #[derive(Debug, Default)]
    struct Model {
        commits: Vec<bool>,
        settled: usize,
    }

    impl Model {
        fn next_commit(&self) -> Option<usize> {
            (self.settled..self.commits.len()).find(|at| self.commits[*at])
        }

        fn commits(&self, count: usize) -> usize {
            let open = &self.commits[self.settled..count];
            open.iter().filter(|commit| **commit).count()
        }
    }

    fn number(base: Sequence, at: usize) -> Sequence {
        base.plus(u32::try_from(at).unwrap()).next()
    }

    proptest! {
        #[test]
        fn runs_decide_as_each_message_by_itself_would(
            base in prop_oneof![Just(u32::MAX), Just(u32::MAX - 9), any::<u32>()],
            steps in proptest::collection::vec((any::<bool>(), 1_usize..6, 0_usize..8), 1..40),
        ) {
            let base = Sequence(base);
            let (mut runs, mut model) = (Runs::new(base), Model::default());
            for (commit, count, settle) in steps {
                let operation = if commit { Operation::Commit } else { Operation::Rollback };
                model.commits.extend(std::iter::repeat_n(commit, count));
                runs.push(operation, number(base, model.commits.len() - 1));
                let end = (model.settled + settle).min(model.commits.len());
                if end > model.settled {
                    let commits = runs.commits(number(base, end - 1));
                    prop_assert_eq!(usize::try_from(commits).unwrap(), model.commits(end));
                    runs.settle(number(base, end - 1));
                    model.settled = end;
                }
                for at in model.settled..model.commits.len() {
                    prop_assert_eq!(runs.is_commit(number(base, at)), model.commits[at]);
                }
                prop_assert!(!runs.is_commit(number(base, model.commits.len())));
                let next = model.next_commit().map(|at| number(base, at));
                prop_assert_eq!(runs.next_commit(), next);
                prop_assert_eq!(runs.is_answered(), next.is_none());
                let last = number(base, model.commits.len() - 1);
                prop_assert_eq!(runs.through(), last);
                prop_assert!(runs.iter().count() <= 40);
            }
        }
    }
}
