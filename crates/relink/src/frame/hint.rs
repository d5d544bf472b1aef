//! Hints: a listener can tell a connector its limits, and why it does not process a transaction. The specification
//! does not mention hints.
//!
//! ```text
//! connector: handshake flag 3                       "tell me hints"
//! listener:  nop, whose unused bytes say            byte 1: which hint
//!                                                   bytes 2 to 7: its number, little-endian
//! ```
//!
//! Both use bits that the specification leaves unused (REQ-RELINK-3, R-REL-32), so a peer without hints ignores them.
//! A listener sends hints only to a connector that has asked for them.

use super::{ALIGNMENT, Out};

/// A number that the listener tells, as an extension of the protocol. It has 48 bits; a larger number is told as the
/// largest one of 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hint {
    /// The most bytes of undecided messages on a link, with [`MESSAGE_BYTES`] for each message.
    TransactionBytes(u64),
    /// The most messages of one channel that are delivered and not consumed, and so the most messages of a
    /// transaction.
    ReceiveWindow(u64),
    /// The most bytes of all parts of a message.
    MessageBytes(u64),
    /// A transaction is refused, because it is larger than so many bytes, the most for undecided messages on its
    /// link.
    OverLink(u64),
    /// A transaction is refused, because the undecided messages of other links leave it only so many bytes.
    OverAll(u64),
}

/// Bytes charged for an undecided message beside its payload.
pub const MESSAGE_BYTES: usize = 64;

impl Hint {
    /// Returns the hint in a nop, if this version knows it.
    pub(crate) fn decode(nop: &[u8]) -> Option<Self> {
        let [0, which, number @ ..] = *nop.first_chunk::<ALIGNMENT>()? else {
            return None;
        };
        let mut wide = [0; 8];
        wide.get_mut(..number.len())?.copy_from_slice(&number);
        let number = u64::from_le_bytes(wide);
        Some(match which {
            1 => Self::TransactionBytes(number),
            2 => Self::ReceiveWindow(number),
            3 => Self::MessageBytes(number),
            4 => Self::OverLink(number),
            5 => Self::OverAll(number),
            _ => return None,
        })
    }

    /// Appends the nop that carries the hint.
    pub(crate) fn encode(self, out: &mut impl Out) {
        let number = self.number().min(MOST);
        out.put_slice(&[0, self.which()]);
        let number = number.to_le_bytes();
        out.put_slice(
            number
                .first_chunk::<NUMBER_BYTES>()
                .unwrap_or(&[0; NUMBER_BYTES]),
        );
    }

    const fn which(self) -> u8 {
        match self {
            Self::TransactionBytes(_) => 1,
            Self::ReceiveWindow(_) => 2,
            Self::MessageBytes(_) => 3,
            Self::OverLink(_) => 4,
            Self::OverAll(_) => 5,
        }
    }

    /// The number.
    pub const fn number(self) -> u64 {
        match self {
            Self::TransactionBytes(number)
            | Self::ReceiveWindow(number)
            | Self::MessageBytes(number)
            | Self::OverLink(number)
            | Self::OverAll(number) => number,
        }
    }

    /// The name of the hint, for tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TransactionBytes(_) => "transaction bytes",
            Self::ReceiveWindow(_) => "receive window",
            Self::MessageBytes(_) => "message bytes",
            Self::OverLink(_) => "transaction refused, bytes of its link",
            Self::OverAll(_) => "transaction refused, bytes that other links leave",
        }
    }

    /// Whether both are the same kind of hint, with any numbers.
    pub(crate) const fn is_same(self, other: Self) -> bool {
        self.which() == other.which()
    }
}

const NUMBER_BYTES: usize = 6;
/// The largest number that fits.
const MOST: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_is_a_nop_whose_unused_bytes_are_its_number() {
        let all = [
            Hint::TransactionBytes(1),
            Hint::ReceiveWindow(65_536),
            Hint::MessageBytes(MOST),
            Hint::OverLink(0),
            Hint::OverAll(0x0102_0304_0506),
        ];
        for hint in all {
            let mut out = Vec::new();
            hint.encode(&mut out);
            assert_eq!(Hint::decode(&out), Some(hint));
            assert_eq!((out.len(), out[0]), (8, 0));
        }
        let mut out = Vec::new();
        Hint::OverAll(0x0102_0304_0506).encode(&mut out);
        assert_eq!(out, [0, 5, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_number_that_does_not_fit_is_the_largest_that_does() {
        let mut out = Vec::new();
        Hint::MessageBytes(u64::MAX).encode(&mut out);
        assert_eq!(Hint::decode(&out), Some(Hint::MessageBytes(MOST)));
    }

    #[test]
    fn other_nops_are_no_hints() {
        for nop in [[0; 8], [0, 6, 1, 0, 0, 0, 0, 0], [2, 1, 1, 0, 0, 0, 0, 0]] {
            assert_eq!(Hint::decode(&nop), None);
        }
        assert_eq!(Hint::decode(&[0, 1]), None);
    }
}
