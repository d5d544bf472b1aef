//! The Reactive Streams network protocol for tools: the verbs, events and options of both roles, and the messages, by
//! name.

use std::time::Instant;

use ackline_core::Value;
use ackline_core::described::{
    Args, Decoder, Described, Driven, Event as Told, Field, Inspecting, Machine, Misuse, OptionSet,
    Role as DescribedRole, Schema, Shape, Vocabulary, side,
};
use ackline_core::options::{Options as _, Uses};
use bytes::Bytes;

use crate::message::{self, ExtensionMessage, FieldKind, Inspector, Message, put};
use crate::{Config, Connection, Event, Kind, Limits, Role};

/// The protocol as data.
#[derive(Debug, Clone, Copy)]
pub struct Description;

const SUBSCRIBER: Field = Field::new("subscriber", Shape::U64);
const PUBLISHER: Field = Field::new("publisher", Shape::Text);
const INITIAL_DEMAND: Field = Field::new("initial_demand", Shape::U64);
const DEMAND: Field = Field::new("demand", Shape::U64);
const ELEMENT_SIZE: Field = Field::new("element_size", Shape::U64);
const ELEMENT: Field = Field::new("element", Shape::Bytes);
const ELEMENT_ID: Field = Field::new("element", Shape::U64);
const DATA: Field = Field::new("data", Shape::Bytes);
const ERROR: Field = Field::new("error", Shape::Text);
const REASON: Field = Field::new("reason", Shape::Text);
const IDS: Shape = Shape::List(&Shape::U64);
const EXTENSIONS: Field = Field::new("extensions", IDS);
const VERSION: Field = Field::new("version", Shape::U64);
const MESSAGE_TYPE: Field = Field::new("message_type", Shape::U64);
const FIELDS: Field = Field::new(
    "fields",
    Shape::List(&Shape::Map(&[
        Field::option("varint", Shape::U64),
        Field::option("string", Shape::Text),
        Field::option("bytes", Shape::Bytes),
    ])),
);
/// The messages of extensions.
const EXTENSION_MESSAGES: Field = Field::option(
    "extension_messages",
    Shape::List(&Shape::Map(&[
        Field::new(
            "message_type",
            Shape::number(message::types::FIRST_OF_EXTENSIONS, u64::MAX),
        ),
        Field::new("extension", Shape::U64),
        Field::new(
            "fields",
            Shape::List(&Shape::Word(&["varint", "string", "bytes"])),
        ),
    ])),
);

const LIMITS: &[(&str, &str)] = &[
    ("element", "max_element_bytes"),
    ("string", "max_string_bytes"),
    ("extensions", "max_extensions"),
];

const VERBS: &[Schema] = &[
    Schema::new("connect", &[]),
    Schema::new(
        "subscribe",
        &[
            PUBLISHER,
            SUBSCRIBER,
            Field::option("initial_demand", Shape::U64),
        ],
    ),
    Schema::new("request", &[SUBSCRIBER, DEMAND]),
    Schema::new("cancel", &[SUBSCRIBER]),
    Schema::new("requested", &[SUBSCRIBER]),
    Schema::new("free_id", &[]),
    Schema::new(
        "accept",
        &[SUBSCRIBER, Field::option("element_size", Shape::U64)],
    ),
    Schema::new("reject", &[SUBSCRIBER, ERROR]),
    Schema::new(
        "next",
        &[
            SUBSCRIBER,
            Field::new("elements", Shape::List(&Shape::Bytes)),
        ],
    ),
    Schema::new("complete", &[SUBSCRIBER]),
    Schema::new("error", &[SUBSCRIBER, ERROR]),
    Schema::new("demand", &[SUBSCRIBER]),
    Schema::new("waiting", &[SUBSCRIBER]),
    Schema::new("goodbye", &[REASON]),
    Schema::new("extensions", &[]),
    Schema::new("send_extension", &[MESSAGE_TYPE, FIELDS]),
];

const EVENTS: &[Schema] = &[
    Schema::new("connected", &[EXTENSIONS]),
    Schema::new("subscribe", &[PUBLISHER, SUBSCRIBER, INITIAL_DEMAND]),
    Schema::new("request", &[SUBSCRIBER, DEMAND]),
    Schema::new("cancel", &[SUBSCRIBER]),
    Schema::new("subscribed", &[SUBSCRIBER, ELEMENT_SIZE]),
    Schema::new("next", &[SUBSCRIBER, ELEMENT]),
    Schema::new("complete", &[SUBSCRIBER]),
    Schema::new("error", &[SUBSCRIBER, ERROR]),
    Schema::new("goodbye", &[REASON]),
    Schema::new("extension", &[MESSAGE_TYPE, FIELDS]),
];

const OPTIONS: OptionSet = OptionSet {
    table: || Config::default().rows(),
    uses: Uses::MACHINE,
    others: &[
        Field::option("start", Shape::Word(&["handshake", "established"])),
        Field::option("extensions", IDS),
        EXTENSION_MESSAGES,
    ],
    limits: LIMITS,
};

const ROLES: &[DescribedRole] = &[
    DescribedRole {
        name: "client",
        options: OPTIONS,
        verbs: VERBS,
        events: EVENTS,
    },
    DescribedRole {
        name: "server",
        options: OPTIONS,
        verbs: VERBS,
        events: EVENTS,
    },
];

const FRAMES: &[Schema] = &[
    Schema::new("client_hello", &[VERSION, EXTENSIONS]),
    Schema::new("server_hello", &[VERSION, EXTENSIONS]),
    Schema::new("subscribe", &[PUBLISHER, SUBSCRIBER, INITIAL_DEMAND]),
    Schema::new("request", &[SUBSCRIBER, DEMAND]),
    Schema::new("cancel", &[SUBSCRIBER]),
    Schema::new("subscribed", &[SUBSCRIBER, ELEMENT_SIZE]),
    Schema::new("on_next", &[SUBSCRIBER, ELEMENT]),
    Schema::new("on_complete", &[SUBSCRIBER]),
    Schema::new("on_error", &[SUBSCRIBER, ERROR]),
    Schema::new(
        "on_next_packed",
        &[
            SUBSCRIBER,
            Field::new("messages", Shape::List(&Shape::Bytes)),
        ],
    ),
    Schema::new("on_next_part", &[SUBSCRIBER, ELEMENT_ID, DATA]),
    Schema::new("on_next_last_part", &[SUBSCRIBER, ELEMENT_ID, DATA]),
    Schema::new("goodbye", &[REASON]),
    Schema::new("extension", &[MESSAGE_TYPE, FIELDS]),
    Schema::new("varint", &[Field::new("value", Shape::U64)]),
];

const DECODING: OptionSet = OptionSet {
    table: || Limits::default().rows(),
    uses: Uses::DECODE,
    others: &[
        Field::option("unit", Shape::Word(&["varint", "message"])),
        Field::option(
            "element_sizes",
            Shape::List(&Shape::Map(&[SUBSCRIBER, ELEMENT_SIZE])),
        ),
        EXTENSION_MESSAGES,
        Field::option("max_frame_bytes", Shape::U64),
    ],
    limits: LIMITS,
};

impl Described for Description {
    fn name(&self) -> &'static str {
        "reactive"
    }

    fn roles(&self) -> &'static [DescribedRole] {
        ROLES
    }

    fn frames(&self) -> &'static [Schema] {
        FRAMES
    }

    fn decoding(&self) -> OptionSet {
        DECODING
    }

    fn open(&self, role: &str, now: Instant, options: &Args) -> Result<Box<dyn Machine>, Misuse> {
        let role = match role {
            "client" => Role::Client,
            _ => Role::Server,
        };
        let config = config(options)?;
        let connection = match options.text("start") {
            "established" => Connection::established(now, role, config),
            _ => Connection::new(now, role, config),
        };
        Ok(Driven::boxed(now, connection, End::default()))
    }

    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        // Both send the same messages, but for the hello.
        side(sender, [("client", ()), ("server", ())])?;
        if options.text("unit") == "varint" {
            return Ok(Box::new(Inspecting::new(Inspector::varints())));
        }
        let mut limits = Limits::default();
        options.set_table(Uses::DECODE, &mut limits)?;
        let most = options.number("max_frame_bytes")?;
        if let Some(most) = most {
            limits.max_element_bytes = most;
            limits.max_string_bytes = most;
            limits.max_extensions = most;
        }
        let mut inspector = Inspector::new(limits, extension_messages(options)?);
        for one in options.items("element_sizes") {
            let one = Args::of(one);
            let (subscriber, size) = (one.required("subscriber")?, one.required("element_size")?);
            inspector = inspector.with_element_size(subscriber, size);
        }
        if most.is_none() {
            return Ok(Box::new(Inspecting::new(inspector)));
        }
        Ok(Box::new(Inspecting {
            inspector,
            // A capture has one limit for everything.
            told: |kind| match kind {
                Kind::Limit(hit) => Kind::Limit(hit.in_a_capture()),
                other => other,
            },
        }))
    }

    fn encode(&self, frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.encode_in(&Args::default(), frame, members, out)
    }

    fn encode_in(
        &self,
        context: &Args,
        frame: &str,
        members: &Args,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let subscriber = members.number("subscriber")?.unwrap_or(0);
        let Some(message) = message_of(frame, subscriber, members)? else {
            let sizes = context.items("element_sizes").iter().map(Args::of);
            let mut has_size = false;
            for one in sizes {
                let is_it = one.required::<u64>("subscriber")? == subscriber;
                has_size |= is_it && one.required::<u64>("element_size")? > 0;
            }
            return encode_elements(frame, (subscriber, has_size), members, out);
        };
        put(out, &message);
        Ok(())
    }
}

fn config(options: &Args) -> Result<Config, Misuse> {
    let mut config = Config::default();
    options.set_table(Uses::MACHINE, &mut config)?;
    config.extensions = numbers(options, "extensions");
    config.extension_messages = extension_messages(options)?;
    Ok(config)
}

fn numbers(args: &Args, name: &str) -> Vec<u64> {
    let items = args.items(name).iter();
    let numbers = items.filter_map(|item| match item {
        Value::Number(number) => Some(*number),
        _ => None,
    });
    numbers.collect()
}

fn extension_messages(options: &Args) -> Result<Vec<ExtensionMessage>, Misuse> {
    let items = options.items("extension_messages").iter();
    let messages = items.map(|one| {
        let one = Args::of(one);
        let fields = one.items("fields").iter().map(|field| match field {
            Value::Name("varint") => FieldKind::Varint,
            Value::Name("string") => FieldKind::String,
            _ => FieldKind::Bytes,
        });
        Ok(ExtensionMessage {
            message_type: one.required("message_type")?,
            extension: one.required("extension")?,
            fields: fields.collect(),
        })
    });
    messages.collect()
}

fn fields(args: &Args) -> Result<Vec<message::Field>, Misuse> {
    let items = args.items("fields").iter();
    let fields = items.map(|item| {
        let one = Args::of(item);
        match (one.get("varint"), one.get("string"), one.get("bytes")) {
            (Some(Value::Number(value)), None, None) => Ok(message::Field::Varint(*value)),
            (None, Some(Value::Text(text)), None) => Ok(message::Field::String(text.clone())),
            (None, None, Some(bytes)) => Ok(message::Field::Bytes(bytes.to_bytes())),
            _ => {
                let text = "a field has one of varint, string and bytes";
                Err(Misuse::of("fields", text.to_owned()))
            }
        }
    });
    fields.collect()
}

/// The vocabulary of either role.
#[derive(Default)]
struct End {
    /// A subscription, the size of its elements, and those of a packed message that were not told yet.
    packed: Option<(u64, usize, Bytes)>,
}

impl Vocabulary for End {
    type Connection = Connection;

    fn call(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        verb: &str,
        args: &Args,
    ) -> Result<Value, Misuse> {
        let id = || args.required("subscriber");
        match verb {
            "connect" => connection.connect(now)?,
            "subscribe" => {
                let demand = args.number("initial_demand")?.unwrap_or(0);
                connection.subscribe(args.text("publisher"), id()?, demand)?;
            }
            "request" => connection.request(id()?, args.required("demand")?)?,
            "cancel" => connection.cancel(id()?)?,
            "requested" => return Ok(connection.requested(id()?)?.into()),
            "free_id" => return Ok(connection.free_id().into()),
            "accept" => connection.accept(id()?, args.number("element_size")?.unwrap_or(0))?,
            "reject" => connection.reject(id()?, args.text("error"))?,
            "next" => {
                let elements = args.items("elements").iter().map(Value::to_bytes);
                connection.next(id()?, elements.collect())?;
            }
            "complete" => connection.complete(id()?)?,
            "error" => connection.error(id()?, args.text("error"))?,
            "demand" => return Ok(connection.demand(id()?)?.into()),
            "waiting" => return Ok(connection.waiting(id()?)?.into()),
            "goodbye" => connection.goodbye(args.text("reason"))?,
            "extensions" => return Ok(ids(connection.extensions()?)),
            "send_extension" => {
                connection.send_extension(args.required("message_type")?, fields(args)?)?;
            }
            _ => return Err(Misuse::no_verb(verb)),
        }
        Ok(Value::Nothing)
    }

    fn event(&mut self, event: Event) -> Option<Told> {
        Some(match event {
            Event::Connected { extensions } => {
                Told::new("connected", vec![("extensions", ids(&extensions))])
            }
            Event::Subscribe {
                publisher,
                subscriber,
                initial_demand,
            } => {
                let demand = ("initial_demand", initial_demand.into());
                let mut told = about("subscribe", subscriber, Some(demand));
                told.members
                    .insert(0, ("publisher", Value::Text(publisher)));
                told
            }
            Event::Request { subscriber, demand } => {
                about("request", subscriber, Some(("demand", demand.into())))
            }
            Event::Cancel { subscriber } => about("cancel", subscriber, None),
            Event::Subscribed {
                subscriber,
                element_size,
            } => {
                let size = ("element_size", element_size.into());
                about("subscribed", subscriber, Some(size))
            }
            Event::Next {
                subscriber,
                element,
            } => next(subscriber, element.to_bytes()),
            Event::Packed {
                subscriber,
                element_size,
                elements,
            } => {
                self.packed = Some((subscriber, element_size, elements));
                return self.more();
            }
            Event::Complete { subscriber } => about("complete", subscriber, None),
            Event::Error { subscriber, error } => about(
                "error",
                subscriber,
                Some(("error", Value::Text(error.to_string()))),
            ),
            Event::Goodbye { reason } => {
                Told::new("goodbye", vec![("reason", Value::Text(reason))])
            }
            Event::Extension {
                message_type,
                fields,
            } => extension(message_type, &fields),
            // No option of this machine hands out parts.
            Event::Part { .. } => return None,
        })
    }

    fn more(&mut self) -> Option<Told> {
        let (subscriber, size, elements) = self.packed.as_mut()?;
        let subscriber = *subscriber;
        let element = elements.split_to((*size).min(elements.len()));
        if elements.is_empty() {
            self.packed = None;
        }
        Some(next(subscriber, element))
    }
}

fn extension(message_type: u64, fields: &[message::Field]) -> Told {
    let fields = fields.iter().map(message::shown).collect();
    let members = vec![
        ("message_type", message_type.into()),
        ("fields", Value::List(fields)),
    ];
    Told::new("extension", members)
}

fn next(subscriber: u64, element: Bytes) -> Told {
    about("next", subscriber, Some(("element", element.into())))
}

fn about(name: &'static str, subscriber: u64, other: Option<(&'static str, Value)>) -> Told {
    let mut members = vec![("subscriber", subscriber.into())];
    members.extend(other);
    Told::new(name, members)
}

fn ids(all: &[u64]) -> Value {
    Value::List(all.iter().map(|id| Value::Number(*id)).collect())
}

/// A message without an element; `None` for one with an element, and for a varint alone.
fn message_of(frame: &str, subscriber: u64, members: &Args) -> Result<Option<Message>, Misuse> {
    let text = |name| members.text(name).to_owned();
    Ok(Some(match frame {
        "client_hello" | "server_hello" => Message::Hello {
            is_client: frame == "client_hello",
            version: members.required("version")?,
            extensions: numbers(members, "extensions"),
        },
        "subscribe" => Message::Subscribe {
            publisher: text("publisher"),
            subscriber,
            initial_demand: members.required("initial_demand")?,
        },
        "request" => Message::Request {
            subscriber,
            demand: members.required("demand")?,
        },
        "cancel" => Message::Cancel { subscriber },
        "subscribed" => Message::Subscribed {
            subscriber,
            element_size: members.required("element_size")?,
        },
        "on_complete" => Message::Complete { subscriber },
        "on_error" => Message::Error {
            subscriber,
            error: text("error"),
        },
        "goodbye" => Message::Goodbye {
            reason: text("reason"),
        },
        "extension" => Message::Extension {
            message_type: members.required("message_type")?,
            fields: fields(members)?,
        },
        _ => return Ok(None),
    }))
}

/// A message with elements; `has_size`: they have the size of the stream.
fn encode_elements(
    frame: &str,
    (subscriber, has_size): (u64, bool),
    members: &Args,
    out: &mut Vec<u8>,
) -> Result<(), Misuse> {
    let range = 0..0;
    match frame {
        "varint" => message::put_numbers(out, &[members.required("value")?]),
        "on_next" => {
            let element = members.bytes("element");
            put(
                out,
                &Message::Next {
                    subscriber,
                    element: range,
                },
            );
            if has_size {
                out.extend_from_slice(&element);
            } else {
                message::put_bytes(out, &element);
            }
        }
        "on_next_packed" => {
            let messages = members.items("messages");
            let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
            let packed = Message::Packed {
                subscriber,
                element_size: 0,
                count,
                elements: range,
            };
            put(out, &packed);
            let messages = messages.iter().map(Value::to_bytes);
            messages.for_each(|element| out.extend_from_slice(&element));
        }
        _ => {
            let part = Message::Part {
                subscriber,
                element: members.required("element")?,
                data: range,
                is_last: frame == "on_next_last_part",
            };
            put(out, &part);
            message::put_bytes(out, &members.bytes("data"));
        }
    }
    Ok(())
}
