//! What the two roles can be told. Every default is the deployed one; `bare` turns every timer off.

use std::time::Duration;

use crate::{Limits, Version};

/// What happens to an event before the first window frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoWindow {
    /// It is a window of its own, as Vector takes it.
    #[default]
    Accept,
    /// The connection ends with `no_window`.
    Refuse,
}

/// What happens to an envelope that is whole on the wire and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInvalid {
    /// The connection ends with what is wrong in it.
    #[default]
    Refuse,
    /// It is handed on as [`Event::Invalid`](crate::Event::Invalid), where it is known which number
    /// acknowledges it: directly behind a window frame, where all earlier windows of the connection ran
    /// from 1, and there was one.
    Quarantine,
}

/// How a [`Reader`](crate::Reader) behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderConfig {
    /// What the peer may ask of us.
    pub limits: Limits,
    /// Silence after which `2A 0` is sent while a v2 window is pending, 3 s: python-logstash-async gives
    /// up after 5 s.
    pub keepalive: Option<Duration>,
    /// Silence after which a part of a v1 window is handed on, off: only writers that slide one window
    /// for ever need it.
    pub tail_idle: Option<Duration>,
    /// Silence inside a frame or window that ends the connection, 30 s.
    pub stall_timeout: Option<Duration>,
    /// Silence between windows that closes the connection, 15 min: Beats sends rarely on quiet hosts.
    pub idle_timeout: Option<Duration>,
    /// Time for the first byte, 10 s.
    pub first_byte_timeout: Option<Duration>,
    /// Events before any window frame.
    pub no_window: NoWindow,
    /// Envelopes that cannot be read.
    pub on_invalid: OnInvalid,
    /// Whether windows that were complete before an error, or before the peer's end, are still
    /// acknowledged after it, until the driver [hangs up](ackline_core::Connection::hang_up).
    pub settle_after_error: bool,
    /// Whether version 1, which has no keepalive, is taken.
    pub v1: bool,
}

impl Default for ReaderConfig {
    fn default() -> Self {
        Self {
            keepalive: Some(Duration::from_secs(3)),
            stall_timeout: Some(Duration::from_secs(30)),
            idle_timeout: Some(Duration::from_secs(15 * 60)),
            first_byte_timeout: Some(Duration::from_secs(10)),
            ..Self::bare()
        }
    }
}

impl ReaderConfig {
    /// The default limits and no timer at all.
    pub fn bare() -> Self {
        Self {
            limits: Limits::default(),
            keepalive: None,
            tail_idle: None,
            stall_timeout: None,
            idle_timeout: None,
            first_byte_timeout: None,
            no_window: NoWindow::Accept,
            on_invalid: OnInvalid::Refuse,
            settle_after_error: false,
            v1: true,
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

/// How a [`Writer`](crate::Writer) behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterConfig {
    /// The version byte of every frame.
    pub version: Version,
    /// The zlib level of the one envelope of a window, 0 to 9, default 3; 0 and `None` send plain frames,
    /// as Beats does.
    ///
    /// A level names a size, and the codec is the fastest that makes it: 1 takes half the time
    /// of 2 to 4, which are the same, and makes a third to a half more bytes; 5 to 9 take from one and a
    /// half to four times as long for 2 to 10 % fewer.
    pub compression: Option<u32>,
    /// How events are numbered.
    pub sequence: SequenceMode,
    /// Windows in flight, 2; always 1 under version 1.
    pub max_in_flight: usize,
    /// Events in flight over all windows; `None` is no limit of its own.
    pub max_in_flight_events: Option<u32>,
    /// Bytes in flight over all windows, as plain frames with their headers; a window counts until its
    /// last event is acknowledged. `None` is no limit of its own.
    pub max_in_flight_bytes: Option<u64>,
    /// Events in the first window, from which windows grow by half with each full one that is
    /// acknowledged and shrink to half by a failure (libbeat's slow start, which begins at 10); `None`
    /// starts with `max_window`.
    pub slow_start: Option<u32>,
    /// Events in a window, 2,048.
    pub max_window: u32,
    /// Whether a number may also be a count of events, as go-lumber's server answers.
    pub accept_count_acks: bool,
    /// Silence of the peer that ends the connection while something is in flight, 30 s.
    pub read_timeout: Option<Duration>,
    /// Time without a growing acknowledgement that ends it, 5 min.
    pub progress_timeout: Option<Duration>,
}

impl Default for WriterConfig {
    fn default() -> Self {
        Self {
            read_timeout: Some(Duration::from_secs(30)),
            progress_timeout: Some(Duration::from_secs(5 * 60)),
            ..Self::bare()
        }
    }
}

impl WriterConfig {
    /// The defaults without any timer.
    pub fn bare() -> Self {
        Self {
            version: Version::V2,
            compression: Some(3),
            sequence: SequenceMode::PerWindow,
            max_in_flight: 2,
            max_in_flight_events: None,
            max_in_flight_bytes: None,
            slow_start: None,
            max_window: 2_048,
            accept_count_acks: false,
            read_timeout: None,
            progress_timeout: None,
        }
    }
}
