//! The chunk that is being received, and the count of the bytes that came before it.

use ackline_core::{Block, Need};
use bytes::{Buf, BytesMut};

use super::assembly::Assembly;
use super::count;
use crate::chunk::PayloadRole;

/// A payload of fewer bytes is awaited whole; of a larger one, pieces of at least so many are taken.
const PIECE_BYTES: usize = 16 << 10;

/// A chunk whose payload is being taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) role: PayloadRole,
    /// Bytes of this chunk.
    pub(super) length: u64,
    /// Bytes of it that are still to come.
    pub(super) rest: u64,
    pub(super) assembly: Assembly,
}

/// The place in the input.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// The chunk whose payload is due.
    incoming: Option<Incoming>,
    /// The total length that the next chunk's payload adds to.
    activation: Option<u64>,
    /// The memory of small payloads that come together.
    block: Block,
    /// Bytes taken of the input.
    offset: u64,
    /// Bytes taken of payloads.
    payload_bytes: u64,
    /// Bytes that are held of payloads that are not whole.
    held: usize,
}

impl Intake {
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes taken of payloads.
    pub(super) const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Bytes that are held of payloads that are not whole.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Bytes are dropped, or belong to the application now.
    pub(super) const fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Takes the bytes of a head.
    pub(super) fn take_head(&mut self, input: &mut BytesMut, len: usize) {
        input.advance(len);
        self.offset = self.offset.saturating_add(count(len));
    }

    /// Takes input after the end.
    pub(super) fn drop_input(&mut self, input: &mut BytesMut) {
        self.take_head(input, input.len());
    }

    /// Takes the bytes that are there of the payload that is due. Returns the chunk if it is whole.
    ///
    /// # Errors
    /// More input is needed first.
    pub(super) fn take_payload(&mut self, input: &mut BytesMut) -> Result<Option<Incoming>, Need> {
        let Some(incoming) = &mut self.incoming else {
            return Ok(None);
        };
        let rest = usize::try_from(incoming.rest).unwrap_or(usize::MAX);
        let wanted = rest.min(PIECE_BYTES);
        if input.len() < wanted {
            return Err(Need::Input { at_least: wanted });
        }
        let taken = rest.min(input.len());
        let before = incoming.assembly.held();
        incoming.assembly.push(input, taken, &mut self.block);
        let kept = incoming.assembly.held().saturating_sub(before);
        incoming.rest = incoming.rest.saturating_sub(count(taken));
        self.held = self.held.saturating_add(kept);
        self.offset = self.offset.saturating_add(count(taken));
        self.payload_bytes = self.payload_bytes.saturating_add(count(taken));
        Ok(self.incoming.take_if(|incoming| incoming.rest == 0))
    }

    /// A chunk's payload is due.
    pub(super) fn begin(&mut self, incoming: Incoming) {
        self.incoming = Some(incoming);
    }

    /// Takes the chunk out whose payload is due, if it is of this role.
    pub(super) fn take_chunk(&mut self, role: PayloadRole) -> Option<Incoming> {
        self.incoming.take_if(|incoming| incoming.role == role)
    }

    /// Returns the role of the chunk whose payload is due.
    pub(super) fn role(&self) -> Option<PayloadRole> {
        self.incoming.as_ref().map(|incoming| incoming.role)
    }

    /// Returns the length of the payload of which a chunk is due, if it is of this role.
    pub(super) fn total(&self, role: PayloadRole) -> Option<u64> {
        let incoming = self.incoming.as_ref();
        let incoming = incoming.filter(|incoming| incoming.role == role)?;
        Some(incoming.assembly.total())
    }

    /// Whether the peer's silence would be inside a chunk.
    pub(super) fn is_inside_a_chunk(&self, input: &BytesMut) -> bool {
        self.incoming.is_some() || !input.is_empty()
    }

    /// The next chunk's payload adds to one of this total length.
    pub(super) const fn activate(&mut self, total: u64) {
        self.activation = Some(total);
    }

    /// Returns the total length that an activation has announced.
    pub(super) const fn activation(&self) -> Option<u64> {
        self.activation
    }

    pub(super) const fn take_activation(&mut self) -> Option<u64> {
        self.activation.take()
    }

    /// Begins another block for small payloads: those before came together.
    pub(super) fn end_block(&mut self) {
        self.block = Block::default();
    }

    /// Nothing more is received, and nothing held.
    pub(super) fn clear(&mut self) {
        self.incoming = None;
        self.held = 0;
    }
}
