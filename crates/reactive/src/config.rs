//! The options of a connection.

use std::time::Duration;

use ackline_core::options::{bytes, count, flag, time};

use crate::Limits;
use crate::message::ExtensionMessage;

/// The side of a connection, which makes a difference in the handshake alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

ackline_core::options! {
    /// The settings of one end. No timer is on unless told.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Config {
        options {
            /// Bytes of an element, or of packed elements, that one message carries: a larger element goes in parts, between
            /// which others have their turn.
            split_threshold: u64 = 64 << 10, bytes(1..=u64::MAX), CONNECT | LISTEN | MACHINE;
            /// Whether an element that comes in parts is handed out part by part. If not, it is handed out whole.
            parts: bool = false, flag(), CONNECT | LISTEN;
            /// Time for the peer's hello.
            hello_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Time for the answer to a goodbye; then the connection ends without it.
            goodbye_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Silence inside a message after which the connection ends.
            message_receive_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
        groups {
            /// Limits on the peer's messages.
            limits: Limits = Limits::default();
        }
        fields {
            /// The extensions that this end supports, in the order of its hello.
            extensions: Vec<u64> = Vec::new();
            /// The messages of these extensions.
            extension_messages: Vec<ExtensionMessage> = Vec::new();
        }
    }
}

ackline_core::options! {
    /// The Reactive Streams protocol in a receiver.
    #[derive(Debug, Clone)]
    pub struct ReceiveOptions {
        options {
            /// Elements of one publisher that are requested, or arrived and not durable yet, at the most. Fewer are requested
            /// where the spool or the memory has no room for so many of their size.
            demand: u64 = 65_536, count(1..=0x7fff_ffff_ffff_ffff), RECEIVE | URL;
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
    /// The settings of links: as the default, with timers on the peer's silence.
    pub fn with_timers() -> Self {
        Self {
            hello_timeout: Some(Duration::from_secs(10)),
            goodbye_timeout: Some(Duration::from_secs(5)),
            message_receive_timeout: Some(Duration::from_secs(30)),
            ..Self::default()
        }
    }
}
