//! Certificates made for one test, in a directory that is removed with it.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; a test may panic

pub(crate) mod meeting;

use std::path::PathBuf;

use ackline_core::options::OptionWord as _;
use ackline_link::tls::{ClientAuth, TlsOptions};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// An authority of one test.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM form.
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate for these host names or addresses.
    pub(crate) fn issue(&self, name: &str, sans: &[&str]) -> Identity {
        self.issue_with(&params(name, sans))
    }

    /// A revocation list until the first day of `next_year` with the certificates of these serial numbers.
    pub(crate) fn revoke(&self, serials: &[u64], next_year: i32) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    pub(crate) fn issue_with(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }
}

pub(crate) fn params(name: &str, sans: &[&str]) -> CertificateParams {
    let sans: Vec<_> = sans.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(sans).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The files of one test.
pub(crate) struct Pki {
    dir: tempfile::TempDir,
}

impl Pki {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The options of a server whose certificate `ca` issues for `sans`; it trusts clients of `ca`.
    pub(crate) fn server(&self, ca: &Authority, sans: &[&str], auth: Option<&str>) -> TlsOptions {
        self.server_as(ca, &ca.issue("server", sans), auth)
    }

    pub(crate) fn server_as(
        &self,
        ca: &Authority,
        own: &Identity,
        auth: Option<&str>,
    ) -> TlsOptions {
        TlsOptions {
            ca: auth.map(|_| self.write("client-ca.pem", &ca.pem)),
            cert: Some(self.write("server.pem", &own.cert)),
            key: Some(self.write("server.key", &own.key)),
            client_auth: auth.map(|auth| ClientAuth::of(auth).unwrap()),
            ..TlsOptions::default()
        }
    }

    /// The options of a client that trusts `ca`, with a certificate of it for `name`.
    pub(crate) fn client(&self, ca: &Authority, name: Option<&str>) -> TlsOptions {
        let own = name.map(|name| ca.issue(name, &[name]));
        TlsOptions {
            ca: Some(self.write("ca.pem", &ca.pem)),
            cert: own.as_ref().map(|own| self.write("client.pem", &own.cert)),
            key: own.as_ref().map(|own| self.write("client.key", &own.key)),
            ..TlsOptions::default()
        }
    }
}
