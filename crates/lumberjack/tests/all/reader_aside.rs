//! Unreadable envelopes: those that are set aside, with their numbers, and those that are refused
//! nevertheless.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, ErrorKind, Need};
use ackline_lumberjack::frame::{Frame, Version};
use ackline_lumberjack::{Event, Invalid, Limits, OnInvalid, Reader, ReaderConfig};
use bytes::BytesMut;

use crate::wire::{self, envelope, json, seconds, sent, window};

const V1: Version = Version::V1;
const V2: Version = Version::V2;

fn config() -> ReaderConfig {
    ReaderConfig {
        on_invalid: OnInvalid::Quarantine,
        limits: Limits {
            max_json_bytes: 1_000,
            max_inflated_bytes: 10_000,
            max_compressed_bytes: 20_000,
            ..Limits::default()
        },
        ..ReaderConfig::bare()
    }
}

fn bytes(frames: &[Frame]) -> Vec<u8> {
    wire::wire(frames).to_vec()
}

/// A compressed frame around `stream`.
fn around(stream: &[u8]) -> Vec<u8> {
    let len = u32::try_from(stream.len()).unwrap().to_be_bytes();
    [b"2C", &len[..], stream].concat()
}

/// A sound zlib stream, of one stored block, around `inner`.
fn stored(inner: &[u8]) -> Vec<u8> {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in inner {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    let len = u16::try_from(inner.len()).unwrap();
    let head = [
        &[0x78, 0x01, 1],
        &len.to_le_bytes()[..],
        &(!len).to_le_bytes(),
    ];
    let adler = (high << 16 | low).to_be_bytes();
    around(&[&head.concat()[..], inner, &adler].concat())
}

fn long_json(len: usize) -> Vec<u8> {
    let mut out = b"2J\0\0\0\x01".to_vec();
    out.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
    out.resize(out.len() + len, b'x');
    out
}

/// Envelopes after `W 3` that cannot be read, each with its code.
fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let three = bytes(&[json(V2, 1), json(V2, 2), json(V2, 3)]);
    let sound = stored(&three);
    let last = sound.len() - 1;
    let mut adler = sound.clone();
    adler[last] ^= 1;
    let mut zlib = bytes(&[envelope(V2, vec![json(V2, 1), json(V2, 2), json(V2, 3)])]);
    zlib[7] = 0xff;
    let trailing = around(&[&sound[6..], b"more"].concat());
    let nested = stored(&bytes(&[envelope(V2, vec![json(V2, 1)])]));
    let unknown = stored(&[&three[..], b"2X\0\0\0\0"].concat());
    let direction = stored(&[&three[..], b"2A\0\0\0\0"].concat());
    let overrun = stored(&[&three[..], &bytes(&[json(V2, 4)])].concat());
    let premature = stored(&bytes(&[json(V2, 1), window(V2, 1)]));
    let mixed = stored(&bytes(&[json(V2, 1), json(V1, 2)]));
    vec![
        ("zlib", zlib),
        ("zlib", adler),
        ("zlib", around(&sound[6..last])),
        ("trailing_bytes", trailing),
        ("truncated_envelope", stored(&three[..three.len() - 1])),
        ("nested_envelope", nested),
        ("unknown_frame_type", unknown),
        ("unknown_version", stored(b"XX\0\0")),
        ("wrong_direction", direction),
        ("overrun", overrun),
        ("premature_window", premature),
        ("version_mixed", mixed),
        ("frame_too_large", stored(&long_json(1_001))),
        ("inflated_too_large", stored(&long_json(900).repeat(12))),
    ]
}

/// The events of a reader for bytes in pieces cut at `cuts`, all of them acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    sound: Vec<u64>,
    aside: Vec<(u64, u32, String, u64, Vec<u8>)>,
    error: Option<(String, u64)>,
    sent: Vec<u8>,
}

fn told(config: ReaderConfig, pieces: &[&[u8]]) -> Told {
    let (now, mut reader, mut told) = (Instant::now(), Reader::new(config), Told::default());
    let mut input = BytesMut::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let need = reader.receive(now, &mut input);
            while let Some(event) = reader.poll_event() {
                let id = match event {
                    Event::Window(window) => {
                        told.sound.push(window.id);
                        window.id
                    }
                    Event::Invalid(one) => {
                        let code = one.kind.code().replace("lumberjack.", "");
                        let row = (
                            one.id,
                            one.window_size,
                            code,
                            one.offset,
                            one.bytes.to_vec(),
                        );
                        told.aside.push(row);
                        one.id
                    }
                };
                // After an error nothing is acknowledged any more.
                let _ = reader.ack(now, id);
            }
            told.sent.extend(sent(&mut reader, now));
            match need {
                Ok(Need::Input { .. }) => break,
                Ok(_) => {}
                Err(error) => {
                    let code = error.kind.code().replace("lumberjack.", "");
                    told.error = Some((code, error.offset));
                    return told;
                }
            }
        }
    }
    assert_eq!(reader.held_bytes(), 0);
    told
}

#[test]
fn an_unreadable_envelope_is_set_aside_and_the_connection_continues() {
    for (code, bad) in broken() {
        let before = bytes(&[window(V2, 1), json(V2, 1), window(V2, 3)]);
        let after = bytes(&[window(V2, 1), json(V2, 1)]);
        let all = [&before[..], &bad, &after].concat();
        let offset = u64::try_from(before.len()).unwrap();
        let expected = Told {
            sound: vec![1, 3],
            aside: vec![(2, 3, code.to_owned(), offset, bad)],
            error: None,
            sent: b"2A\0\0\0\x012A\0\0\0\x032A\0\0\0\x01".to_vec(),
        };
        assert_eq!(told(config(), &[&all]), expected);
        for cut in 1..all.len() {
            let (front, back) = all.split_at(cut);
            assert_eq!(
                told(config(), &[front, back]),
                expected,
                "{code} cut at {cut}"
            );
        }
        let single: Vec<_> = all.chunks(1).collect();
        assert_eq!(told(config(), &single), expected, "{code}");
    }
}

#[test]
fn by_default_all_of_it_ends_the_connection() {
    for (code, bad) in broken() {
        let before = bytes(&[window(V2, 1), json(V2, 1), window(V2, 3)]);
        let refuse = ReaderConfig {
            on_invalid: OnInvalid::Refuse,
            ..config()
        };
        let told = told(refuse, &[&[&before[..], &bad].concat()]);
        assert_eq!(told.aside, []);
        let offset = u64::try_from(before.len()).unwrap();
        assert_eq!(told.error, Some((code.to_owned(), offset)));
    }
}

#[test]
fn where_the_number_is_not_known_it_is_refused() {
    let bad = broken().swap_remove(1).1;
    let good = bytes(&[window(V2, 1), json(V2, 1)]);
    let inner = bytes(&[window(V2, 3), json(V2, 1), envelope(V2, vec![json(V2, 1)])]);
    let v1 = bytes(&[window(V1, 3)]);
    let empty = bytes(&[window(V2, 3), envelope(V2, Vec::new())]);
    let shared = bytes(&[
        window(V2, 1),
        json(V2, 1),
        window(V2, 1),
        json(V2, 2),
        json(V2, 3),
    ]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no window has been seen", bytes(&[window(V2, 3)])),
        ("no window frame", good.clone()),
        (
            "the first began at 2",
            bytes(&[window(V2, 1), json(V2, 2), window(V2, 3)]),
        ),
        (
            "the second went on with 2",
            [
                &good[..],
                &bytes(&[window(V2, 1), json(V2, 2), window(V2, 3)]),
            ]
            .concat(),
        ),
        (
            "a number was left out",
            bytes(&[window(V2, 2), json(V2, 1), json(V2, 3), window(V2, 3)]),
        ),
        (
            "numbers went back",
            bytes(&[
                window(V2, 3),
                json(V2, 1),
                json(V2, 5),
                json(V2, 3),
                window(V2, 3),
            ]),
        ),
        (
            "the first was not announced",
            bytes(&[json(V2, 1), window(V2, 3)]),
        ),
        (
            "one that did not run is never forgotten",
            [
                &bytes(&[window(V2, 1), json(V2, 7)])[..],
                &good,
                &bytes(&[window(V2, 3)]),
            ]
            .concat(),
        ),
        (
            "an event stands between",
            [&good[..], &bytes(&[window(V2, 3), json(V2, 1)])].concat(),
        ),
        ("an envelope stands between", [&good[..], &empty].concat()),
        (
            "the window is of the other version",
            [&good[..], &v1].concat(),
        ),
    ];
    for (why, before) in cases {
        let told = told(config(), &[&[&before[..], &bad].concat()]);
        assert_eq!(told.aside, [], "{why}");
        assert!(told.error.is_some(), "{why}");
    }
    // A part of it was handed on.
    for stream in [
        stored(&[&shared[6..], b"2X\0\0\0\0"].concat()),
        stored(&[&inner[16..], b"2X\0\0\0\0"].concat()),
    ] {
        let all = [&good[..], &bytes(&[window(V1, 1)]), &stream].concat();
        assert_eq!(told(config(), &[&all]).aside, []);
    }
}

#[test]
fn a_window_frame_in_the_envelope_or_a_part_handed_on_ends_it() {
    let good = bytes(&[window(V1, 1), json(V1, 1)]);
    let v1_envelope = |inner: &[u8]| {
        let mut frame = stored(inner);
        frame[0] = b'1';
        frame
    };
    // The first event fills the window, which is handed on; a new announcement precedes the fault.
    for inner in [
        [&bytes(&[json(V1, 1), json(V1, 2), window(V1, 2), json(V2, 1)])[..]].concat(),
        bytes(&[window(V1, 2), json(V2, 1)]),
        bytes(&[json(V1, 1), json(V2, 2)]),
    ] {
        let all = [&good[..], &bytes(&[window(V1, 1)]), &v1_envelope(&inner)].concat();
        let told = told(config(), &[&all]);
        assert_eq!(told.aside, []);
        assert_eq!(
            told.error.map(|error| error.0),
            Some("version_mixed".to_owned())
        );
    }
}

/// A reader to which a sound window and one that cannot be read were handed.
fn with_one_aside() -> (Instant, Reader, Invalid) {
    let now = Instant::now();
    let keepalive = Some(seconds(3));
    let mut reader = Reader::new(ReaderConfig {
        keepalive,
        ..config()
    });
    let (_, bad) = broken().swap_remove(1);
    let before = bytes(&[window(V2, 1), json(V2, 1), window(V2, 3)]);
    let mut input = BytesMut::from(&[&before[..], &bad].concat()[..]);
    while reader.receive(now, &mut input).unwrap() == Need::Again {}
    assert!(matches!(reader.poll_event(), Some(Event::Window(_))));
    let aside = match reader.poll_event() {
        Some(Event::Invalid(invalid)) => Some(invalid),
        _ => None,
    };
    (now, reader, aside.unwrap())
}

#[test]
fn a_window_that_is_refused_after_all_ends_the_connection_with_its_fault() {
    let (now, mut reader, invalid) = with_one_aside();
    assert_eq!(reader.refuse(now, 1).unwrap_err().code, "unknown_window");
    assert_eq!(reader.refuse(now, 9).unwrap_err().code, "unknown_window");
    assert_eq!(reader.poll_timeout(), Some(now + seconds(3)));
    reader.ack(now, 1).unwrap();
    reader.refuse(now, invalid.id).unwrap();
    assert_eq!(reader.poll_timeout(), Some(now), "it is due at once");
    let error = reader.handle_timeout(now).unwrap_err();
    assert_eq!(
        (error.kind.clone(), error.offset),
        (invalid.kind, invalid.offset)
    );
    assert_eq!(
        sent(&mut reader, now),
        b"2A\0\0\0\x01",
        "what was acknowledged before"
    );
    assert_eq!(
        reader.receive(now, &mut BytesMut::new()).unwrap_err(),
        error
    );
    assert_eq!(reader.ack(now, invalid.id).unwrap_err().code, "closed");
    let (now, mut reader, invalid) = with_one_aside();
    reader.ack(now, invalid.id).unwrap();
    assert_eq!(
        reader.refuse(now, invalid.id).unwrap_err().code,
        "unknown_window"
    );
    // Input and the peer's end fail too.
    let (now, mut reader, invalid) = with_one_aside();
    reader.refuse(now, invalid.id).unwrap();
    assert!(reader.receive(now, &mut BytesMut::new()).is_err());
    let (now, mut reader, invalid) = with_one_aside();
    reader.refuse(now, invalid.id).unwrap();
    assert!(reader.receive_eof(now).is_err());
}

/// A reader that settles after an error, to which three windows were handed, the second one unreadable.
fn with_one_between() -> (Instant, Reader) {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        settle_after_error: true,
        ..config()
    });
    let (_, bad) = broken().swap_remove(1);
    let before = bytes(&[window(V2, 1), json(V2, 1), window(V2, 3)]);
    let after = bytes(&[window(V2, 1), json(V2, 1)]);
    let mut input = BytesMut::from(&[&before[..], &bad, &after].concat()[..]);
    while reader.receive(now, &mut input).unwrap() == Need::Again {}
    assert_eq!(std::iter::from_fn(|| reader.poll_event()).count(), 3);
    (now, reader)
}

#[test]
fn behind_a_window_that_is_refused_nothing_is_acknowledged() {
    let (now, mut reader) = with_one_between();
    reader.refuse(now, 2).unwrap();
    assert!(reader.handle_timeout(now).is_err());
    assert_eq!(reader.ack(now, 3).unwrap_err().code, "unknown_window");
    assert_eq!(reader.landed(now, 2).unwrap_err().code, "unknown_window");
    assert!(reader.owes_answers());
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x01");
    assert!(!reader.owes_answers());
    assert_eq!(reader.poll_timeout(), None);
}

#[test]
fn a_window_that_is_refused_after_an_error_is_not_waited_for() {
    let (now, mut reader) = with_one_between();
    let error = reader.receive(now, &mut BytesMut::from(&b"XX"[..]));
    let error = error.unwrap_err();
    reader.ack(now, 1).unwrap();
    reader.ack(now, 3).unwrap();
    sent(&mut reader, now);
    assert!(reader.owes_answers());
    reader.refuse(now, 2).unwrap();
    assert!(!reader.owes_answers());
    assert_eq!(sent(&mut reader, now), b"");
    let again = reader.receive(now, &mut BytesMut::new()).unwrap_err();
    assert_eq!(again, error, "the first error stays");
}

#[test]
fn a_landed_window_is_no_longer_held_and_still_waits() {
    let (now, mut reader, invalid) = with_one_aside();
    let held = reader.held_bytes();
    assert_eq!(held, 12 + invalid.bytes.len());
    reader.landed(now, invalid.id).unwrap();
    assert_eq!(reader.held_bytes(), 12);
    reader.landed(now, 1).unwrap();
    reader.landed(now, 1).unwrap();
    assert_eq!((reader.held_bytes(), reader.unacknowledged()), (0, 2));
    assert_eq!(reader.landed(now, 3).unwrap_err().code, "unknown_window");
    reader.handle_timeout(now + seconds(3)).unwrap();
    assert_eq!(
        sent(&mut reader, now + seconds(3)),
        b"2A\0\0\0\0",
        "a keepalive"
    );
    reader.ack(now, 1).unwrap();
    assert_eq!(reader.landed(now, 1).unwrap_err().code, "unknown_window");
    reader.ack(now, invalid.id).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x012A\0\0\0\x03");
    assert_eq!(reader.held_bytes(), 0);
    let stats = reader.stats();
    assert_eq!((stats.windows, stats.events), (2, 4));
    assert_eq!((stats.acked_windows, stats.acked_events), (2, 4));
}

#[test]
fn version_1_is_refused_where_acknowledgements_come_late() {
    for first in [window(V1, 1), json(V1, 1), envelope(V1, vec![json(V1, 1)])] {
        let late = ReaderConfig {
            v1: false,
            ..config()
        };
        let told = told(late, &[&bytes(&[first])]);
        assert_eq!(told.error, Some(("v1_needs_durable_ack".to_owned(), 0)));
    }
    let late = ReaderConfig {
        v1: false,
        ..config()
    };
    let told = told(late, &[&bytes(&[window(V2, 1), json(V2, 1)])]);
    assert_eq!((told.sound, told.error), (vec![1], None));
}
