//! A payload on its way out, chunk by chunk.

use ackline_core::{Credit, SendQueue};
use bytes::Bytes;

use super::wide;
use crate::chunk::{Head, PayloadRole, encode};

/// A payload that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The bytes that are still to be sent.
    pub(super) rest: Bytes,
    /// The bytes of the whole payload, once the first of several chunks was sent.
    pub(super) begun: Option<u64>,
}

/// A chunk that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentChunk {
    /// Bytes of payload.
    pub(super) length: u64,
    /// Whether the payload ends with it.
    pub(super) is_last: bool,
}

impl Outgoing {
    pub(super) const fn new(payload: Bytes) -> Self {
        Self {
            rest: payload,
            begun: None,
        }
    }

    /// Begins without credit, with a chunk of no bytes. Returns how many bytes are to follow.
    pub(super) fn announce(&mut self, role: PayloadRole, out: &mut SendQueue) -> u64 {
        let total = wide(&self.rest);
        self.begun = Some(total);
        put(out, Head::Partial { total });
        put(out, Head::Payload { role, length: 0 });
        total
    }

    /// Sends the next chunk, as long as credit, chunk size and the rest allow (R-BPMUX-V1), were it one byte
    /// (REQ-BPMUX-34). Sends nothing if there is no credit for the rest.
    pub(super) fn send(
        &mut self,
        role: PayloadRole,
        credit: &mut Credit,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<SentChunk> {
        let left = wide(&self.rest);
        let length = credit.spend_up_to(left.min(u64::from(chunk_size)));
        if length == 0 && left > 0 {
            return None;
        }
        if length < left && self.begun.is_none() {
            self.begun = Some(left);
            put(out, Head::Partial { total: left });
        }
        put(out, Head::Payload { role, length });
        let length_here = usize::try_from(length).unwrap_or(usize::MAX);
        out.put(self.rest.split_to(length_here.min(self.rest.len())));
        Some(SentChunk {
            length,
            is_last: self.rest.is_empty(),
        })
    }
}

/// Payloads that wait to be sent. Empty ones cost no credit, and memory all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Bytes of payload.
    pub bytes: usize,
    /// Payloads, and chunks without one.
    pub payloads: usize,
}

impl Waiting {
    /// Whether neither number is above that of `most`.
    pub const fn is_within(self, most: Self) -> bool {
        self.bytes <= most.bytes && self.payloads <= most.payloads
    }

    /// Returns the sums of both.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            payloads: self.payloads.saturating_add(other.payloads),
        }
    }
}

/// Encodes a head.
pub(super) fn put(out: &mut SendQueue, head: Head) {
    out.put_slice(encode(head).as_ref());
}
