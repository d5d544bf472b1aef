//! The options of handshakes and links. Every limit and timer of the reading stands here.

use std::time::Duration;

use ackline_core::Sequence;
use ackline_core::options::{bytes, count, flag, time};

use crate::frame::{EndpointName, Parameters, Role};
use crate::{ChannelId, Limits};

/// A link within a listener instance: the key that both sides remember.
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
    /// The name of the listener's endpoint to connect to.
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

/// The listener's side of a handshake. Its endpoints are in a [`Binder`](crate::Binder).
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
    /// The side that sends on it.
    pub side: Side,
    /// Its id.
    pub channel: ChannelId,
    /// The number of its next message.
    pub next: Sequence,
}

ackline_core::options! {
    /// One end of a link.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LinkConfig {
        options {
            /// Messages of a channel that are sent and not acknowledged as consumed.
            send_window: u32 = 65_536, count(1..=0x7fff_ffff), CONNECT | LISTEN | MACHINE;
            /// Messages of a channel that may have come and not be consumed. A peer that sends one more
            /// breaks this limit and is refused.
            receive_window: u32 = 65_536, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Consumed messages of a channel after which an acknowledgement is sent at once.
            ack_window: u32 = 16_384, count(1..=0xffff_ffff), CONNECT | LISTEN | MACHINE;
            /// Longest time that an acknowledgement of fewer consumed messages waits for more; 0 acknowledges
            /// each message at once.
            ack_delay: Duration = Duration::from_millis(100), time().or_zero(), CONNECT | LISTEN | MACHINE;
            /// Silence after which a ping goes out.
            ping_after: Option<Duration> = Some(Duration::from_secs(11)), time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// How long a ping waits for its pong before the connection ends.
            pong_timeout: Option<Duration> = Some(Duration::from_secs(7)), time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Silence inside a packet after which the connection ends.
            packet_receive_timeout: Option<Duration> = Some(Duration::from_secs(30)), time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Channels of the peer on a link at once: open ones, and closed ones not yet answered.
            max_channels: usize = 65_536, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Events that wait to be taken before no more input is read; the packet that reaches it still takes
            /// effect.
            max_events: usize = 1_024, count(1..=u64::MAX), MACHINE;
            /// Payload bytes of events that wait to be taken, likewise.
            max_event_bytes: usize = 4 << 20, bytes(1..=u64::MAX), MACHINE;
            /// Whether `close` leaves only when every message of the channel has been consumed, decided and answered: a
            /// cut between close and its answer then leaves nothing unknown (R-RELINK-V5).
            close_when_consumed: bool = false, flag(), MACHINE;
            /// Whether a resume announces only consumed messages as received: delivered messages
            /// that were not consumed are sent again, and dropped without an event while this end
            /// lives, so that this end promises nothing that a crash would lose.
            resume_from_consumed: bool = false, flag(), MACHINE;
        }
        groups {
            /// Limits on a peer's packets.
            limits: Limits = Limits::default();
        }
        fields {
            /// The role of this end.
            role: Role = Role::Connector;
            /// The parameters that the handshake agreed on.
            parameters: Parameters = Parameters::default();
            /// Runs of outcomes that one channel keeps for a resume: adjacent outcomes of one kind are one run.
            /// Above half of it a ping finds out which of them the peer knows.
            max_outcome_runs: usize = 65_536;
            /// Bytes of messages whose decision was taken, with 64 for each, that may go out before it does:
            /// messages that go out again after a cut, or were sent before there was a transport, come in their
            /// order and then their decisions (R-RELINK-V11), but above this the decisions that are whole come in
            /// between. So the peer holds this or one transaction undecided, the larger of the two,
            /// and not a window.
            undecided_bytes: usize = 64 << 10;
            /// Whether changes are handed out for a journal, and nothing that depends on one leaves before it is
            /// [`journaled`](crate::Link::journaled). Implies `resume_from_consumed`.
            journal: bool = false;
            /// Channels that exist from the start.
            channels: Vec<StartChannel> = Vec::new();
        }
    }
}

ackline_core::options! {
    /// Windows, limits and timers of each link of a connector or listener.
    #[derive(Debug, Clone)]
    pub struct LinkOptions {
        options {
            /// Payload bytes sent on a link that wait for their acknowledgement; a single larger message is taken when
            /// nothing else waits.
            send_bytes: usize = 256 << 20, bytes(1..=u64::MAX), CONNECT | LISTEN;
        }
        groups {
            /// The options of the protocol's machine. The link itself sets which end it is, its parameters, how it
            /// closes and resumes, and its journal.
            machine: LinkConfig = LinkConfig::default();
        }
    }
}

impl LinkOptions {
    /// The configuration of a machine; one with a journal promises nothing that is not in it.
    pub fn machine(&self, role: Role, parameters: Parameters, journal: bool) -> LinkConfig {
        LinkConfig {
            role,
            parameters,
            close_when_consumed: true,
            resume_from_consumed: journal,
            journal,
            ..self.machine.clone()
        }
    }
}

ackline_core::options! {
    /// The links that a listener keeps.
    #[derive(Debug, Clone)]
    pub struct KeepOptions {
        options {
            /// Age at which a link without a connection is lost.
            orphan_after: Duration = Duration::from_secs(5 * 60), time(), LISTEN | RECEIVE | URL;
            /// Links at once, with and without a connection: above it new ones are refused.
            max_links: usize = 10_000, count(1..=0xffff_ffff), LISTEN | RECEIVE | URL;
            /// Whether a link made with a certificate belongs to its subject, so that nobody else can resume it.
            bind_identity: bool = true, flag(), LISTEN | RECEIVE | URL;
        }
    }
}

ackline_core::options! {
    /// How a connector connects again.
    #[derive(Debug, Clone)]
    pub struct ReconnectOptions {
        options {
            /// Where we connect: time for one attempt, with its handshake of TLS.
            connect_timeout: Duration = Duration::from_secs(10), time(), CONNECT | RECEIVE | URL;
            /// Where we connect: the longest wait between two attempts. The first is made at once; then the waits are
            /// random, below a ceiling that doubles from 100 ms.
            reconnect_max: Duration = Duration::from_secs(60), time(), CONNECT | RECEIVE | URL;
            /// Where we connect: age at which a link without a connection is given up.
            lost_after: Option<Duration> = None, time(), CONNECT | RECEIVE | URL;
        }
    }
}

ackline_core::options! {
    /// Relink in a receiver. The window is larger, since memory bounds a transaction, and kept
    /// messages are acknowledged at once (`ack_delay`): they come in groups already.
    #[derive(Debug, Clone)]
    pub struct ReceiveOptions {
        options {
            /// With a spool: whether links are kept beside it, so that they survive a restart.
            durable_links: bool = true, flag(), RECEIVE | URL;
        }
        groups {
            /// Windows, limits and timers of each link.
            link: LinkOptions = LinkOptions {
                machine: LinkConfig {
                    ack_delay: Duration::ZERO,
                    receive_window: 1 << 20,
                    ..LinkConfig::default()
                },
                ..LinkOptions::default()
            };
            /// The links that are kept.
            keep: KeepOptions = KeepOptions::default();
            /// Where the receiver connects.
            reconnect: ReconnectOptions = ReconnectOptions::default();
        }
    }
}

impl LinkConfig {
    /// The defaults, for an end with these parameters.
    pub fn new(role: Role, parameters: Parameters) -> Self {
        Self {
            role,
            parameters,
            ..Self::default()
        }
    }

    /// The defaults without any timer.
    pub fn bare() -> Self {
        Self {
            ack_delay: Duration::ZERO,
            ping_after: None,
            pong_timeout: None,
            packet_receive_timeout: None,
            ..Self::default()
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
