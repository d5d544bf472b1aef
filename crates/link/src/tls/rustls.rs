//! TLS by rustls: the handshakes of both sides, a session's facts of its peer, and its stream.

mod client;
mod error;
mod files;
mod identity;
mod io;
mod peer;
mod pinned;
mod server;
mod token;

use std::sync::Arc;

use tokio_rustls::rustls;

use super::{ClientAuth, HANDSHAKE_TIMEOUT, IdentityBy, TlsError, TlsOptions, alert};

pub use client::Client;
pub use identity::Session;
pub(crate) use io::Tls;
pub use server::Server;

/// The one source of cryptography, even if the process has installed another.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// SHA-256 in hexadecimal, as `openssl x509 -fingerprint -sha256` shows it without its colons.
fn sha256(bytes: &[u8]) -> String {
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
