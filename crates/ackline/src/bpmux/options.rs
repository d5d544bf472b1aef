//! The options of a connecting end and of a listener.

use std::time::Duration;

use ackline_bpmux::LinkOptions;
use ackline_core::OpenError;
use ackline_core::options::{Options, bytes, time};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget, Endpoint};

use super::url::endpoint;
use crate::dialing::{filled, usable};
use crate::query;

ackline_core::options! {
    /// How a connection is made.
    #[derive(Debug, Clone)]
    pub struct ConnectOptions {
        options {
            /// Time for one attempt to connect, including the handshake of TLS.
            connect_timeout: Duration = Duration::from_secs(10), time(), CONNECT;
            /// Bytes of received payload that may be held in memory; above it nothing more is read until some is taken. Open
            /// sinks, streams and requests of the peer may take a further eighth of it.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), CONNECT;
        }
        groups {
            /// Credit, limits and timers.
            link: LinkOptions = LinkOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
    }
}

ackline_core::options! {
    /// How a listener makes connections.
    #[derive(Debug, Clone)]
    pub struct ListenOptions {
        options {
            /// Bytes of received payload of all connections that may be held in memory. Open sinks, streams and requests of
            /// peers may take a further quarter of it; those of one peer may take half of the part that the others leave.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), LISTEN;
        }
        groups {
            /// Credit, limits and timers of each connection.
            link: LinkOptions = LinkOptions::default();
            /// Limits on connections: allowed networks, number and rate.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
    }
}

impl ConnectOptions {
    /// Takes the options in the query of `url`, and refuses values that are outside their ranges or do not go together,
    /// and TLS that cannot be used; the endpoint of the URL.
    pub(super) fn endpoint(&mut self, url: &str) -> Result<Endpoint, OpenError> {
        let plain = taken(url, &mut self.link)?;
        self.check_ranges()?;
        self.link.check()?;
        let endpoint = filled(endpoint(&plain)?, &self.tls)?;
        usable(endpoint)
    }
}

impl ListenOptions {
    /// As [`ConnectOptions::endpoint`], for an address to listen on.
    pub(super) fn endpoint(&mut self, url: &str) -> Result<Endpoint, OpenError> {
        let plain = taken(url, &mut self.link)?;
        self.check_ranges()?;
        self.link.check()?;
        filled(endpoint(&plain)?, &self.tls)
    }
}

/// Sets the options in the query of `url`; the URL without them.
fn taken(url: &str, link: &mut LinkOptions) -> Result<String, OpenError> {
    let mut own: [&mut dyn Options; 1] = [link];
    let plain = query::take(url, &mut own).map_err(OpenError::Option)?;
    Ok(plain.url)
}
