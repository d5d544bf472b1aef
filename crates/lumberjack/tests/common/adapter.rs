//! Lumberjack as the runner of the conformance vectors sees it.

use std::time::{Duration, Instant};

use ackline_core::UsageError;
use ackline_lumberjack::frame::{self, Frame, From};
use ackline_lumberjack::{
    Event, Expander, Kind, Limits, NoWindow, OutRecord, Reader, ReaderConfig, Record, SequenceMode,
    Version, Window, Writer, WriterConfig, WriterEvent,
};
use ackline_testkit::vectors::{
    CallError, Decoded, Endpoint, FrameCodec, Machine, Protocol, Role, bytes_of, to_hex,
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// The protocol, for the runner.
pub(crate) struct Lumberjack;

impl Protocol for Lumberjack {
    fn name(&self) -> &'static str {
        "lumberjack"
    }

    fn endpoint(
        &self,
        role: &str,
        config: &Map<String, Value>,
    ) -> Result<Box<dyn Endpoint>, String> {
        match role {
            "reader" => {
                let reader = Reader::new(reader_config(config)?);
                Ok(Box::new(Machine::new(reader, ReaderRole::default())))
            }
            "writer" => {
                let writer = Writer::new(writer_config(config)?);
                Ok(Box::new(Machine::new(writer, WriterRole)))
            }
            _ => Err(format!("role {role}")),
        }
    }

    fn output_context(&self, role: &str, _config: &Map<String, Value>) -> Value {
        json!({"unit": "frame", "from": role})
    }
}

impl FrameCodec for Lumberjack {
    fn decode(&self, context: &Value, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        let (limits, from) = match frame_context(context) {
            Ok(context) => context,
            Err(wrong) => {
                decoded.error = Some(wrong);
                return decoded;
            }
        };
        let mut rest = bytes;
        loop {
            match frame::decode(rest, &limits, from) {
                Ok(Some((frame, len))) => {
                    decoded.frames.push(frame_value(&frame));
                    rest = &rest[len..];
                }
                Ok(None) => break,
                Err(kind) => {
                    decoded.error = Some(name(&kind));
                    break;
                }
            }
        }
        decoded.rest = rest.len();
        decoded
    }

    fn encode(&self, _context: &Value, frames: &[Value]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for frame in frames {
            frame::encode(&frame_of(frame)?, 3, &mut out);
        }
        Ok(out)
    }
}

fn name(kind: &Kind) -> String {
    use ackline_core::ErrorKind as _;
    kind.code().trim_start_matches("lumberjack.").to_owned()
}

fn frame_context(context: &Value) -> Result<(Limits, From), String> {
    let map = context.as_object().ok_or("no context")?;
    let mut limits = Limits::default();
    let mut from = None;
    for (key, value) in map {
        match (key.as_str(), value.as_str()) {
            ("unit", Some("frame")) => {}
            ("from", Some("writer")) => from = Some(From::Writer),
            ("from", Some("reader")) => from = Some(From::Reader),
            ("limits", _) => read_limits(value, &mut limits)?,
            _ => return Err(format!("context {key}: {value}")),
        }
    }
    from.map(|from| (limits, from))
        .ok_or_else(|| "context without from".to_owned())
}

fn read_limits(value: &Value, limits: &mut Limits) -> Result<(), String> {
    for (key, value) in value.as_object().ok_or("limits")? {
        let number = value
            .as_u64()
            .ok_or_else(|| format!("limit {key}: {value}"))?;
        let size = usize::try_from(number).map_err(|error| error.to_string())?;
        let count = u32::try_from(number).unwrap_or(u32::MAX);
        match key.as_str() {
            "window" => limits.max_window_events = count,
            "json" => limits.max_json_bytes = size,
            "data" => limits.max_data_bytes = size,
            "compressed" => limits.max_compressed_bytes = size,
            "inflated" => limits.max_inflated_bytes = size,
            "pairs" => limits.max_pairs = count,
            "field" => limits.max_field_bytes = size,
            _ => return Err(format!("limit {key}")),
        }
    }
    Ok(())
}

fn millis(key: &str, value: &Value) -> Result<Option<Duration>, String> {
    let number = value
        .as_u64()
        .ok_or_else(|| format!("config {key}: {value}"))?;
    Ok(Some(Duration::from_millis(number)))
}

fn reader_config(map: &Map<String, Value>) -> Result<ReaderConfig, String> {
    let mut config = ReaderConfig::bare();
    for (key, value) in map {
        match (key.as_str(), value.as_str()) {
            ("keepalive_ms", _) => config.keepalive = millis(key, value)?,
            ("tail_idle_ms", _) => config.tail_idle = millis(key, value)?,
            ("stall_timeout_ms", _) => config.stall_timeout = millis(key, value)?,
            ("idle_timeout_ms", _) => config.idle_timeout = millis(key, value)?,
            ("first_byte_timeout_ms", _) => config.first_byte_timeout = millis(key, value)?,
            ("no_window", Some("accept")) => config.no_window = NoWindow::Accept,
            ("no_window", Some("refuse")) => config.no_window = NoWindow::Refuse,
            ("limits", _) => read_limits(value, &mut config.limits)?,
            _ => return Err(format!("config {key}: {value}")),
        }
    }
    Ok(config)
}

fn writer_config(map: &Map<String, Value>) -> Result<WriterConfig, String> {
    let mut config = WriterConfig::bare();
    let mut next = 1;
    for (key, value) in map {
        let odd = || format!("config {key}: {value}");
        match (key.as_str(), value) {
            ("version", _) => config.version = version_of(value)?,
            ("compression", Value::Bool(on)) => config.compression = on.then_some(3),
            ("sequence", Value::String(mode)) if mode == "per_window" => {}
            ("sequence", Value::String(mode)) if mode == "cumulative" => {
                config.sequence = SequenceMode::Cumulative { next: 1 };
            }
            ("next_sequence_number", _) => next = number(value)?,
            ("max_in_flight", _) => {
                config.max_in_flight = usize::try_from(number(value)?).map_err(|_| odd())?;
            }
            ("max_in_flight_events", _) => config.max_in_flight_events = Some(number(value)?),
            ("max_in_flight_bytes", _) => {
                config.max_in_flight_bytes = Some(number(value)?.into());
            }
            ("slow_start", _) => config.slow_start = Some(number(value)?),
            ("max_window", _) => config.max_window = number(value)?,
            ("accept_count_acks", Value::Bool(on)) => config.accept_count_acks = *on,
            ("read_timeout_ms", _) => config.read_timeout = millis(key, value)?,
            ("progress_timeout_ms", _) => config.progress_timeout = millis(key, value)?,
            _ => return Err(odd()),
        }
    }
    if config.sequence != SequenceMode::PerWindow {
        config.sequence = SequenceMode::Cumulative { next };
    }
    Ok(config)
}

fn number(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| format!("a 32-bit number: {value}"))
}

fn version_of(value: &Value) -> Result<Version, String> {
    match value.as_u64() {
        Some(1) => Ok(Version::V1),
        Some(2) => Ok(Version::V2),
        _ => Err(format!("version {value}")),
    }
}

fn refused<T>(result: Result<T, UsageError>) -> Result<T, CallError> {
    result.map_err(|error| CallError::Refused(error.code.to_owned()))
}

fn odd_call(verb: &str, args: &Map<String, Value>) -> CallError {
    CallError::NotUnderstood(format!("{verb} {args:?}"))
}

#[derive(Default)]
struct ReaderRole {
    expander: Expander,
}

impl Role for ReaderRole {
    type Connection = Reader;

    fn call(
        &mut self,
        reader: &mut Reader,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        match (verb, args.len(), args.get("window").and_then(Value::as_u64)) {
            ("ack", 1, Some(window)) => refused(reader.ack(now, window))?,
            ("stop", 0, None) => reader.stop(now),
            _ => return Err(odd_call(verb, args)),
        }
        Ok(Value::Null)
    }

    fn event(&mut self, event: Event) -> Option<Value> {
        let Event::Window(window) = event else {
            return None;
        };
        let mut records = Vec::new();
        window
            .for_each_record(&mut self.expander, |record| {
                records.push(record_value(&record));
            })
            .expect("the reader has checked these bytes");
        check_facts(&window, &records);
        Some(json!({
            "event": "window",
            "window": window.id,
            "version": window.version.number(),
            "window_size": window.window_size,
            "records": records,
        }))
    }
}

/// A window's counts match its bytes.
fn check_facts(window: &Window, records: &[Value]) {
    let sequence = |record: Option<&Value>| record.map(|record| record["sequence_number"].clone());
    assert_eq!(records.len(), window.records as usize);
    assert_eq!(
        sequence(records.first()),
        Some(window.first_sequence.into())
    );
    assert_eq!(sequence(records.last()), Some(window.last_sequence.into()));
}

struct WriterRole;

impl Role for WriterRole {
    type Connection = Writer;

    fn call(
        &mut self,
        writer: &mut Writer,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        match (
            verb,
            args.len(),
            args.get("records").and_then(Value::as_array),
        ) {
            ("send_window", 1, Some(records)) => {
                let records: Result<Vec<_>, _> = records.iter().map(out_record).collect();
                let records = records.map_err(CallError::NotUnderstood)?;
                refused(writer.send_window(now, &records)).map(Value::from)
            }
            ("unacknowledged", 0, None) => Ok(writer.unacknowledged().into()),
            ("window_size", 0, None) => Ok(writer.window_size().into()),
            ("finish", 0, None) => {
                writer.finish(now);
                Ok(Value::Null)
            }
            _ => Err(odd_call(verb, args)),
        }
    }

    fn event(&mut self, event: WriterEvent) -> Option<Value> {
        Some(match event {
            WriterEvent::Acknowledged { window } => {
                json!({"event": "acknowledged", "window": window})
            }
            WriterEvent::Unacknowledged { window, from } => {
                json!({"event": "unacknowledged", "window": window, "from": from})
            }
        })
    }
}

fn out_record(value: &Value) -> Result<OutRecord, String> {
    let map = value.as_object().ok_or("a record")?;
    match (map.get("payload"), map.get("pairs"), map.len()) {
        (Some(payload), None, 1) => Ok(OutRecord::Json(bytes_of(payload)?.into())),
        (None, Some(pairs), 1) => Ok(OutRecord::Data(pairs_of(pairs)?)),
        _ => Err(format!("record {value}")),
    }
}

fn pairs_of(value: &Value) -> Result<Vec<(Bytes, Bytes)>, String> {
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([key, value]) => Ok((bytes_of(key)?.into(), bytes_of(value)?.into())),
        _ => Err(format!("pair {pair}")),
    };
    value.as_array().ok_or("pairs")?.iter().map(pair).collect()
}

fn record_value(record: &Record<'_>) -> Value {
    match record {
        Record::Json { sequence, payload } => {
            json!({"type": "json", "sequence_number": sequence, "payload": to_hex(payload)})
        }
        Record::Data { sequence, pairs } => {
            let pairs: Vec<Value> = pairs
                .clone()
                .map(|(key, value)| json!([to_hex(key), to_hex(value)]))
                .collect();
            json!({"type": "data", "sequence_number": sequence, "pairs": pairs})
        }
    }
}

fn frame_value(frame: &Frame) -> Value {
    match frame {
        Frame::Window {
            version,
            window_size,
        } => json!({"type": "window", "version": version.number(), "window_size": window_size}),
        Frame::Ack {
            version,
            sequence_number,
        } => {
            json!({"type": "ack", "version": version.number(), "sequence_number": sequence_number})
        }
        Frame::Compressed { version, frames } => {
            let frames: Vec<Value> = frames.iter().map(frame_value).collect();
            json!({"type": "compressed", "version": version.number(), "frames": frames})
        }
        Frame::Json {
            version,
            sequence_number,
            payload,
        } => json!({"type": "json", "version": version.number(),
            "sequence_number": sequence_number, "payload": to_hex(payload)}),
        Frame::Data {
            version,
            sequence_number,
            pairs,
        } => {
            let pairs: Vec<Value> = pairs
                .iter()
                .map(|(key, value)| json!([to_hex(key), to_hex(value)]))
                .collect();
            json!({"type": "data", "version": version.number(),
                "sequence_number": sequence_number, "pairs": pairs})
        }
    }
}

fn frame_of(value: &Value) -> Result<Frame, String> {
    let member = |name: &str| {
        value
            .get(name)
            .ok_or_else(|| format!("no {name} in {value}"))
    };
    let version = version_of(member("version")?)?;
    let kind = member("type")?.as_str().unwrap_or_default();
    if kind == "window" {
        let window_size = number(member("window_size")?)?;
        return Ok(Frame::Window {
            version,
            window_size,
        });
    }
    let sequence_number = number(member("sequence_number")?)?;
    match kind {
        "ack" => Ok(Frame::Ack {
            version,
            sequence_number,
        }),
        "json" => Ok(Frame::Json {
            version,
            sequence_number,
            payload: bytes_of(member("payload")?)?.into(),
        }),
        "data" => Ok(Frame::Data {
            version,
            sequence_number,
            pairs: pairs_of(member("pairs")?)?,
        }),
        _ => Err(format!("type {kind}")),
    }
}
