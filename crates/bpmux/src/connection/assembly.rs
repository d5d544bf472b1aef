//! A payload that comes in parts, or in one chunk piece by piece.

use ackline_core::{Block, EVENTS_PER_CALL, Payload};
use bytes::{Buf, Bytes, BytesMut};

use super::count;

/// Pieces of this many bytes are kept as slices of the input; smaller ones are copied, so that no small piece
/// holds a large buffer.
pub(super) const SLICED_BYTES: usize = 8 << 10;

/// Payloads of up to this many bytes that come together are copied into one allocation.
const TOGETHER_BYTES: usize = 1_024;

/// Bytes of a chunk beside its payload, about, to estimate how many more chunks the input holds.
const HEAD_BYTES: usize = 3;

/// The pieces of a payload so far.
#[derive(Debug)]
pub(super) struct Assembly {
    total: u64,
    received: u64,
    /// The whole payload, if it came at once.
    only: Option<Bytes>,
    pieces: Vec<Bytes>,
    tail: BytesMut,
    /// Whether it is dropped: its bytes are only counted.
    discarded: bool,
    /// Whether its credit is settled with each chunk.
    settled: bool,
    /// Whether chunks of it were told before.
    begun: bool,
    /// Bytes of the credit budget that were set aside for it.
    pub(super) reserved: u64,
}

impl Assembly {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            received: 0,
            only: None,
            pieces: Vec::new(),
            tail: BytesMut::new(),
            discarded: false,
            settled: false,
            begun: false,
            reserved: 0,
        }
    }

    /// Begins the rest of a message, behind the chunks that were told.
    pub(super) fn behind(left: u64) -> Self {
        Self {
            begun: true,
            ..Self::new(left)
        }
    }

    /// Whether chunks of it were told.
    pub(super) const fn is_begun(&self) -> bool {
        self.begun
    }

    /// Bytes that are still to come.
    pub(super) const fn left(&self) -> u64 {
        self.total.saturating_sub(self.received)
    }

    /// Bytes that have come.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of the whole.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.received >= self.total
    }

    /// Bytes that it keeps.
    pub(super) fn held(&self) -> usize {
        if self.discarded {
            return 0;
        }
        usize::try_from(self.received).unwrap_or(usize::MAX)
    }

    /// Whether its credit was settled with each chunk, as it may never come to its end.
    pub(super) const fn is_settled(&self) -> bool {
        self.settled
    }

    /// Its credit is settled from now on with each chunk.
    pub(super) const fn settle(&mut self) {
        self.settled = true;
    }

    /// Whether it is dropped.
    pub(super) const fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Drops the bytes that have come and those that will.
    pub(super) fn discard(&mut self) {
        (self.discarded, self.settled) = (true, true);
        self.only = None;
        self.pieces = Vec::new();
        self.tail = BytesMut::new();
    }

    /// Takes the next bytes of the input.
    pub(super) fn push(&mut self, input: &mut BytesMut, len: usize, block: &mut Block) {
        let len = len.min(input.len());
        let is_all = self.received == 0 && count(len) == self.total;
        if is_all && len < SLICED_BYTES && !self.discarded {
            let (all, rest) = input.split_at(len);
            self.received = count(len);
            self.only = Some(if len > TOGETHER_BYTES {
                Bytes::copy_from_slice(all)
            } else {
                let each = len.saturating_add(HEAD_BYTES);
                let others = rest.len().checked_div(each).unwrap_or_default();
                block.copy(all, others.saturating_add(1).min(EVENTS_PER_CALL))
            });
            input.advance(len);
            return;
        }
        let piece = input.split_to(len);
        self.received = self.received.saturating_add(count(len));
        if self.discarded || piece.is_empty() {
            return;
        }
        if piece.len() < SLICED_BYTES {
            self.tail.extend_from_slice(&piece);
            return;
        }
        self.close_tail();
        self.pieces.push(piece.freeze());
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(self.tail.split().freeze());
        }
    }

    /// Returns the whole payload; an empty one if it was discarded.
    pub(super) fn into_payload(mut self) -> Payload {
        if let Some(only) = self.only {
            return Payload::from(only);
        }
        self.close_tail();
        if self.pieces.is_empty() {
            return Payload::from(Bytes::new());
        }
        Payload::from_parts(self.pieces)
    }
}
