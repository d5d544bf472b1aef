//! Violations by the peer, and refusals of calls. The names are those of the conformance vectors.

use ackline_core::{ErrorKind, LimitHit};

/// A violation of the protocol, of a limit or of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// A varint of more than ten bytes or above 2^64-1 (R-RS-1).
    #[error("a varint is above 2^64-1, or longer than ten bytes")]
    VarintOverflow,
    /// A demand above 2^63-1 (R-RS-3).
    #[error("a demand of {demand} is above 2^63-1")]
    LongOverflow {
        /// The demand.
        demand: u64,
    },
    /// A text that is not UTF-8 (R-RS-4).
    #[error("{field} is not UTF-8")]
    InvalidUtf8 {
        /// The field of the message, in words.
        field: &'static str,
    },
    /// A type without a meaning, or of an extension that is not active (R-RS-12).
    #[error(
        "no message has the type {message_type}, unless an extension that is not active gives it one"
    )]
    UnknownMessageType {
        /// The type.
        message_type: u64,
    },
    /// A message about a subscription that does not exist, or that the publisher has not accepted yet (R-RS-14).
    #[error("{subject}: there is no such subscription, or it was not accepted yet")]
    UnknownSubscriber {
        /// The subject of the message.
        subject: Subject,
    },
    /// Packed elements on a stream without a fixed size (REQ-RS-25).
    #[error("{subject}: packed elements on a stream whose elements have no fixed size")]
    PackedWithoutElementSize {
        /// The subject of the message.
        subject: Subject,
    },
    /// A number above a limit.
    #[error("{} is above {} ({})", .0.value, .0.limit, .0.option)]
    Limit(LimitHit),
    /// A hello with another version (REQ-RS-6).
    #[error("version {version} is not supported; this end has version 0")]
    UnsupportedVersion {
        /// The version.
        version: u64,
    },
    /// A message before the peer's hello (R-RS-9).
    #[error("a message of type {message_type} came before the peer's hello")]
    HelloExpected {
        /// The type.
        message_type: u64,
    },
    /// A second hello, or that of the other role (R-RS-9).
    #[error("a hello came that is not expected: {reason}")]
    UnexpectedHello {
        /// The reason, in words.
        reason: &'static str,
    },
    /// A subscription with the id of another one (R-RS-16).
    #[error("{subject}: a subscription with this id exists already")]
    SubscriberInUse {
        /// The subject of the message.
        subject: Subject,
    },
    /// A subscription was accepted twice (R-RS-V4).
    #[error("{subject}: it was accepted twice")]
    DuplicateSubscribed {
        /// The subject of the message.
        subject: Subject,
    },
    /// More elements than were requested (R-RS-20).
    #[error("{subject}: more elements came than were requested: {came}, and {demand} were left")]
    DemandExceeded {
        /// The subject of the message.
        subject: Subject,
        /// The elements of the message.
        came: u64,
        /// The demand that was left.
        demand: u64,
    },
    /// An element that has not the stream's size (R-RS-21).
    #[error("{subject}: an element of {length} bytes on a stream of elements of {size}")]
    ElementSizeMismatch {
        /// The subject of the message.
        subject: Subject,
        /// The element's bytes so far.
        length: u64,
        /// The size.
        size: u64,
    },
    /// A stream that was completed inside an element (R-RS-25).
    #[error("{subject}: it was completed while {unfinished} elements had come in part")]
    IncompleteElement {
        /// The subject of the message.
        subject: Subject,
        /// The elements.
        unfinished: usize,
    },
    /// The peer was silent too long.
    #[error("the peer was silent too long ({option})")]
    Timeout {
        /// The option that changes the deadline.
        option: &'static str,
    },
}

impl Kind {
    /// The text for the peer, in a goodbye: without the options of this end.
    pub fn text_for_peer(&self) -> String {
        match self {
            Self::Limit(LimitHit { value, limit, .. }) => {
                format!("{value} is above {limit}, which is the limit of this end")
            }
            Self::Timeout { .. } => "this end has waited too long for bytes of the peer".to_owned(),
            other => other.to_string(),
        }
    }
}

impl ErrorKind for Kind {
    fn code(&self) -> &'static str {
        match self {
            Self::VarintOverflow => "reactive.varint_overflow",
            Self::LongOverflow { .. } => "reactive.long_overflow",
            Self::InvalidUtf8 { .. } => "reactive.invalid_utf8",
            Self::UnknownMessageType { .. } => "reactive.unknown_message_type",
            Self::UnknownSubscriber { .. } => "reactive.unknown_subscriber",
            Self::PackedWithoutElementSize { .. } => "reactive.packed_without_element_size",
            Self::Limit(_) => "reactive.limit_exceeded",
            Self::UnsupportedVersion { .. } => "reactive.unsupported_version",
            Self::HelloExpected { .. } => "reactive.hello_expected",
            Self::UnexpectedHello { .. } => "reactive.unexpected_hello",
            Self::SubscriberInUse { .. } => "reactive.subscriber_in_use",
            Self::DuplicateSubscribed { .. } => "reactive.duplicate_subscribed",
            Self::DemandExceeded { .. } => "reactive.demand_exceeded",
            Self::ElementSizeMismatch { .. } => "reactive.element_size_mismatch",
            Self::IncompleteElement { .. } => "reactive.incomplete_element",
            Self::Timeout { .. } => "reactive.timeout",
        }
    }

    fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(hit) => Some(*hit),
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

/// A subscription, in the words of an error. Ids of both directions are independent (R-RS-27).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A subscription of this end.
    Own(u64),
    /// A subscription of the peer.
    Peer(u64),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(id) => write!(f, "our subscription {id}"),
            Self::Peer(id) => write!(f, "the peer's subscription {id}"),
        }
    }
}

/// Refusals of calls. A refused call changes nothing.
pub mod refusal {
    use ackline_core::UsageError;

    /// Before the connection is made (at the server: before the client's hello), and after its end (R-RS-V12).
    pub const NOT_CONNECTED: UsageError = UsageError::new(
        "not_connected",
        "the connection is not made yet, or it is over",
    );
    /// After this end's goodbye (R-RS-29).
    pub const CLOSING: UsageError = UsageError::new("closing", "this end has said goodbye");
    /// No such subscription, or one that has ended; for `accept` and `reject` also one that was accepted.
    pub const UNKNOWN_SUBSCRIBER: UsageError = UsageError::new(
        "unknown_subscriber",
        "there is no such subscription, it has ended, or it was accepted already",
    );
    /// An id that is in use, or that was cancelled (R-RS-13).
    pub const SUBSCRIBER_IN_USE: UsageError = UsageError::new(
        "subscriber_in_use",
        "the id is in use; that of a cancelled subscription stays in use until the connection ends",
    );
    /// Fewer elements were requested.
    pub const NO_DEMAND: UsageError = UsageError::new(
        "no_demand",
        "the subscriber has requested fewer elements; wait for its request",
    );
    /// A demand of 0 in a request, or one above 2^63-1.
    pub const INVALID_DEMAND: UsageError = UsageError::new(
        "invalid_demand",
        "a demand is a whole number up to 2^63-1, and at least 1 in a request",
    );
    /// An element, or the end of a stream, before its subscription was accepted.
    pub const NOT_ACCEPTED: UsageError =
        UsageError::new("not_accepted", "accept the subscription first");
    /// An element that has not the size with which the subscription was accepted.
    pub const WRONG_ELEMENT_SIZE: UsageError = UsageError::new(
        "wrong_element_size",
        "every element has the size with which the subscription was accepted",
    );
    /// A low-water mark that is not below the demand.
    pub const INVALID_LOW_WATER: UsageError = UsageError::new(
        "invalid_low_water",
        "more elements are requested when so many are left: a number below the demand",
    );
    /// A stream that has ended, or was ended here.
    pub const ALREADY_ENDED: UsageError =
        UsageError::new("already_ended", "the stream has ended, or was ended here");
    /// An element that is taken whole where elements come in parts.
    pub const IN_PARTS: UsageError = UsageError::new(
        "in_parts",
        "elements come in parts (parts=True): take their parts",
    );
    /// Elements that are taken as one buffer, and have no fixed size.
    pub const NOT_FIXED_SIZE: UsageError = UsageError::new(
        "not_fixed_size",
        "the elements of this stream have no fixed size: take them one by one",
    );
    /// A publisher under a name or pattern that is taken.
    pub const PUBLISHER_EXISTS: UsageError = UsageError::new(
        "publisher_exists",
        "a publisher was added under this name before",
    );
    /// A message of an extension whose type is one of the protocol's, or another message's.
    pub const INVALID_MESSAGE_TYPE: UsageError = UsageError::new(
        "invalid_message_type",
        "the type of an extension's message is 64 or more, and no other message has it",
    );
    /// An element above this end's own limit, which is the default of the peer too.
    pub const ELEMENT_TOO_LARGE: UsageError = UsageError::new(
        "element_too_large",
        "an element has more bytes than max_element_bytes, which holds for elements of both ends",
    );
    /// A name above this end's own limit, which is the default of the peer too.
    pub const NAME_TOO_LONG: UsageError = UsageError::new(
        "name_too_long",
        "a publisher's name has more bytes than max_string_bytes, which holds for names of both ends",
    );
    /// A message of an extension that the peer does not support, or whose fields are others.
    pub const EXTENSION_NOT_ACTIVE: UsageError = UsageError::new(
        "extension_not_active",
        "no extension that both ends support has this message with these fields",
    );
}
