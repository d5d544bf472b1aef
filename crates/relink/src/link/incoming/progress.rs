//! The numbers of an incoming channel: how far messages have arrived and were consumed, and how much of that the peer
//! knows.
//!
//! Its rules: REQ-RELINK-53 to REQ-RELINK-55, R-REL-11, R-RELINK-V22, R-RELINK-V23.

use ackline_core::Sequence;

use crate::link::outgoing::before;

/// How far the messages of one life of a channel are.
///
/// ```text
///   told <= tellable <= consumed <= received = next - 1
/// ```
#[derive(Debug)]
pub(crate) struct Progress {
    /// The next message's number.
    next: Sequence,
    /// The last consumed message.
    consumed: Sequence,
    /// The last consumed message that the peer may be told of: all, or those that the journal keeps.
    tellable: Sequence,
    /// The last consumed message that the peer was told of on this transport.
    told: Sequence,
    /// Messages that were delivered before the cut and will arrive once more.
    skip: u32,
    used: Used,
}

/// How far a life of a channel has come. The numbers do not tell, because they wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Used {
    Never,
    /// A message has arrived, so a resume announces the channel.
    Received,
    /// A message was consumed.
    Consumed,
}

/// The numbers with which a resume announces a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) received: Sequence,
    pub(crate) consumed: Sequence,
}

impl Progress {
    /// A channel whose next message has that number.
    pub(super) fn new(next: Sequence) -> Self {
        let last = before(next);
        Self {
            next,
            consumed: last,
            tellable: last,
            told: last,
            skip: 0,
            used: if next == Sequence(0) {
                Used::Never
            } else {
                Used::Consumed
            },
        }
    }

    /// The last message that was delivered.
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

    pub(super) fn has_received(&self) -> bool {
        self.used >= Used::Received
    }

    /// Whether a message of this life was consumed.
    pub(crate) fn has_consumed(&self) -> bool {
        self.used == Used::Consumed
    }

    /// Whether all messages are consumed and the peer was told so on this transport.
    pub(super) fn is_told(&self) -> bool {
        self.told == self.consumed
    }

    /// A message arrives; returns true if it was delivered before the cut.
    pub(crate) const fn skip(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        skips
    }

    /// The peer decides up to `through`: the messages up to there do not arrive again.
    pub(crate) fn decided(&mut self, through: Sequence) {
        let behind = self.received().since(through);
        self.skip = self.skip.min(behind);
    }

    /// Counts a message as delivered and returns its number.
    pub(super) fn deliver(&mut self) -> Sequence {
        let sequence = self.next;
        self.next = sequence.next();
        self.used = self.used.max(Used::Received);
        sequence
    }

    /// Counts the messages up to `through` as consumed. Returns how many they are; `None`: no such message.
    pub(super) fn consume(&mut self, through: Sequence) -> Option<u32> {
        let steps = through.since(self.consumed);
        if steps > self.unconsumed() {
            return None;
        }
        if steps > 0 {
            self.used = Used::Consumed;
        }
        self.consumed = through;
        Some(steps)
    }

    /// The peer may be told that the messages up to `through` are consumed.
    pub(crate) const fn publish(&mut self, through: Sequence) {
        self.tellable = through;
    }

    /// The last message that has arrived on this transport, or before the cut.
    const fn arrived(&self) -> Sequence {
        self.received().plus(0_u32.wrapping_sub(self.skip))
    }

    /// The number for a `consumed`: at most the last message that the peer has sent on this transport.
    const fn consumed_to_tell(&self) -> Sequence {
        let arrived = self.arrived();
        if self.tellable.since(self.told) > arrived.since(self.told) {
            arrived
        } else {
            self.tellable
        }
    }

    /// Consumed messages that the peer may be told of and was not.
    pub(crate) const fn untold(&self) -> u32 {
        self.consumed_to_tell().since(self.told)
    }

    /// The `consumed` to emit, if it says something new.
    pub(super) fn tell_consumed(&mut self) -> Option<Sequence> {
        let through = self.consumed_to_tell();
        let is_news = through != self.told;
        self.told = through;
        is_news.then_some(through)
    }

    /// The number for a `received`.
    pub(super) const fn received_to_tell(&self, from_consumed: bool) -> Sequence {
        if from_consumed {
            self.consumed_to_tell()
        } else {
            self.arrived()
        }
    }

    /// The numbers with which a resume announces the channel. With `from_consumed` the peer repeats all messages that
    /// are not consumed.
    pub(super) const fn announce(&mut self, from_consumed: bool) -> Announcement {
        let received = if from_consumed {
            self.tellable
        } else {
            self.received()
        };
        self.skip = self.received().since(received);
        self.told = self.tellable;
        Announcement {
            received,
            consumed: self.tellable,
        }
    }

    /// A new transport: nothing arrives again until the channel is announced.
    pub(super) const fn attached(&mut self) {
        self.skip = 0;
    }

    /// From a journal: the messages up to `through` were consumed or answered. They are all that is known to have
    /// arrived.
    pub(super) fn restore_consumed(&mut self, through: Sequence) {
        if self.has_received() && !through.is_after(self.consumed) {
            return;
        }
        *self = Self {
            used: Used::Consumed,
            ..Self::new(through.next())
        };
    }
}
