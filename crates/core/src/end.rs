//! The reasons for which a link ends.

use std::io;
use std::sync::Arc;

use crate::{ErrorKind, ProtocolError};

/// The reason a link has ended: returned by its driver and by every later wait.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum End<K: ErrorKind> {
    /// This side closed, everything was sent and the peer ended too.
    #[error("the link is closed")]
    Closed,
    /// The peer ended its direction first, and everything owed to it was sent.
    #[error("the peer has ended the link")]
    Eof,
    /// The peer broke the protocol, a limit or a deadline.
    #[error(transparent)]
    Protocol(ProtocolError<K>),
    /// The transport failed.
    #[error("the transport failed: {0}")]
    Io(Arc<io::Error>),
    /// The peer did not end in time after our end.
    #[error("the peer did not close in time")]
    CloseDeadline,
    /// The peer announced more than the memory budget can ever admit.
    #[error(
        "{value} bytes announced, {limit} can be admitted at the most: {needed} bytes of {option} are needed, or \
         shorter windows"
    )]
    Memory {
        /// Bytes announced.
        value: u64,
        /// Bytes that can always be admitted, inclusive.
        limit: u64,
        /// The smallest value of the option that admits the announced bytes.
        needed: u64,
        /// The option that changes the limit.
        option: &'static str,
        /// Bytes received on this transport before the announcing frame.
        offset: u64,
    },
    /// The peer was too slow with a frame or window whose memory others waited for.
    #[error(
        "{came} bytes in {seconds} s of a frame or window that holds {holds} bytes of memory, while others wait for \
         memory ({option})"
    )]
    Slow {
        /// Bytes of it that came.
        came: u64,
        /// Seconds that the peer had, without the time in which reading waited for memory.
        seconds: u64,
        /// Bytes of memory that it held.
        holds: u64,
        /// The option that allows more time.
        option: &'static str,
        /// Bytes received on this transport.
        offset: u64,
    },
    /// A defect: the driver kept running for this long without progress.
    #[error("a defect: the driver ran for {0:?} without progress")]
    Stuck(std::time::Duration),
    /// The peer speaks another protocol, as the first bytes show; the acceptor had not awaited
    /// them.
    #[error("{message}")]
    Foreign {
        /// A stable name of the peer's protocol.
        code: &'static str,
        /// The reason as a sentence.
        message: Arc<str>,
        /// The option that changes it.
        option: Option<&'static str>,
    },
    /// The application ended the link at once.
    #[error("the link was aborted")]
    Aborted,
    /// This machine's part is complete and written: another machine continues on the transport.
    #[error("the transport continues with another machine")]
    Handover,
    /// A newer driver of the same link has taken over.
    #[error("another transport has taken over")]
    Replaced,
    /// The driver was dropped before the link's end.
    #[error("nothing drives the link any more")]
    Dropped,
}
