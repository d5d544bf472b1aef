//! Commit and rollback: which messages are decided, which decisions are answered, and in which of the
//! two forms a packet says so (R-REL-13, R-REL-14, R-RELINK-V4).
//!
//! Its rules: REQ-RELINK-39, REQ-RELINK-41, REQ-RELINK-56, REQ-RELINK-57, R-REL-15, R-REL-16, R-REL-35.

use std::collections::VecDeque;

use ackline_core::Sequence;

use super::ends::{Ends, Untold};
use crate::frame::Operation;

/// Adjacent messages with one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) operation: Operation,
    pub(crate) through: Sequence,
}

/// Decided messages behind `base`, in runs.
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

    /// How far a number is behind `base`.
    const fn offset(&self, at: Sequence) -> u32 {
        at.since(self.base)
    }

    /// The run that holds a decided message.
    fn at(&self, sequence: Sequence) -> Option<usize> {
        let wanted = self.offset(sequence);
        let at = self
            .runs
            .partition_point(|run| self.offset(run.through) < wanted);
        (wanted > 0 && at < self.runs.len()).then_some(at)
    }

    pub(crate) fn is_commit(&self, sequence: Sequence) -> bool {
        self.at(sequence)
            .and_then(|at| self.runs.get(at))
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

/// The decisions on one outgoing channel.
#[derive(Debug)]
pub(crate) struct Decisions {
    /// Behind the last known outcome: what every resume repeats.
    runs: Runs,
    /// Where each of those ends whose messages may still be emitted.
    pub(crate) ends: Ends,
    /// What may be told (everything, or what is in the journal).
    pub(crate) ready: Sequence,
    /// The last one emitted on this transport.
    cursor: Sequence,
    /// The last one that this transport repeats.
    repeated: Sequence,
    /// What this transport has carried and not told.
    untold: Untold,
    /// The last one ever emitted.
    emitted: Sequence,
    last: Option<Operation>,
    /// The next one names its number.
    explicit: bool,
}

/// A decision or an outcome, as a packet says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said<K> {
    pub(crate) kind: K,
    /// The number; `None` in the channel form.
    pub(crate) through: Option<Sequence>,
}

impl Decisions {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            runs: Runs::new(base),
            ends: Ends::new(base),
            ready: base,
            cursor: base,
            repeated: base,
            untold: Untold { whole: 0, part: 0 },
            emitted: base,
            last: None,
            explicit: false,
        }
    }

    /// The application decides up to `through`, or the next message; `None`: no such message up to
    /// `last`.
    pub(crate) fn decide(
        &mut self,
        operation: Operation,
        through: Option<Sequence>,
        last: Sequence,
    ) -> Option<Sequence> {
        let decided = self.runs.through();
        let through = through.unwrap_or_else(|| decided.next());
        let steps = through.since(decided);
        if steps == 0 || steps > last.since(decided) {
            return None;
        }
        self.runs.push(operation, through);
        self.ends.push(through);
        Some(through)
    }

    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The decisions behind the last known outcome, each as it was taken where that may still matter.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Run> + '_ {
        let mut before = self.runs.base;
        self.runs.iter().flat_map(move |run| {
            let ends = self.ends.between(before, run.through);
            before = run.through;
            ends.chain([run.through]).map(move |through| Run {
                operation: run.operation,
                through,
            })
        })
    }

    pub(crate) fn is_settled(&self, last: Sequence) -> bool {
        self.runs.through() == last && self.runs.is_answered()
    }

    /// A new transport: the next decision names its number, if the channel is older (R-RELINK-V14), and
    /// everything behind the last known outcome goes out again.
    pub(crate) fn attached(&mut self, is_older: bool) {
        self.explicit = is_older;
        self.untold = Untold::default();
        if is_older {
            self.cursor = self.runs.base;
        }
    }

    /// The peer has resumed: what is repeated names its numbers. Says whether there is something.
    pub(crate) fn repeat(&mut self) -> bool {
        self.cursor = self.runs.base;
        self.repeated = self.ready;
        self.cursor != self.ready
    }

    /// A message was emitted: answers what that adds to what is untold.
    pub(crate) fn carried(&mut self, sequence: Sequence, payload_bytes: usize) -> (Untold, Untold) {
        let before = self.untold;
        if sequence.is_after(self.cursor) && !sequence.is_after(self.ready) {
            let ends = self.ends.last(sequence) == sequence;
            self.untold.carried(payload_bytes, ends);
        }
        (before, self.untold)
    }

    /// All that could be told was: answers what is no longer untold.
    pub(crate) const fn told(&mut self) -> Untold {
        let part = self.untold.part;
        let whole = self.untold.whole;
        self.untold = Untold { whole: 0, part };
        Untold { whole, part: 0 }
    }

    /// What this transport has carried and not told.
    pub(crate) const fn untold(&self) -> Untold {
        self.untold
    }

    /// The next decision to emit, of those whose messages are all emitted up to `limit`.
    pub(crate) fn emit(&mut self, limit: Sequence) -> Option<Said<Operation>> {
        // An outcome may have overtaken the repetition.
        let base = self.runs.base;
        if base.is_after(self.cursor) {
            self.cursor = base;
        }
        let limit = self.ends.last(limit);
        if !limit.is_after(self.cursor) || !self.ready.is_after(self.cursor) {
            return None;
        }
        let repeats = self.repeated.is_after(self.cursor);
        let limit = limit.since(self.cursor).min(self.ready.since(self.cursor));
        let at = self.runs.at(self.cursor.next())?;
        let run = *self.runs.runs.get(at)?;
        let count = run.through.since(self.cursor).min(limit);
        let is_same = self.last.is_none_or(|last| last == run.operation);
        let short = count == 1 && is_same && !self.explicit && !repeats;
        self.cursor = self.cursor.plus(count);
        if self.cursor.is_after(self.emitted) {
            self.emitted = self.cursor;
        }
        if !repeats {
            self.repeated = self.cursor;
        }
        self.last = Some(run.operation);
        self.explicit &= short;
        Some(Said {
            kind: run.operation,
            through: (!short).then_some(self.cursor),
        })
    }

    /// The peer's outcome, with the number that it names or for the next committed message.
    ///
    /// # Errors
    /// The number: no decision on it was emitted.
    pub(crate) fn outcome(
        &mut self,
        through: Option<Sequence>,
    ) -> Result<Option<Sequence>, Sequence> {
        let base = self.runs.base;
        let emitted = self.emitted.since(base);
        let through = match through {
            Some(through) if !through.is_after(base) => return Ok(None),
            Some(through) => through,
            None => self.runs.next_commit().ok_or_else(|| base.next())?,
        };
        if through.since(base) > emitted {
            return Err(through);
        }
        if self.runs.commits(through) == 0 {
            return Ok(None);
        }
        self.runs.settle(through);
        Ok(Some(through))
    }

    /// From a journal: a decision, ready to be told.
    pub(crate) fn restore(&mut self, operation: Operation, through: Sequence) {
        self.runs.push(operation, through);
        self.ends.push(through);
        self.ready = through;
        self.emitted = through;
    }

    /// From a journal: an outcome.
    pub(crate) fn restore_outcome(&mut self, through: Sequence) {
        self.runs.settle(through);
        self.ready = self.runs.through();
        self.emitted = self.ready;
    }
}

/// Adjacent outcomes of one kind, also across rolled-back messages (R-RELINK-V15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutcomeRun {
    pub(crate) committed: bool,
    pub(crate) through: Sequence,
    /// The position in the transport's output of its last part, for [`Outcomes::forget`].
    emitted_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    committed: bool,
    through: Sequence,
    /// Exactly one message, next to the last one answered.
    single: bool,
}

/// The peer's decisions on one incoming channel and their outcomes.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// Behind the last outcome that the application has given.
    runs: Runs,
    history: VecDeque<OutcomeRun>,
    pending: VecDeque<Pending>,
    last: Option<bool>,
    explicit: bool,
}

impl Outcomes {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            runs: Runs::new(base),
            history: VecDeque::new(),
            pending: VecDeque::new(),
            last: None,
            explicit: false,
        }
    }

    /// The peer decides up to `through`, or the next message. `Ok(None)`: it was decided before
    /// (R-RELINK-V13).
    ///
    /// # Errors
    /// The number, which is above the last `received` message.
    pub(crate) fn decide(
        &mut self,
        operation: Operation,
        through: Option<Sequence>,
        received: Sequence,
    ) -> Result<Option<Sequence>, Sequence> {
        let decided = self.runs.through();
        let through = through.unwrap_or_else(|| decided.next());
        if !through.is_after(decided) {
            return Ok(None);
        }
        if through.since(decided) > received.since(decided) {
            return Err(through);
        }
        self.runs.push(operation, through);
        Ok(Some(through))
    }

    /// The application answers the committed messages up to `through`, or the next one; `None`: no such
    /// message. With it: whether the channel form could say it.
    pub(crate) fn answer(&mut self, through: Option<Sequence>) -> Option<(Sequence, bool)> {
        let base = self.runs.base;
        let through = match through {
            Some(through) => through,
            None => self.runs.next_commit()?,
        };
        if !self.runs.is_commit(through) {
            return None;
        }
        let single = through == base.next();
        self.runs.settle(through);
        Some((through, single))
    }

    /// An outcome may be told. `told`: on this transport, now; otherwise a resume will say it.
    pub(crate) fn publish(
        &mut self,
        committed: bool,
        (through, single): (Sequence, bool),
        told: bool,
    ) {
        match self.history.back_mut() {
            Some(last) if last.committed == committed => {
                last.through = through;
                last.emitted_at = u64::MAX;
            }
            _ => self.history.push_back(OutcomeRun {
                committed,
                through,
                emitted_at: u64::MAX,
            }),
        }
        if !told {
            return;
        }
        match self.pending.back_mut() {
            Some(last) if last.committed == committed => {
                last.through = through;
                last.single = false;
            }
            _ => self.pending.push_back(Pending {
                committed,
                through,
                single,
            }),
        }
    }

    pub(crate) fn history(&self) -> impl Iterator<Item = OutcomeRun> + '_ {
        self.history.iter().copied()
    }

    pub(crate) fn history_len(&self) -> usize {
        self.history.len()
    }

    pub(crate) fn is_settled(&self, received: Sequence) -> bool {
        self.runs.through() == received && self.runs.is_answered()
    }

    /// The first and the last committed message without an answer.
    pub(crate) fn unanswered(&self) -> Option<(Sequence, Sequence)> {
        let mut commits = self.runs.iter();
        let last = commits.rfind(|run| run.operation == Operation::Commit)?;
        Some((self.runs.next_commit()?, last.through))
    }

    pub(crate) fn is_told(&self) -> bool {
        self.pending.is_empty()
    }

    /// A new transport: a resume says everything again, `older` channels name the next number.
    pub(crate) fn attached(&mut self, is_older: bool) {
        self.pending.clear();
        self.explicit = is_older;
    }

    /// The run of the history that a resume says next.
    pub(crate) fn replay(&mut self, at: usize, position: u64) -> Option<Said<bool>> {
        let run = self.history.get_mut(at)?;
        run.emitted_at = position;
        let (committed, through) = (run.committed, run.through);
        self.last = Some(committed);
        self.explicit = false;
        Some(Said {
            kind: committed,
            through: Some(through),
        })
    }

    /// The next outcome to emit.
    pub(crate) fn emit(&mut self, position: u64) -> Option<Said<bool>> {
        let next = self.pending.pop_front()?;
        let is_same = self.last.is_none_or(|last| last == next.committed);
        let short = next.single && is_same && !self.explicit;
        self.last = Some(next.committed);
        self.explicit &= short;
        // The two end with the same runs.
        let behind = self.pending.len().saturating_add(1);
        let at = self.history.len().checked_sub(behind);
        if let Some(run) = at.and_then(|at| self.history.get_mut(at)) {
            run.emitted_at = position;
        }
        Some(Said {
            kind: next.committed,
            through: (!short).then_some(next.through),
        })
    }

    /// The peer has seen everything emitted before `position`: a resume need not say it again. The last
    /// run stays.
    pub(crate) fn forget(&mut self, position: u64) {
        while self.history.len() > 1
            && self
                .history
                .front()
                .is_some_and(|run| run.emitted_at < position)
        {
            self.history.pop_front();
        }
    }

    /// From a journal: an outcome. Decisions up to it are settled; later ones the peer says again.
    pub(crate) fn restore(&mut self, committed: bool, through: Sequence) {
        self.runs = Runs::new(through);
        self.publish(committed, (through, false), false);
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
        fn runs_are_what_each_message_by_itself_would_be(
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

        /// What one end says in either form is what the other understands, whenever it is said.
        #[test]
        fn decisions_and_outcomes_in_both_forms_mean_the_same_to_both(
            base in prop_oneof![Just(u32::MAX), Just(u32::MAX - 5), any::<u32>()],
            steps in proptest::collection::vec((0_u8..5, any::<bool>(), 1_u32..4), 1..60),
        ) {
            let base = Sequence(base);
            let (mut own, mut peers) = (Decisions::new(base), Outcomes::new(base));
            let last = base.plus(1_000);
            let mut told = base;
            for (step, kind, count) in steps {
                match step {
                    0 | 1 => {
                        let operation = if kind { Operation::Commit } else { Operation::Rollback };
                        let through = own.runs.through().plus(count);
                        prop_assert_eq!(own.decide(operation, Some(through), last), Some(through));
                        own.ready = through;
                    }
                    2 => while let Some(said) = own.emit(last) {
                        let heard = peers.decide(said.kind, said.through, last).unwrap();
                        prop_assert_eq!(heard, Some(own.cursor));
                    },
                    3 => if let Some(answered) = peers.answer(None) {
                        peers.publish(kind, answered, true);
                    },
                    _ => while let Some(said) = peers.emit(0) {
                        let heard = own.outcome(said.through).unwrap().unwrap();
                        prop_assert!(heard.is_after(told));
                        told = heard;
                    },
                }
            }
            while let Some(said) = peers.emit(0) {
                own.outcome(said.through).unwrap().unwrap();
            }
            prop_assert_eq!(own.runs.base(), peers.runs.base);
        }
    }
}
