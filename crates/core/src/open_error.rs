//! Errors of connecting and of listening.

use std::sync::Arc;

use crate::options::OptionError;

/// Why nothing could be connected to, or listened on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A URL is wrong: the text names it.
    #[error("{0}")]
    Url(Arc<str>),
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// An option or file of TLS cannot be used.
    #[error("{message}")]
    Tls {
        /// The stable code, such as `tls.file`.
        code: &'static str,
        /// A description of the error.
        message: Arc<str>,
    },
    /// Nobody could be reached.
    #[error("{0}")]
    Connect(Arc<str>),
    /// Somebody could be reached, and TLS with it came to nothing.
    #[error("{message}")]
    Handshake {
        /// The stable code, such as `tls.certificate`.
        code: &'static str,
        /// A description of the error.
        message: Arc<str>,
    },
    /// The socket could not be bound, or is broken.
    #[error("{0}")]
    Listen(Arc<str>),
}

impl OpenError {
    /// The error of a wrong URL.
    pub fn url(error: impl std::fmt::Display) -> Self {
        Self::Url(error.to_string().into())
    }

    /// The error of a socket that cannot be listened on.
    pub fn listen(error: impl std::fmt::Display) -> Self {
        Self::Listen(error.to_string().into())
    }

    /// Whether the listener may only be away, or be ending, or come back with another certificate.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Handshake { .. })
    }

    /// The stable code, in the words of a protocol: `url`, `connect` or `listen` of it, or that of TLS.
    pub const fn code(
        &self,
        url: &'static str,
        connect: &'static str,
        listen: &'static str,
    ) -> &'static str {
        match self {
            Self::Url(_) | Self::Option(_) => url,
            Self::Tls { code, .. } | Self::Handshake { code, .. } => code,
            Self::Connect(_) => connect,
            Self::Listen(_) => listen,
        }
    }
}
