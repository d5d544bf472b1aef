//! The names that a session of TLS gives its peer.

use std::borrow::Cow;

use super::{Session, sha256};
use crate::escape;
use crate::peer::{MAX_TEXT, PeerInfo, cut};

impl PeerInfo {
    /// The same with the facts from its session of TLS.
    #[must_use]
    pub fn with_session(mut self, session: &Session) -> Self {
        match (session.identity(), &session.token) {
            (Some(identity), _) => self.sender = format!("tls:{}", subject_of(&identity)).into(),
            (None, Some(name)) => self.sender = format!("token:{name}").into(),
            (None, None) => {}
        }
        let former = session.former_identity();
        self.former = former.map(|subject| format!("tls:{}", subject_of(subject)).into());
        // Escaped already, each in its own way.
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
}

/// A subject as it is known by. One that is cut has the hash of the whole at its end: it is longer than
/// any that is not, and as different from others as the whole.
fn subject_of(subject: &str) -> Cow<'_, str> {
    match cut(subject) {
        Cow::Owned(head) => (head + &sha256(subject.as_bytes())).into(),
        whole @ Cow::Borrowed(_) => whole,
    }
}

/// Names in a list, whole ones: commas in them are escaped, and `…` stands for those without room.
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

    fn session(subject: Option<&str>, sans: &[&str]) -> PeerInfo {
        let session = Session {
            subject: subject.map(str::to_owned),
            issuer: Some("CN=ca".to_owned()),
            sans: sans.iter().map(ToString::to_string).collect(),
            fingerprint: Some("ab".repeat(32)),
            ..Session::default()
        };
        PeerInfo::unix(None).with_session(&session)
    }

    fn attribute<'a>(peer: &'a PeerInfo, name: &str) -> &'a str {
        let mut all = peer.attributes.iter();
        &all.find(|(own, _)| &**own == name).unwrap().1
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
        // At the greatest allowed length it stays unchanged.
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
