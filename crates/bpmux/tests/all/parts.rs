//! Messages that are told chunk by chunk, of any length (R-BPM-31).
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_bpmux::{Config, Connection, CreditPolicy, EntityKind, Event, Limits, Target};
use ackline_core::{Connection as _, ErrorKind as _, SendQueue};
use bytes::{Buf as _, Bytes, BytesMut};

const PEER: Target = Target::Peer(1);

/// Returns an end that takes payloads of 100 bytes, and longer messages in parts; the peer's sink is open.
fn end(parts: bool) -> Connection {
    let credit = CreditPolicy::Automatic {
        floor: 50,
        ceiling: 50,
        budget: 0,
    };
    let config = Config {
        credit,
        parts,
        limits: Limits {
            max_payload_bytes: 100,
            ..Limits::default()
        },
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), config);
    takes(&mut end, &sent(PayloadRole::Open(EntityKind::Sink, 1), b"")).unwrap();
    wire(&mut end);
    assert!(matches!(end.poll_event(), Some(Event::Opened { .. })));
    end
}

fn sent(role: PayloadRole, payload: &[u8]) -> Vec<u8> {
    let length = u64::try_from(payload.len()).unwrap();
    // The role is seen from the peer.
    let role = role.flipped();
    let head = encode(Head::Payload { role, length });
    [head.as_ref(), payload].concat()
}

fn partial(total: u64) -> Vec<u8> {
    encode(Head::Partial { total }).as_ref().to_vec()
}

/// Receives bytes. The error is the code of the violation.
fn takes(end: &mut Connection, bytes: &[u8]) -> Result<(), &'static str> {
    let mut input = BytesMut::from(bytes);
    let need = end.receive(Instant::now(), &mut input);
    need.map(drop).map_err(|error| error.kind.code())
}

fn wire(end: &mut Connection) -> Bytes {
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    out.copy_to_bytes(out.remaining())
}

/// Returns the messages that are told: the bytes, and whether a message ends with them.
fn told(end: &mut Connection) -> Vec<(Bytes, bool)> {
    let events = std::iter::from_fn(|| end.poll_event());
    events
        .filter_map(|event| match event {
            Event::Part {
                target,
                payload,
                is_last,
            } => {
                assert_eq!(target, PEER);
                Some((payload.to_bytes(), is_last))
            }
            Event::Message { payload, .. } => Some((payload.to_bytes(), true)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_message_far_above_the_limit_comes_in_its_chunks_and_holds_nothing() {
    let mut end = end(true);
    let message = PayloadRole::Message(PEER);
    takes(
        &mut end,
        &[partial(100_000), sent(message, &[7; 50])].concat(),
    )
    .unwrap();
    let mut came = 0;
    loop {
        for (bytes, is_last) in told(&mut end) {
            came += bytes.len();
            assert_eq!(is_last, came == 100_000);
            end.consumed(PEER, 50);
        }
        assert_eq!(end.held_bytes(), 0);
        if came == 100_000 {
            break;
        }
        // Credit for the consumed bytes is given back.
        assert_eq!(end.granted(PEER).unwrap(), 50);
        wire(&mut end);
        takes(&mut end, &sent(message, &[7; 50])).unwrap();
    }
    wire(&mut end);
    assert_eq!(end.stats().payloads_received, 2, "with its opening");
    assert_eq!(end.counts().tables.partials, 0);
    takes(&mut end, &sent(message, b"next")).unwrap();
    assert_eq!(told(&mut end), [(Bytes::from("next"), true)]);
}

#[test]
fn without_credit_for_it_no_part_comes_in() {
    let mut end = end(true);
    let message = PayloadRole::Message(PEER);
    takes(
        &mut end,
        &[partial(1_000), sent(message, &[7; 50])].concat(),
    )
    .unwrap();
    assert_eq!(end.granted(PEER).unwrap(), 0, "nothing was taken");
    let over = takes(&mut end, &sent(message, &[7; 1])).unwrap_err();
    assert_eq!(over, "bpmux.credit_exceeded");
}

#[test]
fn everything_else_has_its_limit_as_before() {
    for role in [
        PayloadRole::Message(Target::Top),
        PayloadRole::Request(5),
        PayloadRole::Open(EntityKind::Sink, 5),
        PayloadRole::Close(PEER),
    ] {
        let mut end = end(true);
        let refused = takes(&mut end, &[partial(101), sent(role, &[7; 10])].concat());
        assert_eq!(refused.unwrap_err(), "bpmux.limit_exceeded", "{role}");
    }
    let mut end = end(false);
    assert_eq!(
        takes(&mut end, &partial(101)).unwrap_err(),
        "bpmux.limit_exceeded"
    );
}

#[test]
fn a_message_in_parts_is_not_cut_short_and_ends_with_its_cancel() {
    let message = PayloadRole::Message(PEER);
    let begun = [partial(1_000), sent(message, &[7; 20])].concat();
    let mut cut = end(true);
    takes(&mut cut, &begun).unwrap();
    let close = takes(&mut cut, &sent(PayloadRole::Close(PEER), b""));
    assert_eq!(close.unwrap_err(), "bpmux.partial_violation");
    let mut cut = end(true);
    takes(&mut cut, &begun).unwrap();
    let more = takes(&mut cut, &[partial(5), sent(message, &[7; 5])].concat());
    assert_eq!(more.unwrap_err(), "bpmux.partial_violation");

    let mut cancelled = end(true);
    takes(&mut cancelled, &begun).unwrap();
    assert_eq!(told(&mut cancelled).len(), 1);
    cancelled.cancel(PEER, Bytes::new()).unwrap();
    wire(&mut cancelled);
    takes(&mut cancelled, &sent(message, &[7; 30])).unwrap();
    assert_eq!(told(&mut cancelled), [], "what is on its way is dropped");
    takes(
        &mut cancelled,
        encode(Head::AckCancel(PEER.flipped())).as_ref(),
    )
    .unwrap();
    let counts = cancelled.counts();
    assert_eq!(
        (
            counts.tables.partials,
            counts.credit.unread,
            cancelled.held_bytes()
        ),
        (0, 0, 0)
    );
}

#[test]
fn a_message_in_one_chunk_is_one_message_and_empty_chunks_are_nothing() {
    let mut end = end(true);
    let message = PayloadRole::Message(PEER);
    let one = [partial(4), sent(message, b"four")].concat();
    let two = [partial(2), sent(message, b""), sent(message, b"ab")].concat();
    takes(&mut end, &[one, two].concat()).unwrap();
    let expected = [(Bytes::from("four"), true), (Bytes::from("ab"), true)];
    assert_eq!(told(&mut end), expected);
}
