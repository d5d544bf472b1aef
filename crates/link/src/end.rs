//! Why a link is over.

use std::io;
use std::sync::Arc;

use ackline_core::{ErrorKind, ProtocolError};

/// Why a link is over: what [`Link::drive`](crate::Link::drive) returns and every later wait is told.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum End<K: ErrorKind> {
    /// This side closed, everything was sent and the peer ended too.
    #[error("the link is closed")]
    Closed,
    /// The peer ended its direction first, and what it was owed was sent.
    #[error("the peer has ended the link")]
    Eof,
    /// The peer broke the protocol, a limit or a deadline.
    #[error(transparent)]
    Protocol(ProtocolError<K>),
    /// The transport failed.
    #[error("the transport failed: {0}")]
    Io(Arc<io::Error>),
    /// The peer did not end within [`CLOSE_DEADLINE`](crate::CLOSE_DEADLINE) of our end.
    #[error("the peer did not close in time")]
    CloseDeadline,
    /// The peer announced more than the memory budget can ever admit.
    #[error(
        "{value} bytes announced, {limit} can be admitted at the most: {} bytes of {option} are needed, or \
         shorter windows",
        crate::Budget::needed(*value)
    )]
    Memory {
        /// Bytes announced.
        value: u64,
        /// Bytes that can always be admitted, inclusive.
        limit: u64,
        /// The option that changes the limit.
        option: &'static str,
        /// Bytes received on this transport before the frame that was announced.
        offset: u64,
    },
    /// The peer was too slow with a frame or window whose memory others waited for.
    #[error(
        "{came} bytes in {seconds} s of a frame or window that holds {holds} bytes of memory, while others wait for \
         memory ({option})"
    )]
    Slow {
        /// Bytes that came of it.
        came: u64,
        /// Seconds that the peer had, without those in which reading waited for memory.
        seconds: u64,
        /// Bytes of memory that it held.
        holds: u64,
        /// The option that allows more time.
        option: &'static str,
        /// Bytes received on this transport.
        offset: u64,
    },
    /// A defect: the driver went round and round, and nothing came of it.
    #[error("a defect: the link turned for {0:?} and got nowhere")]
    Stuck(std::time::Duration),
    /// The peer speaks another protocol, by the first bytes of a connection whose acceptor awaited none.
    #[error("{message}")]
    Foreign {
        /// A stable name of what it speaks.
        code: &'static str,
        /// The reason as a sentence.
        message: Arc<str>,
        /// The option that changes it.
        option: Option<&'static str>,
    },
    /// [`Link::abort`](crate::Link::abort) was called.
    #[error("the link was aborted")]
    Aborted,
    /// This machine's part is done and written: the transport goes on with another one.
    #[error("the transport goes on with another machine")]
    Handover,
    /// A newer `drive` of the same link has taken over.
    #[error("another transport has taken over")]
    Replaced,
    /// The future of `drive` was dropped before its end.
    #[error("nothing drives the link any more")]
    Dropped,
}

/// What a wait on an ended link is told.
pub type LinkError<K> = End<K>;
