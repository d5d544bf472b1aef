//! Violations by the peer, and refusals of calls. The names are those of the conformance vectors.

use ackline_core::{ErrorKind, LimitHit};

use crate::Target;
use crate::chunk::PayloadRole;

/// A violation of the protocol, of a limit or of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// A tag without a meaning (R-BPM-6).
    #[error("no chunk begins with the tag 0x{tag:02x}")]
    InvalidChunk {
        /// The tag.
        tag: u8,
    },
    /// A number above a limit.
    #[error("{} is above {} ({})", .0.value, .0.limit, .0.option)]
    Limit(LimitHit),
    /// More than a connection may have of the memory that all share.
    #[error("{what} take {} bytes, above {}: {part} of {}", .hit.value, .hit.limit, .hit.option)]
    Memory {
        /// The things that have no room, in words.
        what: &'static str,
        /// The part of the memory that a connection may have, in words.
        part: &'static str,
        /// The limit, in bytes.
        hit: LimitHit,
    },
    /// More payload than credit was given for (REQ-BPMUX-31).
    #[error("{length} bytes of {what} against {credit} of credit")]
    CreditExceeded {
        /// The role of the payload.
        what: PayloadRole,
        /// Its bytes in this chunk.
        length: u64,
        /// The credit that was left.
        credit: u64,
    },
    /// Credit whose sum is above 2^64-1 (REQ-BPMUX-31).
    #[error("credit for {target} above 2^64-1")]
    CreditOverflow {
        /// The half that the credit was for.
        target: Target,
    },
    /// No such request, sink, stream or duplex, or one that is not completely opened.
    #[error("{what} does not exist")]
    UnknownId {
        /// The subject of the chunk.
        what: Subject,
    },
    /// An id that is taken (REQ-BPMUX-3, REQ-BPMUX-4).
    #[error("the id of {what} is in use")]
    IdInUse {
        /// The payload that was to begin.
        what: PayloadRole,
    },
    /// A half that the entity does not have (R-BPM-12, R-BPM-30).
    #[error("{what} has no such half")]
    WrongDirection {
        /// The subject of the chunk.
        what: Subject,
    },
    /// A half, request or response that is over (R-BPM-29).
    #[error("{what} has ended")]
    AlreadyEnded {
        /// The subject of the chunk.
        what: Subject,
    },
    /// An acknowledgement that answers nothing (R-BPM-29, R-BPMUX-V12).
    #[error("an acknowledgement of the end of {what}, which had none outstanding")]
    UnexpectedAcknowledgement {
        /// The subject of the chunk.
        what: Subject,
    },
    /// A payload in parts that is broken off, nested or longer than announced (REQ-BPMUX-29).
    #[error("partial payload: {what}")]
    PartialViolation {
        /// The violation, in words.
        what: &'static str,
    },
    /// A message, request or opening after the top-level was closed (R-BPMUX-V9).
    #[error("{what} after the close of the top-level")]
    TopLevelClosed {
        /// The payload that came.
        what: PayloadRole,
    },
    /// The peer took responses too slowly while requests waited for their room.
    #[error(
        "{bytes} bytes of responses wait for it while requests wait for their room, and it took {taken} in {seconds} s"
    )]
    NoCredit {
        /// Bytes that wait.
        bytes: usize,
        /// Bytes that it took.
        taken: u64,
        /// The seconds in which it took them.
        seconds: u64,
    },
    /// The peer was silent too long.
    #[error("the peer was silent too long ({option})")]
    Timeout {
        /// The option that changes the deadline.
        option: &'static str,
    },
}

impl Kind {
    /// The error of a peer that has begun more than it may: the connection could wait for memory for ever.
    pub(crate) const fn too_much_begun(value: u64, limit: u64) -> Self {
        Self::Memory {
            what: "open entities and requests",
            part: "seven eighths of a quarter, and of 32 KiB,",
            hit: LimitHit {
                value,
                limit,
                option: "--memory",
            },
        }
    }
}

/// The option that says how long a pong is waited for.
pub(crate) const PONG_TIMEOUT: &str = "--pong-timeout";

impl ErrorKind for Kind {
    fn is_silence(&self) -> bool {
        matches!(self, Self::Timeout { option } if *option == PONG_TIMEOUT)
    }

    fn code(&self) -> &'static str {
        match self {
            Self::InvalidChunk { .. } => "bpmux.invalid_chunk",
            Self::Limit(_) | Self::Memory { .. } => "bpmux.limit_exceeded",
            Self::CreditExceeded { .. } => "bpmux.credit_exceeded",
            Self::CreditOverflow { .. } => "bpmux.credit_overflow",
            Self::UnknownId { .. } => "bpmux.unknown_id",
            Self::IdInUse { .. } => "bpmux.id_in_use",
            Self::WrongDirection { .. } => "bpmux.wrong_direction",
            Self::AlreadyEnded { .. } => "bpmux.already_ended",
            Self::UnexpectedAcknowledgement { .. } => "bpmux.unexpected_acknowledgement",
            Self::PartialViolation { .. } => "bpmux.partial_violation",
            Self::TopLevelClosed { .. } => "bpmux.top_level_closed",
            Self::NoCredit { .. } => "bpmux.no_credit",
            Self::Timeout { .. } => "bpmux.timeout",
        }
    }

    fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(hit) | Self::Memory { hit, .. } => Some(*hit),
            _ => None,
        }
    }

    fn option(&self) -> Option<&'static str> {
        match self {
            Self::Timeout { option } => Some(option),
            _ => self.limit().map(|hit| hit.option),
        }
    }
}

/// The subject of a chunk, in the words of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A sink, stream or duplex.
    Entity(Target),
    /// A request of this end.
    OwnRequest(u32),
    /// A request of the peer.
    PeerRequest(u32),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entity(target) => target.fmt(f),
            Self::OwnRequest(id) => write!(f, "our request {id}"),
            Self::PeerRequest(id) => write!(f, "the peer's request {id}"),
        }
    }
}

/// Refusals of calls. A refused call changes nothing.
pub mod refusal {
    use ackline_core::UsageError;

    /// No such request, sink, stream or duplex; or its opening is not sent completely (R-BPMUX-V11).
    pub const UNKNOWN_ID: UsageError = UsageError::new(
        "unknown_id",
        "there is no such request, sink, stream or duplex, or it is not open yet",
    );
    /// The id of something that is not over.
    pub const ID_IN_USE: UsageError = UsageError::new(
        "id_in_use",
        "the id is in use; it is free once the other side has acknowledged the end",
    );
    /// The entity cannot be written, or read, from this side.
    pub const WRONG_DIRECTION: UsageError = UsageError::new(
        "wrong_direction",
        "a sink is written by its opener, a stream is read by its opener",
    );
    /// The half, request or response was closed, cancelled or answered before.
    pub const ALREADY_ENDED: UsageError = UsageError::new(
        "already_ended",
        "it was closed, cancelled or answered before",
    );
    /// The peer has not closed the half, or that is acknowledged.
    pub const NOT_CLOSED: UsageError = UsageError::new(
        "not_closed",
        "the peer has not closed it, or its close is acknowledged",
    );
    /// No new messages, requests or openings after the top-level was closed, or cancelled by the peer.
    pub const TOP_LEVEL_CLOSED: UsageError = UsageError::new(
        "top_level_closed",
        "the top-level is closed: no messages, requests or openings any more",
    );
    /// Credit above 2^64-1.
    pub const CREDIT_OVERFLOW: UsageError = UsageError::new(
        "credit_overflow",
        "the sum of unused credit would be above 2^64-1",
    );
    /// The connection is over.
    pub const CLOSED: UsageError = UsageError::new("closed", "the connection is over");
    /// Every id is taken.
    pub const LIMIT_REACHED: UsageError =
        UsageError::new("limit_reached", "every one of the 2^32 ids is in use");
}
