//! Where a link goes to or comes from, as written in a URL. Options of a URL are its reader's.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen at or to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address without brackets, and a port; port 0 lets the system choose.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why a URL does not name an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no `protocol://`.
    #[error("{0:?} is not a URL: write protocol://host:port or protocol+unix:///path")]
    NoScheme(String),
    /// A user or password: no protocol of ours takes one, and it would stand in logs. The text leaves
    /// it out.
    #[error("a URL with a user or password in it is refused: write protocol://host:port")]
    Credentials,
    /// A `+tls` URL.
    #[error("TLS is not built yet: {0:?}")]
    Tls(String),
    /// Something other than `+unix` after the protocol.
    #[error("{0:?} names an unknown transport: write protocol:// for TCP or protocol+unix://")]
    Transport(String),
    /// A port above 65535.
    #[error("the port of {0:?} is out of range: ports go from 0 to 65535")]
    Port(String),
    /// No host, or no port.
    #[error("{0:?} needs a host and a port, such as protocol://127.0.0.1:5044")]
    HostPort(String),
    /// No absolute path.
    #[error("{0:?} needs an absolute path, such as protocol+unix:///run/protocol.sock")]
    Path(String),
}

impl Address {
    /// The protocol and the address of a URL: `lumberjack://host:port` or
    /// `lumberjack+unix:///run/x.sock`.
    ///
    /// # Errors
    /// The URL names no address of a transport that is built.
    pub fn parse(url: &str) -> Result<(String, Self), AddressError> {
        let is_path = url
            .split_once("+unix://")
            .is_some_and(|(scheme, path)| path.starts_with('/') && !scheme.contains('@'));
        if url.contains('@') && !is_path {
            return Err(AddressError::Credentials);
        }
        // What stands in a query may be secret.
        let whole = || match url.split_once('?') {
            Some((before, _)) => format!("{before}?…"),
            None => url.to_owned(),
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| AddressError::NoScheme(whole()))?;
        let (protocol, transport) = scheme.split_once('+').unwrap_or((scheme, "tcp"));
        if protocol.is_empty() {
            return Err(AddressError::NoScheme(whole()));
        }
        let address = match transport {
            "tcp" => parse_tcp(rest).map_err(|error| error(whole()))?,
            "unix" if rest.starts_with('/') => Self::Unix(rest.into()),
            "unix" => return Err(AddressError::Path(whole())),
            "tls" => return Err(AddressError::Tls(whole())),
            _ => return Err(AddressError::Transport(whole())),
        };
        Ok((protocol.to_owned(), address))
    }

    /// The URL of this address for `protocol`.
    pub fn url(&self, protocol: &str) -> String {
        match self {
            Self::Tcp(..) => format!("{protocol}://{self}"),
            Self::Unix(_) => format!("{protocol}+unix://{self}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        Self::parse(url).map(|(_, address)| address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn parse_tcp(rest: &str) -> Result<Address, fn(String) -> AddressError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest
        .rsplit_once(':')
        .ok_or(AddressError::HostPort as fn(String) -> _)?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    let is_plain = bracketed.is_some() || !host.contains(':');
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '[', ']']);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || !is_host || !is_number {
        return Err(AddressError::HostPort);
    }
    let port = port
        .parse()
        .map_err(|_| AddressError::Port as fn(String) -> _)?;
    Ok(Address::Tcp(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_protocol_and_an_address() {
        let tcp = |host: &str, port| Address::Tcp(host.into(), port);
        for (url, address) in [
            ("lumberjack://localhost:5044", tcp("localhost", 5044)),
            ("lumberjack://[::1]:0", tcp("::1", 0)),
            (
                "lumberjack+unix:///run/x.sock",
                Address::Unix("/run/x.sock".into()),
            ),
        ] {
            assert_eq!(
                Address::parse(url),
                Ok(("lumberjack".into(), address.clone()))
            );
            assert_eq!(address.url("lumberjack"), url);
        }
    }

    #[test]
    fn a_wrong_url_is_refused_with_the_right_form() {
        for (url, error) in [
            ("localhost:5044", "is not a URL"),
            ("://localhost:5044", "is not a URL"),
            ("lumberjack+tls://localhost:5044", "TLS is not built yet"),
            ("lumberjack+quic://localhost:5044", "unknown transport"),
            ("lumberjack://localhost", "needs a host and a port"),
            ("lumberjack://:5044", "needs a host and a port"),
            ("lumberjack://::1:5044", "needs a host and a port"),
            ("lumberjack://localhost:x", "needs a host and a port"),
            ("lumberjack://localhost:-1", "needs a host and a port"),
            (
                "lumberjack://localhost:65536",
                "port of \"lumberjack://localhost:65536\" is out of range",
            ),
            ("lumberjack://[::1]:99999", "out of range"),
            ("lumberjack+unix://run/x.sock", "needs an absolute path"),
        ] {
            let message = Address::parse(url).unwrap_err().to_string();
            assert!(message.contains(error), "{url}: {message}");
        }
    }

    #[test]
    fn a_user_or_password_is_refused_and_not_repeated() {
        for url in [
            "lumberjack://me:secret@localhost:5044",
            "lumberjack://secret@localhost:5044",
            "lumberjack://me:sec/ret@localhost:5044",
            "me:secret@localhost:5044",
            "me:secret@x+unix:///run/x.sock",
            "lumberjack+unix://me:secret@/run/x.sock",
            "lumberjack+tls://me:secret@localhost:5044",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error, AddressError::Credentials, "{url}");
            assert!(!error.to_string().contains("secret"));
        }
        let path = Address::parse("lumberjack+unix:///run/a@b.sock").unwrap().1;
        assert_eq!(path, Address::Unix("/run/a@b.sock".into()));
    }

    #[test]
    fn what_stands_in_a_query_is_not_repeated() {
        for url in [
            "lumberjack://h:1?password=secret",
            "lumberjack://h:1/?p=secret",
        ] {
            let text = Address::parse(url).unwrap_err().to_string();
            assert!(!text.contains("secret"), "{text}");
            assert!(text.contains("lumberjack://h:1"), "{text}");
        }
    }
}
