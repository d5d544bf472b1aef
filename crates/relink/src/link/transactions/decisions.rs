//! The decisions of this end on its messages of one channel.

use ackline_core::Sequence;

use super::Said;
use super::runs::{Run, Runs};
use crate::frame::Operation;
use crate::link::ends::Ends;
use crate::link::untold::{Untold, UntoldChange};

/// The decisions on one outgoing channel.
#[derive(Debug)]
pub(crate) struct Decisions {
    /// The decisions after the last known outcome, which every resume repeats.
    runs: Runs,
    /// The ends of the decisions on messages that may still be emitted.
    ends: Ends,
    /// The last message with a decision that the peer may be told: all, or those that the journal keeps.
    ready: Sequence,
    /// The last message with a decision that was emitted on this transport.
    cursor: Sequence,
    /// The last message with a decision that this transport repeats.
    repeated: Sequence,
    /// Bytes that this transport has carried and not told.
    untold: Untold,
    /// The last message with a decision that was ever emitted.
    emitted: Sequence,
    /// The decision that was emitted last.
    last: Option<Operation>,
    /// Whether the next decision names its number.
    is_explicit: bool,
}

impl Decisions {
    pub(crate) const fn new(base: Sequence) -> Self {
        Self {
            runs: Runs::new(base),
            ends: Ends::new(base),
            ready: base,
            cursor: base,
            repeated: base,
            untold: Untold::NONE,
            emitted: base,
            last: None,
            is_explicit: false,
        }
    }

    /// The application decides up to `through`, or the next message. Returns the last message; `None`: there is no
    /// such message up to `last`.
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

    /// The decisions up to `through` may be told.
    pub(crate) const fn publish(&mut self, through: Sequence) {
        self.ready = through;
    }

    /// Forgets the ends up to `through`: no message up to there is emitted any more.
    pub(crate) fn forget_ends(&mut self, through: Sequence) {
        self.ends.forget(through);
    }

    #[cfg(test)]
    pub(super) const fn cursor(&self) -> Sequence {
        self.cursor
    }

    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The decisions after the last known outcome; those on messages that may still be emitted one by one, as they were
    /// taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Run> + '_ {
        let mut before = self.runs.base();
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

    /// A new transport. If the channel is older, the next decision names its number (R-RELINK-V14), and all decisions
    /// after the last known outcome go out again.
    pub(crate) fn attached(&mut self, is_older: bool) {
        self.is_explicit = is_older;
        self.untold = Untold::default();
        if is_older {
            self.cursor = self.runs.base();
        }
    }

    /// The peer has resumed: repeated decisions name their numbers. Returns whether there are any.
    pub(crate) fn repeat(&mut self) -> bool {
        self.cursor = self.runs.base();
        self.repeated = self.ready;
        self.cursor != self.ready
    }

    /// Counts an emitted message. Returns how the untold bytes change.
    pub(crate) fn carried(&mut self, sequence: Sequence, payload_bytes: usize) -> UntoldChange {
        let before = self.untold;
        if sequence.is_after(self.cursor) && !sequence.is_after(self.ready) {
            let ends = self.ends.last(sequence) == sequence;
            self.untold.carried(payload_bytes, ends);
        }
        UntoldChange {
            before,
            after: self.untold,
        }
    }

    /// The decisions that could be told were told. Returns their bytes.
    pub(crate) const fn told(&mut self) -> Untold {
        self.untold.told()
    }

    /// Bytes that this transport has carried and not told.
    pub(crate) const fn untold(&self) -> Untold {
        self.untold
    }

    /// The next decision to emit. Its messages are all emitted, which are those up to `limit`.
    pub(crate) fn emit(&mut self, limit: Sequence) -> Option<Said<Operation>> {
        // An outcome may have overtaken the repetition.
        let base = self.runs.base();
        if base.is_after(self.cursor) {
            self.cursor = base;
        }
        let limit = self.ends.last(limit);
        if !limit.is_after(self.cursor) || !self.ready.is_after(self.cursor) {
            return None;
        }
        let repeats = self.repeated.is_after(self.cursor);
        let limit = limit.since(self.cursor).min(self.ready.since(self.cursor));
        let run = self.runs.run(self.cursor.next())?;
        let count = run.through.since(self.cursor).min(limit);
        let is_same = self.last.is_none_or(|last| last == run.operation);
        let short = count == 1 && is_same && !self.is_explicit && !repeats;
        self.cursor = self.cursor.plus(count);
        if self.cursor.is_after(self.emitted) {
            self.emitted = self.cursor;
        }
        if !repeats {
            self.repeated = self.cursor;
        }
        self.last = Some(run.operation);
        self.is_explicit &= short;
        Some(Said {
            kind: run.operation,
            through: (!short).then_some(self.cursor),
        })
    }

    /// The peer's outcome arrives, for the number that it names or for the next committed message. Returns the last
    /// message, if the outcome is news.
    ///
    /// # Errors
    /// The number, if no decision on it was emitted.
    pub(crate) fn outcome(
        &mut self,
        through: Option<Sequence>,
    ) -> Result<Option<Sequence>, Sequence> {
        let base = self.runs.base();
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
