//! The options of a receiver, under the names of the command line.

use std::path::PathBuf;
use std::time::Duration;

use ackline_core::option_words;
use ackline_core::options::{
    OptionError, OptionKind, OptionSpec, OptionType, OptionValue, Options, Uses, bytes, spec_of,
    text, time, word, wrong,
};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget, Fairness};
use ackline_lumberjack::{OnInvalid, ReaderConfig};
use ackline_spool::WriterOptions;
use serde_json::{Map, Value};

use crate::bpmux::BpmuxOptions;
use crate::micromsg::MicroMsgOptions;
use crate::reactive::ReactiveOptions;
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

impl OptionType for Ack {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        let is_name = |name: &&str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=64).contains(&name.len()) && name.bytes().all(allowed)
        };
        let OptionValue::Text(text) = value else {
            return Err(wrong(spec, value));
        };
        if text == "durable" {
            return Ok(Self::Durable);
        }
        let name = text.strip_prefix("committed=").filter(is_name);
        name.map(|name| Self::Committed(name.to_owned()))
            .ok_or_else(|| wrong(spec, value))
    }

    fn shown(&self, _: &OptionKind) -> String {
        match self {
            Self::Durable => "durable".to_owned(),
            Self::Committed(name) => format!("committed={name}"),
        }
    }
}

/// How senders of version 1, which knows no keepalive, are served with [`Ack::Committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum V1Ack {
    /// Its connection is refused: it would give up in the middle of a batch.
    #[default]
    Refuse,
    /// An acknowledgement once its windows are durable.
    Durable,
}

option_words!(V1Ack {
    Refuse = "refuse",
    Durable = "durable"
});

ackline_core::options! {
    /// The quarantine of windows that cannot be read.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct QuarantineOptions {
        options {
            /// Bytes that the quarantine may take. Once it is full, connections that send windows that cannot
            /// be read are refused.
            quarantine_budget: u64 = 64 << 20, bytes(1..=u64::MAX), RECEIVE;
            /// Age at which windows are deleted from the quarantine.
            quarantine_age: Duration = Duration::from_secs(7 * 24 * 3_600), time().or_zero(), RECEIVE;
        }
    }
}

ackline_core::options! {
    /// How a receiver listens, keeps and ends. Defaults are those of the command line.
    #[derive(Debug, Clone)]
    pub struct ReceiverOptions {
        options {
            /// When to acknowledge: durable (on this disk), or committed=NAME (when the query with that consumer has
            /// committed; keepalives until then).
            ack: Ack = Ack::Durable, ACK, RECEIVE;
            /// Treatment of senders of version 1, which has no keepalive, under --ack committed=NAME: refuse
            /// their connections, or acknowledge once their events are durable.
            v1_ack: V1Ack = V1Ack::Refuse, word::<V1Ack>(), RECEIVE;
            /// Bytes of unacknowledged input in memory, over all connections.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), RECEIVE;
            /// Time that a stop waits until received input is acknowledged. Many connections are ended one by
            /// one over three quarters of this time.
            drain_timeout: Duration = Duration::from_secs(10), time().or_zero(), RECEIVE;
        }
        groups {
            /// The spool's own options. Its `acks` is set from `ack`.
            writer: WriterOptions = WriterOptions::default();
            /// How far senders may hold up each other where memory or the spool is short.
            fairness: Fairness = Fairness::default();
            /// The quarantine, which is used where `reader.on_invalid` says so.
            quarantine: QuarantineOptions = QuarantineOptions::default();
            /// Limits on connections: allowed networks, number and rate. Its `first_byte_timeout`
            /// is the reader's.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// TLS of the `+tls` URLs, where they leave it open.
            tls: TlsOptions = TlsOptions::default();
            /// Limits and timers of each Lumberjack connection.
            reader: ReaderConfig = ReaderConfig::default();
            /// Limits, timers and the keeping of Relink links.
            relink: RelinkOptions = RelinkOptions::default();
            /// Credit, limits and timers of bpmux connections.
            bpmux: BpmuxOptions = BpmuxOptions::default();
            /// Demand, limits and timers of Reactive Streams connections.
            reactive: ReactiveOptions = ReactiveOptions::default();
            /// The window, limits and timers of MicroMsg2 connections.
            micromsg: MicroMsgOptions = MicroMsgOptions::default();
        }
        fields {
            /// URLs to listen on; port 0 is allowed.
            urls: Vec<String> = Vec::new();
            /// URLs of listeners that send: the receiver connects to them, for ever, and lands
            /// their messages.
            connect: Vec<String> = Vec::new();
            /// The spool's directory, created if missing. `None` counts and acknowledges without keeping.
            spool: Option<PathBuf> = None;
        }
    }
}

const ACK: OptionKind = text("durable or committed=NAME (NAME: 1 to 64 of A-Z a-z 0-9 . _ -)");

impl ReceiverOptions {
    /// Sets options by name: sizes in bytes or with a unit, times with a unit or, as `NAME_ms`, in milliseconds (0 is
    /// off), counts, words and flags.
    ///
    /// # Errors
    /// An option that does not exist or does not fit.
    pub fn set_all(&mut self, options: &Map<String, Value>) -> Result<(), OptionError> {
        for (name, value) in options {
            self.set_named(name, value_of(value))?;
        }
        Ok(())
    }

    /// Sets one option, as [`set_all`](Self::set_all) does.
    ///
    /// # Errors
    /// As there.
    pub fn set_named(&mut self, name: &str, value: OptionValue) -> Result<(), OptionError> {
        let time_of = |name| {
            let spec = spec_of(self, Uses::RECEIVE, name)?;
            matches!(spec.kind, OptionKind::Time { .. }).then_some(spec)
        };
        let in_ms = name.strip_suffix("_ms");
        let (known, value) = match (in_ms.and_then(time_of), time_of(name), value) {
            (Some(spec), _, OptionValue::Whole(0)) if spec.off => (spec.name, OptionValue::Off),
            (Some(spec), _, OptionValue::Whole(number)) => {
                (spec.name, OptionValue::Text(format!("{number}ms")))
            }
            (Some(spec), _, value) => {
                let text = format!("takes a whole number of milliseconds, not {value}");
                return Err(OptionError::new(&format!("{}_ms", spec.name), text));
            }
            // A number alone may mean seconds or milliseconds.
            (None, Some(spec), OptionValue::Whole(_) | OptionValue::Real(_)) => {
                let text = format!("is a time: it is {}_ms, or a text with a unit", spec.name);
                return Err(OptionError::new(name, text));
            }
            (_, _, value) => (name, value),
        };
        let is_known = self.set(Uses::RECEIVE, known, &value);
        if is_known.map_err(|error| error.given_as(name))? {
            return Ok(());
        }
        Err(OptionError::new(name, "is no option of a receiver"))
    }

    /// The options of its acceptor.
    pub(super) fn acceptor(&self) -> AcceptorOptions {
        AcceptorOptions {
            first_byte_timeout: self.reader.first_byte_timeout,
            ..self.acceptor.clone()
        }
    }

    /// Refuses values that are outside their ranges or do not go together.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        // The spool's options have no effect where nothing is kept.
        self.check_ranges()?;
        self.bpmux.link.check()?;
        if self.bpmux.link.credit.credit == ackline_bpmux::Crediting::Manual {
            return Err(OptionError::new("credit", "of a receiver is automatic"));
        }
        if self.spool.is_some() {
            return Ok(());
        }
        if self.ack != Ack::Durable {
            let text = "committed=NAME needs a spool to commit from";
            return Err(OptionError::new("ack", text));
        }
        if self.reader.on_invalid == OnInvalid::Quarantine {
            let text = "quarantine needs a spool to stand in";
            return Err(OptionError::new("on_invalid", text));
        }
        Ok(())
    }

    /// Whether senders of version 1 get an acknowledgement in time.
    pub(crate) fn takes_v1(&self) -> bool {
        self.ack == Ack::Durable || self.v1_ack == V1Ack::Durable
    }
}

fn value_of(value: &Value) -> OptionValue {
    match value {
        Value::Null => OptionValue::Off,
        Value::Bool(flag) => OptionValue::Flag(*flag),
        Value::String(text) => OptionValue::Text(text.clone()),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => OptionValue::Whole(whole),
            (None, Some(real)) => OptionValue::Real(real),
            (None, None) => OptionValue::Other(number.to_string()),
        },
        other => OptionValue::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(options: &Value) -> Result<ReceiverOptions, String> {
        let mut receiver = ReceiverOptions::default();
        receiver
            .set_all(options.as_object().unwrap())
            .map(|()| receiver)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_set_by_name() {
        let receiver =
            set(&json!({"memory": 1_000_000, "keepalive_ms": 0, "max_pairs": 7})).unwrap();
        assert_eq!(receiver.memory, 1_000_000);
        assert_eq!(receiver.reader.keepalive, None);
        assert_eq!(receiver.reader.limits.max_pairs, 7);
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
            assert_eq!(
                error,
                format!("{name} is a time: it is {name}_ms, or a text with a unit")
            );
            assert!(set(&json!({name: "1h"})).is_ok());
            let ms = format!("{name}_ms");
            assert!(set(&json!({ms.clone(): 3_600})).is_ok());
            let twice = format!("{name}_ms_ms");
            assert!(set(&json!({twice: 3_600})).is_err());
        }
    }

    #[test]
    fn the_time_of_acknowledgements_is_set_by_name() {
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
        assert_eq!(
            options.quarantine,
            QuarantineOptions {
                quarantine_budget: 5,
                quarantine_age: age
            }
        );
        assert!(options.writer.group && options.writer.allow_unsafe_filesystem);
        assert_eq!(options.writer.retain_committed, Duration::from_secs(2));
        assert_eq!(options.writer.retain_max, Some(Duration::from_secs(3)));
        assert!(!set(&json!({"ack": "committed=lake"})).unwrap().takes_v1());
        assert!(options.check().unwrap_err().to_string().starts_with("ack "));
    }
}
