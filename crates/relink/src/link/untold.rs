//! The bytes that a transport has carried of messages with an untold decision. The peer has to hold such messages, so
//! there must not be many.
//!
//! Its rules: R-RELINK-V11, R-RELINK-V25.

use std::collections::BTreeSet;

use super::channels::Key;

/// Bytes of messages whose decision was taken and not told on this transport, with the cost of each message beside
/// its payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Bytes of decisions whose messages have all been carried.
    whole: usize,
    /// Bytes of decisions that have messages still to be carried.
    part: usize,
}

/// The untold bytes of one channel before and after a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UntoldChange {
    pub(crate) before: Untold,
    pub(crate) after: Untold,
}

/// The untold bytes of all channels of a transport.
#[derive(Debug, Default)]
pub(crate) struct AllUntold {
    sum: Untold,
    /// The channels with a decision whose messages have all been carried.
    channels: BTreeSet<Key>,
}

impl Untold {
    pub(crate) const NONE: Self = Self { whole: 0, part: 0 };

    /// Counts a message that was emitted; `ends`: it is the last one of its decision.
    pub(crate) const fn carried(&mut self, payload_bytes: usize, ends: bool) {
        self.part = self
            .part
            .saturating_add(payload_bytes)
            .saturating_add(MESSAGE_BYTES);
        if ends {
            self.whole = self.whole.saturating_add(self.part);
            self.part = 0;
        }
    }

    /// The whole decisions were told. Returns their bytes.
    pub(crate) const fn told(&mut self) -> Self {
        let whole = self.whole;
        self.whole = 0;
        Self { whole, part: 0 }
    }

    const fn is_due(&self, most: usize) -> bool {
        self.whole > 0 && self.whole.saturating_add(self.part) >= most
    }

    const fn add(&mut self, other: Self) {
        self.whole = self.whole.saturating_add(other.whole);
        self.part = self.part.saturating_add(other.part);
    }

    const fn sub(&mut self, other: Self) {
        self.whole = self.whole.saturating_sub(other.whole);
        self.part = self.part.saturating_sub(other.part);
    }
}

impl AllUntold {
    /// Whether decisions are told before more messages go out.
    pub(crate) const fn is_due(&self, most: usize) -> bool {
        self.sum.is_due(most)
    }

    /// Counts a change of one channel.
    pub(crate) fn count(&mut self, key: Key, UntoldChange { before, after }: UntoldChange) {
        self.sum.sub(before);
        self.sum.add(after);
        if before.whole == 0 && after.whole > 0 {
            self.channels.insert(key);
        }
    }

    /// A channel's decisions are told, or it is gone.
    pub(crate) fn forget(&mut self, key: Key, told: Untold) {
        self.sum.sub(told);
        self.channels.remove(&key);
    }

    pub(crate) fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Takes the channels with a decision that can be told.
    pub(crate) fn take_channels(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.channels)
    }
}

/// About how many bytes an undecided message costs its receiver beside the payload.
const MESSAGE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untold_bytes_are_due_only_where_a_decision_can_be_told() {
        let mut untold = Untold::default();
        untold.carried(1_000, false);
        assert!(!untold.is_due(0), "the decision is not whole");
        untold.carried(1_000, true);
        assert_eq!((untold.whole, untold.part), (2_128, 0));
        assert!(untold.is_due(2_128) && !untold.is_due(2_129));
        untold.carried(1, false);
        assert!(untold.is_due(2_129), "a part counts too");
    }
}
