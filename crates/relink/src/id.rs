//! Channel ids: opaque bytes, of the size that the handshake has agreed on (R-REL-6).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

/// The most bytes of an id that needs no allocation.
const INLINE_BYTES: usize = 22;

/// A channel's id: 0 to 255 bytes without meaning, ordered byte by byte. A link accepts only ids of its direction's
/// id size.
#[derive(Clone)]
pub struct ChannelId(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Shared(Bytes),
}

impl ChannelId {
    /// The id of the one channel of a direction whose id size is 0.
    pub const IMPLICIT: Self = Self(Repr::Inline {
        len: 0,
        bytes: [0; INLINE_BYTES],
    });

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Bytes of the id.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether this is the id of an implicit channel.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The id with `value` as a little-endian number of `size` bytes; `None` if it does not fit.
    pub fn le(value: u64, size: u8) -> Option<Self> {
        let size = usize::from(size);
        let number = value.to_le_bytes();
        let used = 8_usize.saturating_sub(usize::try_from(value.leading_zeros() >> 3).ok()?);
        if used > size {
            return None;
        }
        let mut bytes = [0; 255];
        bytes.get_mut(..8)?.copy_from_slice(&number);
        Some(Self::from(bytes.get(..size)?))
    }

    /// The id as a little-endian number; `None` if it is above 2^64-1.
    pub fn to_u64(&self) -> Option<u64> {
        let (low, high) = self.as_bytes().split_at(self.len().min(8));
        let mut number = [0; 8];
        number.get_mut(..low.len())?.copy_from_slice(low);
        let fits = high.iter().all(|byte| *byte == 0);
        fits.then(|| u64::from_le_bytes(number))
    }
}

impl From<&[u8]> for ChannelId {
    fn from(id: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (u8::try_from(id.len()), bytes.get_mut(..id.len())) {
            (Ok(len), Some(own)) => {
                own.copy_from_slice(id);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Shared(Bytes::copy_from_slice(id))),
        }
    }
}

impl<const N: usize> From<&[u8; N]> for ChannelId {
    fn from(id: &[u8; N]) -> Self {
        Self::from(id.as_slice())
    }
}

impl From<u8> for ChannelId {
    fn from(id: u8) -> Self {
        Self::from(&id.to_le_bytes())
    }
}

impl From<u16> for ChannelId {
    fn from(id: u16) -> Self {
        Self::from(&id.to_le_bytes())
    }
}

impl From<u32> for ChannelId {
    fn from(id: u32) -> Self {
        Self::from(&id.to_le_bytes())
    }
}

impl From<u64> for ChannelId {
    fn from(id: u64) -> Self {
        Self::from(&id.to_le_bytes())
    }
}

impl AsRef<[u8]> for ChannelId {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

// Equality, order and hash are those of the bytes, so that the bytes of a packet can look up an id.
impl Borrow<[u8]> for ChannelId {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for ChannelId {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // Unused bytes are 0, so one comparison of a fixed size is enough.
            (Repr::Inline { len, bytes }, Repr::Inline { len: n, bytes: own }) => {
                len == n && bytes == own
            }
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for ChannelId {}

impl PartialOrd for ChannelId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ChannelId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for ChannelId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Lower-case hex.
impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian_ids() {
        assert_eq!(ChannelId::from(0x0102_u16).as_bytes(), [2, 1]);
        assert_eq!(ChannelId::from(7_u8).to_u64(), Some(7));
        assert_eq!(ChannelId::from(1_u32).len(), 4);
        assert_eq!(ChannelId::from(u64::MAX).to_u64(), Some(u64::MAX));
        assert_eq!(ChannelId::le(0x0102, 3), Some(ChannelId::from(&[2, 1, 0])));
        assert_eq!(ChannelId::le(0, 0), Some(ChannelId::IMPLICIT));
        assert_eq!(ChannelId::le(256, 1), None);
        assert_eq!(ChannelId::le(u64::MAX, 8).unwrap().to_u64(), Some(u64::MAX));
        assert_eq!(ChannelId::le(5, 255).unwrap().len(), 255);
        assert_eq!(ChannelId::le(5, 255).unwrap().to_u64(), Some(5));
        assert_eq!(ChannelId::from(&[1; 9]).to_u64(), None);
    }

    #[test]
    fn ids_of_every_size_are_ordered_by_their_bytes() {
        for len in [0, 1, 22, 23, 255] {
            let id = ChannelId::from(vec![7; len].as_slice());
            assert_eq!((id.len(), id.as_bytes()), (len, vec![7; len].as_slice()));
            assert_eq!(id.is_empty(), len == 0);
            let longer = ChannelId::from([vec![7; len].as_slice(), &[0]].concat().as_slice());
            assert!(id == id.clone() && id != longer);
            assert_eq!(id.to_string().len(), 2 * len);
        }
        let mut ids = [&b"b"[..], b"ab", b"", b"a"].map(ChannelId::from);
        ids.sort();
        assert_eq!(ids.map(|id| id.to_string()), ["", "61", "6162", "62"]);
    }

    #[test]
    fn an_id_is_as_large_as_shared_bytes() {
        assert_eq!(size_of::<ChannelId>(), size_of::<Bytes>());
    }
}
