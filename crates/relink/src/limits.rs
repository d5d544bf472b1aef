//! Limits on a peer's packets. All limits are inclusive and bind received packets alone; none is
//! ever used to allocate.
//!
//! Its rules: REQ-RELINK-36, REQ-RELINK-46, REQ-RELINK-49.

use ackline_core::options::{bytes, count};

const GIB: u64 = 1 << 30;

ackline_core::options! {
    /// The limits of packets, judged as soon as the number in question has arrived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        options {
            /// Channels in one packet.
            max_channel_ids: u32 = 1 << 20, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Parts of a message.
            max_message_parts: u32 = 1_024, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a part.
            max_part_bytes: u64 = GIB, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a message.
            max_message_bytes: u64 = GIB, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Memory that one message to several channels may take: its bytes and 64 more, times the number
            /// of channels. A message to one channel is bound by max_message_bytes alone.
            max_multicast_bytes: u64 = 64 << 20, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
        }
        fields {
            /// Copies of one message that a packet may deliver on a channel without an id. These targets take no bytes
            /// of the packet: without this limit the 8 bytes of the smallest packet would become a million messages.
            copies: u32 = 8;
        }
    }
}

/// Bytes that each target of a multicast message is charged beside the payload.
pub const TARGET_BYTES: u64 = 64;
