//! The channels that a packet names.

/// A view of channel ids of one size. An id that occurs k times counts k times (REQ-RELINK-35). With id size 0 there
/// are no bytes, and only the count tells the number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets<'a> {
    ids: &'a [u8],
    id_size: u8,
    count: u32,
    multicast: bool,
}

impl<'a> Targets<'a> {
    /// One channel; its id has at most 255 bytes.
    pub fn unicast(id: &'a [u8]) -> Self {
        Self {
            ids: id,
            id_size: u8::try_from(id.len()).unwrap_or(u8::MAX),
            count: 1,
            multicast: false,
        }
    }

    /// `count` channels. Their ids, `id_size` bytes each, follow one another in `ids` without gaps.
    pub const fn multicast(ids: &'a [u8], id_size: u8, count: u32) -> Self {
        Self {
            ids,
            id_size,
            count,
            multicast: true,
        }
    }

    /// Bytes of one id.
    pub const fn id_size(&self) -> u8 {
        self.id_size
    }

    /// Number of ids. The peer chooses it, so it must not size an allocation.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether the packet has the form for several channels, even if it names one or none (R-REL-9).
    pub const fn is_multicast(&self) -> bool {
        self.multicast
    }

    /// The bytes of all ids, one after the other.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.ids
    }

    /// The ids, in order.
    pub const fn iter(&self) -> TargetIter<'a> {
        TargetIter {
            rest: self.ids,
            id_size: self.id_size,
            count: self.count,
        }
    }
}

impl<'a> IntoIterator for Targets<'a> {
    type Item = &'a [u8];
    type IntoIter = TargetIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &Targets<'a> {
    type Item = &'a [u8];
    type IntoIter = TargetIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The ids of [`Targets`].
#[derive(Debug, Clone)]
pub struct TargetIter<'a> {
    rest: &'a [u8],
    id_size: u8,
    count: u32,
}

impl<'a> Iterator for TargetIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let (id, rest) = self.rest.split_at_checked(usize::from(self.id_size))?;
        self.rest = rest;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The count is no lower bound, because a collection would allocate by it.
        (0, usize::try_from(self.count).ok())
    }
}
