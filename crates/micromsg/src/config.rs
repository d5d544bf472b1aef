//! The options of a connection.

use std::time::Duration;

use ackline_core::option_words;
use ackline_core::options::{bytes, count, time, word};

use crate::Limits;
use crate::text::Extension;

/// The side of a connection, which makes a difference in the handshake alone (REQ-MM-1, R-MM-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

/// The side that decides when received messages are acknowledged (R-MM-24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPolicy {
    /// The application.
    #[default]
    Manual,
    /// The connection: once as many messages as were agreed on are processed, or the timer runs out.
    Automatic,
}

option_words!(AckPolicy { Manual = "manual", Automatic = "auto" });

/// The side that decides on the extensions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Negotiation {
    /// The connection, by the rules.
    #[default]
    Automatic,
    /// The application: it is told what the peer proposes, and answers.
    Manual,
}

option_words!(Negotiation { Automatic = "auto", Manual = "manual" });

/// The messages in front of which a frame names their .NET type (R-MM-32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DotnetFrames {
    /// Those with another type than the one before.
    #[default]
    OnChange,
    /// All that have a type.
    Always,
}

option_words!(DotnetFrames { OnChange = "change", Always = "always" });

ackline_core::options! {
    /// The part of one end in the agreement on extensions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Terms {
        options {
            /// The agreement on extensions: `auto`, by the rules and the lists of this end; `manual`, by the application,
            /// which is told what the peer proposes and answers it.
            negotiation: Negotiation = Negotiation::Automatic, word::<Negotiation>(), CONNECT | LISTEN | MACHINE;
        }
        fields {
            /// The name of this end, ASCII, at most 255 bytes.
            identity: String = String::new();
            /// The extensions without which this end does not work.
            required: Vec<Extension> = Vec::new();
            /// The extensions that this end suggests.
            optional: Vec<Extension> = Vec::new();
            /// Names of further extensions that this end has.
            supported: Vec<String> = Vec::new();
        }
    }
}

ackline_core::options! {
    /// The settings of one end. No timer is on unless told.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Config {
        options {
            /// Acknowledgement of received messages: `manual`, by a call of the application; `auto`, by the connection, once
            /// the application has taken the next message, in groups.
            ack_policy: AckPolicy = AckPolicy::Manual, word::<AckPolicy>(), CONNECT | LISTEN | MACHINE;
            /// Time after which processed messages are acknowledged, if they are fewer than were agreed on.
            ack_timer: Option<Duration> = None, time(), CONNECT | LISTEN | MACHINE;
            /// Frames that name the .NET type of messages: `change`, where the type is another one than before; `always`, in front
            /// of each message that has a type.
            dotnet_frames: DotnetFrames = DotnetFrames::OnChange, word::<DotnetFrames>(), CONNECT | LISTEN | MACHINE;
            /// Bytes of a payload that one frame carries: a larger message goes in fragments.
            fragment_size: u64 = FRAGMENT, bytes(1..=0xffff_ffff), CONNECT | LISTEN | MACHINE;
            /// Time for the peer's part of the handshake.
            handshake_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Silence inside a frame, or inside a message that comes in fragments, after which the connection ends.
            message_receive_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
        groups {
            /// Limits on the peer's frames.
            limits: Limits = Limits::default();
            /// The part of this end in the agreement on extensions.
            terms: Terms = Terms::default();
        }
        fields {
            /// Bytes of memory behind a message whose fragments have not all come, as a part of the option `memory`.
            most_incomplete: u64 = u64::MAX;
            /// The number of the first message that this end sends.
            next_send: u16 = 1;
            /// The number of the first message that this end receives.
            next_receive: u16 = 1;
        }
    }
}

/// Bytes of a payload that one frame should carry at the most: 1,048,576 (REQ-MM-21, R-MM-36). Larger frames are accepted
/// (R-MM-17).
const FRAGMENT: u64 = 1 << 20;

ackline_core::options! {
    /// MicroMsg2 in a receiver.
    #[derive(Debug, Clone)]
    pub struct ReceiveOptions {
        options {
            /// Messages of one connection that may wait for their acknowledgement, as this end suggests it. The smallest
            /// number that one of both ends states is agreed on.
            window: u64 = 1_000, count(1..=65_534), RECEIVE | URL;
            /// Bytes of a .NET type, of which each row has a copy.
            max_type_bytes: usize = 4_096, bytes(1..=u64::MAX), RECEIVE | URL;
            /// Where we connect: time for one attempt, with its handshake of TLS.
            connect_timeout: Duration = Duration::from_secs(10), time(), RECEIVE | URL;
            /// Where we connect: the longest wait between two attempts. The first is made at once; then the waits are
            /// random, below a ceiling that doubles from 100 ms.
            reconnect_max: Duration = Duration::from_secs(60), time(), RECEIVE | URL;
        }
        groups {
            /// Limits and timers of each connection.
            link: Config = Config::with_timers();
        }
    }
}

impl Config {
    /// The settings of links: as the default, with timers.
    pub fn with_timers() -> Self {
        Self {
            ack_policy: AckPolicy::Automatic,
            ack_timer: Some(Duration::from_millis(500)),
            handshake_timeout: Some(Duration::from_secs(10)),
            message_receive_timeout: Some(Duration::from_secs(30)),
            ..Self::default()
        }
    }

    /// Limits a message whose fragments have not all come to a part of the memory that one connection can always be granted:
    /// a larger one could wait for more for ever, and others with it. The rest is for input that is not taken yet.
    pub const fn limit_incomplete(&mut self, granted: u64) {
        self.most_incomplete = (granted / 8).saturating_mul(7);
    }
}

impl Terms {
    /// Whether this end has the extension.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut lists = self.required.iter().chain(&self.optional);
        lists.any(|one| one.name == name) || self.supported.iter().any(|one| one == name)
    }
}
