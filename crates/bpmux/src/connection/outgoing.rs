//! A payload on its way out, chunk by chunk.

use ackline_core::SendQueue;
use bytes::Bytes;

use super::wide;
use crate::chunk::{Carrier, Head, encode};

/// A payload that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// What is still to be sent.
    pub(super) rest: Bytes,
    /// All of its bytes, if it goes in parts and the first has gone.
    pub(super) begun: Option<u64>,
}

impl Outgoing {
    pub(super) const fn new(payload: Bytes) -> Self {
        Self {
            rest: payload,
            begun: None,
        }
    }

    /// Begins without credit, with a chunk of no bytes; how many bytes are to come.
    pub(super) fn announce(&mut self, carrier: Carrier, out: &mut SendQueue) -> u64 {
        let total = wide(&self.rest);
        self.begun = Some(total);
        put(out, Head::Partial { total });
        put(out, Head::Payload { carrier, length: 0 });
        total
    }

    /// Sends the next chunk, as long as credit, chunk size and what is left allow (R-BPMUX-V1), were it one
    /// byte (REQ-BPMUX-34); how many bytes, and whether it was the last. Nothing if there is no credit for what
    /// is left.
    pub(super) fn send(
        &mut self,
        carrier: Carrier,
        credit: &mut u64,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<(u64, bool)> {
        let left = wide(&self.rest);
        let length = left.min(*credit).min(u64::from(chunk_size));
        if length == 0 && left > 0 {
            return None;
        }
        if length < left && self.begun.is_none() {
            self.begun = Some(left);
            put(out, Head::Partial { total: left });
        }
        *credit = credit.saturating_sub(length);
        put(out, Head::Payload { carrier, length });
        let length_here = usize::try_from(length).unwrap_or(usize::MAX);
        out.put(self.rest.split_to(length_here.min(self.rest.len())));
        Some((length, self.rest.is_empty()))
    }
}

/// What waits to be sent. Empty payloads cost no credit, and memory all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Bytes of payload.
    pub bytes: usize,
    /// Payloads, and chunks without one.
    pub payloads: usize,
}

impl Waiting {
    /// Whether it is no more than `most`, in both.
    pub const fn is_within(self, most: Self) -> bool {
        self.bytes <= most.bytes && self.payloads <= most.payloads
    }
}

/// Encodes a head.
pub(super) fn put(out: &mut SendQueue, head: Head) {
    out.put_slice(encode(head).as_ref());
}
