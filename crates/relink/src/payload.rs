//! From the parts of a decoded packet to an owned message.

use ackline_core::{Block, Payload};
use bytes::{Bytes, BytesMut};

use crate::frame::Parts;

/// A received message of up to this many bytes is copied out of the input; a larger one is a slice of it.
/// Below it a copy costs less than holding the whole input for it; small ones that arrive together are copied
/// into one allocation, of 16 times the bytes of each at the most.
pub const COPIED_BYTES: usize = 1_024;

/// A message of more parts than this is taken by itself: their handles may take much more than their bytes did.
pub(crate) const COPIED_PARTS: usize = 32;

/// A copy of received parts: one piece of memory for all of them.
pub fn copied(parts: &Parts<'_>) -> Payload {
    if parts.len() == 1 {
        return Payload::from(Bytes::copy_from_slice(
            parts.iter().next().unwrap_or_default(),
        ));
    }
    let mut all = BytesMut::with_capacity(parts.bytes());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    let mut all = all.freeze();
    parts.iter().map(|part| all.split_to(part.len())).collect()
}

/// The received parts as slices of `packet`, the very bytes that `parts` was decoded from: `packet`
/// lives as long as any of them.
pub fn sliced(parts: &Parts<'_>, packet: &Bytes) -> Payload {
    parts.ranges().map(|range| packet.slice(range)).collect()
}

/// A copy of a received message's parts, of which up to `count` may come now.
pub(crate) fn copied_together(block: &mut Block, parts: &Parts<'_>, count: usize) -> Payload {
    match parts.iter().next() {
        Some(only) if parts.len() == 1 => Payload::from(block.copy(only, count)),
        _ => copied(parts),
    }
}
