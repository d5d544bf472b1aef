//! The frames of a capture in the form for tools.
#![allow(clippy::unwrap_used, clippy::panic)] // tests may panic

use ackline_core::{ErrorKind, Inspect, Inspected, Value};
use ackline_relink::Limits;
use ackline_relink::frame::{Context, Inspector, LISTED_IDS, Role};
use bytes::{Bytes, BytesMut};

/// An inspector with these id sizes of the connector and the listener.
fn inspector(from: Role, [connector, listener]: [u8; 2], handshake: bool) -> Inspector {
    let context = Context {
        from,
        connector_channel_id_size: connector,
        listener_channel_id_size: listener,
    };
    Inspector::new(context, Limits::default(), handshake)
}

/// Returns all frames, and checks that every byte of each has a meaning.
fn all(mut inspector: Inspector, bytes: &[u8]) -> Vec<Inspected> {
    let mut input = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = inspector.inspect(&mut input).unwrap() {
        let spanned: usize = frame.spans.iter().map(|span| span.len).sum();
        assert_eq!(spanned, frame.bytes.len(), "{frame:?}");
        frames.push(frame);
    }
    assert!(input.is_empty(), "{input:02x?} is left");
    frames
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn labels(frame: &Inspected) -> Vec<&str> {
    frame.spans.iter().map(|span| span.label.as_str()).collect()
}

fn bytes(value: &'static [u8]) -> Value {
    Value::Bytes(Bytes::from_static(value))
}

#[test]
fn a_connectors_handshake_gives_the_id_sizes_of_its_packets() {
    let capture = hex(
        "0000000000000000 0361 6263 0201 05 00 0700000000000000 0900000000000000
        11014560 0100 0000 2a00000000000000 2d07 0000 ffffffff",
    );
    let frames = all(inspector(Role::Connector, [9, 9], true), &capture);
    let names: Vec<_> = frames.iter().map(|frame| frame.name).collect();
    assert_eq!(
        names,
        ["version", "endpoint", "message", "sequence_acknowledgement"]
    );
    assert_eq!(frames[0].members, [("version", Value::Number(0))]);
    assert_eq!(
        frames[1].members,
        [
            ("endpoint_name", Value::Text("abc".to_owned())),
            ("connector_channel_id_size", Value::Number(2)),
            ("listener_channel_id_size", Value::Number(1)),
            ("connector_transactions", Value::Flag(true)),
            ("listener_transactions", Value::Flag(false)),
            ("require_old_link_id", Value::Flag(true)),
            ("old_epoch", Value::Number(7)),
            ("old_link_id", Value::Number(9)),
        ]
    );
    assert_eq!(
        labels(&frames[1]),
        [
            "endpoint name of 3 bytes",
            "endpoint name \"abc\"",
            "connector's channel id size 2",
            "listener's channel id size 1",
            "flags: connector's transactions, require old link id",
            "padding",
            "old epoch 7",
            "old link id 9",
        ]
    );
    assert_eq!(
        frames[2].members,
        [
            ("multicast", Value::Flag(false)),
            ("channel_ids", Value::List(vec![bytes(b"\x45\x60")])),
            ("payload", Value::List(vec![bytes(b"*")])),
        ]
    );
}

#[test]
fn a_listeners_handshake_is_its_version_and_ident() {
    let capture = hex("0000000000000000 4000000000000000 0100000000000000 8000000000000000");
    let frames = all(inspector(Role::Listener, [0, 0], true), &capture);
    let names: Vec<_> = frames.iter().map(|frame| frame.name).collect();
    assert_eq!(names, ["version", "ident", "shutdown"]);
    let ident = [("epoch", Value::Number(64)), ("link_id", Value::Number(1))];
    assert_eq!(frames[1].members, ident);
    assert_eq!(labels(&frames[2]), ["shutdown", "padding"]);
}

#[test]
fn every_byte_of_a_message_has_a_purpose() {
    let example = hex("1103070003000000 0500000000000000 6162630000000000 68656c6c6f000000");
    let frames = all(inspector(Role::Connector, [1, 0], false), &example);
    assert_eq!(
        labels(&frames[0]),
        [
            "message, parts: 3",
            "channel id",
            "padding",
            "size of part 0: 3",
            "size of part 1: 0",
            "size of part 2: 5",
            "padding",
            "part 0",
            "padding",
            "part 2",
            "padding",
        ]
    );
    let long = hex(
        "7300000002000000 0000000100000002 0200000000000000 0300000000000000
        0000000000000000 7878780000000000",
    );
    let frames = all(inspector(Role::Connector, [4, 0], false), &long);
    assert_eq!(
        labels(&frames[0])[..7],
        [
            "multicast long large message, parts: 2",
            "padding",
            "2 channel ids",
            "channel id",
            "channel id",
            "2 parts",
            "padding",
        ]
    );
}

#[test]
fn operations_and_acknowledgements_are_told_in_their_words() {
    let capture = hex("4300000002000000 4560456100000000 0900456005000000 8900456005000000");
    let mut inspector = inspector(Role::Connector, [2, 0], false);
    let mut input = BytesMut::from(capture.as_slice());
    let close = inspector.inspect(&mut input).unwrap().unwrap();
    assert_eq!(close.name, "channel_operation");
    assert_eq!(close.members[2], ("operation", Value::Name("close")));
    assert_eq!(labels(&close)[0], "multicast close");
    let commit = inspector.inspect(&mut input).unwrap().unwrap();
    assert_eq!(
        commit.members[2..],
        [
            ("operation", Value::Name("commit")),
            ("sequence_number", Value::Number(5)),
        ]
    );
    assert_eq!(
        labels(&commit),
        ["commit up to", "channel id", "sequence number 5"]
    );
    let error = inspector.inspect(&mut input).unwrap_err();
    assert_eq!(error.code(), "relink.unused_enumeration");
    assert_eq!(input.len(), 8, "an unsound packet stays");
}

#[test]
fn a_million_ids_without_bytes_are_counted_and_some_are_listed() {
    let capture = hex("0300000000001000");
    let frames = all(inspector(Role::Connector, [0, 0], false), &capture);
    assert_eq!(
        frames[0].members[1],
        ("channel_id_count", Value::Number(1 << 20))
    );
    let ("channel_ids", Value::List(ids)) = &frames[0].members[2] else {
        panic!("{:?}", frames[0].members);
    };
    assert_eq!(ids.len(), LISTED_IDS);
}

#[test]
fn half_a_frame_is_left_for_later() {
    let capture = hex("11014560 0100 0000 2a00000000000000");
    let mut inspector = inspector(Role::Connector, [2, 0], false);
    let mut input = BytesMut::new();
    for byte in &capture {
        assert_eq!(inspector.inspect(&mut input), Ok(None));
        input.extend_from_slice(&[*byte]);
    }
    assert_eq!(
        inspector.inspect(&mut input).unwrap().unwrap().bytes,
        capture
    );
}

#[test]
fn ids_longer_than_a_message_may_be_are_not_waited_for() {
    let most = Limits {
        max_channel_ids: u32::MAX,
        max_message_bytes: 1_000,
        ..Limits::default()
    };
    let context = Context {
        from: Role::Connector,
        connector_channel_id_size: 2,
        listener_channel_id_size: 0,
    };
    let mut inspector = Inspector::new(context, most, false);
    for (count, is_waited_for) in [("f4010000", true), ("f5010000", false)] {
        let mut input = BytesMut::from(&hex(&format!("13010000{count}"))[..]);
        match inspector.inspect(&mut input) {
            Ok(None) => assert!(is_waited_for),
            Err(error) => {
                let hit = error.limit().unwrap();
                assert_eq!((hit.value, hit.limit, is_waited_for), (1_002, 1_000, false));
            }
            Ok(Some(frame)) => panic!("{frame:?}"),
        }
    }
}
