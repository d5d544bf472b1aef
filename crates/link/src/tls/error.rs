//! TLS errors, named so that either end's operator knows which side must act.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InvalidMessage};

/// The reason there is no TLS session.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Options that do not fit together, or a file that cannot be read or used.
    #[error("{0}")]
    Options(String),
    /// The handshake failed, on either side.
    #[error("{0}")]
    Handshake(String),
    /// The peer's certificate was not accepted.
    #[error("the peer's certificate is not accepted: {0}")]
    Certificate(String),
    /// The handshake took too long.
    #[error("the handshake did not end within {limit:?}: {so_far}")]
    Timeout {
        /// The time limit.
        limit: Duration,
        /// The state that it had reached.
        so_far: &'static str,
    },
    /// Plain bytes on a TLS port.
    #[error("{0}")]
    Plaintext(String),
    /// A TLS handshake on a plain port.
    #[error("{0}")]
    Unexpected(String),
    /// A client that needs a token sent none.
    #[error("the client sent no token, and tokens_file is set: give it a token_file")]
    TokenMissing,
    /// A client's token is in no valid header.
    #[error("the client's token cannot be read: {0}")]
    TokenMalformed(&'static str),
    /// A client's token is not known.
    #[error("the client's token is not in tokens_file")]
    TokenWrong,
    /// The listener refused our token.
    #[error("{0}")]
    TokenRefused(&'static str),
    /// This build has no TLS.
    #[error("this build has no TLS: build ackline with its feature \"tls\"")]
    NotBuilt,
    /// The transport failed during the handshake.
    #[error("the connection broke in the handshake: {0}")]
    Io(Arc<io::Error>),
}

impl TlsError {
    /// The stable name: `tls.options`, `tls.handshake`, `tls.certificate`, `tls.timeout`,
    /// `tls.plaintext` or `tls.unexpected`; `token.missing`, `token.malformed` or `token.wrong` at a listener, and
    /// `token.refused` at its client. `tls.not_built` where the feature `tls` is off.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Options(_) => "tls.options",
            Self::Handshake(_) | Self::Io(_) => "tls.handshake",
            Self::Certificate(_) => "tls.certificate",
            Self::Timeout { .. } => "tls.timeout",
            Self::Plaintext(_) => "tls.plaintext",
            Self::Unexpected(_) => "tls.unexpected",
            Self::TokenMissing => "token.missing",
            Self::TokenMalformed(_) => "token.malformed",
            Self::TokenWrong => "token.wrong",
            Self::TokenRefused(_) => "token.refused",
        }
    }

    /// An error of rustls or the transport as a `TlsError`; `bytes` came from the peer.
    pub(super) fn from_io(error: io::Error, bytes: u64) -> Self {
        if let Some(known) = named(&error) {
            return known;
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof if bytes == 0 => {
                Self::Handshake("the peer closed before a byte of its handshake".to_owned())
            }
            io::ErrorKind::UnexpectedEof => {
                Self::Handshake(format!("the peer closed {bytes} bytes into its handshake"))
            }
            _ => Self::Io(Arc::new(error)),
        }
    }

    /// The error as a transport's error, from which [`TlsError::of`] takes it again.
    pub(crate) fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::Timeout { .. } => io::ErrorKind::TimedOut,
            Self::Options(_) => io::ErrorKind::InvalidInput,
            Self::NotBuilt => io::ErrorKind::Unsupported,
            Self::Io(error) => error.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }

    /// The TLS error inside a transport's error, if there is one.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// An error of rustls inside an I/O error.
pub(super) fn named(error: &io::Error) -> Option<TlsError> {
    let inner = error.get_ref()?;
    if let Some(ours) = inner.downcast_ref::<TlsError>() {
        return Some(ours.clone());
    }
    inner.downcast_ref::<rustls::Error>().map(from_rustls)
}

fn from_rustls(error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::AlertReceived(AlertDescription::CloseNotify) => {
            TlsError::Handshake("the peer closed in its handshake (close_notify)".to_owned())
        }
        rustls::Error::AlertReceived(alert) => {
            TlsError::Handshake(format!("the peer refused with the alert {}", heard(*alert)))
        }
        rustls::Error::InvalidCertificate(why) => TlsError::Certificate(refused(why)),
        rustls::Error::NoCertificatesPresented => {
            TlsError::Certificate("it sent none, and client_auth is required".to_owned())
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            TlsError::Unexpected("the peer answered with bytes that are not TLS".to_owned())
        }
        other => TlsError::Handshake(plain(other)),
    }
}

/// An error of rustls, in words for operators.
pub(super) fn plain(error: &rustls::Error) -> String {
    use rustls::{Error as E, PeerIncompatible as P};
    let text = match error {
        E::InvalidCertificate(why) => return refused(why),
        E::InconsistentKeys(_) => "the key is not that of the certificate",
        E::PeerIncompatible(
            P::NoCipherSuitesInCommon | P::NoKxGroupsInCommon | P::NoSignatureSchemesInCommon,
        ) => {
            "the peer speaks no TLS 1.2 or 1.3 in common with us (no cipher, key exchange or signature)"
        }
        E::PeerIncompatible(
            P::SignatureAlgorithmsExtensionRequired
            | P::NamedGroupsExtensionRequired
            | P::EcPointsExtensionRequired
            | P::ExtendedMasterSecretExtensionRequired
            | P::KeyShareExtensionRequired
            | P::SupportedVersionsExtensionRequired,
        ) => {
            "the peer speaks no TLS 1.2 or 1.3 in common with us (its hello is that of an older TLS)"
        }
        E::PeerIncompatible(_) => "the peer speaks no TLS 1.2 or 1.3 in common with us",
        E::InvalidMessage(InvalidMessage::MessageTooLarge) | E::PeerSentOversizedRecord => {
            "the peer sent a record that is longer than TLS allows"
        }
        E::InvalidMessage(_) => "the peer sent bytes that are no valid message of TLS",
        E::InappropriateMessage { .. } | E::InappropriateHandshakeMessage { .. } => {
            "the peer sent a message of TLS out of its order"
        }
        E::PeerMisbehaved(_) => "the peer broke a rule of TLS",
        E::DecryptError => "what the peer sent cannot be decrypted",
        other => return other.to_string(),
    };
    text.to_owned()
}

/// An alert by its name in RFC 8446, with its meaning for us.
fn heard(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let (name, meaning) = match alert {
        A::UnexpectedMessage => ("unexpected_message", "it expected something else"),
        A::HandshakeFailure => (
            "handshake_failure",
            "nothing in common, or it wants our certificate",
        ),
        A::BadCertificate => (
            "bad_certificate",
            "it does not accept our certificate, or wants one",
        ),
        A::UnsupportedCertificate => (
            "unsupported_certificate",
            "our certificate is not for this use",
        ),
        A::CertificateRevoked => ("certificate_revoked", "our certificate is revoked"),
        A::CertificateExpired => (
            "certificate_expired",
            "our certificate is expired, or not yet valid",
        ),
        A::CertificateUnknown => ("certificate_unknown", "it does not accept our certificate"),
        A::UnknownCA => ("unknown_ca", "it does not know who issued our certificate"),
        A::AccessDenied => ("access_denied", "our certificate is good, but not allowed"),
        A::DecryptError => ("decrypt_error", "it could not verify a signature of ours"),
        A::ProtocolVersion => ("protocol_version", "it speaks neither TLS 1.2 nor 1.3"),
        A::InsufficientSecurity => ("insufficient_security", "it wants stronger ciphers"),
        A::InternalError => ("internal_error", "a failure of its own"),
        A::UnrecognisedName => (
            "unrecognized_name",
            "it has no certificate for the server name",
        ),
        A::CertificateRequired => (
            "certificate_required",
            "it wants a certificate: set cert and key",
        ),
        A::NoApplicationProtocol => ("no_application_protocol", "it wants a protocol by ALPN"),
        _ => return format!("{alert:?} ({})", u8::from(alert)),
    };
    format!("{name} ({}): {meaning}", u8::from(alert))
}

/// The reason that we refused a certificate.
fn refused(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "its issuer is not among the trusted certificates (ca)".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("{why}; it has no subject alternative name, and its common name does not count")
        }
        CertificateError::Revoked => "it is revoked by its issuer's list (crl)".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "the issuer of it, or of a certificate above it, has no revocation list in crl"
                .to_owned()
        }
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list of its issuer has expired: put a newer one into crl".to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("UnsupportedCertVersion") => {
            "it is of X.509 version 1: make one of version 3, with a subject alternative name"
                .to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is a certificate authority's: put it into ca itself, or issue another with it"
                .to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{InconsistentKeys, OtherError, PeerIncompatible, PeerMisbehaved};

    #[test]
    fn operators_read_words_and_no_names_of_a_library() {
        let version = OtherError(Arc::new(io::Error::other("UnsupportedCertVersion")));
        for (error, said, name) in [
            (
                rustls::Error::InvalidMessage(InvalidMessage::MessageTooLarge),
                "longer than TLS allows",
                "MessageTooLarge",
            ),
            (
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
                "not that of the certificate",
                "KeyMismatch",
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::Other(version)),
                "of X.509 version 1",
                "UnsupportedCertVersion",
            ),
            (
                PeerIncompatible::SignatureAlgorithmsExtensionRequired.into(),
                "an older TLS",
                "SignatureAlgorithms",
            ),
            (
                PeerIncompatible::NoCipherSuitesInCommon.into(),
                "no cipher",
                "NoCipherSuites",
            ),
            (
                PeerMisbehaved::TooManyEmptyFragments.into(),
                "broke a rule",
                "TooMany",
            ),
        ] {
            let text = plain(&error);
            assert!(text.contains(said) && !text.contains(name), "{text}");
        }
    }
}
