//! TLS 1.2 and 1.3 for any stream: what can be set, who listens and who connects with it.
//!
//! Decides which certificates are presented and trusted, when their files are read again, and how what
//! goes wrong is called. Does not decide who may connect beyond that, nor how often. There is no ALPN:
//! a peer that offers protocols is served all the same. Sessions are not resumed: links live for long, so
//! a whole handshake costs little, certificates are checked at each one, and a peer that only writes has no
//! unread tickets that would turn its close into a reset.

mod alert;
mod client;
mod error;
mod files;
mod identity;
mod io;
mod options;
mod pinned;
mod server;
mod token;

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls;

pub(crate) use alert::{ALERT_BYTES, is_alert, linger};
pub use alert::{refuse_hello, refuse_plaintext};
pub use client::Client;
pub use error::TlsError;
pub use identity::Session;
pub(crate) use io::Tls;
pub use options::{ClientAuth, IdentityBy, TlsOptions};
pub use server::Server;

/// How long a handshake may take, unless it is set otherwise.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The one source of cryptography, whatever else the process has installed.
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
