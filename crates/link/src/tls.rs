//! TLS 1.2 and 1.3 for any stream: its options, its listening side and its connecting side.
//!
//! This module decides which certificates are presented and trusted, when their files are read again,
//! and the names of errors. It does not decide which peers may connect beyond that, nor how often. There
//! is no ALPN: a peer that offers protocols is served all the same. Sessions are not resumed: links live for long, so
//! a whole handshake costs little, certificates are checked at each one, and a peer that only writes has no
//! unread tickets that would turn its close into a reset.

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
