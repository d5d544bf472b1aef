//! The waits of handles: their keys, and the conditions that take nothing.

use ackline_core::Handles;

use super::{Serial, Session};
use crate::Error;

/// The kinds of waits: each has its own wake key.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// A subscription of the peer.
    Accept,
    /// The peer's hello.
    Connected,
    /// A message of an extension.
    Extension,
    /// Elements of a subscription, its acceptance, and its end.
    Read(Serial),
    /// Demand and room of a subscription of the peer, and its end.
    Write(Serial),
}

impl Wait {
    /// The key that a session wakes.
    pub const fn key(self) -> u64 {
        match self {
            Self::Accept => 1,
            Self::Connected => 2,
            Self::Extension => 3,
            Self::Read(serial) => serial << 2,
            Self::Write(serial) => (serial << 2) | 1,
        }
    }
}

/// A condition that a handle can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Of a connection: that the peer has subscribed to something, or will not any more.
    Arrival,
    /// Of a connection: that the peer's hello has come.
    Connected,
    /// Of a connection: a message of an extension, or that none will come any more.
    Extension,
    /// Of a subscription: that it was accepted or rejected.
    Accepted,
    /// Of a subscription: an element, or its end.
    Element,
    /// Of a subscription of the peer: that an element would be taken or refused.
    Room,
    /// Of a subscription of the peer: that it was cancelled, or has ended.
    Cancelled,
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

    fn interest_key(interest: Interest, serial: Serial) -> u64 {
        match interest {
            Interest::Arrival => Wait::Accept.key(),
            Interest::Connected => Wait::Connected.key(),
            Interest::Extension => Wait::Extension.key(),
            Interest::Accepted | Interest::Element => Wait::Read(serial).key(),
            Interest::Room | Interest::Cancelled => Wait::Write(serial).key(),
            Interest::End => u64::MAX,
        }
    }

    fn is_there(&mut self, serial: Serial, interest: Interest) -> bool {
        match interest {
            Interest::Arrival => self.has_arrival(),
            Interest::Connected => !matches!(self.connected(), Err(Error::Blocked)),
            Interest::Extension => !self.said.messages.is_empty() || self.said.goodbye.is_some(),
            Interest::Accepted => !matches!(self.accepted(serial), Err(Error::Blocked)),
            Interest::Element => self.has_element(serial),
            Interest::Room => !matches!(self.room(serial), Err(Error::Blocked)),
            Interest::Cancelled => !matches!(self.is_wanted(serial), Ok(()) | Err(Error::Blocked)),
            Interest::End => false,
        }
    }
}
