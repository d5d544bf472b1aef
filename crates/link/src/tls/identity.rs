//! What a session says of the peer.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio_rustls::rustls::CommonState;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::sha256;

/// A session that stands: how it is protected, and whose certificate the peer has proved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// `TLSv1_2` or `TLSv1_3`.
    pub version: String,
    /// The cipher suite, such as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// The subject of the peer's certificate, such as `CN=web-1, O=Example`; `None` without a certificate
    /// or with an empty subject.
    pub subject: Option<String>,
    /// Its subject alternative names: `DNS:web-1.example`, `IP:10.0.0.1`, `URI:spiffe://…`, `email:…`.
    pub sans: Vec<String>,
    /// The SHA-256 of the certificate in hexadecimal; `None` without one.
    pub fingerprint: Option<String>,
}

impl Session {
    pub(super) fn new(state: &CommonState) -> Self {
        let mut session = Self {
            version: state
                .protocol_version()
                .map_or_else(String::new, |version| format!("{version:?}")),
            cipher: state
                .negotiated_cipher_suite()
                .map_or_else(String::new, |suite| format!("{:?}", suite.suite())),
            ..Self::default()
        };
        if let Some(own) = state.peer_certificates().and_then(<[_]>::first) {
            session.fingerprint = Some(sha256(own));
            (session.subject, session.sans) = names(own);
        }
        session
    }

    /// What the peer is known by: the subject of its certificate, else the fingerprint; `None` where it
    /// proved none.
    pub fn identity(&self) -> Option<&str> {
        self.subject.as_deref().or(self.fingerprint.as_deref())
    }
}

/// The subject and the alternative names of a certificate, as far as they can be read.
pub(super) fn names(der: &CertificateDer<'_>) -> (Option<String>, Vec<String>) {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return (None, Vec::new());
    };
    let subject = certificate.subject().to_string();
    let sans = certificate.subject_alternative_name().ok().flatten();
    let sans = sans.map_or_else(Vec::new, |sans| {
        sans.value.general_names.iter().filter_map(shown).collect()
    });
    (Some(subject).filter(|text| !text.is_empty()), sans)
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
