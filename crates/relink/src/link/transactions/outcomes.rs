//! The peer's decisions on one incoming channel and the application's outcomes.

use std::collections::VecDeque;

use ackline_core::Sequence;

use super::Said;
use super::runs::Runs;
use crate::frame::Operation;

/// Adjacent outcomes of one kind, also across rolled-back messages (R-RELINK-V15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutcomeRun {
    pub(crate) committed: bool,
    pub(crate) through: Sequence,
    /// The position in the transport's output of its last part, for [`Outcomes::forget`].
    emitted_at: u64,
}

/// An answer of the application's to committed messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) committed: bool,
    /// The last of the messages.
    pub(crate) through: Sequence,
    /// Whether it answers exactly one message, the next one after the last answered: the channel form can say that.
    is_single: bool,
}

/// The peer's decisions on one incoming channel and their outcomes.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// The peer's decisions after the last one that the application has answered.
    runs: Runs,
    /// The outcomes that a resume repeats.
    history: VecDeque<OutcomeRun>,
    /// The outcomes that are owed on this transport.
    pending: VecDeque<Answered>,
    /// The outcome that was emitted last: whether it was `committed`.
    last: Option<bool>,
    /// Whether the next outcome names its number.
    is_explicit: bool,
}

impl Outcomes {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            runs: Runs::new(base),
            history: VecDeque::new(),
            pending: VecDeque::new(),
            last: None,
            is_explicit: false,
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

    /// The application answers the committed messages up to `through`, or the next one; `None`: no such message.
    pub(crate) fn answer(
        &mut self,
        committed: bool,
        through: Option<Sequence>,
    ) -> Option<Answered> {
        let base = self.runs.base();
        let through = match through {
            Some(through) => through,
            None => self.runs.next_commit()?,
        };
        if !self.runs.is_commit(through) {
            return None;
        }
        self.runs.settle(through);
        Some(Answered {
            committed,
            through,
            is_single: through == base.next(),
        })
    }

    /// Keeps an outcome for the next resume: the peer may be told of it.
    pub(crate) fn publish(&mut self, answered: Answered) {
        let Answered {
            committed, through, ..
        } = answered;
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
    }

    /// Owes a [published](Self::publish) outcome on this transport.
    pub(crate) fn owe(&mut self, answered: Answered) {
        match self.pending.back_mut() {
            Some(last) if last.committed == answered.committed => {
                last.through = answered.through;
                last.is_single = false;
            }
            _ => self.pending.push_back(answered),
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

    /// Where the decisions after the last answered one begin.
    #[cfg(test)]
    pub(super) const fn base(&self) -> Sequence {
        self.runs.base()
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

    /// A new transport: a resume repeats every outcome, and the next one after that names its number, if the channel is
    /// older.
    pub(crate) fn attached(&mut self, is_older: bool) {
        self.pending.clear();
        self.is_explicit = is_older;
    }

    /// The run of the history that a resume emits next.
    pub(crate) fn replay(&mut self, at: usize, position: u64) -> Option<Said<bool>> {
        let run = self.history.get_mut(at)?;
        run.emitted_at = position;
        let (committed, through) = (run.committed, run.through);
        self.last = Some(committed);
        self.is_explicit = false;
        Some(Said {
            kind: committed,
            through: Some(through),
        })
    }

    /// The next outcome to emit.
    pub(crate) fn emit(&mut self, position: u64) -> Option<Said<bool>> {
        let next = self.pending.pop_front()?;
        let is_same = self.last.is_none_or(|last| last == next.committed);
        let short = next.is_single && is_same && !self.is_explicit;
        self.last = Some(next.committed);
        self.is_explicit &= short;
        // Both queues end with the same runs.
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

    /// The peer has seen every outcome emitted before `position`: a resume does not repeat them. The last run stays.
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

    /// From a journal: an outcome. Decisions up to it are settled, and the peer repeats later ones.
    pub(crate) fn restore(&mut self, committed: bool, through: Sequence) {
        self.runs = Runs::new(through);
        self.publish(Answered {
            committed,
            through,
            is_single: false,
        });
    }
}
