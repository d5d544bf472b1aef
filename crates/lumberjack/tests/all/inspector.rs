//! The frames of a capture as tools show them.
#![allow(clippy::unwrap_used, clippy::panic)] // tests may panic

use ackline_core::{ErrorKind, Inspect, Inspected, Value};
use ackline_lumberjack::frame::{Frame, From, Version};
use ackline_lumberjack::{Inspector, Limits};
use bytes::{Bytes, BytesMut};

use crate::wire::{envelope, json, window, wire};

fn all(from: From, mut input: BytesMut) -> Vec<Inspected> {
    let mut inspector = Inspector::new(from, Limits::default());
    let mut frames = Vec::new();
    while let Some(frame) = inspector.inspect(&mut input).unwrap() {
        every_byte_has_a_purpose(&frame);
        frames.push(frame);
    }
    assert!(input.is_empty(), "{input:02x?} is left");
    frames
}

fn every_byte_has_a_purpose(frame: &Inspected) {
    let spanned: usize = frame.spans.iter().map(|span| span.len).sum();
    assert_eq!(spanned, frame.bytes.len(), "{frame:?}");
}

fn labels(frame: &Inspected) -> Vec<&str> {
    frame.spans.iter().map(|span| span.label.as_str()).collect()
}

#[test]
fn an_envelope_is_shown_with_its_frames() {
    let inner = vec![json(Version::V2, 1), json(Version::V2, 2)];
    let sent = wire(&[window(Version::V2, 2), envelope(Version::V2, inner)]);
    let came = all(From::Writer, sent);
    let ("frames", Value::Frames(inner)) = &came[1].members[1] else {
        panic!("{:?}", came[1]);
    };
    inner.iter().for_each(every_byte_has_a_purpose);
    assert_eq!(
        (came[0].name, came[1].name, inner.len()),
        ("window", "compressed", 2)
    );
    assert_eq!(labels(&came[0]), ["version 2", "window", "2 events"]);
    assert_eq!(
        inner[1].members,
        [
            ("version", Value::Number(2)),
            ("sequence_number", Value::Number(2)),
            ("payload", Value::Bytes(Bytes::from_static(b"{}"))),
        ]
    );
    let named = [
        "version 2",
        "json",
        "sequence number 2",
        "2 bytes",
        "payload",
    ];
    assert_eq!(labels(&inner[1]), named);
}

#[test]
fn pairs_are_shown_field_by_field() {
    let field = Bytes::from_static;
    let data = Frame::Data {
        version: Version::V1,
        sequence_number: 7,
        pairs: vec![(field(b"line"), field(b"")), (field(b"host"), field(b"a"))],
    };
    let came = all(From::Writer, wire(&[data]));
    let value = |bytes| Value::Bytes(field(bytes));
    let pair = |key, of| Value::List(vec![value(key), value(of)]);
    let pairs = Value::List(vec![pair(b"line", b""), pair(b"host", b"a")]);
    assert_eq!(came[0].members[2], ("pairs", pairs));
    assert_eq!(
        labels(&came[0])[3..],
        [
            "2 pairs",
            "key of 4 bytes",
            "key",
            "value of 0 bytes",
            "key of 4 bytes",
            "key",
            "value of 1 bytes",
            "value",
        ]
    );
}

#[test]
fn acknowledgements_are_those_of_the_reader() {
    let ack = || BytesMut::from(&b"2A\0\0\0\x09"[..]);
    let came = all(From::Reader, ack());
    assert_eq!(came[0].members[1], ("sequence_number", Value::Number(9)));
    assert_eq!(labels(&came[0]), ["version 2", "ack", "sequence number 9"]);
    let mut writer = Inspector::new(From::Writer, Limits::default());
    let error = writer.inspect(&mut ack()).unwrap_err();
    assert_eq!(error.code(), "lumberjack.wrong_direction");
}
