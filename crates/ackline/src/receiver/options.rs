//! What can be set on a receiver, under the names of the command line.

use std::path::PathBuf;
use std::time::Duration;

use ackline_lumberjack::{NoWindow, ReaderConfig};
use ackline_spool::WriterOptions;
use serde_json::{Map, Value};

/// How a receiver listens, keeps and ends. Defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct ReceiverOptions {
    /// Where to listen; port 0 is allowed.
    pub urls: Vec<String>,
    /// The spool's directory, created if missing. `None` counts and acknowledges without keeping.
    pub spool: Option<PathBuf>,
    /// The spool's own options: budget, sizes of segments and groups.
    pub writer: WriterOptions,
    /// Bytes of unacknowledged input in memory, over all connections: 256 MiB.
    pub memory: u64,
    /// Limits and timers of each Lumberjack connection.
    pub reader: ReaderConfig,
    /// How long a stop waits for what was received: 10 s.
    pub drain: Duration,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            spool: None,
            writer: WriterOptions::default(),
            memory: 256 << 20,
            reader: ReaderConfig::default(),
            drain: Duration::from_secs(10),
        }
    }
}

impl ReceiverOptions {
    /// Sets options by name: sizes in bytes, times in milliseconds (`keepalive_ms`, 0 = off), counts.
    ///
    /// # Errors
    /// An option that does not exist or does not fit, by name.
    pub fn set(&mut self, options: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in options {
            self.set_one(name, value)?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &Value) -> Result<(), String> {
        if name == "no_window" {
            self.reader.no_window = match value.as_str() {
                Some("accept") => NoWindow::Accept,
                Some("refuse") => NoWindow::Refuse,
                _ => return Err(format!("option no_window is accept or refuse, not {value}")),
            };
            return Ok(());
        }
        let number = value.as_u64().ok_or_else(|| {
            format!("option {name} takes a whole number of 0 or more, not {value}")
        })?;
        if self.set_size(name, number)? || self.set_time(name, number) {
            return Ok(());
        }
        Err(format!("there is no option {name}"))
    }

    fn set_size(&mut self, name: &str, number: u64) -> Result<bool, String> {
        let size = usize::try_from(number).map_err(|_| format!("option {name} is too large"))?;
        let count = || {
            u32::try_from(number)
                .map_err(|_| format!("option {name} is {number}; at most {} fits", u32::MAX))
        };
        if size == 0 {
            // A time of 0 is a timer that is off; a size of 0 would refuse everything.
            return if name.ends_with("_ms") || name == "drain_ms" {
                Ok(false)
            } else {
                Err(format!("option {name} must be at least 1"))
            };
        }
        let limits = &mut self.reader.limits;
        match name {
            "memory" => self.memory = number,
            "budget" => self.writer.budget = number,
            "segment_bytes" => self.writer.segment_bytes = number,
            "max_window_events" => limits.window = count()?,
            "max_json_bytes" => limits.json = size,
            "max_data_bytes" => limits.data = size,
            "max_compressed_bytes" => limits.compressed = size,
            "max_inflated_bytes" => limits.inflated = size,
            "max_pairs" => limits.pairs = count()?,
            "max_field_bytes" => limits.field = size,
            "max_window_bytes" => limits.window_bytes = size,
            "max_unacked_windows" => limits.unacked_windows = size,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_time(&mut self, name: &str, number: u64) -> bool {
        let timer = (number > 0).then(|| Duration::from_millis(number));
        match name {
            "drain_ms" => self.drain = Duration::from_millis(number),
            "segment_age_ms" => self.writer.segment_age = Duration::from_millis(number),
            "keepalive_ms" => self.reader.keepalive = timer,
            "tail_idle_ms" => self.reader.tail_idle = timer,
            "stall_timeout_ms" => self.reader.stall_timeout = timer,
            "idle_timeout_ms" => self.reader.idle_timeout = timer,
            "first_byte_timeout_ms" => self.reader.first_byte_timeout = timer,
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(options: &Value) -> Result<ReceiverOptions, String> {
        let mut receiver = ReceiverOptions::default();
        receiver
            .set(options.as_object().unwrap())
            .map(|()| receiver)
    }

    #[test]
    fn options_are_set_by_name() {
        let receiver = set(&json!({"memory": 1000, "keepalive_ms": 0, "max_pairs": 7})).unwrap();
        assert_eq!(receiver.memory, 1000);
        assert_eq!(receiver.reader.keepalive, None);
        assert_eq!(receiver.reader.limits.pairs, 7);
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(set(&json!({"memroy": 1})).unwrap_err().contains("memroy"));
        assert!(set(&json!({"memory": "x"})).unwrap_err().contains("memory"));
        assert!(
            set(&json!({"max_pairs": 4_294_967_296_u64}))
                .unwrap_err()
                .contains("max_pairs")
        );
        assert!(
            set(&json!({"max_json_bytes": 0}))
                .unwrap_err()
                .contains("max_json_bytes")
        );
        assert!(
            set(&json!({"no_window": "maybe"}))
                .unwrap_err()
                .contains("no_window")
        );
    }
}
