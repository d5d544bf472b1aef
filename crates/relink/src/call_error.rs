//! Errors of calls on a link, and the messages that are left to send again when a link is lost. An error about a message
//! that may not be named now tells the channel, the message and the messages that may be named.

use std::sync::Arc;

use ackline_core::options::OptionError;
use ackline_core::{LimitHit, Sequence, UsageError};

use crate::{ChannelId, Payload};

/// Why a call on a link failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that is not allowed now; nothing changed.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A channel's id has another size than the link's have.
    #[error("channel {channel} has {} bytes; the ids of this end's channels have {wanted}", .channel.len())]
    ChannelIdSize {
        /// The channel.
        channel: ChannelId,
        /// The bytes of this direction's ids.
        wanted: u8,
    },
    /// A message is above a limit of the link, which it has for both directions.
    #[error("{}", too_large(.0))]
    TooLarge(LimitHit),
    /// No such channel is open.
    #[error("no channel {channel} of {} is open", if *.is_own { "this end's" } else { "the peer's" })]
    UnknownChannel {
        /// The channel.
        channel: ChannelId,
        /// Whether it would be this end's.
        is_own: bool,
    },
    /// A message that cannot be named for this now.
    #[error("{} of channel {channel} cannot be named now: {}", one(*.sequence), those(*.may))]
    OutOfRange {
        /// The channel.
        channel: ChannelId,
        /// The message; `None` is the next one.
        sequence: Option<Sequence>,
        /// The first and the last of those that can.
        may: Option<(Sequence, Sequence)>,
    },
    /// A message of a channel that was closed since: another one is open under its id.
    #[error("message {} is of an earlier channel {channel}, which was closed", .sequence.0)]
    EarlierChannel {
        /// The id of both.
        channel: ChannelId,
        /// The message's number on the earlier one.
        sequence: Sequence,
    },
    /// There is no room now: the channel's window or the link's memory for unacknowledged messages is full.
    #[error("no room now: messages wait for their acknowledgement")]
    Blocked,
    /// The deadline has passed; nothing changed.
    #[error("the deadline has passed")]
    Timeout,
    /// The link is lost.
    #[error(transparent)]
    Lost(#[from] Arc<LinkLost>),
    /// The link was closed in good order, by both sides.
    #[error("the link is closed")]
    Closed,
    /// The link was let go here, and is kept on disk: the process that opens it next goes on with it.
    #[error("the link was closed here; the process that opens its state goes on with it")]
    LetGo,
    /// The link was handed over: another process goes on with it.
    #[error("the link was handed over to another process")]
    HandedOver,
    /// The channel was closed before the message was acknowledged; its fate is unknown.
    #[error("the channel was closed before the message was acknowledged")]
    ChannelClosed,
    /// So many messages were decided since, one way and the other, that this one's outcome is no longer kept.
    #[error("the outcome is no longer kept: ask sooner")]
    Forgotten,
    /// A URL is wrong: the text names it.
    #[error("{0}")]
    Url(Arc<str>),
    /// An option is wrong.
    #[error(transparent)]
    Option(OptionError),
    /// An option or file of TLS cannot be used.
    #[error("{message}")]
    Tls {
        /// The stable code, such as `tls.file`.
        code: &'static str,
        /// A description of the error.
        message: Arc<str>,
    },
    /// No peer could be reached, or the peer that was reached ended the handshake.
    #[error("{0}")]
    Connect(Arc<str>),
    /// The socket could not be bound, or is broken.
    #[error("{0}")]
    Listen(Arc<str>),
    /// The directory of a durable link cannot be used.
    #[error("{0}")]
    State(Arc<str>),
    /// A change of a durable link could not be written to its directory: the link has ended in this process.
    /// The next one goes on with the state that was kept.
    #[error("the link cannot be kept on disk any more, and has ended here: {0}")]
    Unkept(Arc<str>),
}

impl Error {
    /// A stable code: `relink.timeout`, `relink.lost`, …; of a usage error, its own.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(error) => error.code,
            Self::ChannelIdSize { .. } => "invalid_channel_id",
            Self::TooLarge(_) => "message_too_large",
            Self::UnknownChannel { .. } => "unknown_channel",
            Self::OutOfRange { .. } | Self::EarlierChannel { .. } => "out_of_range",
            Self::Blocked => "relink.blocked",
            Self::Timeout => "relink.timed_out",
            Self::Lost(_) => "relink.lost",
            Self::Closed => "relink.closed",
            Self::LetGo => "relink.let_go",
            Self::HandedOver => "relink.handed_over",
            Self::ChannelClosed => "relink.channel_closed",
            Self::Forgotten => "relink.forgotten",
            Self::Url(_) | Self::Option(_) => "relink.url",
            Self::Tls { code, .. } => code,
            Self::Connect(_) => "relink.connect",
            Self::Listen(_) => "relink.listen",
            Self::State(_) | Self::Unkept(_) => "relink.state",
        }
    }

    /// The options that its text may name, as a command line names them.
    pub const fn options(&self) -> &'static [&'static str] {
        match self {
            Self::Lost(_) => OF_LOST,
            _ => &[],
        }
    }

    /// Whether the caller has asked for something that is not allowed now; nothing changed then.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::ChannelIdSize { .. }
                | Self::TooLarge(_)
                | Self::UnknownChannel { .. }
                | Self::OutOfRange { .. }
                | Self::EarlierChannel { .. }
        )
    }

    /// Returns the error of a directory that cannot be used.
    pub fn state(error: impl std::fmt::Display) -> Self {
        Self::State(error.to_string().into())
    }

    /// Returns the error of a change that could not be written.
    pub fn unkept(error: impl std::fmt::Display) -> Self {
        Self::Unkept(error.to_string().into())
    }

    /// Returns the error of a wrong URL.
    pub fn url(error: impl std::fmt::Display) -> Self {
        Self::Url(error.to_string().into())
    }

    /// Returns the error of a verb that the machine has refused.
    pub fn refused(error: UsageError) -> Self {
        match error.code {
            "window_full" => Self::Blocked,
            _ => Self::Usage(error),
        }
    }

    /// Returns the error of a refused verb that names a message on a channel, of this end's or of the peer's; `may` are
    /// the first and the last message that may be named.
    pub fn unnamed(
        error: UsageError,
        (channel, is_own): (&ChannelId, bool),
        sequence: Option<Sequence>,
        may: Option<(Sequence, Sequence)>,
    ) -> Self {
        let channel = channel.clone();
        match error.code {
            "unknown_channel" => Self::UnknownChannel { channel, is_own },
            "out_of_range" => Self::OutOfRange {
                channel,
                sequence,
                may,
            },
            _ => Self::Usage(error),
        }
    }
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

/// The options that end a link, and those by which its peer may have refused it. No name begins with another one.
const OF_LOST: &[&str] = &[
    "--frame-timeout",
    "--max-channel-ids",
    "--max-channels",
    "--max-message-bytes",
    "--max-message-parts",
    "--max-multicast-bytes",
    "--max-part-bytes",
    "--memory",
    "--min-rate",
    "--pong-timeout",
    "--receive-window",
];

/// The text for a message that is too large.
fn too_large(hit: &LimitHit) -> String {
    let LimitHit {
        value,
        limit,
        option,
    } = hit;
    let what = match *option {
        "max_message_parts" => format!("the message has {value} parts"),
        "max_part_bytes" => format!("a part of the message has {value} bytes"),
        _ => format!("the message has {value} bytes"),
    };
    format!("{what}; {option} is {limit}")
}

fn one(sequence: Option<Sequence>) -> String {
    sequence.map_or_else(
        || "a next message".to_owned(),
        |sequence| format!("message {}", sequence.0),
    )
}

/// Those that may be named.
fn those(may: Option<(Sequence, Sequence)>) -> String {
    match may {
        None => "none of it can".to_owned(),
        Some((first, last)) if first == last => format!("{} alone can", first.0),
        Some((first, last)) => format!("{} to {} can", first.0, last.0),
    }
}

/// A link that is gone for good, with all messages that were not acknowledged as consumed: the application
/// may send them again on another link. Some of them may have been consumed, their acknowledgement lost with
/// the link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the link is lost ({reason}){}", left(unacknowledged.len()))]
pub struct LinkLost {
    /// Why, in words.
    pub reason: Arc<str>,
    /// The messages, in order within each channel, channels ascending.
    pub unacknowledged: Vec<Unacknowledged>,
}

/// The text for messages that are held here; an adopted link's messages are not.
fn left(messages: usize) -> String {
    if messages == 0 {
        return String::new();
    }
    format!(": {messages} messages are not acknowledged")
}

/// A message of this side that was never acknowledged as consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The channel.
    pub channel: ChannelId,
    /// Its number there.
    pub sequence: Sequence,
    /// The message.
    pub payload: Payload,
}
