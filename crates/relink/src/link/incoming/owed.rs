//! The answers that an incoming channel owes the peer on one transport.

use std::time::Instant;

use ackline_core::Sequence;

/// The answers owed. A `closed` is owed in the state [`Ended`](super::life::Life::Ended), and outcomes of
/// transactions wait in their own queue.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    consumed: Consumed,
    received: bool,
    /// Whether the channel stands in the transport's queue of answers.
    is_queued: bool,
}

/// When `consumed` is owed.
#[derive(Debug, Clone, Copy, Default)]
enum Consumed {
    #[default]
    No,
    /// After `ack_delay`; the transport has a timer for it.
    At(Instant),
    Now,
}

/// The answers to emit, in the order of the fields; outcomes go before `closed`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) received: Option<Sequence>,
    pub(crate) consumed: Option<Sequence>,
    pub(crate) is_closed: bool,
    /// A timer of the transport that has become void.
    pub(crate) void_timer: Option<Instant>,
}

impl Owed {
    /// Owes `received`.
    pub(crate) const fn owe_received(&mut self) {
        self.received = true;
    }

    /// Takes `received`, if it is owed.
    pub(super) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.received)
    }

    /// Owes `consumed` at once. Returns the timer that becomes void.
    pub(crate) fn owe_consumed(&mut self) -> Option<Instant> {
        match std::mem::replace(&mut self.consumed, Consumed::Now) {
            Consumed::At(due) => Some(due),
            Consumed::No | Consumed::Now => None,
        }
    }

    /// Owes `consumed` at an instant; returns false if it is owed already.
    pub(crate) const fn owe_consumed_at(&mut self, due: Instant) -> bool {
        let is_idle = matches!(self.consumed, Consumed::No);
        if is_idle {
            self.consumed = Consumed::At(due);
        }
        is_idle
    }

    /// Whether `consumed` is owed now.
    pub(super) const fn owes_consumed(&self) -> bool {
        matches!(self.consumed, Consumed::Now)
    }

    /// Owes no `consumed` any more. Returns the timer that becomes void.
    pub(super) fn settle_consumed(&mut self) -> Option<Instant> {
        let void = self.owe_consumed();
        self.consumed = Consumed::No;
        void
    }

    /// Puts the channel into the queue of answers; returns false if it stands there already.
    pub(crate) fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// The channel has left the queue of answers.
    pub(super) const fn unqueue(&mut self) {
        self.is_queued = false;
    }

    pub(crate) const fn is_queued(&self) -> bool {
        self.is_queued
    }
}
