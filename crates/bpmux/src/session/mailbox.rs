//! The mailbox of one entity or request: a session keeps it for the holders of its handles.

use std::collections::VecDeque;

use ackline_core::Payload;
use bytes::Bytes;

use crate::{Subject, Target};

/// The payload that ends a sink, or a request of the peer's, whose handle was dropped.
pub(super) const DROPPED: &[u8] = b"dropped";

/// The payload that cancels an entity that the peer has begun and closed.
pub(super) const NOT_ACCEPTED: &[u8] = b"not accepted";

/// A piece of a message; without [`Config::parts`](crate::Config::parts) all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its bytes.
    pub payload: Payload,
    /// The message ends with it.
    pub is_last: bool,
}

/// Everything that one entity or request has received.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) subject: Subject,
    pub(super) parts: VecDeque<Part>,
    /// Parts that were taken of a message whose end has not come: it is asked for whole.
    pub(super) begun: Vec<Payload>,
    /// The response to an own request.
    pub(super) response: Option<Payload>,
    /// The peer has closed the half that this end reads, or will not answer.
    pub(super) closed: Option<Bytes>,
    /// The peer has cancelled the half that this end writes, or its request.
    pub(super) cancelled: Option<Bytes>,
    pub(super) acknowledged: Acknowledged,
    pub(super) pongs: u64,
    /// It is over: its id may stand for something else.
    pub(super) gone: bool,
    pub(super) handles: u8,
    /// Bytes of a request of the peer's that was accepted and is not answered.
    pub(super) accepted: Option<u64>,
    pub(super) given_up: GivenUp,
}

/// Own ends of it that the peer has acknowledged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acknowledged {
    pub(super) close: bool,
    pub(super) cancel: bool,
}

/// Halves that nobody writes or reads any more, of an entity that is not open yet: ended once it is. Or a request that was
/// cancelled here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GivenUp {
    pub(super) sink: bool,
    pub(super) stream: bool,
    pub(super) request: bool,
}

impl Mailbox {
    pub(super) fn new(subject: Subject, handles: u8) -> Self {
        Self {
            subject,
            parts: VecDeque::new(),
            begun: Vec::new(),
            response: None,
            closed: None,
            cancelled: None,
            acknowledged: Acknowledged::default(),
            pongs: 0,
            gone: false,
            handles,
            accepted: None,
            given_up: GivenUp::default(),
        }
    }

    /// Whether the half that this end reads was read to its end.
    pub(super) fn is_read_out(&self) -> bool {
        self.closed.is_some() && self.parts.is_empty() && self.begun.is_empty()
    }

    /// Where it is read, unless it is over.
    #[inline]
    pub(super) const fn read_target(&self) -> Option<Target> {
        match self.subject {
            Subject::Entity(target) if !self.gone => Some(target),
            _ => None,
        }
    }
}
