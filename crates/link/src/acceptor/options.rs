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
            /// Networks of proxies, such as 10.0.0.0/8,127.0.0.1. A connection from them must begin with a
            /// PROXY header; one from elsewhere must not.
            proxy_from: Networks = Networks::default(), NETWORKS, LISTEN | RECEIVE;
            /// Networks that may connect, by the address of the client. It does not apply to Unix sockets:
            /// the rights of the socket file decide there.
            allow: Networks = Networks::default(), NETWORKS, LISTEN | RECEIVE;
            /// Connections at once, including those that are still being admitted. Connections from proxies
            /// that have not sent their PROXY header yet may be as many as are free, and a tenth of this
            /// limit (at least 64) more.
            max_connections: usize = 10_000, count(1..=u64::MAX), LISTEN | RECEIVE;
            /// Connections at once of one address (IPv6: of its /64) or one local user; 0 allows all. When all
            /// connections are taken and an address or user asks for one that has at least two fewer than another,
            /// the least useful connection of the address or user that has the most is ended.
            max_connections_per_address: PerAddress = PerAddress::Most, count(0..=u64::MAX), LISTEN | RECEIVE;
            /// Connections accepted in a second, all of which may come at once; 0 is off. One address or
            /// local user gets at most half of them. Connections that are turned away at once do not count.
            accept_rate: Option<u64> = Some(1_000), count(1..=u64::MAX).or_zero(), LISTEN | RECEIVE;
            /// Bytes that one sender may send in a second; above this rate the receiver waits before it reads
            /// on. 0 is off.
            max_bytes_per_second: Option<u64> = None, bytes(1..=u64::MAX).or_zero(), LISTEN | RECEIVE;
            /// Age at which the receiver ends a connection in good order, 20 % more or less.
            max_connection_age: Option<Duration> = None, time(), LISTEN | RECEIVE;
            /// Time for a PROXY header, and for a handshake of TLS or Relink. A connection that takes longer
            /// is refused.
            handshake_timeout: Duration = Duration::from_secs(10), time(), LISTEN | RECEIVE;
            /// Time until the first byte of a new connection. A connection that takes longer is refused.
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
