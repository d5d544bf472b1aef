//! What can be set on a link, a connector and a listener.

use std::path::PathBuf;
use std::time::Duration;

use ackline_link::AcceptorOptions;
use ackline_link::tls::TlsOptions;
use ackline_relink::frame::{EndpointName, Parameters, Role};
use ackline_relink::{EndpointConfig, Limits, LinkConfig};

use super::error::Error;
use crate::ReceiverOptions;

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

/// How a connector makes its link and keeps it.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Time for the first transport of a new link: until it has passed, a listener that cannot be reached or that
    /// ends the handshake is tried again, after waits below a ceiling that doubles from 100 ms. `None`, the
    /// default, is one attempt.
    pub timeout: Option<Duration>,
    /// Channel id sizes and transactions, where the URL does not set them: [`PARAMETERS`]. The listener's
    /// endpoint must have the same.
    pub parameters: Parameters,
    /// Windows, limits and timers.
    pub link: LinkOptions,
    /// Time for one attempt to connect, with its handshake of TLS: 10 s.
    pub connect_timeout: Duration,
    /// Time for the handshake of the protocol: 10 s.
    pub handshake_timeout: Duration,
    /// The longest wait between two attempts to connect again: 60 s. The first is made at once; then the
    /// waits are random, below a ceiling that doubles from 100 ms.
    pub reconnect_max: Duration,
    /// How long a link may be without a transport before this side gives it up: off. It is lost then.
    pub lost_after: Option<Duration>,
    /// Transports in a row that may end soon, with nothing received and nothing acknowledged, before this
    /// side gives the link up: off. It is lost then; what was sent may be what the listener refuses, such
    /// as a message above its limits, which the protocol has no word for.
    pub stuck_after: Option<u32>,
    /// Asks the listener for its limits, and for the reason of an *uncommitted*: off. An Ackline of this version
    /// tells them, see [`Link::told`](super::Link::told); any other listener ignores the wish.
    pub wants_hints: bool,
    /// Bytes of received messages that may be held in memory, 256 MiB; above it nothing more is read until
    /// some are consumed.
    pub memory: u64,
    /// TLS of a `+tls` URL, where it leaves it open.
    pub tls: TlsOptions,
    /// The directory in which the link is kept, so that it survives this process: off. Its parent must be
    /// there; one process at a time may use it.
    pub state: Option<PathBuf>,
    /// Seeds the waits between attempts, for tests.
    pub seed: Option<u64>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            parameters: PARAMETERS,
            link: LinkOptions::default(),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            reconnect_max: Duration::from_secs(60),
            lost_after: None,
            stuck_after: None,
            wants_hints: false,
            memory: MEMORY,
            tls: TlsOptions::default(),
            state: None,
            seed: None,
        }
    }
}

/// How a listener makes links and keeps them.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Channel id sizes and transactions of the URL's endpoint, where the URL does not set them:
    /// [`PARAMETERS`].
    pub parameters: Parameters,
    /// Further endpoints on the same socket.
    pub endpoints: Vec<EndpointConfig>,
    /// Windows, limits and timers of each link.
    pub link: LinkOptions,
    /// Time for the handshake of the protocol: 10 s.
    pub handshake_timeout: Duration,
    /// How long a link without a transport is kept: 5 min. Then it is lost.
    pub orphan_after: Duration,
    /// Links at once, with and without a transport: 10,000. Above it new ones are refused.
    pub max_links: usize,
    /// Whether a link that was made over a proven identity of TLS belongs to it: yes. Nobody else can go
    /// on with it then.
    pub bind_identity: bool,
    /// Who may connect, how many and how fast.
    pub acceptor: AcceptorOptions,
    /// Bytes of received messages that may be held in memory, 256 MiB; above it nothing more is read until
    /// some are consumed.
    pub memory: u64,
    /// TLS of a `+tls` URL, where it leaves it open.
    pub tls: TlsOptions,
    /// The directory in which the links are kept, so that they survive this process: off. Its parent must
    /// be there; one process at a time may use it.
    pub state: Option<PathBuf>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            parameters: PARAMETERS,
            endpoints: Vec::new(),
            link: LinkOptions::default(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            orphan_after: Duration::from_secs(5 * 60),
            max_links: 10_000,
            bind_identity: true,
            acceptor: AcceptorOptions::default(),
            memory: MEMORY,
            tls: TlsOptions::default(),
            state: None,
        }
    }
}

/// Refuses times in which nothing can be done.
pub(super) fn check_times(times: &[(&str, Option<Duration>)]) -> Result<(), Error> {
    let is_short = |time: &Option<Duration>| time.is_some_and(|time| time < LEAST_TIME);
    match times.iter().find(|(_, time)| is_short(time)) {
        Some((name, time)) => Err(Error::url(format!(
            "{name} is {:?}; it is at least {LEAST_TIME:?}",
            time.unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

/// Refuses a memory that hardly a message could come into.
pub(super) fn check_memory(memory: u64) -> Result<(), Error> {
    if memory < LEAST_MEMORY {
        return Err(Error::url(format!(
            "memory is {memory}; it is at least {LEAST_MEMORY} bytes (64KiB)"
        )));
    }
    Ok(())
}

/// The name of an endpoint, as far as it fits.
///
/// # Errors
/// It has more than 255 bytes.
pub(crate) fn endpoint_name(name: &str) -> Result<EndpointName, String> {
    EndpointName::try_from(name).map_err(|error| error.message.to_owned())
}

/// The least of `memory`, as for a receiver.
const LEAST_MEMORY: u64 = ReceiverOptions::LEAST_MEMORY;
const MEMORY: u64 = 256 << 20;
/// What an attempt, a deadline or a pause takes at least: with less they would never end, or never stop.
const LEAST_TIME: Duration = Duration::from_millis(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
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
