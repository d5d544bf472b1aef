//! What can be set on a receiver, under the names of the command line.

use std::path::PathBuf;
use std::time::Duration;

use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Fairness};
use ackline_lumberjack::{NoWindow, OnInvalid, ReaderConfig};
use ackline_spool::WriterOptions;
use serde_json::{Map, Value};

use crate::bpmux::BpmuxOptions;
use crate::relink::RelinkOptions;

/// When a window is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ack {
    /// Once it is on this machine's disk.
    #[default]
    Durable,
    /// Once the consumer of this name has committed it. Until then its sender gets keepalives.
    Committed(String),
}

/// What a sender of version 1, which knows no keepalive, gets with [`Ack::Committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum V1Ack {
    /// Its connection is refused: it would give up in the middle of a batch.
    #[default]
    Refuse,
    /// An acknowledgement once its windows are durable.
    Durable,
}

/// What the quarantine may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuarantineOptions {
    /// Its bytes on disk, 64 MiB; then windows that cannot be read are refused.
    pub budget: u64,
    /// The age at which they go, 7 days.
    pub age: Duration,
}

impl Default for QuarantineOptions {
    fn default() -> Self {
        Self {
            budget: 64 << 20,
            age: Duration::from_secs(7 * 24 * 3_600),
        }
    }
}

/// How a receiver listens, keeps and ends. Defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct ReceiverOptions {
    /// Where to listen; port 0 is allowed.
    pub urls: Vec<String>,
    /// Where to connect to, for ever, and to land what is sent there: URLs of listeners that send.
    pub connect: Vec<String>,
    /// The spool's directory, created if missing. `None` counts and acknowledges without keeping.
    pub spool: Option<PathBuf>,
    /// The spool's own options: budget, retention, sizes of segments and groups. Its `acks` is set from
    /// `ack`.
    pub writer: WriterOptions,
    /// Bytes of unacknowledged input in memory, over all connections: 256 MiB.
    pub memory: u64,
    /// How far senders may hold up each other where memory or the spool is short.
    pub fairness: Fairness,
    /// When windows are acknowledged.
    pub ack: Ack,
    /// What senders of version 1 get where acknowledgements wait for commits.
    pub v1_ack: V1Ack,
    /// The quarantine, which is used where `reader.on_invalid` says so.
    pub quarantine: QuarantineOptions,
    /// Limits and timers of each Lumberjack connection.
    pub reader: ReaderConfig,
    /// Limits, timers and the keeping of Relink links.
    pub relink: RelinkOptions,
    /// Credit, limits and timers of bpmux connections.
    pub bpmux: BpmuxOptions,
    /// Who may connect, how many and how fast. Its `first_byte_timeout` is the reader's.
    pub acceptor: AcceptorOptions,
    /// TLS of the `+tls` URLs, where they leave it open.
    pub tls: TlsOptions,
    /// How long a stop waits for what was received, and over how long at the most it ends connections:
    /// 10 s. By name it is `drain_timeout_ms`.
    pub drain: Duration,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            connect: Vec::new(),
            spool: None,
            writer: WriterOptions::default(),
            memory: 256 << 20,
            fairness: Fairness::default(),
            ack: Ack::default(),
            v1_ack: V1Ack::default(),
            quarantine: QuarantineOptions::default(),
            reader: ReaderConfig::default(),
            relink: RelinkOptions::default(),
            bpmux: BpmuxOptions::default(),
            acceptor: AcceptorOptions::default(),
            tls: TlsOptions::default(),
            drain: Duration::from_secs(10),
        }
    }
}

impl ReceiverOptions {
    /// Sets options by name: sizes in bytes, times in milliseconds (`keepalive_ms`, 0 = off), counts.
    ///
    /// # Errors
    /// An option that does not exist or does not fit; the text begins with its name.
    pub fn set(&mut self, options: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in options {
            self.set_one(name, value)?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &Value) -> Result<(), String> {
        if self.set_choice(name, value)?
            || self.set_part(name, value)?
            || self.set_flag(name, value)?
            || self.tls.set(name, value.as_str().unwrap_or_default())?
            || self
                .acceptor
                .set_networks(name, value.as_str().unwrap_or_default())?
        {
            return Ok(());
        }
        let number = value
            .as_u64()
            .ok_or_else(|| format!("{name} takes a whole number of 0 or more, not {value}"))?;
        if self.acceptor.set_count(name, number)?
            || self.set_size(name, number)?
            || self.set_time(name, number)?
        {
            return Ok(());
        }
        let in_ms = format!("{name}_ms");
        if self.set_time(&in_ms, number) == Ok(true) {
            return Err(format!("there is no option {name}: it is {in_ms}"));
        }
        Err(format!("there is no option {name}"))
    }

    fn set_choice(&mut self, name: &str, value: &Value) -> Result<bool, String> {
        let choice = |choices: [&str; 2]| {
            let at = choices.iter().position(|one| value.as_str() == Some(one));
            let [first, second] = choices;
            at.ok_or_else(|| format!("{name} is {first} or {second}, not {value}"))
        };
        match name {
            "no_window" => {
                self.reader.no_window =
                    [NoWindow::Accept, NoWindow::Refuse][choice(["accept", "refuse"])?];
            }
            "on_invalid" => {
                self.reader.on_invalid =
                    [OnInvalid::Refuse, OnInvalid::Quarantine][choice(["refuse", "quarantine"])?];
            }
            "v1_ack" => {
                self.v1_ack = [V1Ack::Refuse, V1Ack::Durable][choice(["refuse", "durable"])?];
            }
            "ack" => self.ack = ack(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_part(&mut self, name: &str, value: &Value) -> Result<bool, String> {
        if name != "max_sender_share" {
            return Ok(false);
        }
        // Callers whose options are texts, such as Spark's, give the number as a text.
        let part = match value {
            Value::String(text) => text.parse().ok(),
            number => number.as_f64(),
        };
        let part = part.filter(|part| *part > 0.0 && *part <= 1.0);
        self.fairness.sender_share =
            part.ok_or_else(|| format!("{name} is a part above 0 and up to 1, not {value}"))?;
        Ok(true)
    }

    fn set_flag(&mut self, name: &str, value: &Value) -> Result<bool, String> {
        let flag = match name {
            "allow_unsafe_filesystem" => &mut self.writer.unsafe_filesystem,
            "group" => &mut self.writer.group,
            "durable_links" => &mut self.relink.durable_links,
            "bind_identity" => &mut self.relink.bind_identity,
            _ => return Ok(false),
        };
        *flag = value
            .as_bool()
            .ok_or_else(|| format!("{name} is true or false, not {value}"))?;
        Ok(true)
    }

    /// What its acceptor holds to.
    pub(super) fn acceptor(&self) -> AcceptorOptions {
        AcceptorOptions {
            first_byte_timeout: self.reader.first_byte_timeout,
            ..self.acceptor.clone()
        }
    }

    /// The least [`memory`](Self::memory): below it only the shortest windows could come in.
    pub const LEAST_MEMORY: u64 = 64 << 10;

    /// Refuses what does not go together, or is too small to work with.
    pub(crate) fn check(&self) -> Result<(), String> {
        let least = Self::LEAST_MEMORY;
        if self.memory < least {
            let memory = self.memory;
            return Err(format!(
                "memory {memory} is below the least, {least} bytes (64KiB)"
            ));
        }
        let (budget, least) = (self.writer.budget, WriterOptions::LEAST_BUDGET);
        if self.spool.is_some() && budget < least {
            return Err(format!(
                "budget {budget} is below the least, {least} bytes (64KiB)"
            ));
        }
        self.bpmux.check()?;
        if self.spool.is_some() {
            return Ok(());
        }
        if self.ack != Ack::Durable {
            return Err("ack committed=NAME needs a spool to commit from".to_owned());
        }
        if self.reader.on_invalid == OnInvalid::Quarantine {
            return Err("on_invalid quarantine needs a spool to stand in".to_owned());
        }
        Ok(())
    }

    /// Whether senders of version 1 get an acknowledgement in time.
    pub(crate) fn takes_v1(&self) -> bool {
        self.ack == Ack::Durable || self.v1_ack == V1Ack::Durable
    }

    fn set_size(&mut self, name: &str, number: u64) -> Result<bool, String> {
        let size = usize::try_from(number).map_err(|_| format!("{name} is too large"))?;
        let count = || {
            u32::try_from(number)
                .map_err(|_| format!("{name} is {number}; at most {} fits", u32::MAX))
        };
        if size == 0 {
            // A time of 0 is a timer that is off; a size of 0 would refuse everything.
            return if name.ends_with("_ms") {
                Ok(false)
            } else {
                Err(format!("{name} must be at least 1"))
            };
        }
        let limits = &mut self.reader.limits;
        match name {
            "memory" => self.memory = number,
            "min_rate" => self.fairness.min_rate = number,
            "budget" => self.writer.budget = number,
            "quarantine_budget" => self.quarantine.budget = number,
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
            // Several protocols may have an option of one name.
            _ => {
                let relink = self.relink.set_size(name, number)?;
                return Ok(self.bpmux.set_size(name, number)? || relink);
            }
        }
        Ok(true)
    }

    /// Only names that end in `_ms` are times.
    fn set_time(&mut self, name: &str, number: u64) -> Result<bool, String> {
        let timer = (number > 0).then(|| Duration::from_millis(number));
        match name {
            "frame_timeout_ms" => self.fairness.frame_timeout = timer.unwrap_or(Duration::MAX),
            "drain_timeout_ms" => self.drain = Duration::from_millis(number),
            "retain_committed_ms" => self.writer.retain_committed = Duration::from_millis(number),
            "retain_max_ms" => self.writer.retain_max = timer,
            "quarantine_age_ms" => self.quarantine.age = Duration::from_millis(number),
            "segment_age_ms" => self.writer.segment_age = Duration::from_millis(number),
            "keepalive_ms" => self.reader.keepalive = timer,
            "tail_idle_ms" => self.reader.tail_idle = timer,
            "stall_timeout_ms" => self.reader.stall_timeout = timer,
            "idle_timeout_ms" => self.reader.idle_timeout = timer,
            "first_byte_timeout_ms" => self.reader.first_byte_timeout = timer,
            _ => {
                let relink = self.relink.set_time(name, timer)?;
                if self.bpmux.set_time(name, timer)? || relink {
                    return Ok(true);
                }
                return match name.strip_suffix("_ms") {
                    Some(name) => self.acceptor.set_time(name, timer),
                    None => Ok(false),
                };
            }
        }
        Ok(true)
    }
}

/// `durable` or `committed=NAME`.
fn ack(value: &Value) -> Result<Ack, String> {
    let text = value.as_str().unwrap_or_default();
    if text == "durable" {
        return Ok(Ack::Durable);
    }
    let is_name = |name: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(allowed)
    };
    let name = text.strip_prefix("committed=").filter(is_name);
    name.map(|name| Ack::Committed(name.to_owned()))
        .ok_or_else(|| {
            format!(
                "ack is durable or committed=NAME (NAME: 1 to 64 of A-Z a-z 0-9 . _ -), \
                 not {value}"
            )
        })
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
        for name in [
            "ack",
            "v1_ack",
            "on_invalid",
            "group",
            "allow_unsafe_filesystem",
        ] {
            let error = set(&json!({name: "maybe"})).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        for ack in ["committed", "committed=", "committed=a b", "Durable", ""] {
            assert!(set(&json!({"ack": ack})).unwrap_err().contains("ack"));
        }
    }

    #[test]
    fn a_time_without_its_unit_is_refused() {
        for name in ["max_connection_age", "handshake_timeout", "keepalive"] {
            let error = set(&json!({name: 3_600})).unwrap_err();
            assert_eq!(error, format!("there is no option {name}: it is {name}_ms"));
            let ms = format!("{name}_ms");
            assert!(set(&json!({ms.clone(): 3_600})).is_ok());
            let twice = format!("{name}_ms_ms");
            assert!(set(&json!({twice: 3_600})).is_err());
        }
    }

    #[test]
    fn what_is_acknowledged_when_is_set_by_name() {
        let options = set(&json!({
            "ack": "committed=lake", "v1_ack": "durable", "on_invalid": "quarantine",
            "quarantine_budget": 5, "quarantine_age_ms": 1_000, "group": true,
            "allow_unsafe_filesystem": true, "retain_committed_ms": 2_000, "retain_max_ms": 3_000,
        }));
        let options = options.unwrap();
        assert_eq!(options.ack, Ack::Committed("lake".to_owned()));
        assert!(options.takes_v1());
        assert_eq!(options.reader.on_invalid, OnInvalid::Quarantine);
        let age = Duration::from_secs(1);
        assert_eq!(options.quarantine, QuarantineOptions { budget: 5, age });
        assert!(options.writer.group && options.writer.unsafe_filesystem);
        assert_eq!(options.writer.retain_committed, Duration::from_secs(2));
        assert_eq!(options.writer.retain_max, Some(Duration::from_secs(3)));
        assert!(!set(&json!({"ack": "committed=lake"})).unwrap().takes_v1());
        assert!(options.check().unwrap_err().starts_with("ack "));
    }
}
