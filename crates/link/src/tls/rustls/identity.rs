//! The peer's identity in a session.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio_rustls::rustls::CommonState;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::{Any, BmpString, Class, Oid, Tag, ToDer};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::oid_registry::OidRegistry;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::{IdentityBy, sha256};
use crate::escape;

/// An established session: its protection, and the certificate that the peer has proven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// `TLSv1_2` or `TLSv1_3`.
    pub version: String,
    /// The cipher suite, such as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// The subject of the peer's certificate, such as `CN=web-1, O=Example`, in its own order, its values
    /// escaped as by RFC 4514: different subjects have different texts. `None` without a certificate or
    /// with an empty subject.
    pub subject: Option<String>,
    /// Its issuer, written as the subject is.
    pub issuer: Option<String>,
    /// Its subject alternative names as they are: `DNS:web-1.example`, `IP:10.0.0.1`, `URI:spiffe://…`,
    /// `email:…`.
    pub sans: Vec<String>,
    /// The SHA-256 of the certificate in hexadecimal; `None` without one.
    pub fingerprint: Option<String>,
    /// The name of the peer's token, its identity if it has no certificate.
    pub token: Option<String>,
    /// The part of the certificate that identifies the peer.
    pub identity_by: IdentityBy,
    /// Whether the one certificate in `ca` issued it: then no other authority can issue its
    /// subject.
    pub is_of_only_authority: bool,
}

impl Session {
    pub(super) fn new(
        state: &CommonState,
        identity_by: IdentityBy,
        only_authority: Option<&str>,
    ) -> Self {
        let mut session = Self {
            version: state
                .protocol_version()
                .map_or_else(String::new, |version| format!("{version:?}")),
            cipher: state
                .negotiated_cipher_suite()
                .map_or_else(String::new, |suite| format!("{:?}", suite.suite())),
            identity_by,
            ..Self::default()
        };
        if let Some(own) = state.peer_certificates().and_then(<[_]>::first) {
            session.fingerprint = Some(sha256(own));
            (session.subject, session.sans) = names(own);
            session.issuer = issuer(own);
            session.is_of_only_authority =
                only_authority.is_some() && session.issuer.as_deref() == only_authority;
        }
        session
    }

    /// The peer's identity as text, such as `CN=web-1; issuer CN=log ca`. It is the certificate's
    /// fingerprint if the part that `identity_by` names is empty; `None` without a certificate.
    pub fn identity(&self) -> Option<String> {
        let named = match self.identity_by {
            IdentityBy::Subject => match (&self.subject, &self.issuer) {
                // A `;` inside a name is escaped.
                (Some(subject), Some(issuer)) => Some(format!("{subject}; issuer {issuer}")),
                _ => None,
            },
            IdentityBy::San => {
                let names = self.sans.iter().map(|name| escape::escaped(name, ","));
                let names = names.collect::<Vec<_>>().join(",");
                (!names.is_empty()).then_some(names)
            }
            IdentityBy::Fingerprint => None,
        };
        named.or_else(|| self.fingerprint.clone())
    }

    /// The subject, which was the whole identity before the issuer became a part of it; `None` where another
    /// authority could have issued it, or where subjects are not the identity.
    pub(super) fn former_identity(&self) -> Option<&str> {
        let is_certain = self.identity_by == IdentityBy::Subject && self.is_of_only_authority;
        self.subject.as_deref().filter(|_| is_certain)
    }
}

/// The issuer of a certificate; `None` if it is empty or cannot be read.
fn issuer(der: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    text_of(certificate.issuer()).filter(|text| !text.is_empty())
}

/// The subject of the authority in `trusted` if there is only one certificate; `None` otherwise.
pub(super) fn only_authority(trusted: &[CertificateDer<'_>]) -> Option<String> {
    match trusted {
        [one] => names(one).0,
        _ => None,
    }
}

/// The subject and the alternative names of a certificate, as far as they can be read.
pub(super) fn names(der: &CertificateDer<'_>) -> (Option<String>, Vec<String>) {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return (None, Vec::new());
    };
    let subject = text_of(certificate.subject());
    let sans = certificate.subject_alternative_name().ok().flatten();
    let sans = sans.map_or_else(Vec::new, |sans| {
        sans.value.general_names.iter().filter_map(shown).collect()
    });
    (subject.filter(|text| !text.is_empty()), sans)
}

/// A name as text, by RFC 4514 but in the order of the certificate and with spaces between its
/// parts; `None` if a part has no text.
fn text_of(name: &X509Name<'_>) -> Option<String> {
    let parts = name.iter().map(|part| {
        let pairs: Option<Vec<_>> = part.iter().map(pair).collect();
        Some(pairs?.join(" + "))
    });
    Some(parts.collect::<Option<Vec<_>>>()?.join(", "))
}

fn pair(pair: &AttributeTypeAndValue<'_>) -> Option<String> {
    let mut text = short_name(pair.attr_type());
    text.push('=');
    if let Some(value) = string(pair.attr_value()) {
        push_value(&mut text, &value);
    } else {
        text.push('#');
        for byte in pair.attr_value().to_der_vec().ok()? {
            escape::push_hex(&mut text, byte);
        }
    }
    Some(text)
}

/// `CN`, or the number of a type whose short name might mean another type too.
fn short_name(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let none = OidRegistry::default();
    // X.520's types: other registered types are not meant for names.
    let registry = if number.starts_with("2.5.4.") {
        oid_registry()
    } else {
        &none
    };
    oid2abbrev(oid, registry).map_or(number, str::to_owned)
}

/// A value that is text. The same text in another type of string is the same name (RFC 5280 §7.1).
fn string(value: &Any<'_>) -> Option<String> {
    if value.header.class() != Class::Universal {
        return None;
    }
    match value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString
        | Tag::T61String => std::str::from_utf8(value.data).map(str::to_owned).ok(),
        Tag::BmpString => Some(BmpString::try_from(value.clone()).ok()?.string()),
        _ => None,
    }
}

/// RFC 4514 §2.4.
fn push_value(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        let is_edge = char == ' ' && (at == 0 || at == last);
        if is_edge || (char == '#' && at == 0) {
            text.push('\\');
        }
        escape::push(text, char, "\"+,;<>");
    }
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::URI(name) => Some(format!("URI:{name}")),
        GeneralName::RFC822Name(name) => Some(format!("email:{name}")),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
            let six = <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).to_string());
            four.or(six).ok().map(|address| format!("IP:{address}"))
        }
        _ => None,
    }
}
