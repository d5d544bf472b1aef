//! The parts of a received message.

use std::ops::Range;

use super::ALIGNMENT;

/// Bytes of a size in the small form.
const SMALL: usize = 2;
/// Bytes of a size in the large form.
const LARGE: usize = 8;

/// The parts of a message as a view of its packet. Only the decoder makes it, after it has checked that all parts are
/// there.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    packet: &'a [u8],
    sizes: &'a [u8],
    is_large: bool,
    data_at: usize,
    bytes: usize,
}

impl<'a> Parts<'a> {
    pub(super) const fn new(
        packet: &'a [u8],
        sizes: &'a [u8],
        is_large: bool,
        data_at: usize,
        bytes: usize,
    ) -> Self {
        Self {
            packet,
            sizes,
            is_large,
            data_at,
            bytes,
        }
    }

    /// Number of parts; a message may have none.
    pub const fn len(&self) -> usize {
        // The division is exact: the decoder took as many sizes as there are parts.
        self.sizes.len() >> if self.is_large { 3 } else { 1 }
    }

    /// Whether there is no part.
    pub const fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Bytes of all parts together, without padding.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the largest part.
    pub fn largest(&self) -> usize {
        self.ranges().map(|range| range.len()).max().unwrap_or(0)
    }

    /// The ranges of the parts in the packet, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<'a> {
        let mut at = self.data_at;
        sizes(self.sizes, self.is_large).map(move |size| {
            // The decoder has checked that every part ends inside the packet.
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let start = at;
            let end = start.saturating_add(size);
            at = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end);
            start..end
        })
    }

    /// The parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let packet = self.packet;
        self.ranges()
            .map(move |range| packet.get(range).unwrap_or_default())
    }
}

/// Messages with equal parts are equal, in any form on the wire.
impl PartialEq for Parts<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Parts<'_> {}

/// The sizes in `vector`, whole ones only.
pub(super) fn sizes(vector: &[u8], is_large: bool) -> impl Iterator<Item = u64> + Clone + use<'_> {
    let (small, large) = if is_large {
        (&[][..], vector)
    } else {
        (vector, &[][..])
    };
    let (small, _) = small.as_chunks::<SMALL>();
    let (large, _) = large.as_chunks::<LARGE>();
    let small = small.iter().map(|size| u16::from_le_bytes(*size).into());
    small.chain(large.iter().map(|size| u64::from_le_bytes(*size)))
}

/// Bytes of a size.
pub(super) const fn size_bytes(is_large: bool) -> usize {
    if is_large { LARGE } else { SMALL }
}
