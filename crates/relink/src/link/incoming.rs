//! One channel that the peer sends on: the messages that have arrived, those consumed, and the answers owed to the
//! peer.
//!
//! Its rules: REQ-RELINK-53 to REQ-RELINK-55, R-REL-11, R-RELINK-V22, R-RELINK-V23.

pub(super) mod life;
pub(super) mod owed;
pub(super) mod progress;
mod sizes;

use ackline_core::Sequence;

use super::transactions::Outcomes;
use life::{Input, Life};
use owed::{Answers, Owed};
use progress::{Announcement, Progress};
use sizes::Sizes;

/// One life of an incoming channel.
#[derive(Debug)]
pub(crate) struct Incoming {
    life: Life,
    pub(super) progress: Progress,
    sizes: Sizes,
    pub(super) owed: Owed,
    pub(super) outcomes: Option<Outcomes>,
    /// Whether the peer knows on this transport how far the channel is: until then nothing else is emitted for it.
    is_announced: bool,
    /// Messages that the link had delivered before the first one of this life.
    opened_at: u64,
}

impl Incoming {
    /// A channel whose next message has that number.
    pub(crate) fn new(next: Sequence, has_transactions: bool, opened_at: u64) -> Self {
        let progress = Progress::new(next);
        Self {
            life: Life::Open,
            outcomes: has_transactions.then(|| Outcomes::new(progress.received())),
            progress,
            sizes: Sizes::default(),
            owed: Owed::default(),
            is_announced: true,
            opened_at,
        }
    }

    pub(crate) const fn life(&self) -> Life {
        self.life
    }

    /// Moves the channel to its next state and returns the one before.
    pub(super) const fn advance(&mut self, input: Input) -> Life {
        let before = self.life;
        self.life = before.after(input);
        before
    }

    pub(crate) const fn is_announced(&self) -> bool {
        self.is_announced
    }

    pub(crate) const fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Adds a message that has arrived and returns its number.
    pub(crate) fn deliver(&mut self, bytes: usize) -> Sequence {
        self.sizes.push(bytes);
        self.progress.deliver()
    }

    /// Counts the messages up to `through` as consumed. Returns their bytes; `None`: no such message.
    pub(crate) fn consume(&mut self, through: Sequence) -> Option<usize> {
        let count = self.progress.consume(through)?;
        Some(self.sizes.take(count))
    }

    /// Takes the answers to emit now; `None` before the announcement.
    pub(crate) fn take_answers(&mut self, from_consumed: bool) -> Option<Answers> {
        self.owed.unqueue();
        if !self.is_announced {
            return None;
        }
        let is_closed = self.life == Life::Ended;
        let mut answers = Answers {
            received: None,
            consumed: None,
            is_closed,
            void_timer: None,
        };
        if self.owed.take_received() {
            answers.received = Some(self.progress.received_to_tell(from_consumed));
        }
        if is_closed || self.owed.owes_consumed() {
            answers.void_timer = self.owed.settle_consumed();
            answers.consumed = self.progress.tell_consumed();
        }
        Some(answers)
    }

    /// A resume announces the channel; `None`: the peer knows already how far it is.
    pub(crate) fn announce(&mut self, from_consumed: bool) -> Option<Announcement> {
        if self.is_announced {
            return None;
        }
        self.is_announced = true;
        Some(self.progress.announce(from_consumed))
    }

    /// Whether every message is consumed, decided and answered.
    pub(crate) fn is_drained(&self) -> bool {
        let received = self.progress.received();
        let is_settled = |outcomes: &Outcomes| outcomes.is_settled(received);
        self.progress.unconsumed() == 0 && self.outcomes.as_ref().is_none_or(is_settled)
    }

    /// Whether it is drained and the peer was told so on this transport.
    pub(crate) fn is_told(&self) -> bool {
        let is_told = |outcomes: &Outcomes| outcomes.is_told();
        self.is_announced
            && self.is_drained()
            && self.progress.is_told()
            && self.outcomes.as_ref().is_none_or(is_told)
    }

    /// Whether `closed` goes out with the next answers.
    pub(crate) fn closes_next(&self) -> bool {
        self.owed.is_queued() && self.is_announced && self.life == Life::Ended
    }

    /// A new transport.
    pub(crate) fn attached(&mut self, resumes: bool) {
        self.is_announced = !resumes || !self.progress.has_received();
        self.advance(Input::Attached);
        self.progress.attached();
        self.owed = Owed::default();
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.attached(resumes);
        }
    }

    /// From a journal: the messages up to `through` were consumed, or answered.
    pub(crate) fn restore_consumed(&mut self, through: Sequence) {
        self.progress.restore_consumed(through);
    }

    /// Runs of outcomes that are kept for the next resume.
    pub(crate) fn outcome_runs(&self) -> usize {
        self.outcomes.as_ref().map_or(0, Outcomes::history_len)
    }
}
