//! From heads to bytes, in the narrowest form.

use super::{Head, MAX_HEAD, PayloadRole, SPECIAL, nibble};
use crate::{EntityKind, Target};

/// The bytes of a head.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    bytes: [u8; MAX_HEAD],
    len: usize,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Returns the smallest encoding of a head. An acknowledgement of the top-level does not exist: its target is taken as an
/// entity with the id 0.
pub fn encode(head: Head) -> Encoded {
    match head {
        Head::Payload { role, length } => payload(role, length),
        Head::Credit { target, amount } => match target {
            Target::Top => top(nibble::CREDIT, amount),
            Target::Own(id) => both(nibble::CREDIT, id, amount),
            Target::Peer(id) => both(nibble::CREDIT_PEER, id, amount),
        },
        Head::Partial { total } => top(nibble::CREDIT_PEER, total),
        Head::Heartbeat { pong, target } => heartbeat(pong, target),
        Head::PingRequest(id) => alone(nibble::DUPLEX, id),
        Head::PongRequest(id) => alone(nibble::MSG_PEER, id),
        Head::AckCancelRequest(id) => alone(nibble::CANCEL_REQ, id),
        Head::AckCloseResponse(id) => alone(nibble::CLOSE_RES, id),
        Head::AckCancel(target) => match target {
            Target::Own(id) => alone(nibble::CLOSE_SINK_PEER, id),
            Target::Peer(id) => alone(nibble::SINK, id),
            Target::Top => alone(nibble::SINK, 0),
        },
        Head::AckClose(target) => match target {
            Target::Own(id) => alone(nibble::CANCEL_STREAM_PEER, id),
            Target::Peer(id) => alone(nibble::STREAM, id),
            Target::Top => alone(nibble::STREAM, 0),
        },
    }
}

fn payload(role: PayloadRole, length: u64) -> Encoded {
    let of = |target, own, peer| match target {
        Target::Top => top(own, length),
        Target::Own(id) => both(own, id, length),
        Target::Peer(id) => both(peer, id, length),
    };
    match role {
        PayloadRole::Open(EntityKind::Sink, id) => both(nibble::SINK, id, length),
        PayloadRole::Open(EntityKind::Stream, id) => both(nibble::STREAM, id, length),
        PayloadRole::Open(EntityKind::Duplex, id) => both(nibble::DUPLEX, id, length),
        PayloadRole::Request(id) => both(nibble::REQ, id, length),
        PayloadRole::Response(id) => both(nibble::RES, id, length),
        PayloadRole::CancelRequest(id) => both(nibble::CANCEL_REQ, id, length),
        PayloadRole::CloseResponse(id) => both(nibble::CLOSE_RES, id, length),
        PayloadRole::Message(target) => of(target, nibble::MSG, nibble::MSG_PEER),
        PayloadRole::Cancel(target) => {
            of(target, nibble::CANCEL_STREAM, nibble::CANCEL_STREAM_PEER)
        }
        PayloadRole::Close(target) => of(target, nibble::CLOSE_SINK, nibble::CLOSE_SINK_PEER),
    }
}

fn heartbeat(pong: bool, target: Target) -> Encoded {
    let (peer, id) = match target {
        Target::Top => (0, None),
        Target::Own(id) => (0, Some(id)),
        Target::Peer(id) => (1, Some(id)),
    };
    let flags = (u8::from(pong) << 1) | peer;
    let mut encoded = begin(nibble::HEARTBEAT, flags, id.map_or(SPECIAL, code32));
    if let Some(id) = id {
        encoded.push(u64::from(id), code32(id));
    }
    encoded
}

/// Encodes an id and a number.
fn both(nibble: u8, id: u32, number: u64) -> Encoded {
    let mut encoded = begin(nibble, code32(id), code(number));
    encoded.push(u64::from(id), code32(id));
    encoded.push(number, code(number));
    encoded
}

/// Encodes a number: the special form of a type that can have the top-level as its target.
fn top(nibble: u8, number: u64) -> Encoded {
    let mut encoded = begin(nibble, SPECIAL, code(number));
    encoded.push(number, code(number));
    encoded
}

/// Encodes an id: the special form of the other types.
fn alone(nibble: u8, id: u32) -> Encoded {
    let mut encoded = begin(nibble, SPECIAL, code32(id));
    encoded.push(u64::from(id), code32(id));
    encoded
}

fn begin(nibble: u8, first: u8, second: u8) -> Encoded {
    let mut bytes = [0; MAX_HEAD];
    if let Some(tag) = bytes.first_mut() {
        *tag = (nibble << 4) | (first << 2) | second;
    }
    Encoded { bytes, len: 1 }
}

impl Encoded {
    /// Appends a number with the bytes of its width code.
    fn push(&mut self, number: u64, code: u8) {
        let all = number.to_be_bytes();
        let width = 1_usize << code;
        let tail = all.get(all.len().saturating_sub(width)..).unwrap_or(&all);
        let end = self.len.saturating_add(width);
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(tail);
            self.len = end;
        }
    }
}

/// Returns the narrowest width code of a number.
const fn code(number: u64) -> u8 {
    match number {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        0x1_0000..=0xffff_ffff => 2,
        _ => 3,
    }
}

/// Returns the narrowest width code of an id.
const fn code32(id: u32) -> u8 {
    match id {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}
