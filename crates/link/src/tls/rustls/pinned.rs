//! Trust in a certificate that is itself in `ca`.
//!
//! `openssl req -x509` marks the certificates that it signs for themselves as authorities, and
//! rustls does not accept an authority's certificate as a peer's (RFC 5280, 4.2.1.9), while OpenSSL
//! and Go do. If the peer presents the very certificate that is trusted, its issuer proves nothing
//! more: only its dates and its name are checked, and whether its issuer has revoked it.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A verifier of chains, and certificates that are trusted directly.
#[derive(Debug)]
pub(super) struct Pinned<V: ?Sized> {
    pub(super) trusted: Vec<CertificateDer<'static>>,
    pub(super) chains: Arc<V>,
}

impl<V: ?Sized> Pinned<V> {
    fn is_pinned(&self, presented: &CertificateDer<'_>, now: UnixTime) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(presented) else {
            return false;
        };
        let Ok(now) = i64::try_from(now.as_secs()) else {
            return false;
        };
        let dates = parsed.validity();
        let is_in_time =
            (dates.not_before.timestamp()..=dates.not_after.timestamp()).contains(&now);
        is_in_time && self.trusted.iter().any(|one| one == presented)
    }
}

/// Whether direct trust can change nothing: the certificate was accepted, or its issuer has revoked
/// it.
const fn is_final<T>(verified: &Result<T, Error>) -> bool {
    matches!(
        verified,
        Ok(_) | Err(Error::InvalidCertificate(CertificateError::Revoked))
    )
}

impl<V: ServerCertVerifier + ?Sized> ServerCertVerifier for Pinned<V> {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains.verify_server_cert(own, others, name, ocsp, now);
        if is_final(&verified) || !self.is_pinned(own, now) {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

impl<V: ClientCertVerifier + ?Sized> ClientCertVerifier for Pinned<V> {
    fn client_auth_mandatory(&self) -> bool {
        self.chains.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chains.verify_client_cert(own, others, now);
        if is_final(&verified) || !self.is_pinned(own, now) {
            return verified;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
