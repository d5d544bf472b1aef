//! Waits of an application on a link: the condition of each, and the key that wakes it.

use std::collections::HashMap;

use ackline_relink::ChannelId;

use super::session::Ping;

/// A condition that can be waited for without taking anything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// A message, or that none can come any more.
    Message,
    /// A decision of the peer's.
    Decision,
    /// An event.
    Event,
    /// Room for a message on this channel: [`Link::try_send`](super::Link::try_send) may still refuse one that is too large.
    Room(ChannelId),
    /// Room for so many messages on each of these channels, and for so many bytes in all.
    RoomFor {
        /// Messages on each channel.
        counts: HashMap<ChannelId, u32>,
        /// Payload bytes of all of them.
        bytes: usize,
    },
    /// The acknowledgement as consumed of everything that was sent.
    Acknowledged,
    /// The answer to a ping, or that none can come.
    Pong(Ping),
    /// A transport.
    Connected,
    /// The end of the link.
    End,
}

impl Interest {
    /// The wait that looks for it.
    pub(super) const fn wait(&self) -> Wait {
        match self {
            Self::Message => Wait::Message,
            Self::Decision => Wait::Decision,
            Self::Event => Wait::Event,
            Self::Room(_) | Self::RoomFor { .. } | Self::Acknowledged => Wait::Room,
            Self::Pong(_) => Wait::Pong,
            Self::Connected => Wait::Connected,
            Self::End => Wait::End,
        }
    }
}

/// The waits of a link that are woken apart from each other. The end of the link wakes all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Any change.
    Change,
    /// A message came, or the last one has.
    Message,
    /// A decision came.
    Decision,
    /// An event came.
    Event,
    /// Fewer messages or bytes are unacknowledged.
    Room,
    /// A transport came.
    Connected,
    /// A pong came, or the transport that was to bring it went.
    Pong,
    /// The journal got further.
    Kept,
    /// The link is over.
    End,
    /// A message of this life of a channel got further.
    Life(u64),
}

impl Wait {
    /// All kinds of waits that have keys.
    pub(super) const KINDS: [Self; 8] = [
        Self::Message,
        Self::Decision,
        Self::Event,
        Self::Room,
        Self::Connected,
        Self::Pong,
        Self::Kept,
        Self::End,
    ];

    /// Its key at the link.
    pub(super) const fn key(self) -> u64 {
        match self {
            Self::Change => 0,
            Self::Message => 1,
            Self::Decision => 2,
            Self::Event => 3,
            Self::Room => 4,
            Self::Connected => 5,
            Self::Pong => 6,
            Self::Kept => 7,
            Self::End => 8,
            Self::Life(number) => FIRST_LIFE.saturating_add(number),
        }
    }
}

/// Keys below this one are of kinds of waits.
const FIRST_LIFE: u64 = 16;
