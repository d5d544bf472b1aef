//! What the owner of a handshake or a link decides. Every limit and timer of the reading is a field here.

use std::time::Duration;

use ackline_core::Sequence;

use crate::frame::{EndpointName, Parameters, Role};
use crate::{ChannelId, Limits};

/// A link within a listener instance: what both sides remember of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    /// The listener instance, in microseconds since 1970 (REQ-RELINK-16).
    pub epoch: u64,
    /// The link within it, from 1 to 2^63-1 (REQ-RELINK-18).
    pub link_id: u64,
}

/// The connector's side of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorConfig {
    /// Which of the listener's endpoints is wanted.
    pub endpoint_name: EndpointName,
    /// Channel id sizes and transaction flags; the listener's must be the same.
    pub parameters: Parameters,
    /// With an old link: rather none than a new one (`require_old_link_id`), off.
    pub require_old_link_id: bool,
    /// Asks the listener for [hints](crate::frame::Hint) (`wants_hints`), off. They are beside the
    /// specification: one that does not know of them tells none.
    pub wants_hints: bool,
    /// For the whole handshake (`handshake_timeout`), 10 s; `None`: no deadline.
    pub handshake_timeout: Option<Duration>,
}

impl ConnectorConfig {
    /// The defaults, for an endpoint.
    pub fn new(endpoint_name: EndpointName, parameters: Parameters) -> Self {
        Self {
            endpoint_name,
            parameters,
            require_old_link_id: false,
            wants_hints: false,
            handshake_timeout: Some(HANDSHAKE_TIMEOUT),
        }
    }
}

/// The listener's side of a handshake. What it offers stands in a [`Binder`](crate::Binder).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerConfig {
    /// For the whole handshake (`handshake_timeout`), 10 s; `None`: no deadline.
    pub handshake_timeout: Option<Duration>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            handshake_timeout: Some(HANDSHAKE_TIMEOUT),
        }
    }
}

/// A side of a link's channels, as this end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// This end sends the messages.
    Outgoing,
    /// This end receives the messages.
    Incoming,
}

/// A channel that exists before the link's first packet, all its earlier messages consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartChannel {
    /// Who sends on it.
    pub side: Side,
    /// Its id.
    pub channel: ChannelId,
    /// The number of its next message.
    pub next: Sequence,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Which end this is.
    pub role: Role,
    /// What the handshake agreed.
    pub parameters: Parameters,
    /// Messages of one channel that may wait for their `consumed` (`send_window`), 65,536; at most
    /// 2^31-1.
    pub send_window: u32,
    /// Messages of one channel that the peer may have delivered and this end not consumed
    /// (`receive_window`), 65,536; one more is `limit_exceeded`.
    pub receive_window: u32,
    /// Consumed messages of one channel that are acknowledged at once (`ack_window`), 16,384.
    pub ack_window: u32,
    /// How long a smaller number of them waits (`ack_delay`), 100 ms; zero: not at all.
    pub ack_delay: Duration,
    /// Silence after which a ping goes out (`ping_after`), 11 s; `None`: never.
    pub ping_after: Option<Duration>,
    /// How long a ping waits for its pong (`pong_timeout`), 7 s; `None`: for ever.
    pub pong_timeout: Option<Duration>,
    /// How long the rest of a packet may stay away with no byte coming (`packet_receive_timeout`),
    /// 30 s; `None`: for ever.
    pub packet_receive_timeout: Option<Duration>,
    /// What a peer's packet may hold.
    pub limits: Limits,
    /// Channels of the peer's that may be open, or closed and not yet answered, at once
    /// (`max_channels`), 65,536.
    pub max_channels: usize,
    /// Events that may wait to be taken before input stays where it is (`max_events`), 1,024; the
    /// packet, or the step of a multicast, that reaches it still takes effect.
    pub max_events: usize,
    /// Payload bytes in events that may wait to be taken likewise (`max_event_bytes`), 4 MiB.
    pub max_event_bytes: usize,
    /// Runs of outcomes that one channel keeps for a resume (`max_outcome_runs`), 65,536: adjacent
    /// outcomes of one kind are one run. Above half of it a ping finds out which of them the peer knows.
    pub max_outcome_runs: usize,
    /// Bytes of messages whose decision was taken, with 64 for each, that may go out before it does
    /// (`undecided_bytes`), 65,536: what goes out again after a cut, or was sent before there was a
    /// transport, comes in its order and then its decisions (R-RELINK-V11), but above this the decisions
    /// that are whole come in between. So the peer holds this or one transaction undecided, whichever is
    /// more, and not a window.
    pub undecided_bytes: usize,
    /// `close` leaves only when every message of the channel has been consumed, decided and answered
    /// (`close_when_consumed`), off: a cut between close and its answer then leaves nothing unknown
    /// (R-RELINK-V5).
    pub close_when_consumed: bool,
    /// A resume announces what was consumed as what was received (`resume_from_consumed`), off: what
    /// was delivered and not consumed is sent again, and dropped without an event while this end lives,
    /// so that nothing is promised that a crash would lose.
    pub resume_from_consumed: bool,
    /// Changes are handed out for a journal, and nothing that depends on one leaves before it is
    /// [`journaled`](crate::Link::journaled), off. Implies `resume_from_consumed`.
    pub journal: bool,
    /// Channels that exist from the start.
    pub channels: Vec<StartChannel>,
}

impl LinkConfig {
    /// The defaults, for an end with these parameters.
    pub fn new(role: Role, parameters: Parameters) -> Self {
        Self {
            role,
            parameters,
            send_window: 65_536,
            receive_window: 65_536,
            ack_window: 16_384,
            ack_delay: Duration::from_millis(100),
            ping_after: Some(Duration::from_secs(11)),
            pong_timeout: Some(Duration::from_secs(7)),
            packet_receive_timeout: Some(Duration::from_secs(30)),
            limits: Limits::default(),
            max_channels: 65_536,
            max_events: 1_024,
            max_event_bytes: 4 << 20,
            max_outcome_runs: 65_536,
            undecided_bytes: 64 << 10,
            close_when_consumed: false,
            resume_from_consumed: false,
            journal: false,
            channels: Vec::new(),
        }
    }

    /// Bytes of an id of this end's channels.
    pub const fn own_channel_id_size(&self) -> u8 {
        self.parameters.channel_id_size(self.role)
    }

    /// Bytes of an id of the peer's channels.
    pub const fn peer_channel_id_size(&self) -> u8 {
        self.parameters.channel_id_size(self.role.peer())
    }
}

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
