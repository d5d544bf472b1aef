//! Owned messages from the parts of a decoded packet.

use ackline_core::{Block, Payload};
use bytes::{Bytes, BytesMut};

use crate::frame::Parts;

/// A received message of up to this many bytes is copied out of the input; a larger one is a slice of it. Below this
/// size a copy costs less memory than the whole input, which a slice would hold. Small messages that arrive together
/// are copied into one allocation of at most 16 times the bytes of each.
pub const COPIED_BYTES: usize = 1_024;

/// A message of more parts than this is taken by itself, because the handles of its parts may take much more memory
/// than their bytes.
pub(crate) const COPIED_PARTS: usize = 32;

/// Copies received parts into one allocation.
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

/// Returns the received parts as slices of `packet`, from which `parts` was decoded. `packet` lives as long as any of
/// the slices.
pub fn sliced(parts: &Parts<'_>, packet: &Bytes) -> Payload {
    parts.ranges().map(|range| packet.slice(range)).collect()
}

/// Copies the parts of a received message into a block. About `count` such messages may follow.
pub(crate) fn copied_together(block: &mut Block, parts: &Parts<'_>, count: usize) -> Payload {
    match parts.iter().next() {
        Some(only) if parts.len() == 1 => Payload::from(block.copy(only, count)),
        _ => copied(parts),
    }
}
