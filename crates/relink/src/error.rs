//! The violations of a peer. The names are those of the conformance vectors.

use std::sync::Arc;
use std::time::Duration;

use ackline_core::{ErrorKind, LimitHit, Sequence};

use crate::frame::{EndpointName, Parameters};

/// A violation of the protocol, of a limit or of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// A value to which the specification gives no meaning (REQ-RELINK-4).
    #[error("{field} {value} has no meaning")]
    UnusedEnumeration {
        /// The field of the packet header.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// An endpoint name that is not UTF-8 (R-REL-31).
    #[error("the endpoint name is not UTF-8")]
    InvalidUtf8,
    /// A number above a limit, or a message beyond a window.
    #[error("{} {} above {} ({})", .0.value, counted(.0), .0.limit, .0.option)]
    Limit(LimitHit),
    /// A link's part of the memory that all links share.
    #[error("{what} take {} bytes; a link may have {} for them now, of {part} of {}", .hit.value, .hit.limit, .hit.option)]
    Memory {
        /// The state without room.
        what: &'static str,
        /// The part of the memory for such state of all links, in words.
        part: &'static str,
        /// The bytes.
        hit: LimitHit,
    },
    /// A version that this side does not speak, or a reply above the version that it asked for (R-REL-28).
    #[error("version {version} is not supported")]
    UnsupportedVersion {
        /// The version byte.
        version: u8,
    },
    /// The listener has no endpoint with that name (REQ-RELINK-13).
    #[error("no endpoint {:?} here{}", .asked.as_str(), those(.served))]
    UnknownEndpoint {
        /// The name asked for.
        asked: EndpointName,
        /// The names that are served, if they are known.
        served: Arc<[EndpointName]>,
    },
    /// Channel id sizes or transaction flags other than the endpoint's (REQ-RELINK-14).
    #[error("the endpoint has other channel id sizes or transaction flags{}", differences(*.ours, *.theirs))]
    ParametersDisagree {
        /// The endpoint's.
        ours: Parameters,
        /// The connector's.
        theirs: Parameters,
    },
    /// An epoch of 0 or from 2^63 on where a link needs one (R-REL-29, R-REL-30).
    #[error("epoch {epoch} is not a listener's")]
    InvalidEpoch {
        /// The epoch.
        epoch: u64,
    },
    /// A link id of 0 or from 2^63 on where a link needs one (REQ-RELINK-18, R-REL-29).
    #[error("link id {link_id} is not a link's")]
    InvalidLinkId {
        /// The link id.
        link_id: u64,
    },
    /// A sequence number of a message that cannot be named now (R-REL-12, R-RELINK-V13).
    #[error("{what} {} is out of range", .sequence.0)]
    OutOfRange {
        /// The packet that named it, such as `consumed`.
        what: &'static str,
        /// The number named.
        sequence: Sequence,
    },
    /// A packet of a transaction in a direction without transactions (R-REL-35).
    #[error("{what} in a direction without transactions")]
    TransactionsDisabled {
        /// The packet, such as `commit`.
        what: &'static str,
    },
    /// A message on a channel that its sender is closing (R-REL-23).
    #[error("a message on a channel that is being closed")]
    ChannelClosing,
    /// An acknowledgement for a channel that is not known, while the peer resumes (R-REL-33).
    #[error("an acknowledgement for a channel that is not known")]
    UnknownChannel,
    /// A packet that opens a channel after its sender's shutdown (R-REL-26).
    #[error("a channel was opened after the shutdown")]
    AfterShutdown,
    /// The two sides' states of a resumed link do not fit (R-REL-18): the link is lost.
    #[error("the peer's state of the link does not fit ours")]
    ResumeInconsistent,
    /// The peer was silent for longer than the option allows; both values are milliseconds.
    #[error("the peer has been silent for {} ms; {} is {} ms", .0.value, .0.option, .0.limit)]
    Timeout(LimitHit),
}

impl ErrorKind for Kind {
    fn is_silence(&self) -> bool {
        matches!(self, Self::Timeout(hit) if hit.option == PONG_TIMEOUT)
    }

    fn code(&self) -> &'static str {
        match self {
            Self::UnusedEnumeration { .. } => "relink.unused_enumeration",
            Self::InvalidUtf8 => "relink.invalid_utf8",
            Self::Limit(_) | Self::Memory { .. } => "relink.limit_exceeded",
            Self::UnsupportedVersion { .. } => "relink.unsupported_version",
            Self::UnknownEndpoint { .. } => "relink.unknown_endpoint",
            Self::ParametersDisagree { .. } => "relink.parameters_disagree",
            Self::InvalidEpoch { .. } => "relink.invalid_epoch",
            Self::InvalidLinkId { .. } => "relink.invalid_link_id",
            Self::OutOfRange { .. } => "relink.out_of_range",
            Self::TransactionsDisabled { .. } => "relink.transactions_disabled",
            Self::ChannelClosing => "relink.channel_closing",
            Self::UnknownChannel => "relink.unknown_channel",
            Self::AfterShutdown => "relink.after_shutdown",
            Self::ResumeInconsistent => "relink.resume_inconsistent",
            Self::Timeout(_) => "relink.timeout",
        }
    }

    fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(hit) | Self::Timeout(hit) | Self::Memory { hit, .. } => Some(*hit),
            _ => None,
        }
    }
}

/// Returns the unit of the values of a limit.
fn counted(hit: &LimitHit) -> &'static str {
    match hit.option {
        "--max-channels" => "channels are",
        "--max-channel-ids" => "channels in one packet are",
        "--max-message-parts" => "parts of a message are",
        "--max-part-bytes" => "bytes of a part are",
        "--max-message-bytes" => "bytes of a message are",
        "--max-multicast-bytes" => "bytes of a message and 64, times its channels, are",
        COPIES => "copies of a message for a channel without an id are",
        "--receive-window" => "messages of a channel that are not consumed are",
        _ => "is",
    }
}

/// The option with the timeout of a pong.
pub(crate) const PONG_TIMEOUT: &str = "--pong-timeout";

/// The placeholder for the option of a limit that has none.
pub(crate) const COPIES: &str = "fixed";

/// Returns the error about a deadline that was missed by so much.
pub(crate) fn silent(option: &'static str, allowed: Option<Duration>, late: Duration) -> Kind {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let allowed = allowed.unwrap_or_default();
    Kind::Timeout(LimitHit {
        value: ms(allowed.saturating_add(late)),
        limit: ms(allowed),
        option,
    })
}

/// Writes the names that are served, as many as fit in a line.
fn those(served: &[EndpointName]) -> String {
    if served.is_empty() {
        return String::new();
    }
    let (shown, others) = served.split_at(served.len().min(SHOWN_NAMES));
    let names = shown.iter().map(|name| format!("{:?}", name.as_str()));
    let names = names.collect::<Vec<_>>().join(", ");
    match others.len() {
        0 => format!("; served: {names}"),
        more => format!("; served: {names} and {more} more"),
    }
}

/// Writes each parameter in which the two sides differ.
fn differences(ours: Parameters, theirs: Parameters) -> String {
    let both = ours.named().into_iter().zip(theirs.named());
    let differing = both.filter(|((_, ours), (_, theirs))| ours != theirs);
    let each = differing.map(|((name, ours), (_, theirs))| {
        format!("{name} is {ours} at the listener, {theirs} at the connector")
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() {
        return String::new();
    }
    format!(": {}", each.join("; "))
}

/// Names in one line.
const SHOWN_NAMES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EndpointName {
        EndpointName::try_from(text).unwrap()
    }

    #[test]
    fn an_unknown_endpoint_is_told_with_those_that_there_are() {
        let text = |asked: &str, served: &[&str]| {
            let served = served.iter().map(|text| name(text)).collect();
            let asked = name(asked);
            Kind::UnknownEndpoint { asked, served }.to_string()
        };
        assert_eq!(text("x", &[]), "no endpoint \"x\" here");
        assert_eq!(
            text("x", &["a", "b"]),
            "no endpoint \"x\" here; served: \"a\", \"b\""
        );
        let many = text("", &["n"; 11]);
        assert!(many.ends_with("\"n\" and 3 more"), "{many}");
        // The peer chooses the name, so it is escaped to stay inside its quotes and its line.
        let evil = text("a\"; \n\u{1b}[31m\u{202e}b", &[]);
        assert_eq!(evil, "no endpoint \"a\\\"; \\n\\u{1b}[31m\\u{202e}b\" here");
    }

    #[test]
    fn a_limit_is_told_with_its_unit() {
        let text = |option| {
            let hit = LimitHit {
                value: 5,
                limit: 4,
                option,
            };
            Kind::Limit(hit).to_string()
        };
        for (option, what) in [
            ("--max-channels", "channels"),
            ("--max-channel-ids", "channels in one packet"),
            ("--max-message-parts", "parts of a message"),
            ("--max-part-bytes", "bytes of a part"),
            ("--max-message-bytes", "bytes of a message"),
            (
                "--max-multicast-bytes",
                "bytes of a message and 64, times its channels,",
            ),
            ("fixed", "copies of a message for a channel without an id"),
            (
                "--receive-window",
                "messages of a channel that are not consumed",
            ),
        ] {
            assert_eq!(text(option), format!("5 {what} are above 4 ({option})"));
        }
        assert_eq!(text("--other"), "5 is above 4 (--other)");
    }

    #[test]
    fn parameters_that_differ_are_named_with_both_values() {
        let ours = Parameters::default();
        let theirs = Parameters {
            connector_channel_id_size: 8,
            listener_transactions: true,
            ..ours
        };
        let text = Kind::ParametersDisagree { ours, theirs }.to_string();
        assert!(
            text.ends_with(
                "flags: connector_channel_id_size is 0 at the listener, 8 at the connector; \
                 listener_transactions is false at the listener, true at the connector"
            ),
            "{text}"
        );
    }
}
