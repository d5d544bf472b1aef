//! An owned message: its parts, in order, each a cheap handle.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::frame::Parts;

/// A received message of up to this many bytes is copied out of the input; a larger one is a slice of it.
/// Below it a copy costs less than holding the whole input for it.
pub const COPIED_BYTES: usize = 1_024;

/// A message's parts. Cloning shares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload(Repr);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Repr {
    One(Bytes),
    // None, or two and more.
    Many(Arc<[Bytes]>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Many(Arc::default())
    }
}

impl Payload {
    /// A message of these parts, in this order.
    pub fn from_parts(parts: Vec<Bytes>) -> Self {
        match <[Bytes; 1]>::try_from(parts) {
            Ok([part]) => Self::from(part),
            Err(parts) => Self(Repr::Many(parts.into())),
        }
    }

    /// The parts as they stand.
    pub fn as_slice(&self) -> &[Bytes] {
        match &self.0 {
            Repr::One(part) => std::slice::from_ref(part),
            Repr::Many(parts) => parts,
        }
    }

    /// The parts, in order, sharing their bytes.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Bytes> + '_ {
        self.as_slice().iter().cloned()
    }

    /// Number of parts; 0 is a message too.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is no part.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Bytes of all parts together.
    pub fn bytes(&self) -> usize {
        self.as_slice()
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.len()))
    }

    /// A copy of received parts: one piece of memory for all of them.
    pub fn copied(parts: &Parts<'_>) -> Self {
        if parts.len() == 1 {
            return Self::from(Bytes::copy_from_slice(
                parts.iter().next().unwrap_or_default(),
            ));
        }
        let mut all = BytesMut::with_capacity(parts.bytes());
        parts.iter().for_each(|part| all.extend_from_slice(part));
        let mut all = all.freeze();
        let own = parts.iter().map(|part| all.split_to(part.len())).collect();
        Self(Repr::Many(own))
    }

    /// The received parts as slices of `packet`, the very bytes that `parts` was decoded from: `packet`
    /// lives as long as any of them.
    pub fn sliced(parts: &Parts<'_>, packet: &Bytes) -> Self {
        let mut slices = parts.ranges().map(|range| packet.slice(range));
        match (parts.len(), slices.next()) {
            (1, Some(part)) => Self::from(part),
            (_, first) => Self(Repr::Many(first.into_iter().chain(slices).collect())),
        }
    }
}

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
