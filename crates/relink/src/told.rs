//! A listener's limits, as it has told them beside the protocol.

use std::fmt;

use crate::frame::Hint;

/// The limits and reasons that the listener has told on the transport that there is, if it was
/// [asked](crate::ConnectorConfig::wants_hints) and is one that tells: nothing otherwise. A listener tells its limits before it answers a ping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told {
    /// Bytes that the messages of the link which are not decided may have, with 64 for each.
    pub transaction_bytes: Option<u64>,
    /// Messages of one channel that may be sent and not consumed.
    pub receive_window: Option<u64>,
    /// Bytes of a message.
    pub message_bytes: Option<u64>,
    /// Why a transaction is refused.
    pub refused: Option<Reason>,
}

/// Why a listener does not process a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The undecided messages of the link came to more than so many bytes.
    OverLink(u64),
    /// Undecided messages of other links leave the link so many bytes, and its own came to more.
    OverAll(u64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverLink(bytes) => write!(
                f,
                "messages of one link that are not committed may have {bytes} bytes there, with 64 for each, which is \
                 an eighth of the receiver's --memory"
            ),
            Self::OverAll(bytes) => write!(
                f,
                "messages that other links have not committed leave this one {bytes} bytes there, with 64 for each: \
                 all links may have half of the receiver's --memory, and each half of the part that the others leave"
            ),
        }
    }
}

impl Reason {
    /// Returns the hint that tells it.
    pub const fn hint(self) -> Hint {
        match self {
            Self::OverLink(bytes) => Hint::OverLink(bytes),
            Self::OverAll(bytes) => Hint::OverAll(bytes),
        }
    }
}

impl Told {
    /// Notes a hint of the listener.
    pub fn hear(&mut self, hint: Hint) {
        match hint {
            Hint::TransactionBytes(bytes) => self.transaction_bytes = Some(bytes),
            Hint::ReceiveWindow(messages) => self.receive_window = Some(messages),
            Hint::MessageBytes(bytes) => self.message_bytes = Some(bytes),
            Hint::OverLink(bytes) => self.refused = Some(Reason::OverLink(bytes)),
            Hint::OverAll(bytes) => self.refused = Some(Reason::OverAll(bytes)),
        }
    }
}
