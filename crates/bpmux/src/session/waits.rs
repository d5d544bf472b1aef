//! The waits of handles: their keys, and the conditions that take nothing.

use ackline_core::{AnswerRoom, Handles};

use super::{Serial, Session};
use crate::Error;

/// The kinds of waits: each has its own wake key.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// An entity or a request that the peer begins.
    Accept,
    /// Input for this place.
    Read(Serial),
    /// Room to send on this place, and the end of the place.
    Write(Serial),
    /// A pong for this.
    Pong(Serial),
}

impl Wait {
    /// The key that a session wakes.
    #[inline]
    pub const fn key(self) -> u64 {
        match self {
            Self::Accept => 1,
            Self::Read(serial) => serial << 2,
            Self::Write(serial) => (serial << 2) | 1,
            Self::Pong(serial) => (serial << 2) | 2,
        }
    }
}

/// A condition that a handle can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Of a connection: that the peer began something, or will begin nothing more.
    Arrival,
    /// Of a connection: that a request would be taken or refused, and no other caller has waited for that longer.
    Request,
    /// Of a stream: a message, or its end.
    Message,
    /// Of a response: that it is there, or will not come.
    Answer,
    /// Of a sink: that a message of so many bytes would be taken or refused.
    Room(usize),
    /// Of a sink: that every message has gone to the transport, or never will.
    Flushed,
    /// Of a sink or a request: that the peer has cancelled it, or it is over.
    Cancelled,
    /// The end of the connection alone.
    End,
}

impl Interest {
    /// The key of the waits of this place for it. Key 0 is woken by any change, and the last one by none.
    #[inline]
    pub const fn key(self, serial: Serial) -> u64 {
        match self {
            Self::Arrival => Wait::Accept.key(),
            // The payloads that wait may be of any handle: any change may make room.
            Self::Request => 0,
            Self::Message | Self::Answer => Wait::Read(serial).key(),
            Self::Room(_) | Self::Flushed | Self::Cancelled => Wait::Write(serial).key(),
            Self::End => u64::MAX,
        }
    }
}

impl<A: AnswerRoom> Handles for Session<A> {
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
        interest.key(serial)
    }

    fn is_there(&mut self, serial: Serial, interest: Interest) -> bool {
        let place = self.places.get(&serial);
        let is_over = place.is_none_or(|place| place.gone);
        match interest {
            Interest::Arrival => self.has_arrival() || self.is_last(),
            Interest::Request => self.has_request_room(),
            Interest::Message => self.has_message(serial),
            Interest::Answer => {
                is_over || place.is_some_and(|it| it.response.is_some() || it.closed.is_some())
            }
            Interest::Room(bytes) => !matches!(self.room(serial, bytes), Err(Error::Blocked)),
            Interest::Flushed => !matches!(self.flushed(serial), Err(Error::Blocked)),
            Interest::Cancelled => is_over || place.is_some_and(|it| it.cancelled.is_some()),
            Interest::End => false,
        }
    }
}
