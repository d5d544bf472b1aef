//! A packet for several channels, or a large one, that is taken step by step.

use ackline_core::PART_BYTES;
use bytes::Bytes;

use crate::Payload;
use crate::payload::COPIED_PARTS;

/// The packet that is taken step by step, and the bytes that one call of `receive` may add.
#[derive(Debug)]
pub(crate) struct Split {
    pending: Option<Pending>,
    /// Bytes that the call may still add by deliveries.
    allowance: usize,
}

/// A packet that was split off the input.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) packet: Bytes,
    /// Channels done.
    pub(crate) done: u32,
    /// Parts of the message.
    parts: usize,
    /// The message, shared by all channels.
    pub(crate) payload: Option<Payload>,
}

impl Pending {
    pub(crate) const fn new(packet: Bytes, parts: usize) -> Self {
        Self {
            packet,
            done: 0,
            parts,
            payload: None,
        }
    }

    /// Bytes that the next delivery adds to those held. The packet itself pays for the bytes of the first delivery, but
    /// not for the handles of many parts.
    pub(crate) fn cost(&self) -> usize {
        match self.payload.as_ref().filter(|_| self.done > 0) {
            Some(payload) => payload.held_bytes().saturating_add(DELIVERY_BYTES),
            None if self.parts > COPIED_PARTS => self.parts.saturating_mul(PART_BYTES),
            None => 0,
        }
    }
}

impl Split {
    pub(super) const fn new() -> Self {
        Self {
            pending: None,
            allowance: STEP_BYTES,
        }
    }

    pub(crate) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(crate) const fn take(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    pub(crate) fn set(&mut self, pending: Pending) {
        self.pending = Some(pending);
    }

    fn next_cost(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::cost)
    }

    /// A call of `receive` begins, with the bytes that [`step_bytes`](Self::step_bytes) asked for.
    pub(crate) fn begin_step(&mut self) {
        self.allowance = STEP_BYTES.max(self.next_cost());
    }

    /// Whether the packet that is half taken waits for the next call.
    pub(crate) fn lacks_step(&self) -> bool {
        self.next_cost() > self.allowance
    }

    /// Bytes that the next call may add; 0 as long as each message has one channel.
    pub(crate) fn step_bytes(&self) -> usize {
        let next = self.next_cost();
        if next == 0 && self.allowance == STEP_BYTES {
            return 0;
        }
        STEP_BYTES.max(next)
    }

    /// Takes the cost of a delivery out of the allowance; returns false if it is not there.
    pub(crate) const fn pay(&mut self, cost: usize) -> bool {
        match self.allowance.checked_sub(cost) {
            Some(left) => {
                self.allowance = left;
                true
            }
            None => false,
        }
    }
}

/// Bytes that one call of `receive` may add by deliveries beyond the first of their packets, unless a single delivery is
/// larger.
const STEP_BYTES: usize = 16 << 10;
/// About how many bytes a delivery costs beside its payload.
const DELIVERY_BYTES: usize = 64;
