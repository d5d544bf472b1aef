//! Errors by their cause: the peer (`ProtocolError`) or our caller (`UsageError`).

use std::fmt::Debug;

/// A limit that an input went over, for the log line that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitHit {
    /// The value that the peer announced or sent.
    pub value: u64,
    /// The largest value that is allowed.
    pub limit: u64,
    /// The option that changes the limit.
    pub option: &'static str,
}

impl LimitHit {
    /// The same in a capture, where one option limits all that is measured in bytes.
    #[must_use]
    pub const fn in_a_capture(self) -> Self {
        Self {
            option: "--max-frame-bytes",
            ..self
        }
    }
}

/// A protocol's own enum of violations.
pub trait ErrorKind: std::error::Error + Clone + Eq + Debug + Send + Sync + 'static {
    /// A stable name such as `lumberjack.overrun`.
    fn code(&self) -> &'static str;

    /// The limit behind the violation, if it was one.
    fn limit(&self) -> Option<LimitHit> {
        None
    }

    /// Whether the peer gave no sign of life: a goodbye would reach nobody.
    fn is_silence(&self) -> bool {
        false
    }

    /// The option that changes the rule behind the violation, if there is one.
    fn option(&self) -> Option<&'static str> {
        self.limit().map(|hit| hit.option)
    }
}

/// The peer broke the protocol, a limit or a deadline. Terminal: the first one is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {offset} of the connection)")]
pub struct ProtocolError<K: ErrorKind> {
    /// The violation.
    #[source]
    pub kind: K,
    /// Bytes received on this connection before the offending frame; for a frame inside an envelope,
    /// before the envelope.
    pub offset: u64,
}

/// Our caller asked for something that is not allowed now; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct UsageError {
    /// A stable name such as `unknown_window`.
    pub code: &'static str,
    /// The mistake and its remedy, as a sentence.
    pub message: &'static str,
}

impl UsageError {
    /// A refusal with its stable code and its sentence.
    pub const fn new(code: &'static str, message: &'static str) -> Self {
        Self { code, message }
    }
}
