//! One direction of a recorded connection, frame by frame, and the texts inside frames, for tools.

use ackline_core::{Fraction, Inspect, Inspected, Members, Spans, Value};
use bytes::{Bytes, BytesMut};

use super::{Frame, Handshake, Stop, decode, decode_handshake, is_error};
use crate::filter::Filter;
use crate::text::{
    self, Number, Properties, Property, read_command, read_extensions, read_properties,
};
use crate::{Kind, Limits};

/// The kind of thing that an inspector reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Unit {
    /// The handshakes of a side first, and then frames: everything that this side sends. A client sends two handshakes.
    Connection {
        /// Handshakes that are still to come.
        handshakes: u8,
    },
    /// Frames.
    #[default]
    Frame,
    /// Handshakes.
    Handshake,
    /// A list of extensions, and nothing else.
    ExtensionList,
    /// The properties of a message, and nothing else.
    PropertyList,
    /// A command, and nothing else.
    CommandLine,
    /// A filter, and nothing else; and whether properties match it, if there are any.
    Filter(Option<String>),
}

/// Reads what one side sent. Members have the names of the conformance vectors.
#[derive(Debug, Clone, Default)]
pub struct Inspector {
    limits: Limits,
    unit: Unit,
}

impl Inspector {
    /// Begins at any frame or handshake, or at the beginning of a text.
    pub const fn new(limits: Limits, unit: Unit) -> Self {
        Self { limits, unit }
    }

    fn text(&self, text: &[u8]) -> Result<(&'static str, Members), Kind> {
        Ok(match &self.unit {
            Unit::ExtensionList => {
                let extensions = read_extensions(text)?;
                (
                    "extension_list",
                    vec![("extensions", extensions_of(&extensions))],
                )
            }
            Unit::PropertyList => {
                let properties = read_properties(text)?;
                (
                    "property_list",
                    vec![("properties", properties_of(&properties))],
                )
            }
            Unit::CommandLine => {
                let command = read_command(text)?;
                let properties = pairs_of(&command.properties);
                let members = vec![
                    ("name", Value::Text(command.name)),
                    ("properties", properties),
                ];
                ("command_line", members)
            }
            Unit::Filter(properties) => {
                let filter = Filter::read(text)?;
                let mut members = vec![("conditions", conditions_of(&filter))];
                if let Some(properties) = properties {
                    let matches = filter.matches(&Properties::new(properties.as_bytes()));
                    members.push(("matches", matches.into()));
                }
                ("filter", members)
            }
            Unit::Connection { .. } | Unit::Frame | Unit::Handshake => ("frame", Vec::new()),
        })
    }
}

impl Inspect for Inspector {
    type Kind = Kind;

    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        if self.is_whole() {
            let bytes = input.split().freeze();
            let (name, members) = self.text(&bytes)?;
            let mut spans = Spans::new();
            spans.push(bytes.len(), name);
            return Ok(Some(Inspected {
                name,
                bytes,
                members,
                spans: spans.into_vec(),
            }));
        }
        let Some(first) = input.first() else {
            return Ok(None);
        };
        let is_handshake = match self.unit {
            Unit::Connection { handshakes } => handshakes > 0,
            _ => self.unit == Unit::Handshake,
        };
        let found = if is_handshake && !is_error(*first) {
            decode_handshake(input).map(|(handshake, len)| {
                let members = handshake_of(&handshake, input);
                ("handshake", members, len, 0)
            })
        } else {
            decode(input, &self.limits).map(|(frame, len)| {
                let (name, members, payload) = frame_of(&frame, input);
                (name, members, len, payload)
            })
        };
        let (name, members, len, payload) = match found {
            Ok(found) => found,
            Err(Stop::More(_)) => return Ok(None),
            Err(Stop::Wrong(kind)) => return Err(kind),
        };
        if let Unit::Connection { handshakes } = &mut self.unit {
            *handshakes = handshakes.saturating_sub(1);
        }
        let mut spans = Spans::new();
        spans.push(len.saturating_sub(payload), label(name, &members));
        spans.push(payload, "payload");
        Ok(Some(Inspected {
            name,
            bytes: input.split_to(len).freeze(),
            members,
            spans: spans.into_vec(),
        }))
    }

    fn is_whole(&self) -> bool {
        !matches!(
            self.unit,
            Unit::Connection { .. } | Unit::Frame | Unit::Handshake
        )
    }
}

/// The name of a frame with its numbers and short texts, as the label of its bytes before the payload.
fn label(name: &str, members: &Members) -> String {
    let shown = members.iter().filter_map(|(member, value)| match value {
        Value::Number(number) => Some(format!(", {member} {number}")),
        Value::Text(text) if !text.is_empty() && text.len() <= 100 => {
            Some(format!(", {member} {text:?}"))
        }
        Value::Flag(true) => Some(format!(", {member}")),
        _ => None,
    });
    format!("{name}{}", shown.collect::<String>())
}

fn handshake_of(handshake: &Handshake, input: &[u8]) -> Members {
    let text = |range: &std::ops::Range<usize>| shown(input, range);
    vec![
        ("major_version", u64::from(handshake.version.major).into()),
        ("minor_version", u64::from(handshake.version.minor).into()),
        ("identity", text(&handshake.identity)),
        ("required_extensions", text(&handshake.required)),
        ("optional_extensions", text(&handshake.optional)),
    ]
}

fn shown(input: &[u8], range: &std::ops::Range<usize>) -> Value {
    let text = input.get(range.clone()).unwrap_or_default();
    Value::Text(String::from_utf8_lossy(text).into_owned())
}

/// The name of a frame, its members, and the bytes of its payload.
fn frame_of(frame: &Frame, input: &[u8]) -> (&'static str, Members, usize) {
    let bytes = |range: &std::ops::Range<usize>| {
        let bytes = input.get(range.clone()).unwrap_or_default();
        Value::Bytes(Bytes::copy_from_slice(bytes))
    };
    match frame {
        Frame::Message(message) => {
            let members = vec![
                ("sequence_number", u64::from(message.sequence_number).into()),
                ("destination", shown(input, &message.destination)),
                ("properties", shown(input, &message.properties)),
                ("payload", bytes(&message.payload)),
                ("continued", message.is_continued.into()),
            ];
            ("message", members, message.payload.len())
        }
        Frame::Command { payload } => {
            let members = vec![("payload", shown(input, payload))];
            ("command", members, 0)
        }
        Frame::Extension { id, payload } => {
            let members = vec![("id", u64::from(*id).into()), ("payload", bytes(payload))];
            ("extension", members, payload.len())
        }
        Frame::Error { message } => ("error", vec![("message", shown(input, message))], 0),
    }
}

/// Pairs of names and values.
pub(crate) fn pairs_of(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| {
        Value::Map(vec![
            ("name", Value::Text(name.clone())),
            ("value", Value::Text(value.clone())),
        ])
    });
    Value::List(pairs.collect())
}

fn extensions_of(extensions: &[text::Extension]) -> Value {
    let extensions = extensions.iter().map(|one| {
        Value::Map(vec![
            ("name", Value::Text(one.name.clone())),
            ("properties", pairs_of(&one.properties)),
        ])
    });
    Value::List(extensions.collect())
}

fn properties_of(properties: &[(String, Property)]) -> Value {
    let properties = properties.iter().map(|(name, value)| {
        Value::Map(vec![("name", Value::Text(name.clone())), value_of(value)])
    });
    Value::List(properties.collect())
}

fn conditions_of(filter: &Filter) -> Value {
    let conditions = filter.conditions().iter().map(|one| {
        Value::Map(vec![
            ("name", Value::Text(one.name().to_owned())),
            ("operator", Value::Name(one.operator().symbol())),
            ("value", Value::Map(vec![value_of(one.value())])),
        ])
    });
    Value::List(conditions.collect())
}

/// A typed value, as one member of a map.
fn value_of(value: &Property) -> (&'static str, Value) {
    // The texts of the protocol write finite numbers alone.
    let fraction = |number| Fraction::new(number).map_or(Value::Nothing, Value::Fraction);
    match value {
        Property::Number(Number::Whole(number)) => ("number", Value::Signed(*number)),
        Property::Number(Number::Fraction(number)) => ("number", fraction(*number)),
        Property::Date(seconds) => ("date", fraction(*seconds)),
        Property::Text(text) => ("text", Value::Text(text.clone())),
    }
}
