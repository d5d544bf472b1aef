//! The options of a connecting end and of a listener.

use std::time::Duration;

use ackline_core::OpenError;
use ackline_core::options::{Options, bytes, time};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget, Endpoint};
use ackline_micromsg::{Config, Offer};

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
            /// Bytes of received messages that may be held in memory; above it nothing more is read until some are taken.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), CONNECT;
            /// Bytes of messages that may wait to be sent, beside the message in work.
            send_bytes: usize = 1 << 20, bytes(1..=u64::MAX), CONNECT;
        }
        groups {
            /// The name and the extensions of this end.
            offer: Offer = Offer::default();
            /// Limits and timers.
            link: Config = Config::with_timers();
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
            /// Bytes of received messages of all connections that may be held in memory.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), LISTEN;
            /// Bytes of messages that may wait to be sent on each connection, beside the message in work.
            send_bytes: usize = 1 << 20, bytes(1..=u64::MAX), LISTEN;
        }
        groups {
            /// The name and the extensions of this end.
            offer: Offer = Offer::default();
            /// Limits and timers of each connection.
            link: Config = Config::with_timers();
            /// Limits on connections: allowed networks, number and rate.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
    }
}

impl ConnectOptions {
    /// Takes the options in the query of `url`, and refuses values that are outside their ranges, and TLS that cannot be
    /// used; the endpoint of the URL.
    pub(super) fn endpoint(&mut self, url: &str) -> Result<Endpoint, OpenError> {
        let plain = taken(url, &mut self.link)?;
        self.check_ranges()?;
        self.offer.apply(&mut self.link)?;
        usable(filled(endpoint(&plain)?, &self.tls)?)
    }
}

impl ListenOptions {
    /// As [`ConnectOptions::endpoint`], for an address to listen on.
    pub(super) fn endpoint(&mut self, url: &str) -> Result<Endpoint, OpenError> {
        let plain = taken(url, &mut self.link)?;
        self.check_ranges()?;
        self.offer.apply(&mut self.link)?;
        filled(endpoint(&plain)?, &self.tls)
    }
}

/// Sets the options in the query of `url`; the URL without them.
fn taken(url: &str, link: &mut Config) -> Result<String, OpenError> {
    let mut own: [&mut dyn Options; 1] = [link];
    Ok(query::take(url, &mut own)?.url)
}
