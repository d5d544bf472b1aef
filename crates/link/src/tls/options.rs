//! The options of TLS, in a URL's query or by the same names elsewhere.

use std::path::PathBuf;

use ackline_core::option_words;
use ackline_core::options::{OptionError, OptionValue, Options as _, Uses, path, text, word};

ackline_core::options! {
    /// The options of TLS.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct TlsOptions {
        options {
            /// PEM file of certificates to trust: those that issue the peer's, or the peer's own. A connecting end takes
            /// the system's roots where there is none.
            ca: Option<PathBuf> = None, path(), CONNECT | LISTEN | RECEIVE | URL;
            /// PEM file of revocation lists, up to 1 MiB. With it every certificate of the peer's chain needs a list of its
            /// issuer that has not expired.
            crl: Option<PathBuf> = None, path(), CONNECT | LISTEN | RECEIVE | URL;
            /// PEM file with our own certificate, then those between it and its root. A listening end needs one.
            cert: Option<PathBuf> = None, path(), CONNECT | LISTEN | RECEIVE | URL;
            /// PEM file with the private key of cert, not encrypted.
            key: Option<PathBuf> = None, path(), CONNECT | LISTEN | RECEIVE | URL;
            /// Where we connect: the name in the server's certificate, in place of the URL's host.
            server_name: Option<String> = None, text("a host's name"), CONNECT | RECEIVE | URL;
            /// Where we listen: certificates of the peers: none, optional or required. The default is required with a ca,
            /// else none.
            client_auth: Option<ClientAuth> = None, word::<ClientAuth>(), LISTEN | RECEIVE | URL;
            /// Where we listen: part of a certificate that a peer is known by: subject (with its issuer), san or
            /// fingerprint.
            identity: Option<IdentityBy> = None, word::<IdentityBy>(), LISTEN | RECEIVE | URL;
            /// Where we connect: file with our own token, one line of 16 to 255 visible characters of ASCII, for a
            /// listener with a tokens_file.
            token_file: Option<PathBuf> = None, path(), CONNECT | RECEIVE | URL;
            /// Where we listen: file with a name (up to 64 characters) and a token in each line: only peers with one of
            /// these tokens are served, and are known by its name.
            tokens_file: Option<PathBuf> = None, path(), LISTEN | RECEIVE | URL;
        }
    }
}

/// Whether clients present certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// None is asked for.
    None,
    /// It is asked for; a client without one is served, one with a wrong one is not.
    Optional,
    /// Only clients with one are served.
    Required,
}

option_words!(ClientAuth { None = "none", Optional = "optional", Required = "required" });

/// The part of a certificate that a client is known by: for limits, for repeats, and as the owner of its links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IdentityBy {
    /// Its subject together with its issuer, so that two authorities cannot issue one identity.
    #[default]
    Subject,
    /// Its subject alternative names, without their issuer.
    San,
    /// The SHA-256 of the certificate: a renewed certificate is another identity.
    Fingerprint,
}

option_words!(IdentityBy { Subject = "subject", San = "san", Fingerprint = "fingerprint" });

impl TlsOptions {
    /// Sets one option of a URL by its name. Answers whether there is one of that name.
    ///
    /// # Errors
    /// The value is empty or does not fit.
    pub fn set_text(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        self.set(Uses::URL, name, &OptionValue::Text(value.to_owned()))
    }

    /// The names of the options.
    pub fn names() -> Vec<&'static str> {
        let rows = Self::default().rows();
        rows.iter().map(|row| row.spec.name).collect()
    }

    /// Takes from `other` the options that are not set here.
    pub fn fill(&mut self, other: &Self) {
        let other = other.clone();
        self.ca = self.ca.take().or(other.ca);
        self.crl = self.crl.take().or(other.crl);
        self.cert = self.cert.take().or(other.cert);
        self.key = self.key.take().or(other.key);
        self.server_name = self.server_name.take().or(other.server_name);
        self.client_auth = self.client_auth.or(other.client_auth);
        self.identity = self.identity.or(other.identity);
        self.token_file = self.token_file.take().or(other.token_file);
        self.tokens_file = self.tokens_file.take().or(other.tokens_file);
    }

    /// The first option that is set, if any is.
    pub fn first_set(&self) -> Option<&'static str> {
        let rows = self.rows();
        rows.iter()
            .find(|row| !row.value.is_empty())
            .map(|row| row.spec.name)
    }
}
