//! The reasons to turn a connection away, with their codes, options and texts.

use ackline_core::LimitHit;

use crate::proxy;
use crate::tls::TlsError;

/// The meaning of a connection's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    Tls,
    Http,
    Proxy,
    Other,
}

impl FirstBytes {
    /// The reason to turn it away on a port without TLS, if any.
    pub(super) fn refusal(self, is_proxied: bool) -> Option<Reason> {
        match self {
            Self::Proxy if is_proxied => Some(Reason::Twice),
            Self::Proxy => Some(Reason::Untrusted),
            Self::Tls => Some(Reason::Tls(TlsError::Unexpected(HELLO.to_owned()))),
            Self::Http => Some(Reason::Http),
            Self::Other => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("it ended before its first byte")]
    HealthCheck,
    #[error("its address is in no network of --allow")]
    NotAllowed,
    #[error("{} connections would be above {} ({})", .0.value, .0.limit, .0.option)]
    Limit(LimitHit),
    #[error(
        "{} connections of one address that are not admitted yet would be above {}, a tenth of {} or 64",
        .0.value, .0.limit, .0.option
    )]
    Greeting(LimitHit),
    #[error(
        "{} connections would be above {}: {}, and a tenth of it or 64 for connections of proxies that wait \
         for their PROXY header",
        .0.value, .0.limit, .0.option
    )]
    Unclaimed(LimitHit),
    #[error(
        "all of --max-connections are taken, its address (or local user) has the most of them, and it was \
         the least useful"
    )]
    Displaced,
    #[error("{0}; --proxy-from names its address: every connection of it must begin with one")]
    Header(proxy::ProxyError),
    #[error("it ended inside its PROXY header")]
    HeaderCut,
    #[error("a PROXY header from an address that --proxy-from does not name: add the proxy's")]
    Untrusted,
    #[error("a second PROXY header: only the last proxy may send one")]
    Twice,
    #[error("{0}")]
    Tls(TlsError),
    #[error("an HTTP request: this port speaks another protocol")]
    Http,
    #[error("it was silent too long ({0})")]
    Silent(&'static str),
}

impl Reason {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::HealthCheck => NO_CODE,
            Self::NotAllowed => "link.not_allowed",
            Self::Limit(_) | Self::Greeting(_) | Self::Unclaimed(_) => "link.too_many_connections",
            Self::Displaced => "link.displaced",
            Self::Header(proxy::ProxyError::Missing(_)) => "proxy.missing",
            Self::Header(_) | Self::HeaderCut => "proxy.malformed",
            Self::Untrusted => "proxy.untrusted",
            Self::Twice => "proxy.twice",
            Self::Tls(error) => error.code(),
            Self::Http => "link.http",
            Self::Silent(_) => "link.timeout",
        }
    }

    pub(super) fn option(&self) -> Option<&'static str> {
        match self {
            Self::NotAllowed => Some("--allow"),
            Self::Limit(hit) | Self::Greeting(hit) | Self::Unclaimed(hit) => Some(hit.option),
            Self::Displaced => Some("--max-connections"),
            Self::Header(_) | Self::Untrusted => Some("--proxy-from"),
            Self::Silent(option) => Some(option),
            _ => None,
        }
    }

    pub(super) fn hit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(hit) | Self::Greeting(hit) | Self::Unclaimed(hit) => Some(*hit),
            _ => None,
        }
    }
}

/// The code of a connection that is not logged.
const NO_CODE: &str = "";
pub(super) const HANDSHAKE: &str = "--handshake-timeout";
pub(super) const FIRST_BYTE: &str = "--first-byte-timeout";
const HELLO: &str =
    "a TLS client hello on a port without TLS: turn TLS off at the sender, or listen on +tls";
