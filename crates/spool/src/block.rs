//! A block: the unit that is received, stored and settled.

use std::sync::Arc;

use bytes::Bytes;

use crate::SpoolError;

/// The source of a block: a stream of a peer's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<S> {
    /// The protocol, such as `lumberjack`.
    pub protocol: S,
    /// The peer's address.
    pub peer: S,
    /// The link's name, which is never reused.
    pub link: S,
    /// The channel, publisher or sink within the link, if the protocol has one.
    pub stream: Option<S>,
}

/// A run of events from a link, stored as a whole.
#[derive(Debug, Clone)]
pub struct Block {
    /// The link that sent it.
    pub origin: Origin<Arc<str>>,
    /// The layout of the body, with its version, such as `lumberjack/1`.
    pub layout: &'static str,
    /// The coding of the body within its layout, such as `frames`.
    pub codec: &'static str,
    /// The sequence number of the first event on its link.
    pub first_sequence: i64,
    /// The number of events. A block of 0 events is settled in its turn and not stored.
    pub count: u32,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body without any compression.
    pub inflated_bytes: u64,
    /// A bitmap of the events that were probably sent before, least significant bit first. `None`:
    /// not judged; empty: none of them.
    pub repeats: Option<Vec<u8>>,
    /// Attributes of the link, never event data.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
    /// The received bytes, in pieces.
    pub body: Vec<Bytes>,
}

impl Block {
    /// The bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }

    /// The bytes that it takes in a segment and its index, generously, without its share of a
    /// group.
    pub fn stored_bytes(&self) -> usize {
        let stream = self.origin.stream.as_deref().map_or(0, str::len);
        let repeats = self.repeats.as_deref().map_or(0, <[u8]>::len);
        let pairs = self.attributes.iter();
        let attributes: usize = pairs
            .map(|(name, value)| name.len() + value.len() + PAIR_OVERHEAD)
            .sum();
        self.body_bytes() + stream + repeats + attributes + BLOCK_OVERHEAD
    }
}

/// The bytes of a block's columns of limited length, generously.
const BLOCK_OVERHEAD: usize = 512;

/// The bytes that Arrow adds to an attribute: its two offsets.
const PAIR_OVERHEAD: usize = 8;

/// The receiver of a link's outcomes: one call for each link and commit.
pub trait Settle: Send + Sync {
    /// The block appended with this token is durable, and its first event has this position. Called
    /// once, before any other call for the block.
    fn placed(&self, _token: u64, _first_position: u64) {}
    /// The promise of the blocks appended with these tokens holds; the tokens are in the order of appending.
    fn settle(&self, tokens: &[u64]);
    /// The blocks appended with these tokens are durable, but their promise needs more: their bytes
    /// are no longer needed, their acknowledgement waits.
    fn landed(&self, _tokens: &[u64]) {}
    /// Blocks of this link will not be kept as promised.
    fn failed(&self, error: &SpoolError);
}

/// A block as a segment stores it. A [`Layout`](crate::Layout) expands it.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlock<'a> {
    /// The position of its first event.
    pub first_position: u64,
    /// The number of events.
    pub count: u32,
    /// When it was received, in microseconds since 1970 (UTC).
    pub received_at_us: i64,
    /// The link that sent it.
    pub origin: Origin<&'a str>,
    /// The sequence number of the first event.
    pub first_sequence: i64,
    /// The layout of the body.
    pub layout: &'a str,
    /// The coding of the body within its layout.
    pub codec: &'a str,
    /// CRC-32C of the body.
    pub checksum: u32,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body without any compression.
    pub inflated_bytes: u64,
    /// A bitmap of the events that were probably sent before.
    pub repeats: Option<&'a [u8]>,
    /// The received bytes.
    pub body: &'a [u8],
}

/// A stored block without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInfo {
    /// The position of its first event.
    pub first_position: u64,
    /// The number of events.
    pub count: u32,
    /// When it was received, in microseconds since 1970 (UTC).
    pub received_at_us: i64,
    /// The link that sent it.
    pub origin: Origin<String>,
    /// The sequence number of the first event.
    pub first_sequence: i64,
    /// The layout of the body.
    pub layout: String,
    /// The coding of the body within its layout.
    pub codec: String,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body without any compression.
    pub inflated_bytes: u64,
    /// The stored bytes of the body.
    pub body_bytes: u64,
}

impl From<StoredBlock<'_>> for BlockInfo {
    fn from(block: StoredBlock<'_>) -> Self {
        let origin = block.origin;
        Self {
            first_position: block.first_position,
            count: block.count,
            received_at_us: block.received_at_us,
            origin: Origin {
                protocol: origin.protocol.to_owned(),
                peer: origin.peer.to_owned(),
                link: origin.link.to_owned(),
                stream: origin.stream.map(str::to_owned),
            },
            first_sequence: block.first_sequence,
            layout: block.layout.to_owned(),
            codec: block.codec.to_owned(),
            windows: block.windows,
            inflated_bytes: block.inflated_bytes,
            body_bytes: block.body.len() as u64,
        }
    }
}
