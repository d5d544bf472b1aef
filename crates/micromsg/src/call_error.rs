//! Errors of calls on a connection.

use std::sync::Arc;

use ackline_core::{End, ErrorKind as _, OpenError, UsageError};

use crate::Kind;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that is not allowed now; nothing changed.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Nothing is there yet; or there is no room.
    #[error("nothing is there now, or there is no room")]
    Blocked,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Timeout,
    /// The peer has ended the connection with an ERROR frame.
    #[error("the peer has ended the connection: {0}")]
    Failed(Arc<str>),
    /// The connection has ended, and the peer has not acknowledged all messages of this end.
    #[error("the connection has ended, and {0} messages are not acknowledged")]
    Unacknowledged(u64),
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Ended(End<Kind>),
    /// Nothing could be connected to, or listened on.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Error {
    /// A stable code: `micromsg.failed`, `micromsg.unacknowledged`, …; of a usage error its own, and where the peer broke the
    /// protocol that of the broken rule.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(error) => error.code,
            Self::Blocked => "micromsg.blocked",
            Self::Timeout => "micromsg.timed_out",
            Self::Failed(_) => "micromsg.failed",
            Self::Unacknowledged(_) => "micromsg.unacknowledged",
            Self::Ended(End::Protocol(error)) => error.kind.code(),
            Self::Ended(_) => "micromsg.ended",
            Self::Open(error) => error.code("micromsg.url", "micromsg.connect", "micromsg.listen"),
        }
    }
}

impl From<End<Kind>> for Error {
    fn from(end: End<Kind>) -> Self {
        Self::Ended(end)
    }
}
