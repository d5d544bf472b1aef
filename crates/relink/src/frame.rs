//! Packets and handshake blocks on the wire, without any state: views of received bytes that allocate nothing, and
//! the canonical (smallest) encoding.
//!
//! All numbers are little-endian; bit 0 is the least significant one (R-REL-1); everything is aligned
//! relative to the start of its packet or block (R-REL-2) and takes a multiple of 8 bytes. Unused bits and
//! padding are sent as 0 and ignored when received (REQ-RELINK-3).
//!
//! Its rules: REQ-RELINK-2, REQ-RELINK-4, REQ-RELINK-26, REQ-RELINK-29 to REQ-RELINK-32, REQ-RELINK-34,
//! REQ-RELINK-39, REQ-RELINK-40, R-REL-4 to R-REL-8.

mod decode;
mod encode;
mod handshake;
mod hint;
mod inspect;
mod parts;
mod targets;

use ackline_core::Sequence;

pub use decode::{Decoded, decode};
pub use encode::{Out, encode, encode_message};
pub use handshake::{EndpointBlock, EndpointName, Ident, Parameters, Version};
pub use hint::{Hint, MESSAGE_BYTES};
pub use inspect::{Inspector, LISTED_IDS, Unit};
pub use parts::Parts;
pub use targets::{TargetIter, Targets};

/// The length of every packet and block is a multiple of this many bytes.
pub const ALIGNMENT: usize = 8;

/// Header byte 0, bit 0: a channel packet (REQ-RELINK-25).
const CHANNEL: u8 = 0x01;
/// Header byte 0, bit 1: several channels (REQ-RELINK-27).
const MULTICAST: u8 = 0x02;
/// Header byte 0: the first of the format's three bits.
const FORMAT_SHIFT: u8 = 2;
/// Header byte 0: the first of the three bits of format-specific data.
const DATA_SHIFT: u8 = 5;
/// A field of three bits.
const THREE_BITS: u8 = 0x07;
/// Format-specific data of a message, bit 0: the number of parts has 32 bits (REQ-RELINK-43).
const LONG: u8 = 0x01;
/// Format-specific data of a message, bit 1: the sizes have 64 bits.
const LARGE: u8 = 0x02;
/// Bytes of the header with the fields of a multicast before its ids (REQ-RELINK-33).
const MULTICAST_IDS_AT: usize = 8;
/// Bytes of the common header (REQ-RELINK-24).
const HEADER_BYTES: usize = 2;

/// Channel packet formats (REQ-RELINK-28). The lowest bit is the direction. If it is set, the ids belong to the
/// packet's receiver.
mod format {
    pub(super) const CHANNEL_OPERATION: u8 = 0;
    pub(super) const CHANNEL_ACKNOWLEDGEMENT: u8 = 1;
    pub(super) const SEQUENCE_OPERATION: u8 = 2;
    pub(super) const SEQUENCE_ACKNOWLEDGEMENT: u8 = 3;
    pub(super) const MESSAGE: u8 = 4;
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It initiated the connection.
    Connector,
    /// It accepted the connection.
    Listener,
}

impl Role {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Connector => Self::Listener,
            Self::Listener => Self::Connector,
        }
    }
}

/// The context that a decoder of packets needs besides the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The sender of the bytes.
    pub from: Role,
    /// Bytes of an id of the connector's channels.
    pub connector_channel_id_size: u8,
    /// Bytes of an id of the listener's channels.
    pub listener_channel_id_size: u8,
}

impl Context {
    /// Bytes of an id of the channels that `side` sends on.
    pub const fn channel_id_size(self, side: Role) -> u8 {
        match side {
            Role::Connector => self.connector_channel_id_size,
            Role::Listener => self.listener_channel_id_size,
        }
    }

    /// Bytes of an id in a packet of this format (REQ-RELINK-28).
    const fn id_size_of(self, format: u8) -> u8 {
        let side = if format & 1 == 0 {
            self.from
        } else {
            self.from.peer()
        };
        self.channel_id_size(side)
    }
}

/// One packet, as a view of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Eight bytes of padding.
    Nop,
    /// Asks for a pong.
    Ping,
    /// Answers a ping.
    Pong,
    /// The sender has announced every message that it has received, consumed and answered.
    Resume,
    /// The sender opens no more channels.
    Shutdown,
    /// A packet about channels.
    Channel {
        /// The channels.
        targets: Targets<'a>,
        /// The content.
        body: Body<'a>,
    },
}

/// The content of a channel packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// It applies to the message after the last one of its kind, or to the channel.
    Operation(Operation),
    /// It applies to the message after the last one of its kind, or to the channel.
    Acknowledgement(Acknowledgement),
    /// It applies to all messages up to a number. [`Operation::Close`] has no such form.
    SequenceOperation(Operation, Sequence),
    /// It applies to all messages up to a number. [`Acknowledgement::Closed`] has no such form.
    SequenceAcknowledgement(Acknowledgement, Sequence),
    /// A message.
    Message(Parts<'a>),
}

/// A request of the sender of messages (REQ-RELINK-37, REQ-RELINK-41).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Process the messages.
    Commit,
    /// Ignore the messages.
    Rollback,
    /// The channel ends.
    Close,
}

impl Operation {
    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Commit,
            1 => Self::Rollback,
            2 => Self::Close,
            _ => return None,
        })
    }

    const fn code(self) -> u8 {
        match self {
            Self::Commit => 0,
            Self::Rollback => 1,
            Self::Close => 2,
        }
    }

    /// The name in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Rollback => "rollback",
            Self::Close => "close",
        }
    }
}

/// An answer of the receiver of messages (REQ-RELINK-38, REQ-RELINK-41).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acknowledgement {
    /// The messages arrived.
    Received,
    /// The application is done with the messages.
    Consumed,
    /// The messages' commit succeeded.
    Committed,
    /// The messages' commit failed.
    Uncommitted,
    /// The channel has ended.
    Closed,
}

impl Acknowledgement {
    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Received,
            1 => Self::Consumed,
            2 => Self::Committed,
            3 => Self::Uncommitted,
            4 => Self::Closed,
            _ => return None,
        })
    }

    const fn code(self) -> u8 {
        match self {
            Self::Received => 0,
            Self::Consumed => 1,
            Self::Committed => 2,
            Self::Uncommitted => 3,
            Self::Closed => 4,
        }
    }

    /// The name in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Consumed => "consumed",
            Self::Committed => "committed",
            Self::Uncommitted => "uncommitted",
            Self::Closed => "closed",
        }
    }
}
