//! The errors of TLS, named so that the operators of both ends know which of them must act.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no TLS session.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Options that do not go together, or a file that cannot be read or used.
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
        /// The time it had.
        limit: Duration,
        /// How far it had come.
        so_far: &'static str,
    },
    /// Plain bytes on a port of TLS.
    #[error("{0}")]
    Plaintext(String),
    /// A handshake of TLS on a plain port.
    #[error("{0}")]
    Unexpected(String),
    /// A client that must have a token sent none.
    #[error("the client sent no token, and tokens_file is set: give it a token_file")]
    TokenMissing,
    /// A client's token is in no header as it should be.
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
            Self::NotBuilt => "tls.not_built",
        }
    }

    /// As the error of a transport, from which [`TlsError::of`] takes it again.
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

    /// The error of TLS that a transport's error carries, if it does.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}
