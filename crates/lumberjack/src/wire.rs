//! The constants of the wire: versions, sides, the type bytes and the lengths of headers.

/// The protocol version, an ASCII digit that starts every frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `1`: logstash-forwarder and similar senders.
    V1,
    /// `2`: Beats and similar senders.
    V2,
}

impl Version {
    /// The version of a version byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'1' => Some(Self::V1),
            b'2' => Some(Self::V2),
            _ => None,
        }
    }

    /// The version byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::V1 => b'1',
            Self::V2 => b'2',
        }
    }

    /// 1 or 2.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The side that sends a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The side with the events.
    Writer,
    /// The side that acknowledges.
    Reader,
}

/// Bytes of the header of `W`, `C` and `A`.
pub(crate) const HEADER: usize = 6;
/// Bytes of the header of `J` and `D`.
pub(crate) const RECORD_HEADER: usize = 10;

pub(crate) const WINDOW: u8 = b'W';
pub(crate) const DATA: u8 = b'D';
pub(crate) const JSON: u8 = b'J';
pub(crate) const COMPRESSED: u8 = b'C';
pub(crate) const ACK: u8 = b'A';
