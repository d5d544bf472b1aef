//! Any bytes, split in any way.

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use bytes::{Buf as _, BytesMut};

use crate::message::{ExtensionMessage, FieldKind};
use crate::{Config, Connection, Event, Limits, Role};

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
        made.goodbye(now, "").expect("it is open");
    }
    made
}

fn run(now: Instant, choice: u8, bytes: &[u8], chunk: usize) -> Outcome {
    let mut connection = end(now, choice);
    let (mut outcome, mut input) = (Outcome::default(), BytesMut::new());
    for part in bytes.chunks(chunk.max(1)) {
        input.extend_from_slice(part);
        loop {
            let need = connection.receive(now, &mut input);
            let most = config().limits.max_element_bytes;
            let most = usize::try_from(most)
                .unwrap_or(usize::MAX)
                .saturating_mul(8);
            assert!(
                connection.coming_bytes() <= most,
                "more is held than may be"
            );
            while let Some(event) = connection.poll_event() {
                answer(&mut connection, &event);
                outcome.events.push(event);
            }
            match need {
                Ok(Need::Input { at_least }) => {
                    assert!(at_least > input.len(), "input is asked for that is there");
                    break;
                }
                Ok(Need::Room | Need::Again) => {}
                Err(error) => {
                    outcome.error = Some((error.kind.code(), error.offset));
                    break;
                }
            }
            let mut out = SendQueue::new();
            connection.poll_transmit(now, &mut out);
            outcome
                .sent
                .extend_from_slice(&out.copy_to_bytes(out.remaining()));
        }
        if outcome.error.is_some() {
            break;
        }
    }
    let mut out = SendQueue::new();
    connection.poll_transmit(now, &mut out);
    outcome
        .sent
        .extend_from_slice(&out.copy_to_bytes(out.remaining()));
    if outcome.error.is_some() {
        // How much was answered before depends on when the application was told.
        outcome.sent.clear();
    }
    outcome.is_over = connection.lifecycle() != Lifecycle::Open;
    outcome
}

/// The application accepts the peer's subscriptions.
fn answer(connection: &mut Connection, event: &Event) {
    if let Event::Subscribe { subscriber, .. } = event {
        let _ = connection.accept(*subscriber, subscriber % 3);
    }
}
