//! Automatic credit: windows that grow and shrink, the budget, and payloads in parts.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test, which needs some instant

use std::time::Instant;

use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_bpmux::{Config, Connection, EntityKind, Event, Target};
use ackline_core::Connection as _;
use ackline_testkit::pair::Pair;
use bytes::{Bytes, BytesMut};

use crate::rules::{OWN, PEER, TOP, automatic, pair, payload, takes, wire, zeros};

/// The right end takes the messages that have come.
fn taken(pair: &mut Pair<Connection, Connection>) {
    pair.settle();
    for event in pair.right.events() {
        let bytes = u64::try_from(event.payload_bytes()).unwrap();
        if let Event::Message { target, .. } = event {
            pair.right.connection.consumed(target, bytes);
        }
    }
    pair.settle();
}

/// For a hundred rounds the left end always has messages to send and the right end takes those that come.
fn rounds(pair: &mut Pair<Connection, Connection>) -> u64 {
    for _ in 0..100 {
        while pair.left.connection.waiting(OWN).unwrap() < 2_000 {
            pair.left.connection.send(OWN, zeros(40)).unwrap();
        }
        taken(pair);
    }
    pair.right.connection.counts().credit.windows_above_floor
}

fn with_a_sink(config: Config) -> Pair<Connection, Connection> {
    let mut pair = pair(config, config);
    pair.settle();
    pair.left
        .connection
        .open(EntityKind::Sink, 1, Bytes::new())
        .unwrap();
    pair.settle();
    pair.right.events();
    pair
}

#[test]
fn a_window_grows_to_its_ceiling_for_a_reader_that_waits_and_is_free_at_the_end() {
    let mut pair = with_a_sink(automatic(20, 300, 10_000));
    assert_eq!(pair.left.connection.credit(OWN), Ok(20));
    assert_eq!(rounds(&mut pair), 280);
    assert_eq!(pair.right.connection.stats().window_bytes, 280);
    pair.left.connection.close(OWN, Bytes::new()).unwrap();
    for _ in 0..100 {
        taken(&mut pair);
    }
    assert_eq!(pair.right.connection.counts().credit.windows_above_floor, 0);
    assert_eq!(pair.right.connection.counts().tables.peer_entities, 0);
}

#[test]
fn a_window_grows_within_the_budget() {
    let mut pair = with_a_sink(automatic(20, 300, 60));
    assert!(rounds(&mut pair) <= 60);
}

#[test]
fn the_window_of_a_half_that_is_over_is_free_while_the_other_half_lives() {
    let config = automatic(20, 300, 10_000);
    let mut pair = pair(config, config);
    pair.left
        .connection
        .open(EntityKind::Duplex, 1, Bytes::new())
        .unwrap();
    pair.settle();
    assert_eq!(rounds(&mut pair), 280);
    pair.right.connection.cancel(PEER, Bytes::new()).unwrap();
    pair.settle();
    assert_eq!(pair.right.connection.counts().credit.windows_above_floor, 0);
    assert!(pair.right.connection.is_open(PEER));
}

#[test]
fn a_window_shrinks_when_its_reader_is_behind() {
    let mut pair = with_a_sink(automatic(20, 1_000, 10_000));
    assert_eq!(rounds(&mut pair), 980);
    let mut late = std::collections::VecDeque::new();
    for _ in 0..300 {
        while pair.left.connection.waiting(OWN).unwrap() < 2_000 {
            pair.left.connection.send(OWN, zeros(40)).unwrap();
        }
        pair.settle();
        late.extend(pair.right.events());
        if let Some(Event::Message { target, .. }) = late.pop_front() {
            pair.right.connection.consumed(target, 40);
        }
    }
    let size = pair.right.connection.counts().credit.windows_above_floor;
    assert!(size < 500, "{size}");
}

#[test]
fn a_slow_reader_gets_one_large_message_ahead_and_holds_up_nobody() {
    let config = automatic(100, 100, 3_000);
    let mut pair = with_a_sink(config);
    pair.left
        .connection
        .open(EntityKind::Sink, 2, Bytes::new())
        .unwrap();
    pair.settle();
    pair.right.events();
    for _ in 0..10 {
        pair.left.connection.send(OWN, zeros(2_500)).unwrap();
        pair.left
            .connection
            .send(Target::Own(2), zeros(2_500))
            .unwrap();
    }
    let (mut slow, mut fast) = (Vec::new(), 0);
    for _ in 0..100 {
        pair.settle();
        for event in pair.right.events() {
            match event {
                Event::Message {
                    target: PEER,
                    payload,
                } => slow.push(payload),
                Event::Message { target, payload } => {
                    fast += 1;
                    let bytes = u64::try_from(payload.bytes()).unwrap();
                    pair.right.connection.consumed(target, bytes);
                }
                _ => {}
            }
        }
    }
    assert_eq!((slow.len(), fast), (1, 10));
    pair.right.connection.consumed(PEER, 2_500);
    pair.settle();
    assert_eq!(
        pair.right.events().len(),
        1,
        "it goes on when the reader does"
    );
}

#[test]
fn many_large_requests_at_once_come_to_their_ends() {
    let config = automatic(100, 100, 2_000);
    let mut pair = pair(config, config);
    for id in 0..50 {
        pair.left.connection.request(id, zeros(1_500)).unwrap();
    }
    let mut came = 0;
    for _ in 0..500 {
        pair.settle();
        let counts = pair.right.connection.counts();
        assert!(
            counts.credit.unread + counts.credit.granted < 12_000,
            "{counts:?}"
        );
        for event in pair.right.events() {
            came += 1;
            let bytes = u64::try_from(event.payload_bytes()).unwrap();
            pair.right.connection.consumed(TOP, bytes);
        }
    }
    assert_eq!(came, 50);
}

/// The peer sends a chunk of zeros.
fn sends(end: &mut Connection, role: PayloadRole, length: u64) {
    let mut bytes = BytesMut::from(encode(payload(role, length)).as_ref());
    bytes.extend_from_slice(&zeros(usize::try_from(length).unwrap()));
    end.receive(Instant::now(), &mut bytes).unwrap();
    wire(end);
}

#[test]
fn a_peer_that_begins_everything_and_ends_nothing_gets_no_more_credit() {
    let mut config = automatic(10, 10, 0);
    config.limits.max_payload_bytes = 100;
    let mut end = Connection::new(Instant::now(), config);
    wire(&mut end);
    let mut sent = 0;
    for id in 0..1_000 {
        let credit = end.granted(TOP).unwrap();
        takes(&mut end, &[Head::Partial { total: 100 }]).unwrap();
        sends(&mut end, PayloadRole::Request(id), credit.min(99));
        sent += credit.min(99);
    }
    assert!(
        (800..1_200).contains(&sent),
        "{sent}: eight of the largest, and what was set aside"
    );
}

#[test]
fn a_message_that_has_begun_in_a_window_comes_to_its_end_though_the_window_shrinks() {
    let mut end = Connection::new(Instant::now(), automatic(10, 1_000, 10_000));
    let message = PayloadRole::Message(OWN);
    takes(
        &mut end,
        &[payload(PayloadRole::Open(EntityKind::Sink, 1), 0)],
    )
    .unwrap();
    wire(&mut end);
    let take = |end: &mut Connection, bytes| {
        while end.poll_event().is_some() {}
        end.consumed(PEER, bytes);
        wire(end);
    };
    while let Some(granted @ ..160) = end.granted(PEER) {
        sends(&mut end, message, granted);
        take(&mut end, granted);
    }
    // The reader is never without work, for a round and three quarters.
    for _ in 0..3 {
        sends(&mut end, message, 40);
    }
    for _ in 0..7 {
        take(&mut end, 40);
        sends(&mut end, message, 40);
    }
    takes(&mut end, &[Head::Partial { total: 100 }]).unwrap();
    sends(&mut end, message, 30);
    for _ in 0..3 {
        take(&mut end, 40);
    }
    let mut left = 70;
    for _ in 0..20 {
        let more = end.granted(PEER).unwrap().min(left);
        if more > 0 {
            sends(&mut end, message, more);
            left -= more;
        }
    }
    assert_eq!((left, end.counts().tables.partials), (0, 0));
}
