//! Who is at the other end of a connection, as far as it is known: what limits, rates and repeats go by,
//! and what is kept beside its events. Decides names; verifies nothing.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::Session;

/// The sender behind an accepted connection. Every text is escaped and bounded: a peer chooses parts of
/// them, and they stand in logs, columns and file names of others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The client's `address:port`, as a trusted proxy told it, or `unix`.
    pub name: Arc<str>,
    /// The identity that limits, rates and repeats go by: `tls:` and the subject or the fingerprint of the
    /// certificate it proved, else the client's IP address without its port, else `unix`.
    pub sender: Arc<str>,
    /// What else is known of it, by name, such as `proxy`: the address of the proxy that connected for it.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl PeerInfo {
    /// A client at this address.
    pub fn tcp(client: SocketAddr) -> Self {
        let client = canonical(client);
        Self {
            name: client.to_string().into(),
            sender: client.ip().to_string().into(),
            attributes: Vec::new(),
        }
    }

    /// A client of a Unix socket, which has no name.
    pub fn unix() -> Self {
        Self {
            name: "unix".into(),
            sender: "unix".into(),
            attributes: Vec::new(),
        }
    }

    /// The same with what its session of TLS says of it.
    #[must_use]
    pub fn with_session(mut self, session: &Session) -> Self {
        if let Some(identity) = session.identity() {
            self.sender = format!("tls:{}", escaped(identity)).into();
        }
        if let Some(subject) = &session.subject {
            self = self.with("tls.subject", subject);
        }
        if !session.sans.is_empty() {
            self = self.with("tls.san", &session.sans.join(","));
        }
        if let Some(fingerprint) = &session.fingerprint {
            self = self.with("tls.fingerprint", fingerprint);
        }
        self.with("tls.version", &session.version)
            .with("tls.cipher", &session.cipher)
    }

    /// The same with one more attribute, escaped and cut at 1,024 bytes.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.attributes.push((name.into(), escaped(value).into()));
        self
    }
}

/// An IPv4 address that a dual-stack socket shows as IPv6 (`::ffff:10.0.0.1`) as IPv4: networks and
/// identities mean the client, not the socket.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Bytes of a text that a peer chooses: it is kept with each block.
const MAX_TEXT: usize = 1_024;

/// Without control characters and no longer than [`MAX_TEXT`] bytes; a cut is marked with `…`.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for char in text.chars() {
        let before = safe.len();
        if char.is_control() || is_bidi(char) {
            let _ = write!(safe, "{}", char.escape_default());
        } else {
            safe.push(char);
        }
        if safe.len() > MAX_TEXT {
            safe.truncate(before);
            safe.push('…');
            break;
        }
    }
    safe
}

/// Separators and marks that change how the rest of a line is shown.
const fn is_bidi(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_address_without_the_port() {
        let four = PeerInfo::tcp("10.0.0.7:1234".parse().unwrap());
        assert_eq!((&*four.name, &*four.sender), ("10.0.0.7:1234", "10.0.0.7"));
        let six = PeerInfo::tcp("[2001:db8::1]:9".parse().unwrap());
        assert_eq!(
            (&*six.name, &*six.sender),
            ("[2001:db8::1]:9", "2001:db8::1")
        );
        let mapped = PeerInfo::tcp("[::ffff:10.0.0.7]:1234".parse().unwrap());
        assert_eq!(mapped, four);
        assert_eq!(&*PeerInfo::unix().sender, "unix");
    }

    #[test]
    fn what_a_peer_chooses_is_escaped_and_bounded() {
        let text = "CN=a\u{1b}[31m\n\u{202e}b".to_owned() + &"ü".repeat(2_000);
        let peer = PeerInfo::unix().with("tls.subject", &text);
        let value = &*peer.attributes[0].1;
        assert!(
            value.starts_with("CN=a\\u{1b}[31m\\n\\u{202e}bü"),
            "{value}"
        );
        assert!(value.len() <= MAX_TEXT + '…'.len_utf8() && value.ends_with('…'));
    }
}
