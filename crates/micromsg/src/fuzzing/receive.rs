//! Any bytes, split in any way.

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use bytes::{Buf as _, Bytes, BytesMut};

use crate::text::read_extensions;
use crate::{Config, Connection, Event, Limits, Outbound, Role, Terms};

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
    let whole = run(now, *choice, bytes, bytes.len());
    if let Some((_, offset)) = whole.error {
        assert!(usize::try_from(offset).is_ok_and(|offset| offset <= bytes.len()));
    }
    for chunk in [1, 2, usize::from(choice >> 4).saturating_add(3)] {
        assert_eq!(whole, run(now, *choice, bytes, chunk), "a split is visible");
    }
}

/// The extensions of an established end.
const TABLES: [&str; 4] = [
    "",
    "json;ack;x-note;pub-sub",
    "batch-ack:max-count=3;dotnet;x-note",
    "pub-sub;batch-ack;ack;dotnet",
];

fn config() -> Config {
    let list = |text: &str| read_extensions(text.as_bytes()).unwrap_or_default();
    Config {
        fragment_size: 5,
        terms: Terms {
            identity: "fuzz".to_owned(),
            required: list("json"),
            optional: list("batch-ack:max-count=3;dotnet"),
            supported: ["pub-sub", "ack", "x-note"].map(str::to_owned).to_vec(),
            ..Terms::default()
        },
        // Numbers begin again behind the first of them.
        next_send: 65_534,
        next_receive: 65_534,
        limits: Limits {
            max_payload_bytes: 64,
            max_message_bytes: 100,
            max_names: 6,
        },
        ..Config::default()
    }
}

/// Bytes of texts that an end holds beside the payload of a message that comes: its head, a type, and their buffers.
const BESIDE: usize = 512 + 256;
/// Bytes of answers that nobody has read, and the frame that went over that limit.
const OWED: usize = (64 << 10) + 64;

/// An end in one of some states.
fn end(now: Instant, choice: u8) -> Connection {
    let role = if choice & 1 == 0 {
        Role::Client
    } else {
        Role::Server
    };
    if choice & 2 == 0 {
        let mut made = Connection::new(now, role, config());
        made.connect(now).expect("it was not connected");
        return made;
    }
    let table = usize::from(choice >> 2 & 3);
    let table = TABLES.get(table).copied().unwrap_or_default();
    let table = read_extensions(table.as_bytes()).expect("they can be read");
    let mut made = Connection::established(now, role, config(), table).expect("they are sound");
    for _ in 0..3 {
        // A window may be full.
        let message = Outbound {
            destination: "q",
            ..Outbound::default()
        };
        let _ = made.send(message, &Bytes::from_static(b"payload"));
    }
    made
}

/// The application acknowledges once, between two parts of the input: when it does so is visible.
fn run(now: Instant, choice: u8, bytes: &[u8], chunk: usize) -> Outcome {
    let mut run = Run {
        now,
        connection: end(now, choice),
        input: BytesMut::new(),
        outcome: Outcome::default(),
        most: bytes.len(),
    };
    run.transmit();
    let eighths = usize::from(choice >> 5);
    let middle = bytes
        .len()
        .saturating_mul(eighths)
        .checked_div(8)
        .unwrap_or(0);
    let (first, second) = bytes.split_at_checked(middle).unwrap_or((bytes, &[]));
    run.take(first, chunk);
    run.acknowledge();
    run.take(second, chunk);
    let mut outcome = run.outcome;
    outcome.is_over = run.connection.lifecycle() != Lifecycle::Open;
    outcome.pending = run.connection.pending();
    outcome.unacknowledged = run.connection.unacknowledged();
    outcome
}

struct Run {
    now: Instant,
    connection: Connection,
    input: BytesMut,
    outcome: Outcome,
    /// Bytes of all input.
    most: usize,
}

impl Run {
    fn take(&mut self, bytes: &[u8], chunk: usize) {
        for part in bytes.chunks(chunk.max(1)) {
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
        assert!(
            coming <= self.most.saturating_add(BESIDE),
            "{coming} bytes are held"
        );
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
