//! What an application waits for.

use ackline_relink::ChannelId;

/// What may be waited for without taking it.
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
    /// A transport.
    Connected,
    /// The end of the link.
    End,
}
