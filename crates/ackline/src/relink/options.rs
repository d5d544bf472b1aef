//! The options of a connector and of a listener.

use std::path::PathBuf;
use std::time::Duration;

use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget};
use ackline_relink::frame::{EndpointName, Parameters, Role};
use ackline_relink::{EndpointConfig, Limits, LinkConfig};

use super::error::Error;

/// Windows, limits and timers of each link of a connector or listener.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Messages of one channel that may wait for their acknowledgement as consumed: 65,536.
    pub send_window: u32,
    /// Messages of one channel that may be delivered here and not consumed, 65,536; a peer that sends one
    /// more breaks a limit.
    pub receive_window: u32,
    /// Payload bytes sent on a link that may wait for their acknowledgement: 256 MiB. A single larger
    /// message is taken when nothing else waits.
    pub send_bytes: usize,
    /// Consumed messages of one channel that are acknowledged at once: 16,384.
    pub ack_window: u32,
    /// How long fewer of them wait for more: 100 ms; zero is not at all.
    pub ack_delay: Duration,
    /// Silence after which a ping goes out, 11 s; `None` is never.
    pub ping_after: Option<Duration>,
    /// How long a ping waits for its pong, 7 s; then the transport is given up, not the link.
    pub pong_timeout: Option<Duration>,
    /// How long the rest of a packet may stay away, 30 s.
    pub packet_receive_timeout: Option<Duration>,
    /// Channels of the peer's at once: 65,536.
    pub max_channels: usize,
    /// Limits of what a peer's packet may hold.
    pub limits: Limits,
}

impl Default for LinkOptions {
    fn default() -> Self {
        let machine = LinkConfig::new(Role::Connector, Parameters::default());
        Self {
            send_window: machine.send_window,
            receive_window: machine.receive_window,
            send_bytes: 256 << 20,
            ack_window: machine.ack_window,
            ack_delay: machine.ack_delay,
            ping_after: machine.ping_after,
            pong_timeout: machine.pong_timeout,
            packet_receive_timeout: machine.packet_receive_timeout,
            max_channels: machine.max_channels,
            limits: machine.limits,
        }
    }
}

impl LinkOptions {
    /// Refuses what nothing could be sent or received with.
    pub(super) fn check(&self) -> Result<(), Error> {
        let counts = [
            ("send_window", u64::from(self.send_window)),
            ("receive_window", u64::from(self.receive_window)),
            ("ack_window", u64::from(self.ack_window)),
            (
                "send_bytes",
                u64::try_from(self.send_bytes).unwrap_or(u64::MAX),
            ),
            (
                "max_channels",
                u64::try_from(self.max_channels).unwrap_or(u64::MAX),
            ),
            ("max_channel_ids", u64::from(self.limits.channel_id_count)),
            ("max_message_parts", u64::from(self.limits.message_length)),
            ("max_part_bytes", self.limits.payload_size),
            ("max_message_bytes", self.limits.message_size),
            ("max_multicast_bytes", self.limits.multicast_size),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Error::url(format!("{name} is 0; it is at least 1")));
        }
        check_times(&[
            ("ping_after", self.ping_after),
            ("pong_timeout", self.pong_timeout),
            ("packet_receive_timeout", self.packet_receive_timeout),
        ])
    }

    /// The configuration of a machine; one with a journal promises nothing that is not in it.
    pub(crate) fn machine(&self, role: Role, parameters: Parameters, journal: bool) -> LinkConfig {
        LinkConfig {
            send_window: self.send_window,
            receive_window: self.receive_window,
            ack_window: self.ack_window,
            ack_delay: self.ack_delay,
            ping_after: self.ping_after,
            pong_timeout: self.pong_timeout,
            packet_receive_timeout: self.packet_receive_timeout,
            max_channels: self.max_channels,
            limits: self.limits,
            close_when_consumed: true,
            resume_from_consumed: journal,
            journal,
            ..LinkConfig::new(role, parameters)
        }
    }
}

/// The parameters where neither a URL nor an option says otherwise: ids of 4 bytes, no transactions.
pub const PARAMETERS: Parameters = Parameters {
    connector_channel_id_size: 4,
    listener_channel_id_size: 4,
    connector_transactions: false,
    listener_transactions: false,
};

ackline_core::options! {
    /// How a connector makes its link and keeps it.
    #[derive(Debug, Clone)]
    pub struct ConnectOptions {
        options {
            /// Time for the first connection of a new link: until it has passed, a listener that cannot be reached or that
            /// ends the handshake is tried again, after waits below a ceiling that doubles from 100 ms. Off is one attempt.
            timeout: Option<Duration> = None, time().or_zero(), CONNECT;
            /// Time for the handshake of the protocol.
            handshake_timeout: Duration = HANDSHAKE_TIMEOUT, time(), CONNECT;
            /// Connections in a row that may end soon, with nothing received and nothing acknowledged, before this side gives
            /// the link up. It is lost then; the listener may refuse what was sent, such as a message above its limits, which
            /// the protocol has no word for.
            stuck_after: Option<u32> = None, count(1..=0xffff_ffff), CONNECT;
            /// Asks the listener for its limits, and for the reason of an *uncommitted*. An Ackline of this version tells them,
            /// see [`Link::told`](super::Link::told); any other listener ignores the wish.
            wants_hints: bool = false, flag(), CONNECT;
            /// Bytes of received messages that may be held in memory; above it nothing more is read until some are consumed.
            memory: u64 = 256 << 20, bytes(LEAST_MEMORY..=u64::MAX), CONNECT;
            /// The directory in which the link is kept, so that it survives this process. Its parent must be there; one process
            /// at a time may use it.
            state: Option<PathBuf> = None, path(), CONNECT;
        }
        groups {
            /// Channel id sizes and transactions, where the URL does not set them. The listener's endpoint must have the
            /// same.
            parameters: Parameters = PARAMETERS;
            /// Windows, limits and timers.
            link: LinkOptions = LinkOptions::default();
            /// How to connect, and again.
            reconnect: ReconnectOptions = ReconnectOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
        fields {
            /// Seeds the waits between attempts, for tests.
            seed: Option<u64> = None;
        }
    }
}

ackline_core::options! {
    /// How a listener makes links and keeps them.
    #[derive(Debug, Clone)]
    pub struct ListenOptions {
        options {
            /// Bytes of received messages that may be held in memory; above it nothing more is read until some are consumed.
            memory: u64 = 256 << 20, bytes(LEAST_MEMORY..=u64::MAX), LISTEN;
            /// The directory in which the links are kept, so that they survive this process. Its parent must be there; one
            /// process at a time may use it.
            state: Option<PathBuf> = None, path(), LISTEN;
        }
        groups {
            /// Channel id sizes and transactions of the URL's endpoint, where the URL does not set them.
            parameters: Parameters = PARAMETERS;
            /// Windows, limits and timers of each link.
            link: LinkOptions = LinkOptions::default();
            /// The links that are kept.
            keep: KeepOptions = KeepOptions::default();
            /// Limits on who may connect, how many and how fast. Its `handshake_timeout` holds for the protocol's handshake too.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
        fields {
            /// Further endpoints on the same socket.
            endpoints: Vec<EndpointConfig> = Vec::new();
        }
    }
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

/// The name of an endpoint, as far as it fits.
///
/// # Errors
/// It has more than 255 bytes.
pub(crate) fn endpoint_name(name: &str) -> Result<EndpointName, String> {
    EndpointName::try_from(name).map_err(|error| error.message.to_owned())
}

/// The least of `memory`, as for a receiver.
const LEAST_MEMORY: u64 = Budget::LEAST;
const MEMORY: u64 = 256 << 20;
/// What an attempt, a deadline or a pause takes at least: with less they would never end, or never stop.
const LEAST_TIME: Duration = Duration::from_millis(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use ackline_relink::frame::Role;

    use super::*;

    #[test]
    fn a_link_that_is_kept_promises_what_is_on_disk_and_no_more() {
        for is_kept in [true, false] {
            let config = LinkOptions::default().machine(Role::Listener, PARAMETERS, is_kept);
            assert_eq!(
                (config.journal, config.resume_from_consumed),
                (is_kept, is_kept)
            );
            assert!(config.close_when_consumed, "no close leaves a fate unknown");
        }
    }
}
