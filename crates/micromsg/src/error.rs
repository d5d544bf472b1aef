//! Violations by the peer, and refusals of calls. The names are those of the conformance vectors.

use ackline_core::{ErrorKind, LimitHit};

/// A violation of the protocol, of a limit or of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// A flag without a meaning (R-MM-16).
    #[error("the flags {flags:#04x} have bits without a meaning")]
    ReservedFlags {
        /// The first byte of the frame.
        flags: u8,
    },
    /// A frame of two kinds (R-MM-16).
    #[error("the flags {flags:#04x} name more than one kind of frame")]
    ConflictingFrameTypes {
        /// The first byte of the frame.
        flags: u8,
    },
    /// CONTINUED on a frame that is no MESSAGE (R-MM-15).
    #[error("the flags {flags:#04x} continue a frame that is no MESSAGE")]
    ContinuedNotMessage {
        /// The first byte of the frame.
        flags: u8,
    },
    /// A sequence number of 0 (R-MM-6).
    #[error("a message has the sequence number 0")]
    InvalidSequenceNumber,
    /// A text that must be ASCII and is not (R-MM-35, R-MM-V8).
    #[error("{field} is not ASCII")]
    NotAscii {
        /// The field, in words.
        field: &'static str,
    },
    /// A number above a limit.
    #[error("{} is above {} ({})", .0.value, .0.limit, .0.option)]
    Limit(LimitHit),
    /// A percent sign without two hexadecimal digits, or escapes that are not UTF-8 together (R-MM-V11).
    #[error(
        "{field} has a percent sign without two hexadecimal digits, or its escapes are not UTF-8"
    )]
    InvalidPercentEncoding {
        /// The field, in words.
        field: &'static str,
    },
    /// A list of extensions that cannot be read (R-MM-V10).
    #[error("the list of extensions {text:?} cannot be read: {reason}")]
    InvalidExtensionList {
        /// The beginning of the list.
        text: String,
        /// The reason, in words.
        reason: &'static str,
    },
    /// Properties that cannot be read (R-MM-V10).
    #[error("the properties {text:?} cannot be read: {reason}")]
    InvalidProperties {
        /// The beginning of the properties.
        text: String,
        /// The reason, in words.
        reason: &'static str,
    },
    /// A command that cannot be read, or that lacks something (R-MM-V10, R-MM-V14).
    #[error("the command {text:?} cannot be read: {reason}")]
    InvalidCommand {
        /// The beginning of the command.
        text: String,
        /// The reason, in words.
        reason: &'static str,
    },
    /// A filter that cannot be read (R-MM-28, R-MM-29, R-MM-V9).
    #[error("the filter {text:?} cannot be read: {reason}")]
    InvalidFilter {
        /// The beginning of the filter.
        text: String,
        /// The reason, in words.
        reason: &'static str,
    },
    /// A version that this crate does not have (R-MM-18).
    #[error("version {major}.{minor} is not supported; version 1.0 is")]
    UnsupportedVersion {
        /// The major version.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// An extension that one side requires and the other has not (REQ-MM-11, REQ-MM-12, R-MM-20).
    #[error("the extension {name:?} is required, and {lacks} does not have it")]
    MissingExtension {
        /// The extension.
        name: String,
        /// The side that lacks it, in words.
        lacks: &'static str,
    },
    /// An extension in the final handshake that was never offered (R-MM-20).
    #[error("the final handshake names the extension {name:?}, which was not offered")]
    UnexpectedExtension {
        /// The extension.
        name: String,
    },
    /// An extension that the final handshake names twice (R-MM-21).
    #[error("the final handshake names the extension {name:?} twice")]
    DuplicateExtension {
        /// The extension.
        name: String,
    },
    /// More than 255 extensions (R-MM-20).
    #[error("the final handshake names {count} extensions; an extension's number has one byte")]
    TooManyExtensions {
        /// The extensions.
        count: usize,
    },
    /// A count of `ack` or `batch-ack` that is no number, is out of range, or is above the smallest stated one (R-MM-7,
    /// R-MM-8, R-MM-V7).
    #[error("{name} has the count {value:?}; it is a number from 1 to {most}")]
    InvalidExtensionProperty {
        /// The extension.
        name: String,
        /// The value.
        value: String,
        /// The largest count that is allowed.
        most: u16,
    },
    /// An acknowledgement of a message that is not outstanding (R-MM-23).
    #[error(
        "{number} is acknowledged, and no message that waits for an acknowledgement has this number"
    )]
    OutOfRange {
        /// The sequence number.
        number: u16,
    },
    /// An acknowledgement that has not two bytes, or comes by the extension that is not used (R-MM-V6).
    #[error("an acknowledgement cannot be read: {reason}")]
    InvalidAcknowledgement {
        /// The reason, in words.
        reason: &'static str,
    },
    /// A message that is neither the next one nor one of the last (R-MM-V6).
    #[error("a message has the sequence number {came}, and {next} is the next one")]
    SequenceMismatch {
        /// Its number.
        came: u16,
        /// The next number.
        next: u16,
    },
    /// More unacknowledged messages than were agreed on (R-MM-V5).
    #[error(
        "a message came while {window} others wait for their acknowledgement, the number that was agreed on"
    )]
    WindowExceeded {
        /// That number.
        window: u16,
    },
    /// A message inside another one that comes in fragments (R-MM-14).
    #[error("a message in fragments is continued by another one: {reason}")]
    ContinuedMismatch {
        /// The difference, in words.
        reason: &'static str,
    },
    /// An extension frame whose number no extension has (R-MM-31).
    #[error("an extension frame has the number {id}; {count} extensions were agreed on")]
    UnknownExtension {
        /// The number.
        id: u8,
        /// The extensions of the connection.
        count: usize,
    },
    /// The peer was silent too long.
    #[error("the peer was silent too long ({option})")]
    Timeout {
        /// The option that changes the deadline.
        option: &'static str,
    },
}

impl ErrorKind for Kind {
    fn code(&self) -> &'static str {
        match self {
            Self::ReservedFlags { .. } => "micromsg.reserved_flags",
            Self::ConflictingFrameTypes { .. } => "micromsg.conflicting_frame_types",
            Self::ContinuedNotMessage { .. } => "micromsg.continued_not_message",
            Self::InvalidSequenceNumber => "micromsg.invalid_sequence_number",
            Self::NotAscii { .. } => "micromsg.not_ascii",
            Self::Limit(_) => "micromsg.limit_exceeded",
            Self::InvalidPercentEncoding { .. } => "micromsg.invalid_percent_encoding",
            Self::InvalidExtensionList { .. } => "micromsg.invalid_extension_list",
            Self::InvalidProperties { .. } => "micromsg.invalid_properties",
            Self::InvalidCommand { .. } => "micromsg.invalid_command",
            Self::InvalidFilter { .. } => "micromsg.invalid_filter",
            Self::UnsupportedVersion { .. } => "micromsg.unsupported_version",
            Self::MissingExtension { .. } => "micromsg.missing_extension",
            Self::UnexpectedExtension { .. } => "micromsg.unexpected_extension",
            Self::DuplicateExtension { .. } => "micromsg.duplicate_extension",
            Self::TooManyExtensions { .. } => "micromsg.too_many_extensions",
            Self::InvalidExtensionProperty { .. } => "micromsg.invalid_extension_property",
            Self::OutOfRange { .. } => "micromsg.out_of_range",
            Self::InvalidAcknowledgement { .. } => "micromsg.invalid_acknowledgement",
            Self::SequenceMismatch { .. } => "micromsg.sequence_mismatch",
            Self::WindowExceeded { .. } => "micromsg.window_exceeded",
            Self::ContinuedMismatch { .. } => "micromsg.continued_mismatch",
            Self::UnknownExtension { .. } => "micromsg.unknown_extension",
            Self::Timeout { .. } => "micromsg.timeout",
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

/// Refusals of calls. A refused call changes nothing.
pub mod refusal {
    use ackline_core::UsageError;

    /// Before the handshake has ended (R-MM-33).
    pub const HANDSHAKE_INCOMPLETE: UsageError = UsageError::new(
        "handshake_incomplete",
        "the handshake has not ended yet; wait until the connection is made",
    );
    /// As many messages as were agreed on wait for their acknowledgement (REQ-MM-5).
    pub const WINDOW_FULL: UsageError = UsageError::new(
        "window_full",
        "as many messages as were agreed on wait for their acknowledgement",
    );
    /// A message that was not delivered, or was acknowledged.
    pub const OUT_OF_RANGE: UsageError = UsageError::new(
        "out_of_range",
        "there is no message with this number that was delivered and not acknowledged",
    );
    /// A message that this end has not sent.
    pub const NOT_SENT: UsageError = UsageError::new(
        "out_of_range",
        "this end has sent no message with this position",
    );
    /// A destination whose length has more than one byte.
    pub const DESTINATION_TOO_LONG: UsageError = UsageError::new(
        "out_of_range",
        "the name of a topic or a queue has at most 255 bytes",
    );
    /// Properties whose length has more than two bytes.
    pub const PROPERTIES_TOO_LONG: UsageError = UsageError::new(
        "out_of_range",
        "the properties of a message have at most 65,535 bytes on the wire",
    );
    /// A payload whose length has more than four bytes.
    pub const PAYLOAD_TOO_LONG: UsageError =
        UsageError::new("out_of_range", "a payload has less than 2^32 bytes");
    /// A handshake with a longer text than its lengths can say.
    pub const HANDSHAKE_TOO_LONG: UsageError = UsageError::new(
        "out_of_range",
        "an identity has at most 255 bytes, and a list of extensions has at most 65,535",
    );
    /// A payload above this end's own limit, which is the default of the peer too.
    pub const MESSAGE_TOO_LARGE: UsageError = UsageError::new(
        "message_too_large",
        "the payload has more bytes than max_message_bytes, which holds for messages of both ends",
    );
    /// A list of an answer whose length has more than two bytes.
    pub const LIST_TOO_LONG: UsageError = UsageError::new(
        "out_of_range",
        "a list of extensions has at most 65,535 bytes",
    );
    /// An answer without a question.
    pub const NOTHING_PROPOSED: UsageError = UsageError::new(
        "nothing_proposed",
        "the peer proposes nothing that waits for an answer: it has not said anything yet, was answered before, or the \
         negotiation is auto",
    );
    /// An answer with a list that no peer could read (R-MM-20, R-MM-21; so are the next ones).
    pub const INVALID_ANSWER: UsageError = UsageError::new(
        "invalid_answer",
        "the answer has a name that is not allowed, or a count of batch-ack that is no number from 1 to 65,534",
    );
    /// An answer with an extension that stands twice.
    pub const ANSWERED_TWICE: UsageError =
        UsageError::new("invalid_answer", "the answer names an extension twice");
    /// An answer with more extensions than there are numbers.
    pub const ANSWERED_TOO_MANY: UsageError = UsageError::new(
        "invalid_answer",
        "the answer names more than 255 extensions",
    );
    /// A client's answer without an extension that is required.
    pub const ANSWER_LACKS: UsageError = UsageError::new(
        "invalid_answer",
        "the answer lacks an extension: a client's has everything that either end requires",
    );
    /// A client's answer with an extension that is not offered.
    pub const ANSWER_NOT_OFFERED: UsageError = UsageError::new(
        "invalid_answer",
        "the answer names an extension that the server did not name and this end does not require",
    );
    /// A client's answer with a count above the smallest one.
    pub const ANSWER_COUNT: UsageError = UsageError::new(
        "invalid_answer",
        "the answer has a count of batch-ack above the smallest one that an end has stated",
    );
    /// An extension that was not agreed on.
    pub const EXTENSION_NOT_NEGOTIATED: UsageError = UsageError::new(
        "extension_not_negotiated",
        "the handshake did not agree on this extension",
    );
    /// A frame of an extension that the connection makes itself.
    pub const RESERVED_EXTENSION: UsageError = UsageError::new(
        "reserved_extension",
        "frames of ack, batch-ack and dotnet are made by the connection: acknowledge messages, and give them a type",
    );
    /// Text that must be ASCII and is not (R-MM-35).
    pub const NOT_ASCII: UsageError = UsageError::new(
        "not_ascii",
        "identities, names of topics and queues, and .NET types are ASCII text",
    );
    /// A filter that cannot be read.
    pub const INVALID_FILTER: UsageError = UsageError::new(
        "invalid_filter",
        "a filter is conditions joined by ';', each a name, an operator (= != < <= > >= ~ &) and a value with its type \
         in front: N1, D1413198000.0 or Ttext; <= and >= are not for text, ~ and & are for text alone",
    );
    /// A name with other characters than lower-case letters, digits and hyphens (REQ-MM-15).
    pub const INVALID_NAME: UsageError = UsageError::new(
        "invalid_name",
        "a name has lower-case letters, digits and hyphens, one at least",
    );
    /// A name that no property has (R-MM-V10).
    pub const INVALID_PROPERTY_NAME: UsageError = UsageError::new(
        "invalid_name",
        "the name of a property is printable ASCII without a space and without : ; , =, and in a filter without < > ! ~ &; \
         one character at least",
    );
    /// `processed` where the application acknowledges by itself.
    pub const MANUAL: UsageError = UsageError::new(
        "out_of_range",
        "with the policy manual the application acknowledges messages by itself",
    );
    /// A fraction that is not finite.
    pub const NOT_FINITE: UsageError = UsageError::new("not_finite", "a number or date is finite");
    /// After the end of the connection (R-MM-V7).
    pub const CLOSED: UsageError = UsageError::new("closed", "the connection is over");
}
