//! Chunks as they stand on the wire, without any state: the head before a payload is decoded and encoded
//! here, the payload follows as it is.
//!
//! A tag is a type (four bits) and two width codes (two bits each), the most significant bits first
//! (REQ-BPMUX-5, R-BPM-1); numbers are unsigned and big-endian (R-BPM-2), in 1, 2, 4 or 8 bytes (R-BPM-3). Any width is
//! accepted, the narrowest is sent (R-BPM-4).

mod decode;
mod encode;
mod inspect;
mod stored;

pub use decode::{Decoded, decode};
pub use encode::{Encoded, encode};
pub use inspect::Inspector;
pub use stored::{split_stored, stored_head};

use crate::{EntityKind, Target};

/// Bytes of the longest head: tag, a 32-bit id, a 64-bit length.
pub const MAX_HEAD: usize = 13;

/// The type nibbles (REQ-BPMUX-10 to REQ-BPMUX-25).
mod nibble {
    pub(super) const CANCEL_REQ: u8 = 0;
    pub(super) const CLOSE_RES: u8 = 1;
    pub(super) const CANCEL_STREAM: u8 = 2;
    pub(super) const CANCEL_STREAM_PEER: u8 = 3;
    pub(super) const CLOSE_SINK: u8 = 4;
    pub(super) const CLOSE_SINK_PEER: u8 = 5;
    pub(super) const MSG: u8 = 6;
    pub(super) const MSG_PEER: u8 = 7;
    pub(super) const REQ: u8 = 8;
    pub(super) const RES: u8 = 9;
    pub(super) const SINK: u8 = 10;
    pub(super) const STREAM: u8 = 11;
    pub(super) const DUPLEX: u8 = 12;
    pub(super) const HEARTBEAT: u8 = 13;
    pub(super) const CREDIT: u8 = 14;
    pub(super) const CREDIT_PEER: u8 = 15;
}

/// A width code of 3 in the place of an id: the type's special form; the specification names that id
/// in several ways (R-BPM-7). The special form of a sink's close closes the top-level (R-BPM-8).
const SPECIAL: u8 = 3;

/// The role of a payload, which may come in parts (REQ-BPMUX-9). Targets are seen from the chunk's sender.
/// Partial mode is kept apart by this: all chunks with an equal role add to one payload (REQ-BPMUX-27,
/// REQ-BPMUX-28), an opening's beside the messages on the same id (R-BPM-22, R-BPM-23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadRole {
    /// Opens a sink, stream or duplex.
    Open(EntityKind, u32),
    /// A message.
    Message(Target),
    /// A request.
    Request(u32),
    /// The response to a request.
    Response(u32),
    /// The end of a request by its sender.
    CancelRequest(u32),
    /// The end of a request by its receiver: no response will come.
    CloseResponse(u32),
    /// The end of a half by its reader.
    Cancel(Target),
    /// The end of a half by its writer.
    Close(Target),
}

impl PayloadRole {
    /// The same, seen from the other end.
    #[must_use]
    pub const fn flipped(self) -> Self {
        match self {
            Self::Message(target) => Self::Message(target.flipped()),
            Self::Cancel(target) => Self::Cancel(target.flipped()),
            Self::Close(target) => Self::Close(target.flipped()),
            same => same,
        }
    }
}

impl std::fmt::Display for PayloadRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(kind, id) => write!(f, "opening {} {id}", kind.name()),
            Self::Message(target) => write!(f, "message on {target}"),
            Self::Request(id) => write!(f, "request {id}"),
            Self::Response(id) => write!(f, "response to request {id}"),
            Self::CancelRequest(id) => write!(f, "cancel of request {id}"),
            Self::CloseResponse(id) => write!(f, "close of the response to request {id}"),
            Self::Cancel(target) => write!(f, "cancel of {target}"),
            Self::Close(target) => write!(f, "close of {target}"),
        }
    }
}

/// Everything of a chunk but its payload. Targets are seen from the chunk's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// `length` bytes of payload follow.
    Payload {
        /// The role of the payload.
        role: PayloadRole,
        /// Bytes in this chunk.
        length: u64,
    },
    /// Credit for a half that the receiver of the chunk writes.
    Credit {
        /// The stream, duplex or top-level.
        target: Target,
        /// The credit, in bytes.
        amount: u64,
    },
    /// The next chunk's role is in partial mode.
    Partial {
        /// Bytes of the whole payload.
        total: u64,
    },
    /// A ping or pong for the top-level or a half that the pinging side reads.
    Heartbeat {
        /// Whether it is a pong, otherwise a ping.
        pong: bool,
        /// The half that is pinged.
        target: Target,
    },
    /// A ping for a request of the chunk's sender.
    PingRequest(u32),
    /// A pong for a request of the chunk's receiver.
    PongRequest(u32),
    /// The cancel of a request was seen.
    AckCancelRequest(u32),
    /// The close of a response was seen.
    AckCloseResponse(u32),
    /// The cancel of a half that the chunk's sender wrote was seen. Never the top-level.
    AckCancel(Target),
    /// The close of a half that the chunk's sender read was seen. Never the top-level.
    AckClose(Target),
}
