//! The options of an acceptor.

use std::time::Duration;

use ackline_core::options::{
    OptionError, OptionKind, OptionSpec, OptionType, OptionValue, bytes, count, text, time, wrong,
};

use super::Networks;

ackline_core::options! {
    /// Limits on connections: allowed networks, number and rate.
    #[derive(Debug, Clone)]
    pub struct AcceptorOptions {
        options {
            /// Networks of proxies, 10.0.0.0/8,127.0.0.1: a PROXY header is required from them, refused from others.
            proxy_from: Networks = Networks::default(), NETWORKS, LISTEN | RECEIVE;
            /// Networks that may connect, by the client's address. Unix sockets have the rights of their file instead.
            allow: Networks = Networks::default(), NETWORKS, LISTEN | RECEIVE;
            /// Connections at once, also while they are being admitted. Of connections of proxies that wait for their PROXY
            /// header there may be as many as are free, and a tenth more, or 64.
            max_connections: usize = 10_000, count(1..=u64::MAX), LISTEN | RECEIVE;
            /// Connections of one address (IPv6: of its /64) or local user at once; 0 is all. When all connections are taken
            /// and an address or user that has fewer asks for one, one of the address or user that has the most is ended:
            /// the least useful.
            max_connections_per_address: PerAddress = PerAddress::Most, count(0..=u64::MAX), LISTEN | RECEIVE;
            /// Connections accepted in a second, which may come at once; 0 is off. One address or local user has half of
            /// it. Connections that are turned away at once do not count.
            accept_rate: Option<u64> = Some(1_000), count(1..=u64::MAX).or_zero(), LISTEN | RECEIVE;
            /// Bytes that one sender may send in a second: above it reading waits; 0 is off.
            max_bytes_per_second: Option<u64> = None, bytes(1..=u64::MAX).or_zero(), LISTEN | RECEIVE;
            /// Age at which a connection ends in good order, ± 20 %.
            max_connection_age: Option<Duration> = None, time(), LISTEN | RECEIVE;
            /// For a PROXY header, and for a handshake of TLS or Relink.
            handshake_timeout: Duration = Duration::from_secs(10), time(), LISTEN | RECEIVE;
            /// Silence of a new connection.
            first_byte_timeout: Option<Duration> = Some(Duration::from_secs(10)), time(), LISTEN | RECEIVE;
        }
    }
}

const NETWORKS: OptionKind = text("a text of networks such as 10.0.0.0/8, with commas");

impl OptionType for Networks {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match value {
            OptionValue::Off => Ok(Self::default()),
            OptionValue::Text(text) => text
                .parse()
                .map_err(|error: String| OptionError::new(spec.name, error)),
            _ => Err(wrong(spec, value)),
        }
    }

    fn shown(&self, _: &OptionKind) -> String {
        if self.is_empty() {
            String::new()
        } else {
            self.to_string()
        }
    }
}

/// How many connections one address may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerAddress {
    /// All but an eighth of those that there may be.
    Most,
    /// So many; 0 is all.
    Limit(usize),
}

impl PerAddress {
    /// The limit, if it is given as a number.
    pub(crate) const fn limit(self) -> Option<usize> {
        match self {
            Self::Most => None,
            Self::Limit(limit) => Some(limit),
        }
    }
}

impl OptionType for PerAddress {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match value {
            OptionValue::Off => Ok(Self::Most),
            value => usize::read(spec, value).map(Self::Limit),
        }
    }

    fn shown(&self, _: &OptionKind) -> String {
        match self {
            Self::Most => "all but an eighth of max_connections".to_owned(),
            Self::Limit(limit) => limit.to_string(),
        }
    }
}
