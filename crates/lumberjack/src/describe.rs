//! Lumberjack for tools: the verbs, events and options of both roles, and the frames, by name.

use std::time::Instant;

use ackline_core::described::{
    Args, Decoder, Described, Driven, Event as Told, Field, Inspecting, Machine, Misuse, OptionSet,
    Role, Schema, Shape, Vocabulary, side,
};
use ackline_core::options::{Options as _, Uses};
use ackline_core::{Members, Value};
use bytes::Bytes;

use crate::frame::{self, Frame, From};
use crate::{
    Event, Expander, Inspector, Kind, Limits, OutRecord, Reader, ReaderConfig, Record,
    SequenceMode, Version, Window, Writer, WriterConfig, WriterEvent,
};

/// Lumberjack as data.
#[derive(Debug, Clone, Copy)]
pub struct Description;

const VERSION: Field = Field::new("version", Shape::number(1, 2));
const WINDOW: Field = Field::new("window", Shape::U64);
const WINDOW_SIZE: Field = Field::new("window_size", Shape::U32);
const SEQUENCE: Field = Field::new("sequence_number", Shape::U32);
const PAYLOAD: Field = Field::new("payload", Shape::Bytes);
const PAIR_LIST: Shape = Shape::List(&Shape::Row(&[Shape::Bytes, Shape::Bytes]));
const PAIRS: Field = Field::new("pairs", PAIR_LIST);

/// An event that came: JSON, or pairs.
const RECORD: Shape = Shape::Map(&[
    Field::new("type", Shape::Word(&["json", "data"])),
    SEQUENCE,
    Field::option("payload", Shape::Bytes),
    Field::option("pairs", PAIR_LIST),
]);
/// An event to send: JSON, or pairs.
const OUT_RECORD: Shape = Shape::Map(&[
    Field::option("payload", Shape::Bytes),
    Field::option("pairs", PAIR_LIST),
]);

/// Limits that have shorter names in the vectors.
const LIMITS: &[(&str, &str)] = &[
    ("window", "max_window_events"),
    ("json", "max_json_bytes"),
    ("data", "max_data_bytes"),
    ("compressed", "max_compressed_bytes"),
    ("inflated", "max_inflated_bytes"),
    ("pairs", "max_pairs"),
    ("field", "max_field_bytes"),
];

const ROLES: &[Role] = &[
    Role {
        name: "reader",
        options: OptionSet {
            table: || ReaderConfig::default().rows(),
            uses: Uses::MACHINE,
            others: &[],
            limits: LIMITS,
        },
        verbs: &[
            Schema::new("ack", &[WINDOW]),
            Schema::new("stop", &[]),
            Schema::new("unacknowledged", &[]),
        ],
        events: &[Schema::new(
            "window",
            &[
                WINDOW,
                VERSION,
                WINDOW_SIZE,
                Field::new("records", Shape::List(&RECORD)),
            ],
        )],
    },
    Role {
        name: "writer",
        options: OptionSet {
            table: || WriterConfig::default().rows(),
            uses: Uses::MACHINE,
            others: &[
                // A level of zlib's; a flag stands for level 3 and for none.
                Field::switch(
                    "compression",
                    Shape::Either(&[Shape::number(0, 9), Shape::Flag]),
                ),
                Field::option("sequence", Shape::Word(&["per_window", "cumulative"])),
                Field::switch("next_sequence_number", Shape::U32),
            ],
            limits: &[],
        },
        verbs: &[
            Schema::new(
                "send_window",
                &[Field::new("records", Shape::List(&OUT_RECORD))],
            ),
            Schema::new("finish", &[]),
            Schema::new("unacknowledged", &[]),
            Schema::new("window_size", &[]),
            Schema::new("room", &[]),
        ],
        events: &[
            Schema::new("acknowledged", &[WINDOW]),
            Schema::new("unacknowledged", &[WINDOW, Field::new("from", Shape::U64)]),
        ],
    },
];

const PLAIN: &[Schema] = &[FRAME_WINDOW, FRAME_DATA, FRAME_JSON];
const FRAME_WINDOW: Schema = Schema::new("window", &[VERSION, WINDOW_SIZE]);
const FRAME_DATA: Schema = Schema::new("data", &[VERSION, SEQUENCE, PAIRS]);
const FRAME_JSON: Schema = Schema::new("json", &[VERSION, SEQUENCE, PAYLOAD]);
const FRAMES: &[Schema] = &[
    FRAME_WINDOW,
    FRAME_DATA,
    FRAME_JSON,
    Schema::new(
        "compressed",
        &[
            VERSION,
            Field::new("frames", Shape::Frames(PLAIN)),
            // Of zlib's, to encode with; 3.
            Field::option("level", Shape::number(0, 9)),
        ],
    ),
    Schema::new("ack", &[VERSION, SEQUENCE]),
];

const DECODING: OptionSet = OptionSet {
    table: || Limits::default().rows(),
    uses: Uses::DECODE,
    others: &[
        Field::option("unit", Shape::Word(&["frame"])),
        Field::option("max_frame_bytes", Shape::U64),
    ],
    limits: LIMITS,
};

impl Described for Description {
    fn name(&self) -> &'static str {
        "lumberjack"
    }

    fn roles(&self) -> &'static [Role] {
        ROLES
    }

    fn frames(&self) -> &'static [Schema] {
        FRAMES
    }

    fn decoding(&self) -> OptionSet {
        DECODING
    }

    fn open(&self, role: &str, now: Instant, options: &Args) -> Result<Box<dyn Machine>, Misuse> {
        Ok(match role {
            "reader" => Driven::boxed(
                now,
                Reader::new(reader_config(options)?),
                ReaderRole::default(),
            ),
            _ => Driven::boxed(now, Writer::new(writer_config(options)?), WriterRole),
        })
    }

    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        let from = side(sender, [("writer", From::Writer), ("reader", From::Reader)])?;
        let Some(most) = options.number("max_frame_bytes")? else {
            let mut limits = Limits::default();
            options.set_table(Uses::DECODE, &mut limits)?;
            return Ok(Box::new(Inspecting::new(Inspector::new(from, limits))));
        };
        let limits = Limits {
            max_window_events: u32::MAX,
            max_pairs: u32::MAX,
            max_json_bytes: most,
            max_data_bytes: most,
            max_compressed_bytes: most,
            max_inflated_bytes: most,
            max_field_bytes: most,
            ..Limits::default()
        };
        let (inspector, told) = (Inspector::new(from, limits), told);
        Ok(Box::new(Inspecting { inspector, told }))
    }

    fn encode(&self, frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let level = members.number("level")?.unwrap_or(3);
        frame::encode(&frame_of(frame, members)?, level, out);
        Ok(())
    }
}

/// A capture has one limit for all that is measured in bytes.
fn told(kind: Kind) -> Kind {
    match kind {
        Kind::FrameTooLarge(over) => Kind::FrameTooLarge(over.in_a_capture()),
        Kind::FieldTooLarge(over) => Kind::FieldTooLarge(over.in_a_capture()),
        Kind::InflatedTooLarge(over) => Kind::InflatedTooLarge(over.in_a_capture()),
        other => other,
    }
}

/// The configuration of a reader: no timers unless told otherwise.
fn reader_config(options: &Args) -> Result<ReaderConfig, Misuse> {
    let mut config = ReaderConfig::bare();
    options.set_table(Uses::MACHINE, &mut config)?;
    Ok(config)
}

/// The configuration of a writer: no timers unless told otherwise.
fn writer_config(options: &Args) -> Result<WriterConfig, Misuse> {
    let mut config = WriterConfig::bare();
    options.set_table(Uses::MACHINE, &mut config)?;
    match options.get("compression") {
        None | Some(Value::Flag(true)) => {}
        Some(_) => config.compression = options.number("compression")?,
    }
    let next = options.number("next_sequence_number")?;
    match options.text("sequence") {
        "per_window" => {}
        "cumulative" => {
            let next = next.unwrap_or(1);
            config.sequence = SequenceMode::Cumulative { next };
        }
        _ => {
            let cumulative = next.map(|next| SequenceMode::Cumulative { next });
            config.sequence = cumulative.unwrap_or(config.sequence);
        }
    }
    Ok(config)
}

fn version_of(args: &Args) -> Result<Version, Misuse> {
    Ok(match args.required("version")? {
        1_u8 => Version::V1,
        _ => Version::V2,
    })
}

#[derive(Default)]
struct ReaderRole {
    expander: Expander,
}

impl Vocabulary for ReaderRole {
    type Connection = Reader;

    fn call(
        &mut self,
        reader: &mut Reader,
        now: Instant,
        verb: &str,
        args: &Args,
    ) -> Result<Value, Misuse> {
        match verb {
            "ack" => reader.ack(now, args.required("window")?)?,
            "stop" => reader.stop(now),
            "unacknowledged" => return Ok(reader.unacknowledged().into()),
            _ => return Err(Misuse::no_verb(verb)),
        }
        Ok(Value::Nothing)
    }

    fn event(&mut self, event: Event) -> Option<Told> {
        // No option of this machine has windows set aside.
        let Event::Window(window) = event else {
            return None;
        };
        let records = self.records(&window);
        let version = u32::from(window.version.number());
        Some(Told::new(
            "window",
            vec![
                ("window", window.id.into()),
                ("version", version.into()),
                ("window_size", window.window_size.into()),
                ("records", records),
            ],
        ))
    }
}

impl ReaderRole {
    fn records(&mut self, window: &Window) -> Value {
        let mut records = Vec::new();
        let walked = window.for_each_record(&mut self.expander, |record| {
            records.push(Value::Map(record_members(&record)));
        });
        debug_assert!(walked.is_ok(), "the reader has checked these bytes");
        Value::List(records)
    }
}

fn record_members(record: &Record<'_>) -> Members {
    let copied = |bytes: &[u8]| Value::Bytes(Bytes::copy_from_slice(bytes));
    let (kind, sequence, content) = match record {
        Record::Json { sequence, payload } => ("json", *sequence, ("payload", copied(payload))),
        Record::Data { sequence, pairs } => {
            let pairs = pairs.clone();
            let pairs = pairs.map(|(key, value)| Value::List(vec![copied(key), copied(value)]));
            ("data", *sequence, ("pairs", Value::List(pairs.collect())))
        }
    };
    vec![
        ("type", Value::Name(kind)),
        ("sequence_number", sequence.into()),
        content,
    ]
}

struct WriterRole;

impl Vocabulary for WriterRole {
    type Connection = Writer;

    fn call(
        &mut self,
        writer: &mut Writer,
        now: Instant,
        verb: &str,
        args: &Args,
    ) -> Result<Value, Misuse> {
        Ok(match verb {
            "send_window" => {
                let records = args.items("records").iter().map(out_record);
                let records = records.collect::<Result<Vec<_>, _>>()?;
                writer.send_window(now, &records)?.into()
            }
            "finish" => {
                writer.finish(now);
                Value::Nothing
            }
            "unacknowledged" => writer.unacknowledged().into(),
            "window_size" => writer.window_size().into(),
            "room" => writer.room().into(),
            _ => return Err(Misuse::no_verb(verb)),
        })
    }

    fn event(&mut self, event: WriterEvent) -> Option<Told> {
        Some(match event {
            WriterEvent::Acknowledged { window } => {
                Told::new("acknowledged", vec![("window", window.into())])
            }
            WriterEvent::Unacknowledged { window, from } => {
                let members = vec![("window", window.into()), ("from", from.into())];
                Told::new("unacknowledged", members)
            }
        })
    }
}

fn out_record(record: &Value) -> Result<OutRecord, Misuse> {
    let record = Args::of(record);
    match (record.get("payload"), record.get("pairs")) {
        (Some(payload), None) => Ok(OutRecord::Json(payload.to_bytes())),
        (None, Some(pairs)) => Ok(OutRecord::Data(pairs_of(pairs))),
        _ => {
            let text = "send_window: a record has either payload or pairs";
            Err(Misuse::of("records", text.to_owned()))
        }
    }
}

fn pairs_of(pairs: &Value) -> Vec<(Bytes, Bytes)> {
    let pair = |pair: &Value| match pair.items() {
        [key, value] => Some((key.to_bytes(), value.to_bytes())),
        _ => None,
    };
    pairs.items().iter().filter_map(pair).collect()
}

fn frame_of(frame: &str, members: &Args) -> Result<Frame, Misuse> {
    let version = version_of(members)?;
    let sequence_number = members.number("sequence_number")?.unwrap_or(0);
    Ok(match frame {
        "window" => Frame::Window {
            version,
            window_size: members.required("window_size")?,
        },
        "ack" => Frame::Ack {
            version,
            sequence_number,
        },
        "json" => Frame::Json {
            version,
            sequence_number,
            payload: members.bytes("payload"),
        },
        "data" => Frame::Data {
            version,
            sequence_number,
            pairs: members.get("pairs").map(pairs_of).unwrap_or_default(),
        },
        _ => Frame::Compressed {
            version,
            frames: inner_frames(members)?,
        },
    })
}

fn inner_frames(members: &Args) -> Result<Vec<Frame>, Misuse> {
    let frames = members.items("frames").iter();
    let frames = frames.filter_map(|frame| match frame {
        Value::Tagged(name, members) => Some(frame_of(name, &Args::of(members))),
        _ => None,
    });
    frames.collect()
}
