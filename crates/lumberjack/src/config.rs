//! The options of both roles. Every default is the deployed one; `bare` turns every timer off.

use std::time::Duration;

use ackline_core::option_words;
use ackline_core::options::{
    OptionError, OptionKind, OptionSpec, OptionType, OptionValue, bytes, count, flag, time, word,
    wrong,
};

use crate::{Limits, Version};

/// The handling of an event before the first window frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoWindow {
    /// It is a window of its own, as Vector takes it.
    #[default]
    Accept,
    /// The connection ends with `no_window`.
    Refuse,
}

option_words!(NoWindow { Accept = "accept", Refuse = "refuse" });

/// The handling of an envelope that is whole on the wire and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInvalid {
    /// The connection ends, and the error names the fault in the envelope.
    #[default]
    Refuse,
    /// It is handed on as [`Event::Invalid`](crate::Event::Invalid), where it is known which number
    /// acknowledges it: directly behind a window frame, where all earlier windows of the connection ran
    /// from 1, and there was one.
    Quarantine,
}

option_words!(OnInvalid { Refuse = "refuse", Quarantine = "quarantine" });

ackline_core::options! {
    /// How a [`Reader`](crate::Reader) behaves.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReaderConfig {
        options {
            /// Time between keepalives (`2A 0`) while a window of version 2 waits; python-logstash-async gives up
            /// after 5 s.
            keepalive: Option<Duration> = Some(Duration::from_secs(3)), time(), LISTEN | RECEIVE | URL | MACHINE;
            /// Silence after which a part of a v1 window is kept: only writers that slide one window for ever
            /// need it.
            tail_idle: Option<Duration> = None, time(), LISTEN | RECEIVE | URL | MACHINE;
            /// Silence inside a frame or window after which the connection ends.
            stall_timeout: Option<Duration> = Some(Duration::from_secs(30)), time(), LISTEN | RECEIVE | URL | MACHINE;
            /// Silence between windows after which the connection is closed. Beats sends rarely on quiet hosts.
            idle_timeout: Option<Duration> = Some(Duration::from_secs(15 * 60)), time(), LISTEN | RECEIVE | URL | MACHINE;
            /// Silence of a new connection.
            first_byte_timeout: Option<Duration> = Some(Duration::from_secs(10)), time(), LISTEN | RECEIVE | MACHINE;
            /// Events before any window frame: accept or refuse.
            no_window: NoWindow = NoWindow::Accept, word::<NoWindow>(), LISTEN | RECEIVE | URL | MACHINE;
            /// Windows that cannot be read: refuse the connection, or quarantine (keep as they came in
            /// DIR/quarantine, then acknowledge).
            on_invalid: OnInvalid = OnInvalid::Refuse, word::<OnInvalid>(), RECEIVE | URL;
        }
        groups {
            /// Limits on the peer's frames.
            limits: Limits = Limits::default();
        }
        fields {
            /// Whether windows that were complete before an error, or before the peer's end, are still
            /// acknowledged after it, until the driver [hangs up](ackline_core::Connection::hang_up).
            settle_after_error: bool = false;
            /// Whether version 1, which has no keepalive, is accepted.
            v1: bool = true;
        }
    }
}

impl ReaderConfig {
    /// The default limits and no timer at all.
    pub fn bare() -> Self {
        Self {
            keepalive: None,
            stall_timeout: None,
            idle_timeout: None,
            first_byte_timeout: None,
            ..Self::default()
        }
    }
}

/// How a [`Writer`](crate::Writer) numbers its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceMode {
    /// From 1 in every window, as Beats does: every deployed server acknowledges that rightly.
    PerWindow,
    /// On and on, modulo 2^32; version 2 skips 0, which is the keepalive.
    Cumulative {
        /// The number of the first event.
        next: u32,
    },
}

impl OptionType for Version {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match u8::read(spec, value)? {
            1 => Ok(Self::V1),
            2 => Ok(Self::V2),
            _ => Err(wrong(spec, value)),
        }
    }

    fn shown(&self, _: &OptionKind) -> String {
        match self {
            Self::V1 => "1".to_owned(),
            Self::V2 => "2".to_owned(),
        }
    }
}

ackline_core::options! {
    /// How a [`Writer`](crate::Writer) behaves.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WriterConfig {
        options {
            /// The protocol's version.
            version: Version = Version::V2, count(1..=2), CONNECT | MACHINE;
            /// The zlib level of a window; 0 sends plain frames, as Beats does. 1 takes half the time of 2 to 4,
            /// which are the same, for a third to a half more bytes; 5 to 9 take up to four times as long for 2 to
            /// 10 % fewer.
            compression: Option<u32> = Some(3), count(0..=9), CONNECT;
            /// Windows sent to a host and not acknowledged; always 1 under version 1.
            max_in_flight: usize = 2, count(1..=u64::MAX), CONNECT | MACHINE;
            /// Events sent to a host and not acknowledged.
            max_in_flight_events: Option<u32> = None, count(1..=0xffff_ffff), CONNECT | MACHINE;
            /// Bytes sent to a host and not acknowledged, as plain frames with headers; a window counts until its
            /// last event is acknowledged.
            max_in_flight_bytes: Option<u64> = None, bytes(1..=u64::MAX), CONNECT | MACHINE;
            /// Events in the first window: windows grow by half with each full one that is acknowledged, and
            /// shrink to half by a failure. libbeat begins at 10.
            slow_start: Option<u32> = None, count(1..=0xffff_ffff), CONNECT | MACHINE;
            /// Events in a window.
            max_window: u32 = 2_048, count(1..=0xffff_ffff), MACHINE;
            /// With `cumulative`: whether a number may also be a count of events, as go-lumber's server answers.
            accept_count_acks: bool = false, flag(), CONNECT | MACHINE;
            /// Silence of a host that owes an acknowledgement, after which the connection ends.
            read_timeout: Option<Duration> = Some(Duration::from_secs(30)), time(), CONNECT | MACHINE;
            /// Time without a growing acknowledgement after which the connection ends.
            progress_timeout: Option<Duration> = Some(Duration::from_secs(5 * 60)), time(), CONNECT | MACHINE;
        }
        fields {
            /// How events are numbered.
            sequence: SequenceMode = SequenceMode::PerWindow;
        }
    }
}

impl WriterConfig {
    /// The defaults without any timer.
    pub fn bare() -> Self {
        Self {
            read_timeout: None,
            progress_timeout: None,
            ..Self::default()
        }
    }
}
