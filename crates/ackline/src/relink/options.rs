//! The options of a connector and of a listener.

use std::path::PathBuf;
use std::time::Duration;

use ackline_core::options::{Options, bytes, count, flag, path, time};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget};
use ackline_relink::frame::{EndpointName, Parameters};
use ackline_relink::{EndpointConfig, Error, KeepOptions, LinkOptions, ReconnectOptions};

use crate::query;

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
            /// Connections in a row that may end soon, with nothing received and nothing acknowledged, before
            /// this side gives up the link as lost. This happens when the listener refuses a message, for
            /// example one above its limits: the protocol has no packet to say so.
            stuck_after: Option<u32> = None, count(1..=0xffff_ffff), CONNECT;
            /// Asks the listener for its limits, and for the reason of an *uncommitted*. An Ackline of this version tells them,
            /// see [`Link::told`](super::Link::told); any other listener ignores the wish.
            wants_hints: bool = false, flag(), CONNECT;
            /// Bytes of received messages that may be held in memory; above it nothing more is read until some are consumed.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), CONNECT;
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
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), LISTEN;
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
            /// Limits on connections: allowed networks, number and rate. Its `handshake_timeout`
            /// holds for the protocol's handshake too.
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

/// The name of an endpoint, as far as it fits.
///
/// # Errors
/// It has more than 255 bytes.
pub(crate) fn endpoint_name(name: &str) -> Result<EndpointName, String> {
    EndpointName::try_from(name).map_err(|error| error.message.to_owned())
}

impl ConnectOptions {
    /// Sets the options in the query of `url`, refuses values that are outside their ranges or do not go together, and
    /// answers the URL without those options.
    ///
    /// # Errors
    /// As [`connect`](super::connect), for the URL and the options.
    pub fn with_url(&mut self, url: &str) -> Result<String, Error> {
        let mut own: [&mut dyn Options; 2] = [&mut self.link, &mut self.reconnect];
        let plain = query::take(url, &mut own).map_err(Error::Option)?;
        self.check_ranges()?;
        Ok(plain.url)
    }
}

impl ListenOptions {
    /// Sets the options in the query of `url`, refuses values that are outside their ranges or do not go together, and
    /// answers the URL without those options.
    pub(super) fn with_url(&mut self, url: &str) -> Result<String, Error> {
        let mut own: [&mut dyn Options; 2] = [&mut self.link, &mut self.keep];
        let plain = query::take(url, &mut own).map_err(Error::Option)?;
        self.check_ranges()?;
        Ok(plain.url)
    }
}

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
