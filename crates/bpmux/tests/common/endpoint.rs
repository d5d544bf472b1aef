//! The part of the adapter for conversations.
#![allow(clippy::disallowed_methods)] // a test needs some instant

use std::time::Instant;

use ackline_bpmux::{Config, Connection, EntityKind, Event, Target};
use ackline_core::{Payload, UsageError};
use ackline_testkit::vectors::{CallError, Endpoint, Machine, Role, bytes_of, to_hex};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{number, read_limits};

pub(crate) fn endpoint(
    role: &str,
    members: &Map<String, Value>,
) -> Result<Box<dyn Endpoint>, String> {
    if role != "endpoint" {
        return Err(format!("role {role}"));
    }
    let mut config = Config::default();
    for (key, value) in members {
        match (key.as_str(), value) {
            ("chunk_size", _) => config.chunk_size = number(value)?,
            ("limits", Value::Object(map)) => read_limits(map, &mut config.limits)?,
            _ => return Err(format!("config {key}: {value}")),
        }
    }
    let connection = Connection::new(Instant::now(), config);
    Ok(Box::new(Machine::new(connection, End)))
}

struct End;

impl Role for End {
    type Connection = Connection;

    fn call(
        &mut self,
        connection: &mut Connection,
        _now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        let mut args = Args(args.clone());
        let payload = args.0.remove("payload");
        let payload = payload.map(|value| bytes_of(&value).map(Bytes::from));
        let payload = payload.transpose().map_err(CallError::NotUnderstood);
        let payload = || payload.clone().map(Option::unwrap_or_default);
        let result = match verb {
            "open_sink" => connection.open(EntityKind::Sink, args.id()?, payload()?),
            "open_stream" => connection.open(EntityKind::Stream, args.id()?, payload()?),
            "open_duplex" => connection.open(EntityKind::Duplex, args.id()?, payload()?),
            "send" => connection.send(args.target()?, payload()?),
            "request" => connection.request(args.id()?, payload()?),
            "respond" => connection.respond(args.id()?, payload()?),
            "cancel_request" => connection.cancel_request(args.id()?, payload()?),
            "close_response" => connection.close_response(args.id()?, payload()?),
            "close" => connection.close(args.target()?, payload()?),
            "cancel" => connection.cancel(args.target()?, payload()?),
            "grant_credit" => connection.grant_credit(args.target()?, args.take("amount")?),
            "ping" => connection.ping(args.target()?),
            "ping_request" => connection.ping_request(args.id()?),
            "credit" => {
                let credit = connection.credit(args.target()?).map_err(refused)?;
                args.all_taken()?;
                return Ok(credit.into());
            }
            _ => return Err(CallError::NotUnderstood(format!("verb {verb}"))),
        };
        args.all_taken()?;
        result.map(|()| Value::Null).map_err(refused)
    }

    fn event(&mut self, event: Event) -> Option<Value> {
        Some(match event {
            Event::Opened { kind, id, payload } => {
                json!({"event": "opened", "kind": kind.name(), "id": id, "payload": hex(&payload)})
            }
            Event::Message { target, payload } => about("message", target, Some(payload)),
            Event::Part {
                target, payload, ..
            } => about("part", target, Some(payload)),
            Event::Closed { target, payload } => about("closed", target, Some(payload)),
            Event::Cancelled { target, payload } => about("cancelled", target, Some(payload)),
            Event::Request { id, payload } => of("request", id, Some(payload)),
            Event::Response { id, payload } => of("response", id, Some(payload)),
            Event::RequestCancelled { id, payload } => of("request_cancelled", id, Some(payload)),
            Event::ResponseClosed { id, payload } => of("response_closed", id, Some(payload)),
            Event::CloseAcknowledged { target } => about("close_acknowledged", target, None),
            Event::CancelAcknowledged { target } => about("cancel_acknowledged", target, None),
            Event::RequestCancelAcknowledged { id } => of("request_cancel_acknowledged", id, None),
            Event::ResponseCloseAcknowledged { id } => of("response_close_acknowledged", id, None),
            Event::Pong { target } => about("pong", target, None),
            Event::RequestPong { id } => of("request_pong", id, None),
            _ => return None,
        })
    }
}

fn refused(error: UsageError) -> CallError {
    CallError::Refused(error.code.to_owned())
}

fn hex(payload: &Payload) -> String {
    to_hex(&payload.to_bytes())
}

fn about(name: &str, target: Target, payload: Option<Payload>) -> Value {
    let target = match target {
        Target::Top => json!("top"),
        Target::Own(id) => json!({ "own": id }),
        Target::Peer(id) => json!({ "peer": id }),
    };
    with(json!({"event": name, "target": target}), payload)
}

fn of(name: &str, id: u32, payload: Option<Payload>) -> Value {
    with(json!({"event": name, "id": id}), payload)
}

fn with(mut event: Value, payload: Option<Payload>) -> Value {
    if let Some(payload) = payload {
        event["payload"] = hex(&payload).into();
    }
    event
}

/// The arguments of a call, each taken once.
struct Args(Map<String, Value>);

impl Args {
    fn take<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, CallError> {
        let value = self.0.remove(name).unwrap_or_default();
        number(&value).map_err(CallError::NotUnderstood)
    }

    fn id(&mut self) -> Result<u32, CallError> {
        self.take("id")
    }

    fn target(&mut self) -> Result<Target, CallError> {
        let wrong = |value: &Value| CallError::NotUnderstood(format!("target {value}"));
        let value = self.0.remove("target").unwrap_or_default();
        if value == "top" {
            return Ok(Target::Top);
        }
        let (own, peer) = (&value["own"], &value["peer"]);
        match (own.is_null(), peer.is_null()) {
            (false, true) => number(own).map(Target::Own),
            (true, false) => number(peer).map(Target::Peer),
            _ => return Err(wrong(&value)),
        }
        .map_err(|_| wrong(&value))
    }

    fn all_taken(&self) -> Result<(), CallError> {
        match self.0.keys().find(|key| *key != "verb") {
            None => Ok(()),
            Some(key) => Err(CallError::NotUnderstood(format!("argument {key}"))),
        }
    }
}
