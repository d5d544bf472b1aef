//! Errors of rustls as ours, in words for operators.

use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InvalidMessage};

use super::TlsError;

impl TlsError {
    /// An error of rustls or of the transport as one of ours; `bytes` came from the peer.
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

/// An error of rustls in words for operators.
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
        E::DecryptError => "the peer's data cannot be decrypted",
        other => return other.to_string(),
    };
    text.to_owned()
}

/// An alert by its name in RFC 8446, with its meaning for this end.
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
        A::UnknownCA => (
            "unknown_ca",
            "it does not know the issuer of our certificate",
        ),
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

/// Why a certificate was refused by us.
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
