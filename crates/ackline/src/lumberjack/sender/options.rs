//! The options of a sender.

use std::time::Duration;

use ackline_core::options::{OptionError, Options as _, bytes, count, flag, time};
use ackline_link::tls::TlsOptions;

use super::super::{Limits, OutRecord, SequenceMode, WriterConfig};
use ackline_lumberjack::pool::Bounds;

ackline_core::options! {
    /// How a [`Sender`](super::Sender) behaves. Durations are of tokio's clock.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SenderOptions {
        options {
            /// Events in a window at the most.
            batch_events: u32 = 2_048, count(1..=0xffff_ffff), CONNECT;
            /// Bytes in a window, before compression; a larger event goes alone.
            batch_bytes: u64 = 4 << 20, bytes(1..=u64::MAX), CONNECT;
            /// Events that may be accepted and not yet acknowledged, over all hosts. A batch counts until all of it
            /// is acknowledged. Off: the events that all hosts may have in flight, and one window for each host.
            buffer_events: Option<u64> = Some(65_536), count(1..=u64::MAX), CONNECT;
            /// Bytes of the events in buffer_events. Off: enough for its windows, of 16 MiB each at least.
            buffer_bytes: Option<u64> = Some(64 << 20), bytes(1..=u64::MAX), CONNECT;
            /// Number events on and on instead of from 1 in each window.
            cumulative: bool = false, flag(), CONNECT;
            /// Time of one attempt to connect.
            connect_timeout: Duration = Duration::from_secs(10), time(), CONNECT;
            /// The longest first wait before a failed host is tried again.
            backoff_min: Duration = Duration::from_secs(1), time().or_zero(), CONNECT;
            /// The longest wait before a failed host is tried again.
            backoff_max: Duration = Duration::from_secs(60), time().or_zero(), CONNECT;
            /// Age, a fifth more or less, at which a connection is drained and made anew.
            ttl: Option<Duration> = None, time(), CONNECT;
            /// Windows whose receipts are kept until [`Sender::receipts`](super::Sender::receipts) takes them. The oldest go
            /// first, and their number is told.
            receipts: usize = 0, count(0..=u64::MAX), CONNECT;
        }
        groups {
            /// The options of each connection. `max_window` is set from `batch_events`.
            writer: WriterConfig = WriterConfig::default();
            /// TLS of the `+tls` URLs, where they leave it open.
            tls: TlsOptions = TlsOptions::default();
        }
        fields {
            /// Seeds the waits; `None` is different at each start.
            seed: Option<u64> = None;
        }
    }
}

impl SenderOptions {
    /// The events and bytes of the buffer for so many hosts. Where they are off, the buffer never stops one
    /// of the hosts: it holds the events that all hosts may have in flight and a window each, of which one
    /// may be a single event of the largest size.
    pub fn buffer_for(&self, hosts: usize) -> (u64, u64) {
        let wide = |len| u64::try_from(len).unwrap_or(u64::MAX);
        let windows = wide(self.writer.max_in_flight.saturating_add(1)).saturating_mul(wide(hosts));
        let largest = wide(OutRecord::json_wire_len(Limits::default().max_json_bytes));
        let bytes = self.batch_bytes.max(largest);
        let events = windows.saturating_mul(self.batch_events.into());
        (
            self.buffer_events.unwrap_or(events),
            self.buffer_bytes.unwrap_or(windows.saturating_mul(bytes)),
        )
    }

    /// The limits of the events of so many hosts.
    pub(super) fn bounds(&self, hosts: usize) -> Bounds {
        let (buffer_events, buffer_bytes) = self.buffer_for(hosts);
        Bounds {
            batch_events: self.batch_events.into(),
            batch_bytes: self.batch_bytes,
            buffer_events,
            buffer_bytes,
            max_event: self.writer.max_in_flight_bytes.unwrap_or(u64::MAX),
            receipts: self.receipts,
        }
    }

    /// The options with those set that follow from others.
    ///
    /// # Errors
    /// One is outside its range, or `backoff_max` is below `backoff_min`.
    pub(super) fn checked(mut self) -> Result<Self, OptionError> {
        self.check_ranges()?;
        if self.backoff_max < self.backoff_min {
            let (max, min) = (self.backoff_max, self.backoff_min);
            let text = format!("is {max:?}; it is at least {min:?}, the value of");
            return Err(OptionError::new("backoff_max", text).than("backoff_min"));
        }
        if self.cumulative && self.writer.sequence == SequenceMode::PerWindow {
            self.writer.sequence = SequenceMode::Cumulative { next: 1 };
        }
        self.writer.max_window = self.batch_events;
        Ok(self)
    }
}
