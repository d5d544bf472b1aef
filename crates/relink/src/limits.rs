//! What a peer may send. All limits are inclusive and bind only what is received; none is ever used to
//! allocate.
//!
//! Its rules: REQ-RELINK-36, REQ-RELINK-46, REQ-RELINK-49.

/// The limits of packets, judged as soon as the number in question has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Channel ids in a multicast packet (`--max-channel-ids`), 1,048,576.
    pub channel_id_count: u32,
    /// Parts of a message (`--max-message-parts`), 1,024.
    pub message_length: u32,
    /// Bytes of one part of a message (`--max-part-bytes`), 1 GiB.
    pub payload_size: u64,
    /// Bytes of all parts of a message together (`--max-message-bytes`), 1 GiB.
    pub message_size: u64,
    /// Bytes that a multicast message comes to: its own and [`TARGET_BYTES`], times its channels
    /// (`--max-multicast-bytes`), 64 MiB. A message for one channel is bound by `message_size` alone.
    pub multicast_size: u64,
    /// Copies of one message that a packet may deliver on a channel without an id, 8; not an option. These
    /// targets take no bytes of the packet, so without this limit the 8 bytes of the smallest packet would become a million messages.
    pub copies: u32,
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            channel_id_count: 1 << 20,
            message_length: 1_024,
            payload_size: GIB,
            message_size: GIB,
            multicast_size: 64 << 20,
            copies: 8,
        }
    }
}

/// Bytes that each target of a multicast message is charged beside the payload.
pub const TARGET_BYTES: u64 = 64;
