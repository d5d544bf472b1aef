//! The options of a connecting end and of a listener.

use std::time::Duration;

use ackline_bpmux::LinkOptions;
use ackline_core::options::{OptionError, Options, bytes, time};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget};

use super::error::Error;
use crate::query;

/// Bytes of begun and unfinished payloads that a connection with this memory may hold: seven eighths of the
/// memory that one connection can always get.
pub(super) fn most_incomplete(budget: &Budget) -> usize {
    usize::try_from(budget.largest() / 8 * 7).unwrap_or(usize::MAX)
}

ackline_core::options! {
    /// How a connection is made.
    #[derive(Debug, Clone)]
    pub struct ConnectOptions {
        options {
            /// Time to connect, with the handshake of TLS.
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

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

impl ConnectOptions {
    /// Sets the options in the query of `url`, refuses values that are outside their ranges or do not go together, and
    /// answers the URL without those options.
    pub(super) fn with_url(&mut self, url: &str) -> Result<String, Error> {
        let mut own: [&mut dyn Options; 1] = [&mut self.link];
        let plain = query::take(url, &mut own).map_err(Error::url)?;
        self.check_ranges()?;
        self.link.check()?;
        Ok(plain.url)
    }
}

impl ListenOptions {
    /// Sets the options in the query of `url`, refuses values that are outside their ranges or do not go together, and
    /// answers the URL without those options.
    pub(super) fn with_url(&mut self, url: &str) -> Result<String, Error> {
        let mut own: [&mut dyn Options; 1] = [&mut self.link];
        let plain = query::take(url, &mut own).map_err(Error::url)?;
        self.check_ranges()?;
        self.link.check()?;
        Ok(plain.url)
    }
}
