//! One channel that the peer sends on: what has arrived, what was consumed, and what is owed to the peer.
//!
//! Its rules: REQ-RELINK-53 to REQ-RELINK-55, R-REL-11, R-RELINK-V22, R-RELINK-V23.

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::Sequence;

use super::outgoing::before;
use super::transactions::Outcomes;

/// A life of an incoming channel.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not a state
pub(crate) struct Incoming {
    /// The next message's number.
    next: Sequence,
    consumed: Sequence,
    /// The last consumed message that may be told (all, or what is in the journal).
    tellable: Sequence,
    /// The last consumed message that was told on this transport.
    told: Sequence,
    /// Payload bytes of the messages delivered and not consumed, in runs of equal sizes.
    sizes: VecDeque<(u32, usize)>,
    /// At least one message of this life has arrived: a resume announces the channel.
    pub(crate) has_received: bool,
    /// Messages of this life were consumed. The number of the last one does not tell: it wraps.
    pub(crate) has_consumed: bool,
    /// A resume has announced it on this transport, or need not.
    pub(crate) announced: bool,
    /// Messages that the link had delivered before the first one of this life.
    pub(crate) opened_at: u64,
    /// Messages that will come once more and were delivered already.
    skip: u32,
    /// The peer closes.
    pub(crate) closing: bool,
    /// The peer's close came on this transport.
    pub(crate) close_came: bool,
    /// The end of the channel was decided (and goes to the journal).
    pub(crate) finished: bool,
    /// `closed` may be told.
    pub(crate) closed_ready: bool,
    /// It is over, and not charged any more.
    pub(crate) is_uncharged: bool,
    /// When `consumed` is due.
    pub(crate) due: Option<Instant>,
    pub(crate) consumed_owed: bool,
    pub(crate) received_owed: bool,
    /// It stands in the transport's queue of answers.
    pub(crate) queued: bool,
    pub(crate) outcomes: Option<Outcomes>,
}

impl Incoming {
    /// A channel whose next message has that number.
    pub(crate) fn new(next: Sequence, announced: bool, transactions: bool) -> Self {
        let last = before(next);
        Self {
            next,
            consumed: last,
            tellable: last,
            told: last,
            sizes: VecDeque::new(),
            has_received: next != Sequence(0),
            has_consumed: next != Sequence(0),
            announced,
            opened_at: 0,
            skip: 0,
            closing: false,
            close_came: false,
            finished: false,
            closed_ready: false,
            is_uncharged: false,
            due: None,
            consumed_owed: false,
            received_owed: false,
            queued: false,
            outcomes: transactions.then(|| Outcomes::new(last)),
        }
    }

    /// The last message.
    pub(crate) const fn received(&self) -> Sequence {
        before(self.next)
    }

    pub(crate) const fn consumed(&self) -> Sequence {
        self.consumed
    }

    /// Messages delivered and not consumed.
    pub(crate) const fn unconsumed(&self) -> u32 {
        self.received().since(self.consumed)
    }

    /// One that was delivered before the cut comes again; says whether.
    pub(crate) fn skip(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        skips
    }

    /// The peer decides up to `through`: what is decided does not come again.
    pub(crate) fn decided(&mut self, through: Sequence) {
        let behind = self.received().since(through);
        self.skip = self.skip.min(behind);
    }

    /// A message arrives.
    pub(crate) fn deliver(&mut self, bytes: usize) -> Sequence {
        let sequence = self.next;
        self.next = self.next.next();
        self.has_received = true;
        match self.sizes.back_mut() {
            Some((count, size)) if *size == bytes => *count = count.saturating_add(1),
            _ => self.sizes.push_back((1, bytes)),
        }
        sequence
    }

    /// The application is done up to `through`. Answers the bytes let go, `None`: no such message.
    pub(crate) fn consume(&mut self, through: Sequence) -> Option<usize> {
        let steps = through.since(self.consumed);
        if steps > self.unconsumed() {
            return None;
        }
        self.has_consumed |= steps > 0;
        self.consumed = through;
        let (mut left, mut bytes) = (steps, 0_usize);
        while let Some((count, size)) = self.sizes.front_mut() {
            let taken = left.min(*count);
            let each = usize::try_from(taken).unwrap_or(usize::MAX);
            bytes = bytes.saturating_add(size.saturating_mul(each));
            *count = count.saturating_sub(taken);
            left = left.saturating_sub(taken);
            if *count > 0 {
                break;
            }
            self.sizes.pop_front();
        }
        Some(bytes)
    }

    /// Consumed up to `through` may be told.
    pub(crate) const fn publish(&mut self, through: Sequence) {
        self.tellable = through;
    }

    /// The last message that has come on this transport, or before the cut.
    const fn arrived(&self) -> Sequence {
        self.received().plus(0_u32.wrapping_sub(self.skip))
    }

    /// What a `consumed` may say now: not more than what the peer knows to have sent on this transport.
    const fn consumed_to_tell(&self) -> Sequence {
        let from = self.told;
        let arrived = self.arrived().since(from);
        if self.tellable.since(from) > arrived {
            self.arrived()
        } else {
            self.tellable
        }
    }

    /// Consumed messages that may be told and were not.
    pub(crate) const fn untold(&self) -> u32 {
        self.consumed_to_tell().since(self.told)
    }

    /// The `consumed` to emit, if it says something new.
    pub(crate) fn tell_consumed(&mut self) -> Option<Sequence> {
        self.consumed_owed = false;
        self.due = None;
        if self.untold() == 0 {
            return None;
        }
        self.told = self.consumed_to_tell();
        Some(self.told)
    }

    /// What a `received` may say now.
    pub(crate) const fn received_to_tell(&self, from_consumed: bool) -> Sequence {
        if from_consumed {
            self.consumed_to_tell()
        } else {
            self.arrived()
        }
    }

    /// A resume announces the channel: `received` and `consumed`.
    pub(crate) fn announce(&mut self, from_consumed: bool) -> (Sequence, Sequence) {
        let received = if from_consumed {
            self.tellable
        } else {
            self.received()
        };
        self.skip = self.received().since(received);
        self.told = self.tellable;
        self.announced = true;
        (received, self.tellable)
    }

    /// Whether every message is consumed, decided and answered.
    pub(crate) fn is_drained(&self) -> bool {
        let received = self.received();
        let is_settled = |outcomes: &Outcomes| outcomes.is_settled(received);
        self.consumed == received && self.outcomes.as_ref().is_none_or(is_settled)
    }

    /// Whether it is drained and the peer was told so on this transport.
    pub(crate) fn is_told(&self) -> bool {
        let is_told = |outcomes: &Outcomes| outcomes.is_told();
        self.announced
            && self.is_drained()
            && self.told == self.consumed
            && self.outcomes.as_ref().is_none_or(is_told)
    }

    /// A new transport.
    pub(crate) fn attached(&mut self, resumes: bool) {
        self.announced = !resumes || !self.has_received;
        self.skip = 0;
        self.close_came = false;
        self.is_uncharged = false;
        self.due = None;
        self.consumed_owed = false;
        self.received_owed = false;
        self.queued = false;
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.attached(resumes);
        }
    }

    /// From a journal: consumed up to there, or answered, whichever is more; which is all that is known
    /// to have arrived.
    pub(crate) const fn restore_consumed(&mut self, through: Sequence) {
        if self.has_received && !through.is_after(self.consumed) {
            return;
        }
        self.next = through.next();
        self.consumed = through;
        self.tellable = through;
        self.told = through;
        self.has_received = true;
        self.has_consumed = true;
    }
}
