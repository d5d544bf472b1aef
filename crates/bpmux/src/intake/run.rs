//! Runs of messages, as they are handed out to be landed.

use std::sync::Arc;

use ackline_core::{OneRun, Payload};
use bytes::Bytes;

use super::Source;
use crate::Target;

/// Messages of one entity, or requests, with consecutive numbers.
#[derive(Debug)]
pub struct Run {
    /// The token that settles it.
    pub token: u64,
    /// The source of its messages.
    pub source: Arc<Source>,
    /// The number of its first message.
    pub first: u64,
    /// Its messages. None, if there is only something to tell.
    pub payloads: Vec<Payload>,
    /// Their bytes.
    pub bytes: usize,
    /// Something for an operator.
    pub note: Option<Note>,
    pub(super) from: From,
    /// Requests in it, each with its number.
    pub(super) requests: Vec<(u32, u64)>,
}

/// Something for an operator.
#[derive(Debug)]
pub enum Note {
    /// A sink or duplex was refused: its opening has too many bytes.
    OpeningTooLarge {
        /// Its bytes.
        bytes: usize,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// A close with a payload that is no count of messages.
    ClosedWith {
        /// The beginning of the payload.
        begin: Bytes,
        /// The number of its bytes.
        bytes: usize,
    },
}

/// The source of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum From {
    /// A sink, the read half of a duplex, or another half.
    Entity(Target),
    /// All requests.
    Requests,
    /// Something to tell.
    Nothing,
}

impl OneRun for Run {
    type Key = From;

    fn key(&self) -> From {
        self.from
    }

    fn size(&self) -> (usize, usize) {
        (self.payloads.len(), self.bytes)
    }
}
