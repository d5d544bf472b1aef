//! A block: the unit that is received, stored and settled as one.

use std::sync::Arc;

use bytes::Bytes;

use crate::SpoolError;

/// A run of events as it came from a link, to be stored whole.
#[derive(Debug, Clone)]
pub struct Block {
    /// The protocol it came by, such as `lumberjack`.
    pub protocol: Arc<str>,
    /// The peer's address.
    pub peer: Arc<str>,
    /// The link's name, unique for ever.
    pub link: Arc<str>,
    /// The channel, publisher or sink within the link, where the protocol has one.
    pub stream: Option<Arc<str>>,
    /// How the body is laid out, with its version, such as `lumberjack/1`.
    pub layout: &'static str,
    /// How the body is coded within its layout, such as `frames`.
    pub codec: &'static str,
    /// The sequence number of the first event on its link.
    pub first_sequence: i64,
    /// The number of events. A block of 0 events is settled in its turn and not stored.
    pub count: u32,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body when nothing in it is compressed.
    pub inflated_bytes: u64,
    /// Which events were probably sent before: a bitmap, least significant bit first. `None`: not
    /// judged; empty: none of them.
    pub repeats: Option<Vec<u8>>,
    /// Attributes of the link, never event data.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
    /// The bytes as they came, in pieces.
    pub body: Vec<Bytes>,
}

impl Block {
    /// The bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }

    /// The bytes that it takes in a segment and its index, generously, beside its share of a group.
    pub fn stored_bytes(&self) -> usize {
        self.body_bytes() + BLOCK_OVERHEAD
    }
}

/// Bytes that the columns beside the body add for a block, generously.
const BLOCK_OVERHEAD: usize = 512;

/// Whoever waits for blocks to be kept as promised: one call for each link and commit.
pub trait Settle: Send + Sync {
    /// The block appended with this token is durable, and its first event has this position. Told once,
    /// before anything else is told of the block.
    fn placed(&self, _token: u64, _first_position: u64) {}
    /// The promise of the blocks appended with these tokens holds; the tokens are in the order of appending.
    fn settle(&self, tokens: &[u64]);
    /// The blocks appended with these tokens are durable, but they were promised more than that: their
    /// bytes are needed no longer, their acknowledgement waits.
    fn landed(&self, _tokens: &[u64]) {}
    /// Blocks of this link will not be kept as promised.
    fn failed(&self, error: &SpoolError);
}

/// A block as it stands in a segment. What a [`Layout`](crate::Layout) expands.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlock<'a> {
    /// The position of its first event.
    pub first_position: u64,
    /// The number of events.
    pub count: u32,
    /// When it was received, in microseconds since 1970 (UTC).
    pub received_at_us: i64,
    /// The protocol it came by.
    pub protocol: &'a str,
    /// The peer's address.
    pub peer: &'a str,
    /// The link's name.
    pub link: &'a str,
    /// The stream within the link.
    pub stream: Option<&'a str>,
    /// The sequence number of the first event.
    pub first_sequence: i64,
    /// How the body is laid out.
    pub layout: &'a str,
    /// How the body is coded within its layout.
    pub codec: &'a str,
    /// CRC-32C of the body.
    pub checksum: u32,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body when nothing in it is compressed.
    pub inflated_bytes: u64,
    /// Which events were probably sent before.
    pub repeats: Option<&'a [u8]>,
    /// The bytes as they came.
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
    /// The protocol it came by.
    pub protocol: String,
    /// The peer's address.
    pub peer: String,
    /// The link's name.
    pub link: String,
    /// The stream within the link.
    pub stream: Option<String>,
    /// The sequence number of the first event.
    pub first_sequence: i64,
    /// How the body is laid out.
    pub layout: String,
    /// How the body is coded within its layout.
    pub codec: String,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// The bytes of the body when nothing in it is compressed.
    pub inflated_bytes: u64,
    /// The bytes of the body as it is stored.
    pub body_bytes: u64,
}

impl From<StoredBlock<'_>> for BlockInfo {
    fn from(block: StoredBlock<'_>) -> Self {
        Self {
            first_position: block.first_position,
            count: block.count,
            received_at_us: block.received_at_us,
            protocol: block.protocol.to_owned(),
            peer: block.peer.to_owned(),
            link: block.link.to_owned(),
            stream: block.stream.map(str::to_owned),
            first_sequence: block.first_sequence,
            layout: block.layout.to_owned(),
            codec: block.codec.to_owned(),
            windows: block.windows,
            inflated_bytes: block.inflated_bytes,
            body_bytes: block.body.len() as u64,
        }
    }
}
