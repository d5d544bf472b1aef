//! How a silent connection ends in each state of its reader, and how one is retired.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, Lifecycle, Need};
use ackline_lumberjack::frame::{Frame, Version, encode};
use ackline_lumberjack::{Event, Kind, Reader, ReaderConfig};
use bytes::BytesMut;

use crate::wire::{self, json, sent, window};

const V1: Version = Version::V1;
const V2: Version = Version::V2;

/// The end of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// An error that names this option.
    Refused(&'static str),
    /// A FIN in good order.
    Fin,
    /// Nothing: a window waits for us.
    Never,
}

fn envelope(frames: Vec<Frame>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let version = V2;
    encode(&Frame::Compressed { version, frames }, 3, &mut bytes);
    bytes
}

fn wire_of(frames: &[Frame]) -> Vec<u8> {
    wire::wire(frames).to_vec()
}

fn receive(reader: &mut Reader, now: Instant, input: &mut BytesMut) {
    while reader.receive(now, input).unwrap() == Need::Again {}
}

fn silent_for(bytes: &[u8], ack: bool) -> (u64, End) {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        keepalive: None,
        ..ReaderConfig::default()
    });
    reader.reading(now, true);
    receive(&mut reader, now, &mut BytesMut::from(bytes));
    while let Some(event) = reader.poll_event() {
        if let (true, Event::Window(window)) = (ack, event) {
            reader.ack(now, window.id).unwrap();
        }
    }
    sent(&mut reader, now);
    let Some(due) = reader.poll_timeout() else {
        return (0, End::Never);
    };
    let after = due.duration_since(now).as_secs();
    assert!(reader.handle_timeout(now + (due - now) / 2).is_ok());
    match reader.handle_timeout(due) {
        Ok(()) => {
            assert_eq!(reader.lifecycle(), Lifecycle::Draining);
            (after, End::Fin)
        }
        Err(error) => match error.kind {
            Kind::Timeout(option) => (after, End::Refused(option)),
            other => unreachable!("{other}"),
        },
    }
}

#[test]
fn each_state_of_silence_has_its_deadline() {
    let whole = [window(V2, 1), json(V2, 1)];
    let half = [window(V2, 2), json(V2, 1)];
    let c = envelope(vec![window(V2, 1), json(V2, 1)]);
    let stall = (30, End::Refused("--stall-timeout"));
    let idle = (15 * 60, End::Fin);
    let cases: [(&str, Vec<u8>, (u64, End)); 12] = [
        (
            "no byte",
            vec![],
            (10, End::Refused("--first-byte-timeout")),
        ),
        ("the first byte of a frame", b"2".to_vec(), stall),
        ("a part of a window frame", b"2W\0\0".to_vec(), stall),
        (
            "a v2 window without an event",
            wire_of(&[window(V2, 2)]),
            stall,
        ),
        ("a v2 window with one of two", wire_of(&half), stall),
        (
            "a part of an event",
            b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x09{".to_vec(),
            stall,
        ),
        ("a part of an envelope", c[..c.len() - 1].to_vec(), stall),
        (
            "a v1 window without an event",
            wire_of(&[window(V1, 2)]),
            idle,
        ),
        (
            "a v1 window with one of two",
            wire_of(&[window(V1, 2), json(V1, 1)]),
            stall,
        ),
        ("a window that is acknowledged", wire_of(&whole), idle),
        ("an envelope that is acknowledged", c.clone(), idle),
        ("a window of no event", wire_of(&[window(V2, 0)]), idle),
    ];
    for (what, bytes, end) in cases {
        assert_eq!(silent_for(&bytes, true), end, "{what}");
    }
    assert_eq!(silent_for(&wire_of(&whole), false), (0, End::Never));
    let begun = [&wire_of(&whole)[..], &wire_of(&half)].concat();
    assert_eq!(
        silent_for(&begun, false),
        stall,
        "behind one that waits for us"
    );
}

/// A reader that was retired after these bytes, and its result for the rest of them.
fn retired(before: &[u8], after: &[u8]) -> (Vec<u32>, Lifecycle, bool) {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig::bare());
    let mut input = BytesMut::from(before);
    receive(&mut reader, now, &mut input);
    reader.retire(now);
    let ended_at_once = reader.lifecycle() == Lifecycle::Draining;
    input.extend_from_slice(after);
    let mut windows = Vec::new();
    receive(&mut reader, now, &mut input);
    while let Some(Event::Window(window)) = reader.poll_event() {
        windows.push(window.records);
        reader.ack(now, window.id).unwrap();
    }
    sent(&mut reader, now);
    assert!(input.is_empty() || reader.lifecycle() == Lifecycle::Open);
    (windows, reader.lifecycle(), ended_at_once)
}

#[test]
fn a_retired_connection_completes_the_window_that_has_begun_and_no_other() {
    let two = wire_of(&[window(V2, 2), json(V2, 1), json(V2, 2)]);
    let (drained, open) = (Lifecycle::Draining, Lifecycle::Open);
    let next = [&two[..], &two].concat();
    assert_eq!(retired(b"", &two), (vec![], drained, true));
    assert_eq!(retired(&two, &two), (vec![2], drained, false));
    for cut in 6..two.len() {
        let end = retired(&next[..cut], &next[cut..]);
        assert_eq!(end, (vec![2], drained, false), "cut at {cut}");
        let part = retired(&two[..cut], b"");
        assert_eq!(part, (vec![], open, false), "cut at {cut}");
    }
    let both = envelope(vec![window(V2, 1), json(V2, 1), window(V2, 2), json(V2, 1)]);
    let rest = [wire_of(&[json(V2, 2)]), two].concat();
    let end = retired(&both, &rest);
    assert_eq!(
        end,
        (vec![1, 2], drained, false),
        "the envelope has begun the second"
    );
    let old = wire_of(&[window(V1, 2), json(V1, 1)]);
    let end = retired(&old, &wire_of(&[json(V1, 2), json(V1, 3), json(V1, 4)]));
    assert_eq!(
        end,
        (vec![2], drained, false),
        "a window that opens by itself has not begun"
    );
}

#[test]
fn the_rest_of_an_envelope_counts_as_a_begun_window() {
    let now = Instant::now();
    let mut config = ReaderConfig::bare();
    config.limits.max_unacked_windows = 1;
    let mut reader = Reader::new(config);
    let both = envelope(vec![window(V2, 1), json(V2, 1), window(V2, 1), json(V2, 1)]);
    let mut input = BytesMut::from(&both[..]);
    let mut complete = 0;
    for _ in 0..2 {
        receive(&mut reader, now, &mut input);
        reader.retire(now);
        assert_eq!(reader.lifecycle(), Lifecycle::Open);
        while let Some(Event::Window(window)) = reader.poll_event() {
            reader.ack(now, window.id).unwrap();
            complete += 1;
        }
        sent(&mut reader, now);
    }
    receive(&mut reader, now, &mut input);
    sent(&mut reader, now);
    assert_eq!((complete, reader.lifecycle()), (2, Lifecycle::Draining));
}
