//! The errors of a sender.

use std::sync::Arc;

use ackline_core::UsageError;
use ackline_core::options::OptionError;

/// Why something was not sent or is not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// A URL, an option or a batch is wrong.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A URL is wrong.
    #[error("{0}")]
    Url(String),
    /// A file of TLS cannot be used.
    #[error("{message}")]
    Tls {
        /// Such as `tls.options`.
        code: &'static str,
        /// A description of the error, with the file's name.
        message: String,
    },
    /// No host could be reached; the last one's reason.
    #[error("{0}")]
    Connect(Arc<str>),
    /// The buffer is full (`buffer_events`, `buffer_bytes`): there is room when something is acknowledged.
    #[error("the buffer is full (buffer_events, buffer_bytes)")]
    Blocked,
    /// The time was up.
    #[error("{unacknowledged} events were not acknowledged in time{}", because(.reason.as_ref()))]
    Timeout {
        /// Events accepted and not acknowledged.
        unacknowledged: u64,
        /// Why a host failed last.
        reason: Option<Arc<str>>,
    },
    /// The sender was closed before.
    #[error("the sender is closed; {unacknowledged} events are not acknowledged")]
    Closed {
        /// Events accepted and not acknowledged.
        unacknowledged: u64,
    },
}

fn because(reason: Option<&Arc<str>>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}
