//! Errors of calls on a connection.

use ackline_core::{End, ErrorKind as _, LimitHit, OpenError, UsageError};
use bytes::Bytes;

use crate::Kind;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that is not allowed now; nothing changed.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// There is no room now: as much waits on this sink as may wait.
    #[error("no room now: messages wait for credit")]
    Blocked,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Timeout,
    /// A message that comes in parts is longer than one that is handed out whole may be: its parts can be taken.
    #[error("a message has more than {} bytes ({}), and comes in parts: receive its parts", .0.limit, .0.option)]
    TooLarge(LimitHit),
    /// The peer, which reads it, has cancelled it, or, for its request, does not want the response any more:
    /// with a payload that says why, by convention empty if all is well.
    #[error("the peer has cancelled it{}", reason(.0))]
    Cancelled(Bytes),
    /// The peer will not answer the request: with a payload that says why.
    #[error("the peer has closed the response{}", reason(.0))]
    Closed(Bytes),
    /// The connection is over; messages that were not answered or acknowledged may have been lost with it.
    #[error("the connection is over: {0}")]
    Ended(End<Kind>),
    /// Nothing could be connected to, or listened on.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Error {
    /// A stable code: `bpmux.cancelled`, `bpmux.ended`, …; of a usage error its own, and where the peer broke
    /// the protocol that of the broken rule.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(error) => error.code,
            Self::Blocked => "bpmux.blocked",
            Self::Timeout => "bpmux.timed_out",
            Self::TooLarge(_) => "bpmux.too_large",
            Self::Cancelled(_) => "bpmux.cancelled",
            Self::Closed(_) => "bpmux.closed",
            Self::Ended(End::Protocol(error)) => error.kind.code(),
            Self::Ended(_) => "bpmux.ended",
            Self::Open(error) => error.code("bpmux.url", "bpmux.connect", "bpmux.listen"),
        }
    }
}

impl From<End<Kind>> for Error {
    fn from(end: End<Kind>) -> Self {
        Self::Ended(end)
    }
}

/// The errors of byte streams over a half.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match error {
            Error::Cancelled(_) => ErrorKind::BrokenPipe,
            Error::Blocked => ErrorKind::WouldBlock,
            Error::Ended(_) => ErrorKind::ConnectionAborted,
            _ => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A payload that says why, as far as it is text for a line.
fn reason(payload: &Bytes) -> String {
    const SHOWN: usize = 200;
    if payload.is_empty() {
        return String::new();
    }
    match std::str::from_utf8(payload) {
        Ok(text) => {
            let shown: String = text.chars().take(SHOWN).collect();
            format!(": {shown:?}")
        }
        Err(_) => format!(" with {} bytes", payload.len()),
    }
}
