//! A message that comes in fragments (R-MM-14): each repeats the sequence number, the destination and the properties.

use std::sync::Arc;

use ackline_core::{PART_BYTES, Payload};
use bytes::{Bytes, BytesMut};

use super::window::Order;
use crate::Kind;
use crate::parts::Parts;

/// Fragments below this many bytes are joined: each that stands alone takes memory beside its own.
const ALONE_BYTES: usize = 4 << 10;

/// A message of which fragments have come.
#[derive(Debug)]
pub(super) struct Fragments {
    pub(super) sequence_number: u16,
    pub(super) order: Order,
    pub(super) dotnet_type: Option<Arc<str>>,
    /// Destination and properties of the first fragment.
    head: Bytes,
    destination: u8,
    parts: Vec<Bytes>,
    /// Small fragments behind these.
    tail: BytesMut,
    /// Payload bytes so far, also of a repeat, whose bytes are dropped.
    bytes: usize,
}

impl Fragments {
    pub(super) fn new(
        (sequence_number, order): (u16, Order),
        (head, destination): (Bytes, u8),
        dotnet_type: Option<Arc<str>>,
    ) -> Self {
        Self {
            sequence_number,
            order,
            dotnet_type,
            head,
            destination,
            parts: Vec::new(),
            tail: BytesMut::new(),
            bytes: 0,
        }
    }

    /// Whether a further fragment belongs to it.
    pub(super) fn check(
        &self,
        sequence_number: u16,
        (head, destination): (&[u8], u8),
    ) -> Result<(), Kind> {
        let reason = if sequence_number != self.sequence_number {
            "its sequence number differs"
        } else if *head != *self.head || destination != self.destination {
            "its destination or its properties differ"
        } else {
            return Ok(());
        };
        Err(Kind::ContinuedMismatch { reason })
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a fragment from a frame of so many bytes, which stay as long as a part of them does.
    pub(super) fn push(&mut self, part: Bytes, frame: usize) {
        self.bytes = self.bytes.saturating_add(part.len());
        if self.order != Order::New {
            return;
        }
        if part.len() < ALONE_BYTES || part.len() < frame.saturating_sub(part.len()) {
            self.tail.extend_from_slice(&part);
            if self.tail.len() < ALONE_BYTES {
                return;
            }
            self.close_tail();
        } else {
            self.close_tail();
            self.parts.push(part);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push(self.tail.split().freeze());
        }
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        if self.order != Order::New {
            return self.head.len();
        }
        let parts = self.parts.len().saturating_mul(PART_BYTES);
        let named = self.dotnet_type.as_ref().map_or(0, |name| name.len());
        // A buffer that grows has up to twice its bytes.
        let tail = self.tail.capacity();
        self.bytes
            .saturating_add(parts)
            .saturating_add(tail)
            .saturating_add(self.head.len())
            .saturating_add(named)
    }

    /// The texts, and the payload, whole.
    pub(super) fn joined(mut self) -> Parts {
        self.close_tail();
        let payload = if self.parts.is_empty() {
            Payload::from(Bytes::new())
        } else {
            Payload::from_parts(self.parts)
        };
        Parts::apart(self.head, self.destination, payload)
    }
}
