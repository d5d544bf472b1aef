//! The violations of a peer. The names are those of the conformance vectors.

use ackline_core::{ErrorKind, LimitHit};

/// A violation of the protocol, of a limit or of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// The version byte is neither `1` nor `2`.
    #[error("version byte 0x{0:02x} is neither '1' nor '2'{hint}", hint = foreign(*.0))]
    UnknownVersion(u8),
    /// The type byte is none of `W D J C A`.
    #[error("unknown frame type 0x{0:02x}")]
    UnknownFrameType(u8),
    /// A frame that only the other role sends; its type byte.
    #[error("frame type {:?} does not come from this side", char::from(*.0))]
    WrongDirection(u8),
    /// A window announces more events than allowed.
    #[error("a window of {} events is above {} ({})", .0.value, .0.limit, .0.option)]
    WindowTooLarge(LimitHit),
    /// A JSON, data or compressed frame is longer than allowed.
    #[error("a frame of {} bytes is above {} ({})", .0.value, .0.limit, .0.option)]
    FrameTooLarge(LimitHit),
    /// A data frame announces more pairs than allowed.
    #[error("a data frame of {} pairs is above {} ({})", .0.value, .0.limit, .0.option)]
    TooManyPairs(LimitHit),
    /// A key or a value is longer than allowed.
    #[error("a key or value of {} bytes is above {} ({})", .0.value, .0.limit, .0.option)]
    FieldTooLarge(LimitHit),
    /// An envelope inflates to more than allowed; `value` is the number of bytes when it was
    /// stopped.
    #[error("an envelope inflates to at least {} bytes, above {} ({})", .0.value, .0.limit, .0.option)]
    InflatedTooLarge(LimitHit),
    /// Several windows share an envelope, so that it is kept inflated, and that is more than 64 times its bytes and
    /// 64 KiB.
    #[error(
        "an envelope of {bytes} bytes that several windows share inflates to {inflated}, above 64 times its bytes and 64 KiB"
    )]
    SharedEnvelope {
        /// Its bytes.
        bytes: u64,
        /// Bytes that its events inflate to.
        inflated: u64,
    },
    /// The frames of one window are together larger than allowed.
    #[error("a window of at least {} bytes is above {} ({})", .0.value, .0.limit, .0.option)]
    WindowBytesTooLarge(LimitHit),
    /// A JSON frame of length 0.
    #[error("a JSON frame of length 0")]
    EmptyJson,
    /// The zlib stream of an envelope is damaged or ends early.
    #[error("the zlib stream of an envelope is damaged")]
    Zlib,
    /// Bytes after the zlib stream of an envelope.
    #[error("{0} bytes after the zlib stream of an envelope")]
    TrailingBytes(u64),
    /// An envelope ends inside a frame.
    #[error("an envelope ends inside a frame")]
    TruncatedEnvelope,
    /// An envelope inside an envelope.
    #[error("an envelope inside an envelope")]
    NestedEnvelope,
    /// More events than the window announced.
    #[error("more events than the window announced")]
    Overrun,
    /// A window frame before the previous window is full.
    #[error("a new window before the old one is full")]
    PrematureWindow,
    /// Two protocol versions in one window.
    #[error("two protocol versions in one window")]
    VersionMixed,
    /// An event before any window frame, with `--no-window refuse`.
    #[error("an event before any window frame (--no-window)")]
    NoWindow,
    /// Version 1, whose writers have no keepalive to wait with, together with late
    /// acknowledgements.
    #[error("version 1 has no keepalive and its acknowledgement would come too late (--v1-ack)")]
    V1NeedsDurableAck,
    /// An acknowledgement of an event that is not in flight.
    #[error("acknowledgement {0} is not in flight")]
    OutOfRange(u32),
    /// The peer was silent too long; the option that changes the deadline.
    #[error("the peer was silent too long ({0})")]
    Timeout(&'static str),
    /// Keepalives came, but no acknowledgement grew in time.
    #[error("no acknowledgement grew in time")]
    NoProgress,
}

impl ErrorKind for Kind {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownVersion(_) => "lumberjack.unknown_version",
            Self::UnknownFrameType(_) => "lumberjack.unknown_frame_type",
            Self::WrongDirection(_) => "lumberjack.wrong_direction",
            Self::WindowTooLarge(_) => "lumberjack.window_too_large",
            Self::FrameTooLarge(_) => "lumberjack.frame_too_large",
            Self::TooManyPairs(_) => "lumberjack.too_many_pairs",
            Self::FieldTooLarge(_) => "lumberjack.field_too_large",
            Self::InflatedTooLarge(_) => "lumberjack.inflated_too_large",
            Self::SharedEnvelope { .. } => "lumberjack.shared_envelope",
            Self::WindowBytesTooLarge(_) => "lumberjack.window_bytes_too_large",
            Self::EmptyJson => "lumberjack.empty_json",
            Self::Zlib => "lumberjack.zlib",
            Self::TrailingBytes(_) => "lumberjack.trailing_bytes",
            Self::TruncatedEnvelope => "lumberjack.truncated_envelope",
            Self::NestedEnvelope => "lumberjack.nested_envelope",
            Self::Overrun => "lumberjack.overrun",
            Self::PrematureWindow => "lumberjack.premature_window",
            Self::VersionMixed => "lumberjack.version_mixed",
            Self::NoWindow => "lumberjack.no_window",
            Self::V1NeedsDurableAck => "lumberjack.v1_needs_durable_ack",
            Self::OutOfRange(_) => "lumberjack.out_of_range",
            Self::Timeout(_) => "lumberjack.timeout",
            Self::NoProgress => "lumberjack.no_progress",
        }
    }

    fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::WindowTooLarge(over)
            | Self::FrameTooLarge(over)
            | Self::TooManyPairs(over)
            | Self::FieldTooLarge(over)
            | Self::InflatedTooLarge(over)
            | Self::WindowBytesTooLarge(over) => Some(*over),
            _ => None,
        }
    }

    fn option(&self) -> Option<&'static str> {
        match self {
            Self::NoWindow => Some("--no-window"),
            Self::V1NeedsDurableAck => Some("--v1-ack"),
            Self::Timeout(option) => Some(option),
            _ => self.limit().map(|hit| hit.option),
        }
    }
}

/// The most likely meaning of a first byte that is no version, for the log line.
fn foreign(byte: u8) -> &'static str {
    match byte {
        0x16 => ": a TLS client hello on a port without TLS?",
        b'A'..=b'Z' => ": HTTP or other text on this port?",
        _ => "",
    }
}
