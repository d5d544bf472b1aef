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
    /// Nothing is there yet; or there is no room, or no demand.
    #[error("nothing is there now, or there is no demand")]
    Blocked,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Timeout,
    /// The publisher has ended the stream with an error, or has rejected the subscription.
    #[error("the publisher has ended the stream: {0}")]
    Failed(Arc<str>),
    /// The subscriber has cancelled the subscription, or is gone. For the subscriber itself: it has cancelled it.
    #[error("the subscriber has cancelled the subscription")]
    Cancelled,
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Ended(End<Kind>),
    /// Nothing could be connected to, or listened on.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Error {
    /// A stable code: `reactive.failed`, `reactive.cancelled`, …; of a usage error its own, and where the peer broke the
    /// protocol that of the broken rule.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(error) => error.code,
            Self::Blocked => "reactive.blocked",
            Self::Timeout => "reactive.timed_out",
            Self::Failed(_) => "reactive.failed",
            Self::Cancelled => "reactive.cancelled",
            Self::Ended(End::Protocol(error)) => error.kind.code(),
            Self::Ended(_) => "reactive.ended",
            Self::Open(error) => error.code("reactive.url", "reactive.connect", "reactive.listen"),
        }
    }
}

impl From<End<Kind>> for Error {
    fn from(end: End<Kind>) -> Self {
        Self::Ended(end)
    }
}
