//! TLS 1.2 and 1.3 for any stream: the options, the listening side and the connecting side.
//!
//! Decides which certificates are presented and trusted, when their files are read again, and how
//! errors are named. Does not decide which clients may connect beyond that, nor how often. There is
//! no ALPN: a peer that offers protocols is served all the same. Sessions are not resumed: links
//! live for long, so a whole handshake costs little, certificates are checked at each one, and a
//! peer that only writes has no unread tickets that would turn its close into a reset.

mod alert;
mod error;
#[cfg(not(feature = "tls"))]
mod not_built;
mod options;
#[cfg(feature = "tls")]
mod rustls;

use std::time::Duration;

pub use alert::refuse_hello;
pub(crate) use alert::{ALERT_BYTES, is_alert, linger};
pub use error::TlsError;
#[cfg(not(feature = "tls"))]
pub(crate) use not_built::Tls;
#[cfg(not(feature = "tls"))]
pub use not_built::{Client, Server, Session};
pub use options::{ClientAuth, IdentityBy, TlsOptions};
#[cfg(feature = "tls")]
pub(crate) use rustls::Tls;
#[cfg(feature = "tls")]
pub use rustls::{Client, Server, Session};

/// How long a handshake may take, unless it is set otherwise.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The TLS options, in a URL's query or as options of the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsOptions {
    /// A PEM file of certificates: those that issue the peer's, or the peer's own. When connecting,
    /// the default is the system's roots.
    pub ca: Option<PathBuf>,
    /// A PEM file of revocation lists (CRLs), at most 1 MiB. With it every certificate of the peer's chain needs
    /// a list of its issuer that has not expired.
    pub crl: Option<PathBuf>,
    /// A PEM file with our certificate, then those between it and its root. Required when
    /// listening.
    pub cert: Option<PathBuf>,
    /// A PEM file with the private key of `cert`, not encrypted.
    pub key: Option<PathBuf>,
    /// (Connecting) the name that the server's certificate must carry, in place of the URL's host.
    pub server_name: Option<String>,
    /// (Listening) whether clients must present a certificate: required with a `ca`, else none.
    pub client_auth: Option<ClientAuth>,
    /// (Listening) the part of a client's certificate that identifies it: issuer and subject.
    pub identity: Option<IdentityBy>,
    /// (Connecting) a file with our token: one line of 16 to 255 visible characters of ASCII. Only
    /// a listener with `tokens_file` accepts it.
    pub token_file: Option<PathBuf>,
    /// (Listening) a file with the tokens of all clients, a name (up to 64 characters) and a token in each line: only
    /// clients that begin with one of them are served.
    pub tokens_file: Option<PathBuf>,
}

/// Whether clients present certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// No certificate is requested.
    None,
    /// A certificate is requested; a client without one is served, one with a wrong one is not.
    Optional,
    /// Only clients with one are served.
    Required,
}

impl FromStr for ClientAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err(format!(
                "client_auth is none, optional or required, not {text:?}"
            )),
        }
    }
}

/// The part of a certificate that identifies a client: for limits, for duplicate detection, and as
/// the owner of its links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IdentityBy {
    /// Its subject together with its issuer, so that two authorities cannot issue one identity.
    #[default]
    Subject,
    /// Its subject alternative names, whoever issued them.
    San,
    /// The SHA-256 of the certificate: a renewed certificate is another identity.
    Fingerprint,
}

impl FromStr for IdentityBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "subject" => Ok(Self::Subject),
            "san" => Ok(Self::San),
            "fingerprint" => Ok(Self::Fingerprint),
            _ => Err(format!(
                "identity is subject, san or fingerprint, not {text:?}"
            )),
        }
    }
}

impl TlsOptions {
    /// The names of the options.
    pub const NAMES: [&str; 9] = [
        "ca",
        "crl",
        "cert",
        "key",
        "server_name",
        "client_auth",
        "identity",
        "token_file",
        "tokens_file",
    ];

    /// Sets one option by its name. Returns whether an option has that name.
    ///
    /// # Errors
    /// The value is empty or wrong; the text begins with the option's name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if !Self::NAMES.contains(&name) {
            return Ok(false);
        }
        if value.is_empty() {
            return Err(format!("{name} is empty"));
        }
        match name {
            "ca" => self.ca = Some(value.into()),
            "crl" => self.crl = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "server_name" => self.server_name = Some(value.to_owned()),
            "client_auth" => self.client_auth = Some(value.parse()?),
            "identity" => self.identity = Some(value.parse()?),
            "token_file" => self.token_file = Some(value.into()),
            _ => self.tokens_file = Some(value.into()),
        }
        Ok(true)
    }

    /// Takes the options that are not set here from `other`.
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

    /// The first option that is set, if any.
    pub fn first_set(&self) -> Option<&'static str> {
        let set = [
            self.ca.is_some(),
            self.crl.is_some(),
            self.cert.is_some(),
            self.key.is_some(),
            self.server_name.is_some(),
            self.client_auth.is_some(),
            self.identity.is_some(),
            self.token_file.is_some(),
            self.tokens_file.is_some(),
        ];
        let mut named = Self::NAMES.into_iter().zip(set);
        named.find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

/// The one cryptography provider, independent of the process's default.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// SHA-256 in hexadecimal, as `openssl x509 -fingerprint -sha256` shows it without its colons.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let Some(suite) = suite.tls13() else {
        return String::new();
    };
    let hash = suite.common.hash_provider.hash(bytes);
    let mut hex = String::with_capacity(64);
    for byte in hash.as_ref() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
