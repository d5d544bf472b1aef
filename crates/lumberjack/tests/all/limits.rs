//! Every limit of the reading's section 7 holds exactly: the value itself is taken, one less refuses it
//! and names value, limit and option.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{ErrorKind, LimitHit, Need};
use ackline_lumberjack::frame::{self, Frame, Version};
use ackline_lumberjack::{Limits, Reader, ReaderConfig};
use bytes::Bytes;

use crate::wire::{self, envelope, feed, json, window};

const V2: Version = Version::V2;

struct Case {
    option: &'static str,
    set: fn(&mut Limits, usize),
    /// The frames' size that the limit applies to.
    size: usize,
    frames: Vec<Frame>,
    /// Bytes before the frame that is refused.
    offset: u64,
}

fn data(pairs: &[(&'static [u8], &'static [u8])]) -> Frame {
    let own = |&(key, value)| (Bytes::from_static(key), Bytes::from_static(value));
    Frame::Data {
        version: V2,
        sequence_number: 1,
        pairs: pairs.iter().map(own).collect(),
    }
}

fn len(frame: &Frame) -> usize {
    wire::wire(std::slice::from_ref(frame)).len()
}

/// The limits that are checked in a frame's header, each with an event that comes in a window of
/// one.
fn of_events() -> Vec<Case> {
    let case = |option, set, size, event| Case {
        option,
        set,
        size,
        frames: vec![window(V2, 1), event],
        offset: 6,
    };
    let fields = data(&[(b"key", b"a value"), (b"a long key", b"")]);
    let payload = Frame::Json {
        version: V2,
        sequence_number: 1,
        payload: Bytes::from_static(b"{\"message\":\"line\"}"),
    };
    vec![
        case("--max-json-bytes", |l, n| l.max_json_bytes = n, 18, payload),
        case(
            "--max-data-bytes",
            |l, n| l.max_data_bytes = n,
            len(&fields),
            fields.clone(),
        ),
        case(
            "--max-data-bytes",
            |l, n| l.max_data_bytes = n,
            10,
            data(&[]),
        ),
        case(
            "--max-pairs",
            |l, n| l.max_pairs = small(n),
            2,
            fields.clone(),
        ),
        case(
            "--max-field-bytes",
            |l, n| l.max_field_bytes = n,
            10,
            fields,
        ),
        case(
            "--max-field-bytes",
            |l, n| l.max_field_bytes = n,
            7,
            data(&[(b"key", b"a value")]),
        ),
    ]
}

/// The same events in an envelope, and a window frame in one.
fn inside_envelopes() -> Vec<Case> {
    let mut cases = of_events();
    for case in &mut cases {
        let event = case.frames.pop().unwrap();
        case.frames.push(envelope(V2, vec![event]));
    }
    cases.push(Case {
        option: "--max-window-events",
        set: |l, n| l.max_window_events = small(n),
        size: 2,
        frames: vec![envelope(V2, vec![window(V2, 2), json(V2, 1), json(V2, 2)])],
        offset: 0,
    });
    cases
}

/// The limits of whole envelopes and windows.
fn of_windows() -> Vec<Case> {
    let events = || vec![json(V2, 1), json(V2, 2)];
    let one = envelope(V2, events());
    let compressed = len(&one) - 6;
    let window_bytes = |frames, offset| Case {
        option: "--max-window-bytes",
        set: |l, n| l.max_window_bytes = n,
        size: 24,
        frames,
        offset,
    };
    let alone = |sequence| envelope(V2, vec![json(V2, sequence)]);
    let first = u64::try_from(6 + len(&alone(1))).unwrap();
    vec![
        Case {
            option: "--max-window-events",
            set: |l, n| l.max_window_events = small(n),
            size: 2,
            frames: vec![window(V2, 2), json(V2, 1), json(V2, 2)],
            offset: 0,
        },
        Case {
            option: "--max-compressed-bytes",
            set: |l, n| l.max_compressed_bytes = n,
            size: compressed,
            frames: vec![window(V2, 2), one.clone()],
            offset: 6,
        },
        Case {
            option: "--max-inflated-bytes",
            set: |l, n| l.max_inflated_bytes = n,
            size: 24,
            frames: vec![window(V2, 2), one.clone()],
            offset: 6,
        },
        window_bytes(vec![window(V2, 2), json(V2, 1), json(V2, 2)], 18),
        window_bytes(vec![window(V2, 2), one], 6),
        window_bytes(vec![window(V2, 2), alone(1), alone(2)], first),
        window_bytes(vec![window(V2, 2), alone(1), json(V2, 2)], first),
        window_bytes(
            vec![envelope(V2, vec![window(V2, 2), json(V2, 1), json(V2, 2)])],
            0,
        ),
    ]
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

fn reader(case: &Case, limit: usize) -> Reader {
    let mut config = ReaderConfig::bare();
    (case.set)(&mut config.limits, limit);
    Reader::new(config)
}

#[test]
fn a_limit_takes_its_value_and_refuses_one_more() {
    let cases = [of_events(), inside_envelopes(), of_windows()];
    for case in cases.into_iter().flatten() {
        let bytes = wire::wire(&case.frames);
        let now = Instant::now();
        let (windows, _) = feed(&mut reader(&case, case.size), now, &mut bytes.clone()).unwrap();
        assert_eq!(windows.len(), 1, "{} at its limit", case.option);
        let refused = feed(&mut reader(&case, case.size - 1), now, &mut bytes.clone());
        let error = refused.unwrap_err();
        let hit = LimitHit {
            value: u64::try_from(case.size).unwrap(),
            limit: u64::try_from(case.size - 1).unwrap(),
            option: case.option,
        };
        assert_eq!((error.kind.limit(), error.offset), (Some(hit), case.offset));
    }
}

#[test]
fn frames_are_decoded_up_to_the_same_limits() {
    for case in of_events() {
        let bytes = wire::wire(&case.frames[1..]);
        let decode = |limit| {
            let mut limits = Limits::default();
            (case.set)(&mut limits, limit);
            frame::decode(&bytes, &limits, frame::From::Writer)
        };
        assert!(matches!(decode(case.size), Ok(Some(_))), "{}", case.option);
        assert!(decode(case.size - 1).is_err(), "{}", case.option);
    }
}

#[test]
fn a_limit_of_no_unacknowledged_windows_still_lets_one_in() {
    let mut config = ReaderConfig::bare();
    config.limits.max_unacked_windows = 0;
    let (now, mut reader) = (Instant::now(), Reader::new(config));
    let mut input = wire::wire(&[window(V2, 1), json(V2, 1), window(V2, 1), json(V2, 1)]);
    let (windows, need) = feed(&mut reader, now, &mut input).unwrap();
    assert_eq!((windows.len(), need, input.len()), (1, Need::Room, 18));
}
