//! Any bytes, split in any way.

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use bytes::{Buf as _, BytesMut};

use crate::message::{ExtensionMessage, FieldKind};
use crate::{Config, Connection, Event, Limits, Role, SUBSCRIPTION_BYTES};

/// Everything that an application and the peer see of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    events: Vec<Event>,
    sent: Vec<u8>,
    error: Option<(&'static str, u64)>,
    is_over: bool,
}

pub(super) fn receive(now: Instant, data: &[u8]) {
    let (choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    let whole = run(now, *choice, bytes, bytes.len());
    for chunk in [1, 2, usize::from(choice >> 4).saturating_add(3)] {
        assert_eq!(whole, run(now, *choice, bytes, chunk), "a split is visible");
    }
}

fn config() -> Config {
    Config {
        split_threshold: 8,
        limits: Limits {
            max_element_bytes: 64,
            max_string_bytes: 32,
            max_extensions: 4,
            max_subscriptions: 4,
            max_unfinished_elements: 3,
            max_unfinished_bytes: 128,
        },
        extensions: vec![1],
        extension_messages: vec![ExtensionMessage {
            message_type: 64,
            extension: 1,
            fields: vec![FieldKind::Varint, FieldKind::Bytes],
        }],
        ..Config::default()
    }
}

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
    let mut made = Connection::established(now, role, config());
    for id in 1..5 {
        made.subscribe("p", id, id.saturating_sub(1))
            .expect("ids are free");
    }
    made.cancel(4).expect("it is open");
    if choice & 4 != 0 {
        made.goodbye("").expect("it is open");
    }
    made
}

/// The application answers subscriptions once, between two parts of the input: when it does so is visible.
fn run(now: Instant, choice: u8, bytes: &[u8], chunk: usize) -> Outcome {
    let mut run = Run {
        now,
        connection: end(now, choice),
        input: BytesMut::new(),
        outcome: Outcome::default(),
    };
    let eighths = usize::from(choice >> 5);
    let middle = bytes
        .len()
        .saturating_mul(eighths)
        .checked_div(8)
        .unwrap_or(0);
    let (first, second) = bytes.split_at_checked(middle).unwrap_or((bytes, &[]));
    run.take(first, chunk);
    run.answer();
    run.take(second, chunk);
    run.transmit();
    let mut outcome = run.outcome;
    outcome.is_over = run.connection.lifecycle() != Lifecycle::Open;
    outcome
}

struct Run {
    now: Instant,
    connection: Connection,
    input: BytesMut,
    outcome: Outcome,
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
        let held = self.connection.coming_bytes();
        assert!(
            held <= 64 * 4 + 2 * SUBSCRIPTION_BYTES,
            "{held} bytes are held"
        );
        while let Some(event) = self.connection.poll_event() {
            self.outcome.events.push(event);
        }
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
                self.outcome.error = Some((error.kind.code(), error.offset));
                false
            }
        }
    }

    /// The application accepts the peer's subscriptions that are open.
    fn answer(&mut self) {
        for event in self.outcome.events.clone() {
            if let Event::Subscribe { subscriber, .. } = event {
                let _ = self.connection.accept(subscriber, subscriber % 3);
            }
        }
    }

    fn transmit(&mut self) {
        let mut out = SendQueue::new();
        self.connection.poll_transmit(self.now, &mut out);
        let sent = out.copy_to_bytes(out.remaining());
        self.outcome.sent.extend_from_slice(&sent);
    }
}
