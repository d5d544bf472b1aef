//! The memory of all connections that the peer's open entities, requests and payloads may have.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test, which needs some instant

use std::sync::Arc;
use std::time::Instant;

use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_bpmux::{
    Config, Connection, ENTITY_BYTES, EntityKind, FREE_BYTES, Kind, Limits, REQUEST_BYTES, Target,
};
use ackline_core::{Connection as _, ErrorKind as _, Quota, SendQueue};
use bytes::{Bytes, BytesMut};

/// Returns an end that shares this quota.
fn shared(quota: &Arc<Quota>) -> Connection {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.share(Arc::clone(quota));
    end
}

/// The peer sends a chunk without payload bytes, and all that it causes is sent.
fn takes(end: &mut Connection, role: PayloadRole) -> Result<(), Kind> {
    let length = 0;
    let mut input = BytesMut::from(encode(Head::Payload { role, length }).as_ref());
    let taken = end.receive(Instant::now(), &mut input);
    while end.poll_event().is_some() {}
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    taken.map(drop).map_err(|error| error.kind)
}

const fn opened(id: u32) -> PayloadRole {
    PayloadRole::Open(EntityKind::Duplex, id)
}

const FREE_ENTITIES: u64 = FREE_BYTES / ENTITY_BYTES;

/// The peer opens so many more.
fn open(end: &mut Connection, from: u64, count: u64) -> Result<(), Kind> {
    (from..from + count).try_for_each(|id| takes(end, opened(u32::try_from(id).unwrap())))
}

#[test]
fn open_entities_of_the_peer_are_charged_to_the_memory_of_all_connections() {
    let quota = Arc::new(Quota::new(20 * ENTITY_BYTES));
    let mut one = shared(&quota);
    open(&mut one, 0, FREE_ENTITIES).unwrap();
    assert_eq!(quota.used(), 0);
    open(&mut one, FREE_ENTITIES, 10).unwrap();
    assert_eq!(quota.used(), 10 * ENTITY_BYTES);
    let over = open(&mut one, FREE_ENTITIES + 10, 1).unwrap_err();
    assert_eq!(over.code(), "bpmux.limit_exceeded");
    let hit = over.limit().unwrap();
    let limit = 10 * ENTITY_BYTES;
    assert_eq!((hit.value, hit.limit), (limit + ENTITY_BYTES, limit));
    assert_eq!(over.option(), Some("--memory"));
    assert_eq!(
        over.to_string(),
        "sinks, streams, duplexes and requests that are open take 11264 bytes, above 10240: half of the \
         part that other connections leave of a quarter of --memory"
    );

    // Another end has its free part, and half of the rest; requests are charged too.
    let mut other = shared(&quota);
    open(&mut other, 0, FREE_ENTITIES).unwrap();
    for id in 0..10 {
        takes(&mut other, PayloadRole::Request(id)).unwrap();
    }
    assert_eq!(quota.used(), 10 * ENTITY_BYTES + 10 * REQUEST_BYTES);
    takes(&mut other, PayloadRole::Request(10)).unwrap_err();
    drop((one, other));
    assert_eq!(quota.used(), 0);
}

#[test]
fn cancels_that_have_begun_of_requests_that_are_not_there_are_charged_too() {
    let quota = Arc::new(Quota::new(20 * REQUEST_BYTES));
    let mut end = shared(&quota);
    let mut cancel = |id| {
        let mut input = BytesMut::from(encode(Head::Partial { total: 9 }).as_ref());
        assert!(end.receive(Instant::now(), &mut input).is_ok());
        takes(&mut end, PayloadRole::CancelRequest(id))
    };
    // Two partial payloads are not counted, as the top-level may have them.
    let free = u32::try_from(FREE_BYTES / REQUEST_BYTES).unwrap() + 2;
    for id in 0..free {
        cancel(id).unwrap();
    }
    assert_eq!(quota.used(), 0);
    for id in free..free + 10 {
        cancel(id).unwrap();
    }
    assert_eq!(quota.used(), 10 * REQUEST_BYTES);
    let over = cancel(free + 10).unwrap_err();
    assert_eq!(
        (over.code(), over.option()),
        ("bpmux.limit_exceeded", Some("--memory"))
    );
}

#[test]
fn a_cancel_that_has_ended_is_given_back() {
    let quota = Arc::new(Quota::new(20 * REQUEST_BYTES));
    let mut end = shared(&quota);
    let free = u32::try_from(FREE_BYTES / REQUEST_BYTES).unwrap() + 2;
    for id in 0..free + 5 {
        end.grant_credit(Target::Top, 1).unwrap();
        end.poll_transmit(Instant::now(), &mut SendQueue::new());
        let mut input = BytesMut::from(encode(Head::Partial { total: 1 }).as_ref());
        assert!(end.receive(Instant::now(), &mut input).is_ok());
        takes(&mut end, PayloadRole::CancelRequest(id)).unwrap();
    }
    assert_eq!(quota.used(), 5 * REQUEST_BYTES);
    for id in 0..5 {
        let (role, length) = (PayloadRole::CancelRequest(id), 1);
        let mut input = BytesMut::from(encode(Head::Payload { role, length }).as_ref());
        input.extend_from_slice(b"x");
        assert!(end.receive(Instant::now(), &mut input).is_ok());
    }
    assert_eq!(quota.used(), 0);
}

#[test]
fn memory_of_ended_entities_is_given_back() {
    let quota = Arc::new(Quota::new(4 * ENTITY_BYTES));
    let mut end = shared(&quota);
    open(&mut end, 0, FREE_ENTITIES).unwrap();
    for round in 0..100 {
        takes(&mut end, opened(1_000)).unwrap();
        takes(&mut end, PayloadRole::Request(round)).unwrap();
        assert_eq!(quota.used(), ENTITY_BYTES + REQUEST_BYTES);
        end.respond(round, Bytes::new()).unwrap();
        takes(&mut end, PayloadRole::Close(Target::Own(1_000))).unwrap();
        takes(&mut end, PayloadRole::Cancel(Target::Own(1_000))).unwrap();
        assert_eq!(quota.used(), 0);
    }
    // Entities from before the quota are charged, and not refused.
    let mut late = Connection::new(Instant::now(), Config::default());
    open(&mut late, 0, FREE_ENTITIES + 3).unwrap();
    late.share(Arc::clone(&quota));
    assert_eq!(quota.used(), 3 * ENTITY_BYTES);
}

/// The peer announces a message of so many bytes, in parts.
fn announces(memory: Option<u64>, limit: u64, total: u64) -> Result<(), Kind> {
    let config = Config {
        memory,
        limits: Limits {
            max_payload_bytes: limit,
            ..Limits::default()
        },
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), config);
    end.grant_credit(Target::Top, 1 << 30).unwrap();
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    let mut input = BytesMut::new();
    input.extend_from_slice(encode(Head::Partial { total }).as_ref());
    let (role, length) = (PayloadRole::Message(Target::Top), 1);
    input.extend_from_slice(encode(Head::Payload { role, length }).as_ref());
    let taken = end.receive(Instant::now(), &mut input);
    taken.map(drop).map_err(|error| error.kind)
}

#[test]
fn a_payload_has_an_eighth_of_the_memory_and_the_error_says_so() {
    announces(Some(65_536), 1 << 20, 8_192).unwrap();
    let over = announces(Some(65_536), 1 << 20, 8_193).unwrap_err();
    assert_eq!(
        over.to_string(),
        "a payload would take 8193 bytes, above 8192: an eighth of --memory"
    );
    let hit = over.limit().unwrap();
    assert_eq!(
        (hit.value, hit.limit, hit.option),
        (8_193, 8_192, "--memory")
    );
    // The error names the limit, if that is no larger.
    for (memory, limit) in [(Some(65_536), 8_192), (Some(1 << 20), 8_192), (None, 8_192)] {
        let over = announces(memory, limit, 8_193).unwrap_err();
        assert_eq!(over.option(), Some("--max-payload-bytes"));
    }
}
