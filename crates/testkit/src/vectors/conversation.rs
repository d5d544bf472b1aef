//! Conversations: one endpoint driven by a script, its bytes delivered in every way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ackline_core::described::{Described, Shape};
use serde_json::{Map, Value};

use super::machine::Endpoint;
use super::{
    CallError, End, Wrong, agrees, bytes_of, cuts, decode, known, list, object, plain, to_hex,
    without_nulls,
};

enum Stimulus {
    Call {
        verb: String,
        args: Map<String, Value>,
    },
    Receive(Vec<u8>),
    Advance(Duration),
    Eof,
}

struct Step {
    stimulus: Stimulus,
    connection: u64,
    hold: bool,
    expect: Seen,
}

/// The expectation of a stimulus, or the result seen after it.
#[derive(Debug, Default)]
struct Seen {
    /// By connection; those that emitted nothing are left out.
    transmit: BTreeMap<u64, Vec<u8>>,
    transmit_frames: Option<Vec<Value>>,
    events: Vec<Value>,
    returns: Option<Value>,
    refused: Option<String>,
    ends: BTreeMap<u64, End>,
}

impl Seen {
    fn emitted(&mut self, connection: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            let transmit = self.transmit.entry(connection).or_default();
            transmit.extend_from_slice(bytes);
        }
    }

    fn transmit_hex(&self) -> String {
        let hex = |(connection, bytes): (&u64, &Vec<u8>)| match connection {
            1 => to_hex(bytes),
            _ => format!("{connection}: {}", to_hex(bytes)),
        };
        let all: Vec<String> = self.transmit.iter().map(hex).collect();
        all.join(", ")
    }
}

/// The delivery of a conversation's bytes.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    Whole,
    CutAt { step: usize, at: usize },
    ByteByByte,
}

pub(super) fn run_conversation(
    protocol: &dyn Described,
    conversation: &Value,
    splits: &mut usize,
) -> Result<(), Wrong> {
    const MEMBERS: [&str; 7] = [
        "name", "source", "covers", "role", "config", "note", "steps",
    ];
    let conversation = object(conversation)?;
    known(conversation, &MEMBERS)?;
    let role = conversation
        .get("role")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let none = Map::new();
    let config = match conversation.get("config") {
        Some(config) => object(config)?,
        None => &none,
    };
    let steps = parse(list(conversation.get("steps"), "steps")?)?;
    let deliver = |delivery| {
        let now = Instant::now();
        let endpoint = Endpoint::open(protocol, role, config, now)
            .map_err(|came| Wrong::new("a config that is understood", came))?;
        let run = Run {
            protocol,
            endpoint,
            context: output_context(protocol, role, config),
            now,
            reported: BTreeSet::new(),
        };
        run.all(&steps, delivery)
    };
    deliver(Delivery::Whole).map_err(|wrong| wrong.at(", whole"))?;
    *splits += 1;
    deliver(Delivery::ByteByByte).map_err(|wrong| wrong.at(", byte by byte"))?;
    for (step, Step { stimulus, .. }) in steps.iter().enumerate() {
        let Stimulus::Receive(bytes) = stimulus else {
            continue;
        };
        for at in cuts(bytes.len()) {
            *splits += 1;
            deliver(Delivery::CutAt { step, at })
                .map_err(|wrong| wrong.at(&format!(", step {step} cut at {at}")))?;
        }
    }
    Ok(())
}

/// The context in which a role's output is decoded: the options of the config that a decoder has too, and the unit
/// of a connection that is under way, which a description lists last.
fn output_context(protocol: &dyn Described, role: &str, config: &Map<String, Value>) -> Value {
    let mut context = Map::new();
    for field in protocol.decoding().fields() {
        if let ("unit", Shape::Word([.., unit])) = (field.name, field.shape) {
            context.insert("unit".to_owned(), (*unit).into());
        } else if let Some(value) = config.get(field.name) {
            context.insert(field.name.to_owned(), value.clone());
        }
    }
    if protocol.roles().len() > 1 {
        context.insert("from".to_owned(), role.into());
    }
    context.into()
}

fn parse(steps: &[Value]) -> Result<Vec<Step>, Wrong> {
    let mut parsed: Vec<Step> = Vec::new();
    for step in steps {
        let map = object(step)?;
        if let Some(stimulus) = parse_stimulus(map)? {
            parsed.push(Step {
                stimulus,
                connection: connection_of(map)?,
                hold: map.get("hold") == Some(&Value::Bool(true)),
                expect: Seen::default(),
            });
            continue;
        }
        let Some(last) = parsed.last_mut() else {
            return Err(Wrong::new("a stimulus first", step));
        };
        parse_expectation(map, &mut last.expect)?;
    }
    Ok(parsed)
}

fn connection_of(map: &Map<String, Value>) -> Result<u64, Wrong> {
    match map.get("connection") {
        None => Ok(1),
        Some(number) => number
            .as_u64()
            .filter(|number| *number > 0)
            .ok_or_else(|| Wrong::new("a connection from 1", number)),
    }
}

fn parse_stimulus(map: &Map<String, Value>) -> Result<Option<Stimulus>, Wrong> {
    let Some(name) = ["call", "recv", "advance_ms", "eof"]
        .iter()
        .find(|name| map.contains_key(**name))
    else {
        return Ok(None);
    };
    known(map, &[name, "hold", "connection", "note"])?;
    let value = &map[*name];
    let wrong = || Wrong::new("a step that is understood", format!("{name}: {value}"));
    Ok(Some(match *name {
        "call" => {
            let mut args = object(value)?.clone();
            let Some(Value::String(verb)) = args.remove("verb") else {
                return Err(wrong());
            };
            Stimulus::Call { verb, args }
        }
        "recv" => Stimulus::Receive(bytes_of(value).map_err(|came| Wrong::new("bytes", came))?),
        "advance_ms" => Stimulus::Advance(Duration::from_millis(value.as_u64().ok_or_else(wrong)?)),
        _ if *value == Value::Bool(true) => Stimulus::Eof,
        _ => return Err(wrong()),
    }))
}

fn parse_expectation(map: &Map<String, Value>, expect: &mut Seen) -> Result<(), Wrong> {
    let text = |value: &Value| match value.as_str() {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Wrong::new("a name", value)),
    };
    let connection = connection_of(map)?;
    for (name, value) in map {
        match name.as_str() {
            "transmit" => {
                let bytes = bytes_of(value).map_err(|came| Wrong::new("bytes", came))?;
                expect.emitted(connection, &bytes);
            }
            "transmit_frames" => {
                let frames = plain(value);
                expect.transmit_frames = Some(list(Some(&frames), name)?.to_vec());
            }
            "events" => expect
                .events
                .extend_from_slice(list(Some(&plain(value)), name)?),
            "returns" => expect.returns = Some(without_nulls(plain(value))),
            "refused" => expect.refused = text(value)?,
            "error" => {
                let end = text(value)?.map(End::Error);
                expect.ends.extend(end.map(|end| (connection, end)));
            }
            "closed" if *value == Value::Bool(true) => {
                expect.ends.insert(connection, End::Closed);
            }
            "note" | "connection" => {}
            _ => {
                return Err(Wrong::new(
                    "a step that is understood",
                    format!("{name}: {value}"),
                ));
            }
        }
    }
    Ok(())
}

/// One conversation in progress.
struct Run<'a> {
    protocol: &'a dyn Described,
    endpoint: Endpoint,
    context: Value,
    now: Instant,
    /// Connections whose end was seen.
    reported: BTreeSet<u64>,
}

impl Run<'_> {
    fn all(mut self, steps: &[Step], delivery: Delivery) -> Result<(), Wrong> {
        let mut first = Seen::default();
        self.take(false, &mut first);
        if !first.transmit.is_empty() || !first.events.is_empty() {
            return Err(Wrong::new(
                "nothing before the first step",
                format!("{first:?}"),
            ));
        }
        for (at, step) in steps.iter().enumerate() {
            let came = self.stimulate(at, step, delivery)?;
            self.compare(&step.expect, &came)
                .map_err(|wrong| wrong.at(&format!(", step {at}")))?;
        }
        Ok(())
    }

    fn stimulate(&mut self, at: usize, step: &Step, delivery: Delivery) -> Result<Seen, Wrong> {
        let mut seen = Seen::default();
        self.endpoint.select(step.connection);
        match &step.stimulus {
            Stimulus::Call { verb, args } => match self.endpoint.call(self.now, verb, args) {
                Ok(value) => seen.returns = Some(value),
                Err(CallError::Refused(name)) => seen.refused = Some(name),
                Err(CallError::NotUnderstood(what)) => {
                    return Err(Wrong::new("a call that is understood", what));
                }
            },
            Stimulus::Receive(bytes) => {
                let cut = match delivery {
                    Delivery::CutAt { step, at: cut } if step == at => cut,
                    Delivery::ByteByByte => 1,
                    _ => bytes.len().max(1),
                };
                let (first, rest) = bytes.split_at(cut.min(bytes.len()));
                let next = match delivery {
                    Delivery::ByteByByte => 1,
                    _ => rest.len().max(1),
                };
                for part in std::iter::once(first).chain(rest.chunks(next)) {
                    self.endpoint.select(step.connection);
                    if self.endpoint.end().is_none() {
                        self.endpoint.receive(self.now, part);
                        self.take(step.hold, &mut seen);
                    }
                }
            }
            Stimulus::Advance(by) => self.advance(*by, step.hold, &mut seen)?,
            Stimulus::Eof => self.endpoint.eof(self.now),
        }
        self.take(step.hold, &mut seen);
        for connection in 1..=self.endpoint.connections() {
            self.endpoint.select(connection);
            match self.endpoint.end() {
                Some(end) if self.reported.insert(connection) => {
                    seen.ends.insert(connection, end);
                }
                Some(_) => {}
                None => {
                    self.reported.remove(&connection);
                }
            }
        }
        Ok(seen)
    }

    fn advance(&mut self, by: Duration, hold: bool, seen: &mut Seen) -> Result<(), Wrong> {
        let target = self.now + by;
        let mut fired = 0;
        while let Some(due) = self.endpoint.next_timeout().filter(|due| *due <= target) {
            self.now = self.now.max(due);
            self.endpoint.handle_timeout(self.now);
            self.take(hold, seen);
            fired += 1;
            if fired > MOST_TIMERS {
                return Err(Wrong::new("a timer that moves on", "one that stays due"));
            }
        }
        self.now = target;
        Ok(())
    }

    fn take(&mut self, hold: bool, seen: &mut Seen) {
        for connection in 1..=self.endpoint.connections() {
            if !hold {
                let mut bytes = Vec::new();
                self.endpoint.select(connection);
                self.endpoint.take_output(self.now, &mut bytes);
                seen.emitted(connection, &bytes);
            }
        }
        seen.events.extend(self.endpoint.take_events());
    }

    fn compare(&self, expect: &Seen, came: &Seen) -> Result<(), Wrong> {
        let differs = |what: &str, expected: String, came: String| {
            Err(Wrong::new(
                format!("{what} {expected}"),
                format!("{what} {came}"),
            ))
        };
        if let Some(frames) = &expect.transmit_frames {
            let bytes = came.transmit.get(&1).map_or(&[][..], Vec::as_slice);
            let decoded = decode(self.protocol, &self.context, bytes);
            let expected = Value::Array(frames.clone());
            let sound = decoded.error.is_none() && decoded.rest == 0;
            if !sound || !agrees(&expected, &Value::Array(decoded.frames.clone())) {
                return differs(
                    "transmit_frames",
                    expected.to_string(),
                    format!("{decoded:?}"),
                );
            }
        } else if expect.transmit != came.transmit {
            return differs("transmit", expect.transmit_hex(), came.transmit_hex());
        }
        let (expected, events) = (
            Value::Array(expect.events.clone()),
            Value::Array(came.events.clone()),
        );
        if !agrees(&expected, &events) {
            return differs("events", expected.to_string(), events.to_string());
        }
        if expect.returns.is_some() && expect.returns != came.returns {
            return differs(
                "returns",
                format!("{:?}", expect.returns),
                format!("{:?}", came.returns),
            );
        }
        let ends = |seen: &Seen| (seen.refused.clone(), seen.ends.clone());
        if ends(expect) != ends(came) {
            let (expected, came) = (ends(expect), ends(came));
            return differs(
                "(refused, ends)",
                format!("{expected:?}"),
                format!("{came:?}"),
            );
        }
        Ok(())
    }
}

/// More timers than this in one step are a timer that does not move.
const MOST_TIMERS: usize = 100_000;
