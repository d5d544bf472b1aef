//! MicroMsg2 for tools: the verbs, events and options of both roles, and the frames, by name.

mod events;

use std::sync::Arc;
use std::time::Instant;

use ackline_core::described::{
    Args, Decoder, Described, Driven, Event as Told, Field, Inspecting, Machine, Misuse, OptionSet,
    Role as DescribedRole, Schema, Shape, Vocabulary, side,
};
use ackline_core::options::{Options as _, Uses};
use ackline_core::{UsageError, Value};

use events::told;

use crate::filter::{Condition, Operator};
use crate::frame::{self, Head, Inspector, Unit, Version, flags};
use crate::subscriptions::Subscriptions;
use crate::text::{
    Extension, Number, Properties, Property, is_field, read_extensions, write_command,
    write_extensions, write_properties,
};
use crate::{Config, Connection, Event, Filter, Kind, Limits, Outbound, Role, refusal};

/// The protocol as data.
#[derive(Debug, Clone, Copy)]
pub struct Description;

const U16: Shape = Shape::number(0, 65_535);
const NAME: Field = Field::new("name", Shape::Text);
const VALUE: Field = Field::new("value", Shape::Text);
const PAIRS: Field = Field::new("properties", Shape::List(&Shape::Map(&[NAME, VALUE])));
const NUMBER: Field = Field::option("number", Shape::Either(&[Shape::Signed, Shape::Fraction]));
const DATE: Field = Field::option("date", Shape::Fraction);
const TEXT: Field = Field::option("text", Shape::Text);
const TYPED_PROPERTIES: Field = Field::new(
    "properties",
    Shape::List(&Shape::Map(&[NAME, NUMBER, DATE, TEXT])),
);
const DESTINATION: Field = Field::new("destination", Shape::Text);
const RAW_PROPERTIES: Field = Field::new("properties", Shape::Text);
const PAYLOAD: Field = Field::new("payload", Shape::Bytes);
const SEQUENCE_NUMBER: Field = Field::new("sequence_number", U16);
const THROUGH: Field = Field::new("through", U16);
const TOPIC: Field = Field::new("topic", Shape::Text);
const FILTER: Field = Field::option("filter", Shape::Text);
const MESSAGE: Field = Field::new("message", Shape::Text);
const DOTNET_TYPE: Field = Field::option("dotnet_type", Shape::Text);
const MAJOR: Field = Field::new("major_version", Shape::U8);
const MINOR: Field = Field::new("minor_version", Shape::U8);
const IDENTITY: Field = Field::new("identity", Shape::Text);
const REQUIRED: Field = Field::new("required_extensions", Shape::Text);
const OPTIONAL: Field = Field::new("optional_extensions", Shape::Text);

const LIMITS: &[(&str, &str)] = &[
    ("payload", "max_payload_bytes"),
    ("message", "max_message_bytes"),
];

const VERBS: &[Schema] = &[
    Schema::new("connect", &[]),
    Schema::new("answer", &[REQUIRED, OPTIONAL]),
    Schema::new(
        "send",
        &[DESTINATION, TYPED_PROPERTIES, PAYLOAD, DOTNET_TYPE],
    ),
    Schema::new("ack", &[THROUGH]),
    Schema::new("processed", &[THROUGH]),
    Schema::new("pending", &[]),
    Schema::new("window", &[]),
    Schema::new("send_extension", &[NAME, PAYLOAD]),
    Schema::new("command", &[NAME, PAIRS]),
    Schema::new("subscribe", &[TOPIC, FILTER]),
    Schema::new("unsubscribe", &[TOPIC]),
    Schema::new("publish", &[DESTINATION, TYPED_PROPERTIES, PAYLOAD]),
    Schema::new("fail", &[MESSAGE]),
    Schema::new("close", &[]),
];

const EVENTS: &[Schema] = &[
    Schema::new("proposed", &[MAJOR, MINOR, IDENTITY, REQUIRED, OPTIONAL]),
    Schema::new(
        "connected",
        &[
            MAJOR,
            MINOR,
            IDENTITY,
            Field::new("extensions", Shape::List(&Shape::Text)),
        ],
    ),
    Schema::new(
        "message",
        &[
            SEQUENCE_NUMBER,
            DESTINATION,
            RAW_PROPERTIES,
            PAYLOAD,
            DOTNET_TYPE,
        ],
    ),
    Schema::new("acknowledged", &[THROUGH]),
    Schema::new("command", &[NAME, PAIRS]),
    Schema::new("extension", &[NAME, PAYLOAD]),
    Schema::new("subscribe", &[TOPIC, FILTER]),
    Schema::new("unsubscribe", &[TOPIC]),
    Schema::new("error", &[MESSAGE]),
];

const OPTIONS: OptionSet = OptionSet {
    table: || Config::default().rows(),
    uses: Uses::MACHINE,
    others: &[
        Field::option("start", Shape::Word(&["handshake", "established"])),
        Field::option("identity", Shape::Text),
        Field::option("required_extensions", Shape::Text),
        Field::option("optional_extensions", Shape::Text),
        Field::option("supported", Shape::List(&Shape::Text)),
        Field::option("extensions", Shape::Text),
        Field::option("next_send_sequence_number", Shape::number(1, 65_535)),
        Field::option("next_receive_sequence_number", Shape::number(1, 65_535)),
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
    Schema::new("handshake", &[MAJOR, MINOR, IDENTITY, REQUIRED, OPTIONAL]),
    Schema::new(
        "message",
        &[
            SEQUENCE_NUMBER,
            DESTINATION,
            RAW_PROPERTIES,
            PAYLOAD,
            Field::new("continued", Shape::Flag),
        ],
    ),
    Schema::new("command", &[Field::new("payload", Shape::Text)]),
    Schema::new("extension", &[Field::new("id", Shape::U8), PAYLOAD]),
    Schema::new("error", &[MESSAGE]),
    Schema::new(
        "extension_list",
        &[Field::new(
            "extensions",
            Shape::List(&Shape::Map(&[NAME, PAIRS])),
        )],
    ),
    Schema::new("property_list", &[TYPED_PROPERTIES]),
    Schema::new("command_line", &[NAME, PAIRS]),
    Schema::new(
        "filter",
        &[
            Field::new(
                "conditions",
                Shape::List(&Shape::Map(&[
                    NAME,
                    Field::new("operator", Shape::Word(SYMBOLS)),
                    Field::new("value", Shape::Map(&[NUMBER, DATE, TEXT])),
                ])),
            ),
            Field::option("matches", Shape::Flag),
        ],
    ),
];

/// The operators of filters.
const SYMBOLS: &[&str] = &["=", "!=", "<", "<=", ">", ">=", "&", "~"];

const UNITS: &[&str] = &[
    "handshake",
    "extension_list",
    "property_list",
    "command_line",
    "filter",
    // The last one is that of a connection's output.
    "frame",
];

const DECODING: OptionSet = OptionSet {
    table: || Limits::default().rows(),
    uses: Uses::DECODE,
    others: &[
        Field::option("unit", Shape::Word(UNITS)),
        Field::option("properties", Shape::Text),
        Field::option("max_frame_bytes", Shape::U64),
    ],
    limits: LIMITS,
};

impl Described for Description {
    fn name(&self) -> &'static str {
        "micromsg"
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
            "established" => {
                let extensions = extensions(options, "extensions")?;
                Connection::established(now, role, config, extensions)
                    .map_err(|kind| Misuse::of("extensions", kind.to_string()))?
            }
            _ => Connection::new(now, role, config),
        };
        Ok(Driven::boxed(now, connection, End::default()))
    }

    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        // A client sends two handshakes, a server one.
        let handshakes = side(sender, [("client", 2), ("server", 1)])?;
        let mut limits = Limits::default();
        options.set_table(Uses::DECODE, &mut limits)?;
        let most = options.number("max_frame_bytes")?;
        if let Some(most) = most {
            limits.max_payload_bytes = most;
        }
        let properties = || {
            let given = options.get("properties");
            given.map(|_| options.text("properties").to_owned())
        };
        let unit = match options.text("unit") {
            "frame" => Unit::Frame,
            "handshake" => Unit::Handshake,
            "extension_list" => Unit::ExtensionList,
            "property_list" => Unit::PropertyList,
            "command_line" => Unit::CommandLine,
            "filter" => Unit::Filter(properties()),
            _ => Unit::Connection { handshakes },
        };
        let inspector = Inspector::new(limits, unit);
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
        match frame {
            "handshake" | "message" | "command" | "extension" | "error" => {
                encode_frame(frame, members, out)
            }
            _ => {
                out.extend_from_slice(encode_text(frame, members)?.as_bytes());
                Ok(())
            }
        }
    }
}

fn config(options: &Args) -> Result<Config, Misuse> {
    let mut config = Config::default();
    options.set_table(Uses::MACHINE, &mut config)?;
    options
        .text("identity")
        .clone_into(&mut config.terms.identity);
    config.terms.required = extensions(options, "required_extensions")?;
    config.terms.optional = extensions(options, "optional_extensions")?;
    let supported = options.items("supported").iter();
    config.terms.supported = supported.map(|one| text_of(one).to_owned()).collect();
    options.set("next_send_sequence_number", &mut config.next_send)?;
    options.set("next_receive_sequence_number", &mut config.next_receive)?;
    Ok(config)
}

fn text_of(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

fn extensions(options: &Args, name: &str) -> Result<Vec<Extension>, Misuse> {
    let read = read_extensions(options.text(name).as_bytes());
    read.map_err(|kind| Misuse::of(name, kind.to_string()))
}

fn pairs(args: &Args) -> Vec<(String, String)> {
    let pairs = args.items("properties").iter().map(|pair| {
        let pair = Args::of(pair);
        (pair.text("name").to_owned(), pair.text("value").to_owned())
    });
    pairs.collect()
}

fn typed(args: &Args) -> Result<Vec<(String, Property)>, Misuse> {
    let properties = args.items("properties").iter().map(|one| {
        let one = Args::of(one);
        Ok((one.text("name").to_owned(), property(&one)?))
    });
    properties.collect()
}

/// The one value of a map.
fn property(one: &Args) -> Result<Property, Misuse> {
    let given = (one.get("number"), one.get("date"), one.get("text"));
    Ok(match given {
        (Some(Value::Signed(number)), None, None) => Property::Number(Number::Whole(*number)),
        (Some(Value::Fraction(number)), None, None) => {
            Property::Number(Number::Fraction(number.to_f64()))
        }
        (None, Some(Value::Fraction(seconds)), None) => Property::Date(seconds.to_f64()),
        (None, None, Some(Value::Text(text))) => Property::Text(text.clone()),
        _ => {
            let text = "a value is one of number, date and text";
            return Err(Misuse::of("properties", text.to_owned()));
        }
    })
}

/// The properties as text; the vocabulary has FIELDs alone (R-MM-V10).
fn raw(properties: &[(String, Property)]) -> Result<String, UsageError> {
    if !properties.iter().all(|(name, _)| is_field(name)) {
        return Err(refusal::INVALID_NAME);
    }
    write_properties(
        properties
            .iter()
            .map(|(name, value)| (name.as_str(), value)),
    )
}

/// The vocabulary of either role, with the subscriptions of the peer.
#[derive(Default)]
struct End {
    subscriptions: Subscriptions<()>,
}

impl End {
    /// Sends a message to the peer if one of its subscriptions matches: the number of subscriptions.
    fn publish(&self, connection: &mut Connection, args: &Args) -> Result<Value, Misuse> {
        let properties = raw(&typed(args)?)?;
        let message = Outbound {
            destination: args.text("destination"),
            properties: &properties,
            dotnet_type: None,
        };
        if !connection.is_running() {
            connection.check_send(message)?;
        }
        let mut view = Properties::new(properties.as_bytes());
        let matching = self.subscriptions.matching(message.destination, &mut view);
        let count = matching.count();
        if count > 0 {
            connection.send(message, &args.bytes("payload"))?;
        }
        Ok(count.into())
    }
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
        match verb {
            "connect" => connection.connect(now)?,
            "answer" => {
                let lists = ["required_extensions", "optional_extensions"];
                let [required, optional] = lists.map(|name| extensions(args, name));
                connection.answer(now, required?, optional?)?;
            }
            "send" => {
                let properties = raw(&typed(args)?)?;
                let message = Outbound {
                    destination: args.text("destination"),
                    properties: &properties,
                    dotnet_type: args.get("dotnet_type").map(text_of),
                };
                connection.send(message, &args.bytes("payload"))?;
            }
            "ack" => connection.ack(args.required("through")?)?,
            "processed" => connection.processed(now, args.required("through")?)?,
            "pending" => return Ok(u64::from(connection.pending()).into()),
            "window" => return Ok(u64::from(connection.window()?).into()),
            "send_extension" => {
                connection.send_extension(args.text("name"), &args.bytes("payload"))?;
            }
            "command" => connection.command(args.text("name"), &pairs(args))?,
            "subscribe" => {
                let filter = args.get("filter").map(text_of);
                connection.subscribe(args.text("topic"), filter)?;
            }
            "unsubscribe" => connection.unsubscribe(args.text("topic"))?,
            "publish" => return self.publish(connection, args),
            "fail" => connection.fail(args.text("message"))?,
            "close" => connection.close()?,
            _ => return Err(Misuse::no_verb(verb)),
        }
        Ok(Value::Nothing)
    }

    fn event(&mut self, event: Event) -> Option<Told> {
        match &event {
            Event::Subscribe(one) => {
                let filter = one.filter.as_ref().map(Arc::clone);
                self.subscriptions.set(&one.topic, (), filter);
            }
            Event::Unsubscribe { topic } => {
                self.subscriptions.remove(topic, &());
            }
            _ => {}
        }
        Some(told(event))
    }
}

fn encode_frame(frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
    let ascii = |name: &str, most: usize, too_long: UsageError| {
        let text = members.text(name);
        let refused = if text.len() > most {
            too_long
        } else {
            refusal::NOT_ASCII
        };
        let is_sound = text.len() <= most && text.is_ascii();
        is_sound.then_some(text).ok_or(refused)
    };
    match frame {
        "handshake" => {
            let version = Version {
                major: members.required("major_version")?,
                minor: members.required("minor_version")?,
            };
            let too_long = refusal::HANDSHAKE_TOO_LONG;
            let required = ascii("required_extensions", 65_535, too_long)?;
            let optional = ascii("optional_extensions", 65_535, too_long)?;
            let identity = ascii("identity", 255, too_long)?;
            frame::put_handshake(out, version, identity, [required, optional]);
        }
        "message" => {
            let head = Head {
                sequence_number: members.required("sequence_number")?,
                destination: ascii("destination", 255, refusal::DESTINATION_TOO_LONG)?,
                properties: ascii("properties", 65_535, refusal::PROPERTIES_TOO_LONG)?,
            };
            let payload = members.bytes("payload");
            let mut is_continued = false;
            members.set_flag("continued", &mut is_continued);
            head.put_frame(out, &payload, is_continued);
        }
        "command" => {
            let command = ascii("payload", usize::MAX, refusal::PAYLOAD_TOO_LONG)?;
            frame::put_head(out, flags::COMMAND, command.len());
            out.extend_from_slice(command.as_bytes());
        }
        "extension" => {
            let payload = members.bytes("payload");
            frame::put_extension(out, members.required("id")?, payload.len());
            out.extend_from_slice(&payload);
        }
        _ => {
            let message = members.text("message");
            frame::put_head(out, flags::ERROR, message.len());
            out.extend_from_slice(message.as_bytes());
        }
    }
    Ok(())
}

fn encode_text(frame: &str, members: &Args) -> Result<String, Misuse> {
    Ok(match frame {
        "extension_list" => {
            let list = members.items("extensions").iter().map(|one| {
                let one = Args::of(one);
                Extension {
                    name: one.text("name").to_owned(),
                    properties: pairs(&one),
                }
            });
            write_extensions(&list.collect::<Vec<_>>())
        }
        "property_list" => raw(&typed(members)?)?,
        "command_line" => write_command(members.text("name"), &pairs(members))?,
        _ => {
            let conditions = members.items("conditions").iter().map(|one| {
                let one = Args::of(one);
                let value = one.get("value").map(Args::of).unwrap_or_default();
                let operator = Operator::read(one.text("operator"));
                let operator = operator.ok_or(refusal::INVALID_FILTER)?;
                let name = one.text("name").to_owned();
                Ok(Condition::new(name, operator, property(&value)?)?)
            });
            let conditions = conditions.collect::<Result<Vec<_>, Misuse>>()?;
            Filter::new(conditions)?.write()
        }
    })
}
