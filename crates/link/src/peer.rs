//! The peer of a connection, as far as it is known: the name for limits, rates and duplicate
//! detection, and the attributes stored with its events. Decides names; verifies nothing.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::escape;

/// The sender of an accepted connection. Every text is escaped and bounded: a peer chooses parts of
/// them, and they appear in logs, columns and file names of other programs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The client's `address:port`, as a trusted proxy reported it, or `unix`.
    pub name: Arc<str>,
    /// The identity for limits, rates and duplicate detection: `tls:` and the part of its proven
    /// certificate by which the listener knows clients, else `token:` and the name of its token,
    /// else the client's IP address without its port, else `user:` and the id of the user who
    /// connected a Unix socket, else `unix`.
    pub sender: Arc<str>,
    /// The identity that earlier releases gave the same certificate, `tls:` and its subject alone;
    /// only if no other authority of the listener could have issued that subject.
    pub former: Option<Arc<str>>,
    /// Other attributes by name, such as `proxy`: the address of the proxy that connected for it.
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

    /// A client of a Unix socket, which has no name, and its user id if the system says it.
    pub fn unix(user: Option<u32>) -> Self {
        let sender = user.map_or_else(|| "unix".to_owned(), |user| format!("user:{user}"));
        Self {
            name: "unix".into(),
            sender: sender.into(),
            former: None,
            attributes: Vec::new(),
        }
    }

    /// The same with the identity and attributes of its TLS session.
    #[must_use]
    pub fn with_session(mut self, session: &Session) -> Self {
        match (session.identity(), &session.token) {
            (Some(identity), _) => self.sender = format!("tls:{}", subject_of(&identity)).into(),
            (None, Some(name)) => self.sender = format!("token:{name}").into(),
            (None, None) => {}
        }
        let former = session.former_identity();
        self.former = former.map(|subject| format!("tls:{}", subject_of(subject)).into());
        // Each is escaped already, in its own way.
        if let Some(subject) = &session.subject {
            self.push("tls.subject", &subject_of(subject));
        }
        if let Some(issuer) = &session.issuer {
            self.push("tls.issuer", &subject_of(issuer));
        }
        if !session.sans.is_empty() {
            self.push("tls.san", &list(&session.sans));
        }
        if let Some(fingerprint) = &session.fingerprint {
            self = self.with("tls.fingerprint", fingerprint);
        }
        if let Some(name) = &session.token {
            self = self.with("tls.token", name);
        }
        self.with("tls.version", &session.version)
            .with("tls.cipher", &session.cipher)
    }

    /// The identity proven by a certificate or a token.
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

/// The most bytes of a text that a peer chooses: it is stored with each block.
const MAX_TEXT: usize = 1_024;

/// No longer than [`MAX_TEXT`] bytes; a cut is marked with `…`.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=MAX_TEXT).rev().find(is_end).unwrap_or_default();
    format!("{}…", &text[..end]).into()
}

/// A subject as an identity. A cut one ends with the hash of the whole subject: it is longer than
/// any uncut one, and differs from other cut ones as the whole subjects do.
fn subject_of(subject: &str) -> Cow<'_, str> {
    match cut(subject) {
        Cow::Owned(head) => (head + &sha256(subject.as_bytes())).into(),
        whole @ Cow::Borrowed(_) => whole,
    }
}

/// Whole names in a list: commas in them are escaped, and `…` replaces those that do not fit.
fn list(names: &[String]) -> String {
    let mut list = String::new();
    for name in names {
        let name = escape::escaped(name, ",");
        let comma = if list.is_empty() { "" } else { "," };
        if list.len() + comma.len() + name.len() > MAX_TEXT {
            list.push_str(comma);
            list.push('…');
            break;
        }
        list.push_str(comma);
        list.push_str(&name);
    }
    list
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
    fn texts_of_a_peer_are_escaped_and_bounded() {
        let text = "a\u{1b}[31m\n\\n\u{202e}b".to_owned() + &"ü".repeat(2_000);
        let peer = PeerInfo::unix(None).with("name", &text);
        let value = attribute(&peer, "name");
        assert!(
            value.starts_with("a\\1B[31m\\0A\\\\n\\E2\\80\\AEbü"),
            "{value}"
        );
        assert!(value.len() <= MAX_TEXT + '…'.len_utf8() && value.ends_with('…'));
    }

    #[test]
    fn a_subject_that_is_cut_is_known_by_the_hash_of_the_whole() {
        let long = |end: &str| format!("CN={}{end}", "ü".repeat(600));
        let (one, other) = (long("1"), long("2"));
        let [one, again, other] = [&one, &one, &other].map(|text| session(Some(text), &[]));
        assert_eq!(one.sender, again.sender);
        assert_ne!(one.sender, other.sender);
        let subject = attribute(&one, "tls.subject");
        let (whole, _) = one.sender.split_once('…').unwrap();
        assert_eq!(
            *subject,
            format!("{}…{}", &whole[4..], sha256(long("1").as_bytes()))
        );
        let (head, hash) = subject.split_once('…').unwrap();
        assert_eq!((head.len(), hash.len()), (1_023, 64));
        // A text of the maximum length stays as it is.
        let most = "x".repeat(MAX_TEXT);
        assert_eq!(attribute(&session(Some(&most), &[]), "tls.subject"), most);
        assert_eq!(
            *session(None, &[]).sender,
            format!("tls:{}", "ab".repeat(32))
        );
        let mut session = Session {
            token: Some("web-1".to_owned()),
            ..Session::default()
        };
        let peer = PeerInfo::unix(None).with_session(&session);
        assert_eq!(
            (&*peer.sender, attribute(&peer, "tls.token")),
            ("token:web-1", "web-1")
        );
        session.fingerprint = Some("ab".repeat(32));
        let peer = PeerInfo::unix(None).with_session(&session);
        assert_eq!(*peer.sender, format!("tls:{}", "ab".repeat(32)));
    }

    #[test]
    fn an_alternative_name_cannot_pass_for_two() {
        let peer = session(None, &["URI:spiffe://a/b,DNS:evil", "DNS:a\\,b\n"]);
        assert_eq!(
            attribute(&peer, "tls.san"),
            "URI:spiffe://a/b\\,DNS:evil,DNS:a\\\\\\,b\\0A"
        );
    }

    #[test]
    fn alternative_names_are_cut_between_two() {
        let names: Vec<_> = (100..700).map(|at| format!("DNS:h{at}.example")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let peer = session(None, &names);
        let shown = attribute(&peer, "tls.san");
        let kept: Vec<_> = shown.strip_suffix(",…").unwrap().split(',').collect();
        assert_eq!(kept, names[..kept.len()]);
        let room = MAX_TEXT - (shown.len() - ",…".len());
        assert!(room <= names[0].len(), "{room}");
        // The comma takes room too.
        let fits = |second: usize| {
            let both = ["x".repeat(MAX_TEXT - 10), "y".repeat(second)];
            list(&both).ends_with('y')
        };
        assert!(fits(9) && !fits(10));
        let long = "x".repeat(MAX_TEXT);
        assert_eq!(attribute(&session(None, &[&long]), "tls.san"), long);
        assert_eq!(
            attribute(&session(None, &[&long, "a"]), "tls.san"),
            long.clone() + ",…"
        );
        assert_eq!(attribute(&session(None, &[&(long + "x")]), "tls.san"), "…");
    }
}
