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
