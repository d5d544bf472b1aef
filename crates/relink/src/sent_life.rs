//! The messages of one life of an own channel, from its first message to its closing: how far each of them has come.
//!
//! ```text
//! sent ─► received ─► consumed                      each up to a number
//!    └─► decided ─► answered                        in a transactional direction, run by run
//! ```

use std::collections::VecDeque;

use ackline_core::Sequence;

use crate::{Error, Standing};

/// The progress of the messages of one life.
#[derive(Debug)]
pub struct SentLife {
    /// The last message sent.
    last: SentMessage,
    received: u64,
    consumed: u64,
    /// The number of message 0 of this life, which does not exist.
    before: Sequence,
    /// Bytes of each message that is not consumed.
    sizes: VecDeque<usize>,
    /// Own decisions, by `true` for a commit.
    decided: Ways,
    /// The peer's answers to commits, by `true` for committed.
    answered: Ways,
    end: Option<Error>,
}

/// A message of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMessage {
    /// Its number in its life, from 1.
    pub number: u64,
    /// Its number on its channel.
    pub sequence: Sequence,
    /// Changes of the link that are in the journal once the message is.
    pub change: u64,
}

/// The stage of a message that an acknowledgement or a decision confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The peer has it.
    Received,
    /// The peer is done with it.
    Consumed,
    /// The peer has answered its commit: whether it has processed it.
    Answered(bool),
    /// This end has decided on it: whether it has committed it.
    Decided(bool),
}

/// The outcome of a message in a transactional direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was committed, and the receiver has processed it.
    Committed,
    /// It was committed, and the receiver has not processed it.
    Uncommitted,
    /// It was rolled back by this side.
    RolledBack,
}

impl SentMessage {
    /// Returns the message that was sent so many before, together with this one.
    #[must_use]
    pub fn earlier(self, by: usize) -> Self {
        let back = u32::try_from(by).unwrap_or_default();
        Self {
            number: self.number.saturating_sub(back.into()),
            sequence: self.sequence.plus(0_u32.wrapping_sub(back)),
            change: self.change,
        }
    }
}

impl SentLife {
    /// A life whose first message has this number.
    pub fn new(first: Sequence) -> Self {
        let before = first.plus(u32::MAX);
        Self {
            last: SentMessage {
                number: 0,
                sequence: before,
                change: 0,
            },
            received: 0,
            consumed: 0,
            before,
            sizes: VecDeque::new(),
            decided: Ways::default(),
            answered: Ways::default(),
            end: None,
        }
    }

    /// A life from an earlier process, up to the last message whose payload is not here. It begins with the
    /// last one that is over, whose outcome is not known any more.
    pub fn adopted(standing: &Standing<'_>) -> Self {
        let mut life = Self::new(standing.over.unwrap_or_else(|| standing.before.next()));
        let over = u64::from(standing.over.is_some());
        let known = |through: Sequence| over.saturating_add(through.since(standing.before).into());
        life.consumed = known(standing.consumed);
        life.received = life.consumed;
        life.decided.forgotten = over;
        life.answered.forgotten = over;
        life.last.number = known(standing.absent);
        life.last.sequence = life.at(life.last.number);
        // Handed over: nothing of them is here.
        let waiting = life.last.number.saturating_sub(life.consumed);
        life.sizes = std::iter::repeat_n(0, usize::try_from(waiting).unwrap_or_default()).collect();
        life
    }

    /// Adds messages of these sizes that were sent one after the other, the last with this number; they are kept when so
    /// many changes of the link are. Returns the last one.
    pub fn sent(
        &mut self,
        sequence: Sequence,
        sizes: impl ExactSizeIterator<Item = usize>,
        change: u64,
    ) -> SentMessage {
        let count = u64::try_from(sizes.len()).unwrap_or(0);
        self.sizes.extend(sizes);
        self.last = SentMessage {
            number: self.last.number.saturating_add(count),
            sequence,
            change,
        };
        self.last
    }

    /// The last message that was sent in this life.
    pub fn last(&self) -> Option<SentMessage> {
        (self.last.number > 0).then_some(self.last)
    }

    /// The stage of every message up to and including this number is reached. Returns the bytes of those
    /// that need not be kept any more.
    pub fn reach(&mut self, stage: Stage, through: Sequence) -> usize {
        let Some(number) = self.number_of(stage, through) else {
            return 0;
        };
        let mut freed = 0;
        match stage {
            Stage::Received => self.received = number,
            Stage::Consumed => {
                let count = number.saturating_sub(self.consumed);
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                freed = self.sizes.drain(..count.min(self.sizes.len())).sum();
                self.consumed = number;
                self.received = self.received.max(number);
            }
            Stage::Answered(is_committed) => self.answered.push(number, is_committed),
            Stage::Decided(is_commit) => self.decided.push(number, is_commit),
        }
        freed
    }

    /// No more is heard of its messages. Returns the bytes of those that were not consumed.
    pub fn end(&mut self, why: Error) -> usize {
        self.end.get_or_insert(why);
        self.sizes.drain(..).sum()
    }

    /// The reason why nothing more is heard of its messages.
    pub const fn ended(&self) -> Option<&Error> {
        self.end.as_ref()
    }

    /// Whether the peer has the message of this number.
    pub const fn is_received(&self, number: u64) -> bool {
        self.received >= number
    }

    /// Whether the peer has consumed the message of this number.
    pub const fn is_consumed(&self, number: u64) -> bool {
        self.consumed >= number
    }

    /// The outcome of the message of this number, once it is known.
    pub fn outcome(&self, number: u64) -> Option<Result<Outcome, Error>> {
        if let Some(Way::Is(false)) = self.decided.of(number) {
            return Some(Ok(Outcome::RolledBack));
        }
        Some(match self.answered.of(number)? {
            Way::Is(true) => Ok(Outcome::Committed),
            Way::Is(false) => Ok(Outcome::Uncommitted),
            Way::Forgotten => Err(Error::Forgotten),
        })
    }

    /// The number on the channel of a message of this life.
    fn at(&self, number: u64) -> Sequence {
        let steps = u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default();
        self.before.plus(steps)
    }

    /// The message of this number, if it is of this life and behind the messages that were reached before.
    fn number_of(&self, stage: Stage, through: Sequence) -> Option<u64> {
        let reached = match stage {
            Stage::Received => self.received,
            Stage::Consumed => self.consumed,
            Stage::Answered(_) => self.answered.end(),
            Stage::Decided(_) => self.decided.end(),
        };
        let last = self.at(reached);
        let number = reached.saturating_add(through.since(last).into());
        (through.is_after(last) && number <= self.last.number).then_some(number)
    }
}

/// The way of each message, one of two, run by run.
#[derive(Debug, Default)]
struct Ways {
    /// The last number of each run, and its way.
    runs: VecDeque<(u64, bool)>,
    forgotten: u64,
}

enum Way {
    Is(bool),
    Forgotten,
}

impl Ways {
    fn end(&self) -> u64 {
        self.runs.back().map_or(self.forgotten, |run| run.0)
    }

    fn push(&mut self, through: u64, way: bool) {
        match self.runs.back_mut() {
            Some(last) if last.1 == way => last.0 = through,
            _ => self.runs.push_back((through, way)),
        }
        if self.runs.len() > MAX_RUNS
            && let Some((through, _)) = self.runs.pop_front()
        {
            self.forgotten = through;
        }
    }

    fn of(&self, number: u64) -> Option<Way> {
        if number <= self.forgotten {
            return Some(Way::Forgotten);
        }
        let at = self.runs.partition_point(|run| run.0 < number);
        self.runs.get(at).map(|run| Way::Is(run.1))
    }
}

/// Runs of decisions and of outcomes that one channel keeps for receipts that are asked late.
const MAX_RUNS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u32, first: u32) -> SentLife {
        let mut life = SentLife::new(Sequence(first));
        for at in 0..count {
            let message = life.sent(Sequence(first).plus(at), std::iter::once(10), 0);
            assert_eq!(message.number, u64::from(at) + 1);
        }
        life
    }

    #[test]
    fn stages_are_reached_in_order_and_across_the_wrap() {
        let mut life = sent(4, u32::MAX - 1);
        life.reach(Stage::Received, Sequence(u32::MAX));
        assert!(life.is_received(2) && !life.is_received(3) && !life.is_consumed(1));
        assert_eq!(life.reach(Stage::Consumed, Sequence(0)), 30);
        assert!(life.is_consumed(3) && life.is_received(3) && !life.is_received(4));
        let last = life.last().unwrap();
        assert_eq!((last.number, last.sequence), (4, Sequence(1)));
        let earlier = last.earlier(2);
        assert_eq!((earlier.number, earlier.sequence), (2, Sequence(u32::MAX)));
    }

    #[test]
    fn numbers_of_another_life_or_of_nothing_sent_change_nothing() {
        let mut life = sent(2, 10);
        for through in [9, 12, 3] {
            life.reach(Stage::Consumed, Sequence(through));
        }
        assert!(!life.is_consumed(1));
        life.reach(Stage::Consumed, Sequence(11));
        life.reach(Stage::Consumed, Sequence(10));
        assert!(life.is_consumed(2));
    }

    #[test]
    fn an_outcome_is_the_peers_answer_or_the_own_rollback() {
        let mut life = sent(4, 0);
        life.reach(Stage::Decided(true), Sequence(1));
        life.reach(Stage::Decided(false), Sequence(2));
        life.reach(Stage::Decided(true), Sequence(3));
        let of = |life: &SentLife, number| life.outcome(number).map(Result::unwrap);
        assert_eq!(of(&life, 3), Some(Outcome::RolledBack));
        assert_eq!(of(&life, 1), None);
        life.reach(Stage::Answered(true), Sequence(0));
        life.reach(Stage::Answered(false), Sequence(3));
        let all = [1, 2, 3, 4].map(|number| of(&life, number).unwrap());
        let wanted = [
            Outcome::Committed,
            Outcome::Uncommitted,
            Outcome::RolledBack,
            Outcome::Uncommitted,
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn outcomes_are_kept_for_many_runs_and_no_more() {
        let mut life = sent(5_000, 0);
        for at in 0..5_000 {
            life.reach(Stage::Answered(at % 2 == 0), Sequence(at));
        }
        let last = life.outcome(5_000).unwrap();
        assert_eq!(last.unwrap(), Outcome::Uncommitted);
        let error = life.outcome(1).unwrap().unwrap_err();
        assert!(matches!(error, Error::Forgotten), "{error}");
    }
}
