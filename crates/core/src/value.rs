//! Values that say of themselves what they are: arguments, events and frames as tools and other languages see them.

use bytes::Bytes;

use crate::{Inspected, Payload};

/// Values by name, in order.
pub type Members = Vec<(&'static str, Value)>;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// No value, or an option that is off.
    Nothing,
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with a fractional part, which may be 0.
    Fraction(Fraction),
    /// A flag.
    Flag(bool),
    /// A word of the protocol.
    Name(&'static str),
    /// Text sent by the peer.
    Text(String),
    /// Bytes without meaning to the protocol.
    Bytes(Bytes),
    /// Several values, in order.
    List(Vec<Self>),
    /// Several values by name.
    Map(Members),
    /// A value and the word that says what it is, such as the owner of an id.
    Tagged(&'static str, Box<Self>),
    /// Frames inside a frame, whose bytes are not those of the connection.
    Frames(Vec<Inspected>),
}

impl Value {
    /// The values of a list; none for anything else.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The bytes; none for anything else.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            _ => Bytes::new(),
        }
    }
}

/// A finite number with a fractional part. Two are equal if their bits are: 0 and -0 differ.
#[derive(Debug, Clone, Copy)]
pub struct Fraction(f64);

impl Fraction {
    /// The number; `None` if it is infinite or no number.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// The number.
    pub const fn to_f64(self) -> f64 {
        self.0
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Fraction {}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&Payload> for Value {
    /// Its parts.
    fn from(payload: &Payload) -> Self {
        Self::List(payload.parts().map(Self::Bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_finite_and_equal_by_their_bits() {
        assert_eq!(Fraction::new(1.5), Fraction::new(1.5));
        assert_ne!(Fraction::new(0.0), Fraction::new(-0.0));
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Fraction::new(odd), None);
        }
    }
}
