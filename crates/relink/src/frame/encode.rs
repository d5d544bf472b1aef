//! Encoding of values to bytes, always in the smallest form and with every unused bit 0.

use ackline_core::{SendQueue, Sequence};
use bytes::Bytes;

use super::{
    ALIGNMENT, Body, CHANNEL, DATA_SHIFT, FORMAT_SHIFT, LARGE, LONG, MULTICAST, Packet, format,
};
use crate::{ChannelId, Payload};

/// A destination of encoded bytes.
pub trait Out {
    /// Copies a small piece.
    fn put_slice(&mut self, piece: &[u8]);

    /// Takes a part of a payload, without a copy where that is cheaper.
    fn put_part(&mut self, part: &Bytes);

    /// Appends zeros after `written` bytes, up to the next multiple of `to`, which is at most 8.
    fn put_padding(&mut self, written: usize, to: usize) {
        let end = written.checked_next_multiple_of(to).unwrap_or(written);
        let zeros = [0; ALIGNMENT];
        self.put_slice(zeros.get(..end.saturating_sub(written)).unwrap_or_default());
    }
}

impl Out for SendQueue {
    fn put_slice(&mut self, piece: &[u8]) {
        Self::put_slice(self, piece);
    }

    fn put_part(&mut self, part: &Bytes) {
        self.put_shared(part);
    }
}

impl Out for Vec<u8> {
    fn put_slice(&mut self, piece: &[u8]) {
        self.extend_from_slice(piece);
    }

    fn put_part(&mut self, part: &Bytes) {
        self.extend_from_slice(part);
    }
}

/// Appends `packet`. A message's form is chosen anew: long above 255 parts, large above 65,535 bytes,
/// multicast unless there is exactly one id.
///
/// [`Body::SequenceOperation`] with a close and [`Body::SequenceAcknowledgement`] with a closed have no meaning on
/// the wire, and the caller must not pass them.
pub fn encode(packet: &Packet<'_>, out: &mut impl Out) {
    let (targets, body) = match packet {
        Packet::Nop => return general(0, out),
        Packet::Ping => return general(1, out),
        Packet::Pong => return general(2, out),
        Packet::Resume => return general(3, out),
        Packet::Shutdown => return general(4, out),
        Packet::Channel { targets, body } => (targets, body),
    };
    let (count, ids) = (targets.count(), targets.iter());
    let at = |format, data| Channel {
        format,
        data,
        short_length: 0,
        count,
    };
    match body {
        Body::Operation(operation) => {
            let head = at(format::CHANNEL_OPERATION, operation.code());
            head.put(ids, out).finish();
        }
        Body::Acknowledgement(acknowledgement) => {
            let head = at(format::CHANNEL_ACKNOWLEDGEMENT, acknowledgement.code());
            head.put(ids, out).finish();
        }
        Body::SequenceOperation(operation, sequence) => {
            let head = at(format::SEQUENCE_OPERATION, operation.code());
            head.put(ids, out).sequence(*sequence).finish();
        }
        Body::SequenceAcknowledgement(acknowledgement, sequence) => {
            let head = at(format::SEQUENCE_ACKNOWLEDGEMENT, acknowledgement.code());
            head.put(ids, out).sequence(*sequence).finish();
        }
        Body::Message(parts) => {
            let sizes = parts.iter().map(<[u8]>::len);
            let mut packet = message(count, ids, sizes, parts.len(), out);
            for part in parts.iter() {
                packet.slice(part);
                packet.align(ALIGNMENT);
            }
        }
    }
}

/// Appends a message for `ids`. Its parts are taken without a copy where that is cheaper. More than 2^32-1 ids or
/// parts cannot be written; the window and the limits are far below.
pub fn encode_message(ids: &[ChannelId], payload: &Payload, out: &mut impl Out) {
    let parts = payload.as_slice();
    let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let ids = ids.iter().map(ChannelId::as_bytes);
    let sizes = parts.iter().map(Bytes::len);
    let mut packet = message(count, ids, sizes, parts.len(), out);
    for part in parts {
        packet.part(part);
        packet.align(ALIGNMENT);
    }
}

/// Appends a message up to the start of its data.
fn message<'i, 'o, O: Out>(
    count: u32,
    ids: impl Iterator<Item = &'i [u8]>,
    sizes: impl Iterator<Item = usize> + Clone,
    length: usize,
    out: &'o mut O,
) -> Open<'o, O> {
    let is_large = sizes.clone().any(|size| u16::try_from(size).is_err());
    let short_length = u8::try_from(length);
    let data = if short_length.is_err() { LONG } else { 0 } | if is_large { LARGE } else { 0 };
    let head = Channel {
        format: format::MESSAGE,
        data,
        short_length: short_length.unwrap_or(0),
        count,
    };
    let mut packet = head.put(ids, out);
    packet.align(2);
    if short_length.is_err() {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        packet.slice(&length.to_le_bytes());
    }
    if is_large {
        packet.align(ALIGNMENT);
    }
    for size in sizes {
        match u16::try_from(size) {
            Ok(size) if !is_large => packet.slice(&size.to_le_bytes()),
            _ => {
                let size = u64::try_from(size).unwrap_or(u64::MAX);
                packet.slice(&size.to_le_bytes());
            }
        }
    }
    packet.align(ALIGNMENT);
    packet
}

fn general(code: u8, out: &mut impl Out) {
    out.put_slice(&[code << DATA_SHIFT, 0, 0, 0, 0, 0, 0, 0]);
}

/// Appends the header of a channel packet and its number of ids.
struct Channel {
    format: u8,
    data: u8,
    short_length: u8,
    count: u32,
}

impl Channel {
    fn put<'i, 'o, O: Out>(
        self,
        ids: impl Iterator<Item = &'i [u8]>,
        out: &'o mut O,
    ) -> Open<'o, O> {
        let first = CHANNEL | (self.format << FORMAT_SHIFT) | (self.data << DATA_SHIFT);
        let mut packet = Open { out, written: 0 };
        if self.count == 1 {
            packet.slice(&[first, self.short_length]);
        } else {
            packet.slice(&[first | MULTICAST, self.short_length, 0, 0]);
            packet.slice(&self.count.to_le_bytes());
        }
        ids.for_each(|id| packet.slice(id));
        packet
    }
}

/// A packet that is being written.
struct Open<'o, O> {
    out: &'o mut O,
    written: usize,
}

impl<O: Out> Open<'_, O> {
    fn slice(&mut self, piece: &[u8]) {
        self.out.put_slice(piece);
        self.written = self.written.saturating_add(piece.len());
    }

    fn part(&mut self, part: &Bytes) {
        self.written = self.written.saturating_add(part.len());
        self.out.put_part(part);
    }

    fn align(&mut self, to: usize) {
        self.out.put_padding(self.written, to);
        self.written = self
            .written
            .checked_next_multiple_of(to)
            .unwrap_or(self.written);
    }

    fn sequence(mut self, sequence: Sequence) -> Self {
        self.align(4);
        self.slice(&sequence.0.to_le_bytes());
        self
    }

    fn finish(mut self) {
        self.align(ALIGNMENT);
    }
}
