//! One direction of a recorded connection, message by message, for tools.

use std::collections::BTreeMap;

use ackline_core::{Inspect, Inspected, Spans, Value};
use bytes::{Bytes, BytesMut};

use super::{ExtensionMessage, Field, FieldKind, Message, Streams, decode};
use crate::varint::{Cursor, Stop};
use crate::{Kind, Limits};

/// Reads the messages that one side sent. Members have the names of the conformance vectors.
///
/// The sizes of elements are learnt from the `subscribed` messages of that side.
#[derive(Debug, Clone, Default)]
pub struct Inspector {
    limits: Limits,
    known: Known,
    /// Reads single varints in place of messages.
    reads_varints: bool,
}

#[derive(Debug, Clone, Default)]
struct Known {
    element_sizes: BTreeMap<u64, u64>,
    messages: Vec<ExtensionMessage>,
}

impl Streams for Known {
    fn element_size(&self, subscriber: u64) -> Option<u64> {
        self.element_sizes.get(&subscriber).copied()
    }

    fn extension(&self, message_type: u64) -> Option<&[FieldKind]> {
        let found = self.messages.iter();
        let mut found = found.filter(|one| one.message_type == message_type);
        found.next().map(|one| one.fields.as_slice())
    }
}

impl Inspector {
    /// Begins at any message, with the messages of the extensions that are active.
    pub fn new(limits: Limits, messages: Vec<ExtensionMessage>) -> Self {
        Self {
            limits,
            known: Known {
                element_sizes: BTreeMap::new(),
                messages,
            },
            reads_varints: false,
        }
    }

    /// Sets the size of the elements of a subscription that was accepted before.
    #[must_use]
    pub fn with_element_size(mut self, subscriber: u64, element_size: u64) -> Self {
        self.known.element_sizes.insert(subscriber, element_size);
        self
    }

    /// Reads single varints, of which messages are made.
    pub fn varints() -> Self {
        Self {
            reads_varints: true,
            ..Self::default()
        }
    }

    fn varint(input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        let mut cursor = Cursor::new(input);
        let value = match cursor.varint() {
            Ok(value) => value,
            Err(Stop::More(_)) => return Ok(None),
            Err(Stop::Wrong(kind)) => return Err(kind),
        };
        let len = cursor.at();
        let mut spans = Spans::new();
        spans.push(len, format!("varint {value}"));
        Ok(Some(Inspected {
            name: "varint",
            bytes: input.split_to(len).freeze(),
            members: vec![("value", value.into())],
            spans: spans.into_vec(),
        }))
    }
}

impl Inspect for Inspector {
    type Kind = Kind;

    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        if self.reads_varints {
            return Self::varint(input);
        }
        let (message, len) = match decode(input, &self.limits, &self.known) {
            Ok(decoded) => decoded,
            Err(Stop::More(_)) => return Ok(None),
            Err(Stop::Wrong(kind)) => return Err(kind),
        };
        if let Message::Subscribed {
            subscriber,
            element_size,
        } = message
        {
            self.known.element_sizes.insert(subscriber, element_size);
        }
        let bytes = input.split_to(len).freeze();
        let (name, members, payload) = told(&message, &bytes);
        let mut spans = Spans::new();
        spans.push(len.saturating_sub(payload), label(name, &members));
        spans.push(payload, "element");
        Ok(Some(Inspected {
            name,
            bytes,
            members,
            spans: spans.into_vec(),
        }))
    }
}

/// The name of a message with its numbers, as the label of its bytes before an element.
fn label(name: &str, members: &[(&'static str, Value)]) -> String {
    let numbers = members.iter().filter_map(|(member, value)| match value {
        Value::Number(number) => Some(format!(", {member} {number}")),
        _ => None,
    });
    format!("{name}{}", numbers.collect::<String>())
}

/// The name of a message, its members, and the bytes of its element or elements at its end.
fn told(message: &Message, bytes: &Bytes) -> (&'static str, Vec<(&'static str, Value)>, usize) {
    let name = name(message);
    let (members, payload) = match message {
        Message::Next { .. } | Message::Packed { .. } | Message::Part { .. } => {
            elements(message, bytes)
        }
        _ => (members(message), 0),
    };
    (name, members, payload)
}

const fn name(message: &Message) -> &'static str {
    match message {
        Message::Hello { is_client, .. } if *is_client => "client_hello",
        Message::Hello { .. } => "server_hello",
        Message::Subscribe { .. } => "subscribe",
        Message::Request { .. } => "request",
        Message::Cancel { .. } => "cancel",
        Message::Subscribed { .. } => "subscribed",
        Message::Next { .. } => "on_next",
        Message::Complete { .. } => "on_complete",
        Message::Error { .. } => "on_error",
        Message::Packed { .. } => "on_next_packed",
        Message::Part { is_last, .. } if *is_last => "on_next_last_part",
        Message::Part { .. } => "on_next_part",
        Message::Goodbye { .. } => "goodbye",
        Message::Extension { .. } => "extension",
    }
}

/// The members of a message without elements.
fn members(message: &Message) -> Vec<(&'static str, Value)> {
    let about = |subscriber: &u64| ("subscriber", (*subscriber).into());
    let text = |text: &String| Value::Text(text.clone());
    match message {
        Message::Hello {
            version,
            extensions,
            ..
        } => {
            let extensions = extensions.iter().map(|id| Value::Number(*id)).collect();
            vec![
                ("version", (*version).into()),
                ("extensions", Value::List(extensions)),
            ]
        }
        Message::Subscribe {
            publisher,
            subscriber,
            initial_demand,
        } => vec![
            ("publisher", text(publisher)),
            about(subscriber),
            ("initial_demand", (*initial_demand).into()),
        ],
        Message::Request { subscriber, demand } => {
            vec![about(subscriber), ("demand", (*demand).into())]
        }
        Message::Subscribed {
            subscriber,
            element_size,
        } => vec![about(subscriber), ("element_size", (*element_size).into())],
        Message::Cancel { subscriber } | Message::Complete { subscriber } => {
            vec![about(subscriber)]
        }
        Message::Error { subscriber, error } => vec![about(subscriber), ("error", text(error))],
        Message::Goodbye { reason } => vec![("reason", text(reason))],
        Message::Extension {
            message_type,
            fields,
        } => {
            let fields = Value::List(fields.iter().map(field).collect());
            vec![("message_type", (*message_type).into()), ("fields", fields)]
        }
        Message::Next { .. } | Message::Packed { .. } | Message::Part { .. } => Vec::new(),
    }
}

/// The members of a message with elements, and their bytes.
fn elements(message: &Message, bytes: &Bytes) -> (Vec<(&'static str, Value)>, usize) {
    let slice = |range: &std::ops::Range<usize>| Value::Bytes(bytes.slice(range.clone()));
    let about = |subscriber: &u64| ("subscriber", (*subscriber).into());
    match message {
        Message::Next {
            subscriber,
            element,
        } => {
            let members = vec![about(subscriber), ("element", slice(element))];
            (members, element.len())
        }
        Message::Packed {
            subscriber,
            element_size,
            elements,
            ..
        } => {
            let all = bytes.slice(elements.clone());
            let messages = Value::List(apart(&all, *element_size).map(Value::Bytes).collect());
            let members = vec![about(subscriber), ("messages", messages)];
            (members, elements.len())
        }
        Message::Part {
            subscriber,
            element,
            data,
            ..
        } => {
            let element = ("element", (*element).into());
            let members = vec![about(subscriber), element, ("data", slice(data))];
            (members, data.len())
        }
        _ => (Vec::new(), 0),
    }
}

/// A field of an extension's message, as one member of a map.
pub(crate) fn field(field: &Field) -> Value {
    Value::Map(vec![match field {
        Field::Varint(value) => ("varint", (*value).into()),
        Field::String(text) => ("string", Value::Text(text.clone())),
        Field::Bytes(bytes) => ("bytes", Value::Bytes(bytes.clone())),
    }])
}

/// The elements of a fixed size in `all`.
pub(crate) fn apart(all: &Bytes, size: usize) -> impl Iterator<Item = Bytes> + '_ {
    let starts = (0..all.len()).step_by(size.max(1));
    starts.map(move |start| all.slice(start..start.saturating_add(size).min(all.len())))
}
