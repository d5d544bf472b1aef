//! The known facts of a connection's peer: its names for limits, rates and repeats, and the facts
//! that are kept beside its events. This module decides names; it verifies nothing.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::escape;

/// The sender behind an accepted connection. Every text is escaped and bounded: a peer chooses parts of
/// them, and they stand in logs, columns and file names of others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The client's `address:port`, as a trusted proxy told it, or `unix`.
    pub name: Arc<str>,
    /// The identity that limits, rates and repeats go by: `tls:` and the part of the certificate it proved
    /// that the listener knows clients by, else `token:` and the name of its token, else the client's IP address without
    /// its port, else `user:` and the id of the user who connected a Unix socket, else `unix`.
    pub sender: Arc<str>,
    /// The identity that earlier releases gave the same certificate, `tls:` and its subject alone; only where
    /// no other authority of the listener could have issued that subject.
    pub former: Option<Arc<str>>,
    /// Further facts by name, such as `proxy`: the address of the proxy that connected for it.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl PeerInfo {
    /// A client at this address.
    pub fn tcp(client: SocketAddr) -> Self {
        let client = canonical(client);
        Self {
            name: client.to_string().into(),
            sender: client.ip().to_string().into(),
            former: None,
            attributes: Vec::new(),
        }
    }

    /// A client of a Unix socket, which has no name, and the id of its user where the system says it.
    pub fn unix(user: Option<u32>) -> Self {
        let sender = user.map_or_else(|| "unix".to_owned(), |user| format!("user:{user}"));
        Self {
            name: "unix".into(),
            sender: sender.into(),
            former: None,
            attributes: Vec::new(),
        }
    }

    /// The identity that it has proved, by a certificate or a token.
    pub fn proven(&self) -> Option<&Arc<str>> {
        let is_proven = self.sender.starts_with("tls:") || self.sender.starts_with("token:");
        is_proven.then_some(&self.sender)
    }

    /// The same with one more attribute, its backslashes and control characters escaped (`\\`, `\0A`),
    /// cut at 1,024 bytes.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.push(name, &cut(&escape::escaped(value, "")));
        self
    }

    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.attributes.push((name.into(), value.into()));
    }
}

/// An IPv4 address that a dual-stack socket shows as IPv6 (`::ffff:10.0.0.1`) as IPv4: networks and
/// identities mean the client, not the socket.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Bytes of a text that a peer chooses: it is kept with each block.
pub(crate) const MAX_TEXT: usize = 1_024;

/// No longer than [`MAX_TEXT`] bytes; a cut is marked with `…`.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=MAX_TEXT).rev().find(is_end).unwrap_or_default();
    format!("{}…", &text[..end]).into()
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
        assert_eq!(&*PeerInfo::unix(None).sender, "unix");
        assert_eq!(&*PeerInfo::unix(Some(1000)).sender, "user:1000");
    }

    fn attribute<'a>(peer: &'a PeerInfo, name: &str) -> &'a str {
        let mut all = peer.attributes.iter();
        &all.find(|(own, _)| &**own == name).unwrap().1
    }

    #[test]
    fn what_a_peer_chooses_is_escaped_and_bounded() {
        let text = "a\u{1b}[31m\n\\n\u{202e}b".to_owned() + &"ü".repeat(2_000);
        let peer = PeerInfo::unix(None).with("name", &text);
        let value = attribute(&peer, "name");
        assert!(
            value.starts_with("a\\1B[31m\\0A\\\\n\\E2\\80\\AEbü"),
            "{value}"
        );
        assert!(value.len() <= MAX_TEXT + '…'.len_utf8() && value.ends_with('…'));
    }
}
