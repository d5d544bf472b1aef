//! How a sender behaves.

use std::time::Duration;

use ackline_core::UsageError;
use ackline_link::tls::TlsOptions;

use super::super::{Limits, OutRecord, WriterConfig};
use super::batch::wide;

/// How a [`Sender`](super::Sender) behaves. Durations are of tokio's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderOptions {
    /// What each connection does: version, compression, numbering, limits in flight, slow start, deadlines.
    /// `max_window` is set from `batch_events`.
    pub writer: WriterConfig,
    /// Events in a window at the most, 2,048.
    pub batch_events: u32,
    /// Bytes in a window at the most, 4 MiB, counted as plain frames. An event that is larger goes alone.
    pub batch_bytes: u64,
    /// Events that are accepted and not acknowledged, 65,536. A batch counts until all of it is
    /// acknowledged.
    pub buffer_events: u64,
    /// Their bytes as plain frames, 64 MiB.
    pub buffer_bytes: u64,
    /// What `+tls` URLs leave open of TLS.
    pub tls: TlsOptions,
    /// How long one attempt to connect may take, 10 s.
    pub connect_timeout: Duration,
    /// The longest first wait after a failure, 1 s.
    pub backoff_min: Duration,
    /// The longest wait of all, 60 s.
    pub backoff_max: Duration,
    /// Age at which a connection is drained and made anew, a fifth more or less; `None` keeps it.
    pub ttl: Option<Duration>,
    /// Windows whose receipts are kept until [`Sender::receipts`](super::Sender::receipts) takes them, 0:
    /// none. The oldest go first, and their number is told.
    pub receipts: usize,
    /// Where random waits come from; `None` is different at each start.
    pub seed: Option<u64>,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            writer: WriterConfig::default(),
            batch_events: 2_048,
            batch_bytes: 4 << 20,
            buffer_events: 65_536,
            buffer_bytes: 64 << 20,
            tls: TlsOptions::default(),
            connect_timeout: Duration::from_secs(10),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            ttl: None,
            receipts: 0,
            seed: None,
        }
    }
}

impl SenderOptions {
    /// Events and bytes of a buffer that never stops so many hosts: what all may have in flight and a window
    /// each, of which one may be a single event of the largest size.
    pub fn buffer_for(&self, hosts: usize) -> (u64, u64) {
        let windows = wide(self.writer.max_in_flight.saturating_add(1)).saturating_mul(wide(hosts));
        let largest = wide(OutRecord::json_wire_len(Limits::default().json));
        let bytes = self.batch_bytes.max(largest);
        (
            windows.saturating_mul(self.batch_events.into()),
            windows.saturating_mul(bytes),
        )
    }

    /// The options with `max_window` set.
    ///
    /// # Errors
    /// `out_of_range`, naming the option.
    pub(super) fn checked(mut self) -> Result<Self, UsageError> {
        let writer = &self.writer;
        let wrong = [
            (self.batch_events == 0, "batch_events is at least 1"),
            (self.batch_bytes == 0, "batch_bytes is at least 1"),
            (self.buffer_events == 0, "buffer_events is at least 1"),
            (self.buffer_bytes == 0, "buffer_bytes is at least 1"),
            (writer.max_in_flight == 0, "max_in_flight is at least 1"),
            (
                writer.max_in_flight_events == Some(0),
                "max_in_flight_events is at least 1",
            ),
            (
                writer.max_in_flight_bytes == Some(0),
                "max_in_flight_bytes is at least 1",
            ),
            (writer.slow_start == Some(0), "slow_start is at least 1"),
            (
                writer.compression.is_some_and(|level| level > 9),
                "compression is from 0 to 9",
            ),
            (
                writer.read_timeout == Some(Duration::ZERO),
                "read_timeout is above 0",
            ),
            (
                writer.progress_timeout == Some(Duration::ZERO),
                "progress_timeout is above 0",
            ),
            (self.connect_timeout.is_zero(), "connect_timeout is above 0"),
            (
                self.backoff_max < self.backoff_min,
                "backoff_max is not below backoff_min",
            ),
            (self.ttl == Some(Duration::ZERO), "ttl is above 0"),
        ];
        if let Some((_, message)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(UsageError::new("out_of_range", message));
        }
        self.writer.max_window = self.batch_events;
        Ok(self)
    }
}
