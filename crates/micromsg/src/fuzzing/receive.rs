//! Any bytes, split in any way, and a comparison with a second decoder of the same bytes.

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use bytes::{Buf as _, Bytes, BytesMut};

use super::filters;
use super::naive::{self, Head, Own, Reading, Start, Told};
use crate::text::read_extensions;
use crate::{Config, Connection, Event, Limits, Outbound, Role, Terms};

#[cfg(test)]
mod tests;

/// Everything that an application and the peer see of a run.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    sent: Vec<u8>,
    error: Option<(&'static str, u64)>,
    is_over: bool,
    pending: u16,
    unacknowledged: u16,
}

pub(super) fn receive(now: Instant, data: &[u8]) {
    let (choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    let expected = naive::read(start(*choice, bytes), bytes);
    let whole = run(now, *choice, bytes, &[bytes.len()]);
    assert_eq!(whole.reading(), expected, "{choice:#04x} {bytes:02x?}");
    for size in [1, 2, usize::from(choice >> 4).saturating_add(3)] {
        let split = run(now, *choice, bytes, &[size]);
        assert_eq!(whole, split, "a split is visible");
    }
}

impl Outcome {
    /// The outcome as the naive decoder has it.
    fn reading(&self) -> Reading {
        let error = self.error.map(|(code, offset)| {
            let code = code.trim_start_matches("micromsg.");
            (code, usize::try_from(offset).unwrap_or(usize::MAX))
        });
        let waiting = [self.pending, self.unacknowledged].map(usize::from);
        Reading {
            told: self.events.iter().map(told).collect(),
            waiting: error.is_none().then_some(waiting),
            error,
        }
    }
}

/// An event as plain data.
fn told(event: &Event) -> Told {
    match event {
        Event::Proposed(_) => unreachable!("the connection decides by itself"),
        Event::Connected(came) => {
            let version = [came.version.major, came.version.minor];
            Told::Connected(version, came.identity.clone(), came.extensions.clone())
        }
        Event::Message(came) => {
            let head = Head {
                number: came.sequence_number,
                destination: came.destination().to_owned(),
                properties: came.raw_properties().to_owned(),
            };
            let payload = came.payload().to_bytes().to_vec();
            Told::Message(
                head,
                payload,
                came.dotnet_type.as_deref().map(str::to_owned),
            )
        }
        Event::Acknowledged { through } => Told::Acknowledged(*through),
        Event::Command(came) => Told::Command(came.name.clone(), came.properties.clone()),
        Event::Extension { name, payload } => Told::Extension(name.to_string(), payload.to_vec()),
        Event::Subscribe(came) => {
            let conditions = came.filter.as_deref().map(filters::conditions);
            Told::Subscribe(came.topic.clone(), came.filter_text.clone().zip(conditions))
        }
        Event::Unsubscribe { topic } => Told::Unsubscribe(topic.clone()),
        Event::Error { message } => Told::Error(message.clone()),
    }
}

/// The extensions of an established end.
const TABLES: [&str; 4] = [
    "",
    "json;ack;x-note;pub-sub",
    "batch-ack:max-count=3;dotnet;x-note",
    "pub-sub;batch-ack;ack;dotnet",
];

/// The extensions that an end has, for its handshake.
const OWN: Own = Own {
    lists: ["json", "batch-ack:max-count=3;dotnet"],
    supported: &["pub-sub", "ack", "x-note"],
};
/// The number of the first message in each direction. Numbers begin again behind the next one.
const FIRST: u16 = 65_534;
/// Messages that an end without a handshake sends before its first byte.
const MESSAGES: usize = 3;

fn limits(choice: u8) -> Limits {
    let [max_payload_bytes, max_message_bytes] = if choice & 16 == 0 {
        [64, 100]
    } else {
        // More than a length of one byte can say.
        [2_000, 5_000]
    };
    Limits {
        max_payload_bytes,
        max_message_bytes,
        max_names: 6,
    }
}

fn config(choice: u8) -> Config {
    let [required, optional] = OWN
        .lists
        .map(|text| read_extensions(text.as_bytes()).unwrap_or_default());
    Config {
        fragment_size: 5,
        terms: Terms {
            identity: "fuzz".to_owned(),
            required,
            optional,
            supported: OWN
                .supported
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
            ..Terms::default()
        },
        next_send: FIRST,
        next_receive: FIRST,
        limits: limits(choice),
        ..Config::default()
    }
}

fn role(choice: u8) -> Role {
    if choice & 1 == 0 {
        Role::Client
    } else {
        Role::Server
    }
}

/// The extensions of an end that begins without a handshake.
fn table(choice: u8) -> Option<&'static str> {
    let table = TABLES.get(usize::from(choice >> 2 & 3)).copied();
    table.filter(|_| choice & 2 != 0)
}

/// Bytes of the input after which the application acknowledges.
fn acks_at(choice: u8, bytes: &[u8]) -> usize {
    let eighths = bytes.len().saturating_mul(usize::from(choice >> 5));
    eighths.checked_div(8).unwrap_or(0)
}

/// The same facts for the naive decoder.
fn start(choice: u8, bytes: &[u8]) -> Start {
    Start {
        role: role(choice),
        own: OWN,
        table: table(choice),
        limits: limits(choice),
        first: FIRST,
        messages: MESSAGES,
        acks_at: acks_at(choice, bytes),
    }
}

/// Bytes of texts that an end holds beside the payload of a message that comes: its head, a type, and their buffers.
const BESIDE: usize = 512 + 256;
/// Bytes of answers that nobody has read, and the frame that went over that limit.
const OWED: usize = (64 << 10) + 64;

/// An end in one of some states.
fn end(now: Instant, choice: u8) -> Connection {
    let (role, config) = (role(choice), config(choice));
    let Some(table) = table(choice) else {
        let mut made = Connection::new(now, role, config);
        made.connect(now).expect("it was not connected");
        return made;
    };
    let table = read_extensions(table.as_bytes()).expect("they can be read");
    let mut made = Connection::established(now, role, config, table).expect("they are sound");
    for _ in 0..MESSAGES {
        // A window may be full.
        let message = Outbound {
            destination: "q",
            ..Outbound::default()
        };
        let _ = made.send(message, &Bytes::from_static(b"payload"));
    }
    made
}

/// The application acknowledges once, between two parts of the input: when it does so is visible. The sizes of the pieces
/// of the input repeat.
fn run(now: Instant, choice: u8, bytes: &[u8], sizes: &[usize]) -> Outcome {
    let mut run = Run {
        now,
        connection: end(now, choice),
        input: BytesMut::new(),
        outcome: Outcome::default(),
        most: most_held(choice, bytes),
    };
    run.transmit();
    let mut sizes = sizes.iter().copied().cycle();
    let middle = acks_at(choice, bytes);
    let (first, second) = bytes.split_at_checked(middle).unwrap_or((bytes, &[]));
    run.take(first, &mut sizes);
    run.acknowledge();
    run.take(second, &mut sizes);
    let mut outcome = run.outcome;
    outcome.is_over = run.connection.lifecycle() != Lifecycle::Open;
    outcome.pending = run.connection.pending();
    outcome.unacknowledged = run.connection.unacknowledged();
    outcome
}

/// The most bytes that an end may hold for a message that comes: all input, and a buffer for fragments, which grows to twice
/// its bytes.
fn most_held(choice: u8, bytes: &[u8]) -> usize {
    let message = usize::try_from(limits(choice).max_message_bytes).unwrap_or(usize::MAX);
    let buffer = message.min(bytes.len()).saturating_mul(2);
    bytes.len().saturating_add(buffer).saturating_add(BESIDE)
}

struct Run {
    now: Instant,
    connection: Connection,
    input: BytesMut,
    outcome: Outcome,
    /// Bytes of a message that comes, at the most.
    most: usize,
}

impl Run {
    fn take(&mut self, mut bytes: &[u8], sizes: &mut impl Iterator<Item = usize>) {
        while !bytes.is_empty() {
            let size = sizes.next().unwrap_or(1).clamp(1, bytes.len());
            let (part, rest) = bytes.split_at_checked(size).unwrap_or_default();
            bytes = rest;
            self.input.extend_from_slice(part);
            while self.outcome.error.is_none() && self.receive() {}
            self.transmit();
        }
    }

    /// Receives once. Returns whether there is more to do without more input.
    fn receive(&mut self) -> bool {
        let need = self.connection.receive(self.now, &mut self.input);
        let (coming, complete) = (
            self.connection.coming_bytes(),
            self.connection.complete_bytes(),
        );
        assert!(coming <= self.most, "{coming} bytes are held");
        let all = coming
            .saturating_add(complete)
            .saturating_add(OWED)
            .saturating_add(BESIDE);
        assert!(self.connection.held_bytes() <= all);
        while let Some(event) = self.connection.poll_event() {
            self.outcome.events.push(event);
        }
        assert_eq!(self.connection.complete_bytes(), 0);
        match need {
            Ok(Need::Input { at_least }) => {
                let len = self.input.len();
                assert!(at_least > len, "input is asked for that is there");
                false
            }
            Ok(Need::Room | Need::Again) => {
                self.transmit();
                true
            }
            Err(error) => {
                let found = (error.kind.code(), error.offset);
                let again = self.connection.receive(self.now, &mut self.input);
                assert_eq!(again, Err(error), "the first error is kept");
                self.outcome.error = Some(found);
                false
            }
        }
    }

    /// The application acknowledges the last message that has come.
    fn acknowledge(&mut self) {
        let mut events = self.outcome.events.iter().rev();
        let last = events.find_map(|event| match event {
            Event::Message(message) => Some(message.sequence_number),
            _ => None,
        });
        if let Some(last) = last {
            let _ = self.connection.ack(last);
        }
        self.transmit();
    }

    fn transmit(&mut self) {
        let mut out = SendQueue::new();
        self.connection.poll_transmit(self.now, &mut out);
        let sent = out.copy_to_bytes(out.remaining());
        self.outcome.sent.extend_from_slice(&sent);
    }
}
