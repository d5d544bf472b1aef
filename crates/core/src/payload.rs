//! An owned message: its parts, in order, each a cheap handle.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// The parts of a message. Cloning shares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload(Repr);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Repr {
    One(Bytes),
    // No part, or two and more.
    Many(Arc<[Bytes]>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Many(Arc::default())
    }
}

impl Payload {
    /// Returns a message of these parts, in this order.
    pub fn from_parts(parts: Vec<Bytes>) -> Self {
        match <[Bytes; 1]>::try_from(parts) {
            Ok([part]) => Self::from(part),
            Err(parts) => Self(Repr::Many(parts.into())),
        }
    }

    /// Returns the parts as they stand.
    pub fn as_slice(&self) -> &[Bytes] {
        match &self.0 {
            Repr::One(part) => std::slice::from_ref(part),
            Repr::Many(parts) => parts,
        }
    }

    /// Returns the parts, in order, sharing their bytes.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Bytes> + '_ {
        self.as_slice().iter().cloned()
    }

    /// Returns the number of parts; 0 is a message too.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is no part.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the bytes of all parts together.
    pub fn bytes(&self) -> usize {
        self.as_slice()
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.len()))
    }

    /// Returns the bytes that it holds: those of its parts and, where they are several, a handle for each, so that many
    /// empty parts have a price too.
    pub fn held_bytes(&self) -> usize {
        let handles = match &self.0 {
            Repr::One(_) => 0,
            Repr::Many(parts) => parts.len().saturating_mul(PART_BYTES),
        };
        self.bytes().saturating_add(handles)
    }

    /// Returns all parts as one, copied unless there is just one.
    pub fn to_bytes(&self) -> Bytes {
        if let Repr::One(part) = &self.0 {
            return part.clone();
        }
        let mut all = BytesMut::with_capacity(self.bytes());
        self.as_slice()
            .iter()
            .for_each(|part| all.extend_from_slice(part));
        all.freeze()
    }
}

/// Bytes of memory that each part of several takes beside its own.
pub const PART_BYTES: usize = size_of::<Bytes>();

impl From<Bytes> for Payload {
    fn from(part: Bytes) -> Self {
        Self(Repr::One(part))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(part: Vec<u8>) -> Self {
        Self::from(Bytes::from(part))
    }
}

impl From<&'static [u8]> for Payload {
    fn from(part: &'static [u8]) -> Self {
        Self::from(Bytes::from_static(part))
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        Self::from_parts(parts.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_apart_until_they_are_asked_for_as_one() {
        let one = Payload::from(&b"one"[..]);
        let two: Payload = [Bytes::from_static(b"t"), Bytes::from_static(b"wo")]
            .into_iter()
            .collect();
        let none = Payload::default();
        assert_eq!((one.len(), two.len(), none.len()), (1, 2, 0));
        assert_eq!((one.bytes(), two.bytes(), none.bytes()), (3, 3, 0));
        let held = [&one, &two, &none].map(Payload::held_bytes);
        assert_eq!(held, [3, 3 + 2 * 32, 0]);
        assert_eq!(one.to_bytes(), "one");
        assert_eq!(two.to_bytes(), "two");
        assert!(none.to_bytes().is_empty() && none.is_empty());
        assert_eq!(one.to_bytes().as_ptr(), one.as_slice()[0].as_ptr());
        assert_eq!(
            Payload::from_parts(vec!["two".into()]).to_bytes(),
            two.to_bytes()
        );
    }
}
