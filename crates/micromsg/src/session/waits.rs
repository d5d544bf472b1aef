//! The waits of a session: their keys, and the conditions that take nothing.

use ackline_core::Handles;

use super::{Serial, Session};
use crate::Error;

/// The kinds of waits: each has its own wake key.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// The end of the handshake, or a proposal of the peer's.
    Connected,
    /// A message.
    Message,
    /// A command.
    Arrival,
    /// A frame of an extension.
    Extension,
    /// Room for a message or a frame.
    Room,
    /// Acknowledgements of messages of this end.
    Acknowledged,
}

impl Wait {
    pub(super) const ALL: [Self; 6] = [
        Self::Connected,
        Self::Message,
        Self::Arrival,
        Self::Extension,
        Self::Room,
        Self::Acknowledged,
    ];

    /// The key that a session wakes.
    pub const fn key(self) -> u64 {
        match self {
            Self::Connected => 1,
            Self::Message => 2,
            Self::Arrival => 3,
            Self::Extension => 4,
            Self::Room => 5,
            Self::Acknowledged => 6,
        }
    }
}

/// A condition that a connection can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// The peer's proposal is there, or none will come any more.
    Proposed,
    /// The handshake has ended.
    Connected,
    /// A message is there, or none will come any more.
    Message,
    /// A command is there, or none will come any more.
    Arrival,
    /// A frame of an extension is there, or none will come any more.
    Extension,
    /// A message with so many bytes of payload would be taken or refused.
    Room(usize),
    /// A command, or a frame of an extension with so many bytes, would be taken or refused.
    Frame(usize),
    /// All messages up to this position are acknowledged, or will not be.
    Acknowledged(u64),
    /// The end of the connection alone.
    End,
}

impl Handles for Session {
    type Error = Error;
    type Wait = Wait;
    type Interest = Interest;

    fn is_blocked(error: &Error) -> bool {
        matches!(error, Error::Blocked)
    }

    fn wait_key(wait: Wait) -> u64 {
        wait.key()
    }

    fn interest_key(interest: Interest, _: Serial) -> u64 {
        match interest {
            Interest::Proposed | Interest::Connected => Wait::Connected.key(),
            Interest::Message => Wait::Message.key(),
            Interest::Arrival => Wait::Arrival.key(),
            Interest::Extension => Wait::Extension.key(),
            Interest::Room(_) | Interest::Frame(_) => Wait::Room.key(),
            Interest::Acknowledged(_) => Wait::Acknowledged.key(),
            Interest::End => u64::MAX,
        }
    }

    fn is_there(&mut self, _: Serial, interest: Interest) -> bool {
        let is_over = self.over().is_some();
        match interest {
            Interest::Proposed => !matches!(self.proposal(), Err(Error::Blocked)),
            Interest::Connected => self.is_connected() || is_over,
            Interest::Message => is_over || self.inbox.has_message(),
            Interest::Arrival => is_over || self.inbox.has_arrival(),
            Interest::Extension => is_over || self.inbox.has_extension(),
            Interest::Room(bytes) => is_over || self.has_room(bytes),
            Interest::Frame(bytes) => is_over || self.ready(bytes).is_ok(),
            Interest::Acknowledged(position) => {
                !matches!(self.acknowledged(position), Err(Error::Blocked))
            }
            Interest::End => false,
        }
    }
}
