//! An envelope is a plain zlib stream for an inflater that shares no code with ours.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, SendQueue};
use ackline_lumberjack::frame::{Frame, encode};
use ackline_lumberjack::{OutRecord, Version, Writer, WriterConfig};
use bytes::{Buf, Bytes};
use miniz_oxide::inflate::decompress_to_vec_zlib;
use proptest::prelude::*;

const VERSION: Version = Version::V2;
const HEADER: usize = 6;

fn json(payload: Bytes) -> Frame {
    Frame::Json {
        version: VERSION,
        sequence_number: 1,
        payload,
    }
}

fn envelope(frames: Vec<Frame>, level: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let version = VERSION;
    encode(&Frame::Compressed { version, frames }, level, &mut out);
    out
}

/// The stream of the single envelope in `wire`.
fn stream(wire: &[u8]) -> &[u8] {
    assert_eq!(&wire[..2], b"2C");
    let len = u32::from_be_bytes(wire[2..HEADER].try_into().unwrap());
    let stream = &wire[HEADER..];
    assert_eq!(usize::try_from(len).unwrap(), stream.len());
    assert_eq!(stream[0], 0x78, "deflate with a window of 32 KiB");
    assert_eq!(
        u16::from_be_bytes([stream[0], stream[1]]) % 31,
        0,
        "RFC 1950, 2.2"
    );
    assert_eq!(stream[1] & 0x20, 0, "no preset dictionary");
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    (high << 16) | low
}

fn check(payload: &Bytes, level: u32) -> usize {
    let wire = envelope(vec![json(payload.clone())], level);
    let stream = stream(&wire);
    let mut plain = Vec::new();
    encode(&json(payload.clone()), 0, &mut plain);
    let inflated = decompress_to_vec_zlib(stream).expect("a sound stream");
    assert!(inflated == plain, "level {level}");
    let sum = u32::from_be_bytes(stream[stream.len() - 4..].try_into().unwrap());
    assert_eq!(sum, adler32(&plain));
    stream.len()
}

/// Incompressible bytes.
fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

proptest! {
    #[test]
    fn any_payload_comes_back_at_any_level(
        piece in prop::collection::vec(any::<u8>(), 1..600),
        repeats in 1_usize..200,
        level in 0_u32..12,
    ) {
        check(&piece.repeat(repeats).into(), level);
    }
}

#[test]
fn incompressible_bytes_grow_by_an_eighth_at_most() {
    for len in [1, 4_999, 5_001, 65_535, 65_536, 1_000_000] {
        let payload = noise(len);
        for level in 0..=9 {
            let made = check(&payload, level);
            assert!(made <= len + len / 8 + 64, "{len} at {level}: {made}");
        }
    }
}

#[test]
fn an_envelope_of_nothing_is_a_sound_stream_of_nothing() {
    for level in 0..=9 {
        let wire = envelope(Vec::new(), level);
        assert_eq!(decompress_to_vec_zlib(stream(&wire)).unwrap(), b"");
    }
}

#[test]
fn a_hundred_mebibytes_are_one_envelope() {
    let line = br#"{"message":"a line that is often the same","n":0}"#;
    let payload = Bytes::from(line.repeat((100 << 20) / line.len() + 1));
    for level in [1, 3] {
        assert!(check(&payload, level) < 2 << 20);
    }
}

#[test]
fn levels_above_0_deflate_and_levels_above_9_count_as_9() {
    let line = br#"{"message":"GET /shop/item/7 HTTP/1.1","status":200}"#;
    let payload = Bytes::from(line.repeat(1000));
    let sizes: Vec<usize> = (0..=9).map(|level| check(&payload, level)).collect();
    assert!(sizes[0] > payload.len());
    assert!(sizes[1..].iter().all(|size| *size < payload.len() / 20));
    assert_eq!(check(&payload, 10), sizes[9]);
}

#[test]
fn windows_of_one_writer_do_not_know_of_each_other() {
    for level in [1, 3, 9] {
        let now = Instant::now();
        let mut writer = Writer::new(WriterConfig {
            compression: Some(level),
            max_in_flight: 4,
            ..WriterConfig::bare()
        });
        let long = noise(6 << 20);
        let short = Bytes::from_static(br#"{"a":1}"#);
        let mut wires = Vec::new();
        for payload in [&short, &long, &short, &short] {
            writer
                .send_window(now, &[OutRecord::Json(payload.clone())])
                .unwrap();
            wires.push(take(&mut writer, now));
        }
        assert_eq!(wires[0], wires[2]);
        assert_eq!(wires[0], wires[3]);
        for (wire, payload) in wires.iter().zip([&short, &long]) {
            let mut plain = Vec::new();
            encode(&json(payload.clone()), 0, &mut plain);
            let inflated = decompress_to_vec_zlib(stream(&wire[HEADER..])).unwrap();
            assert!(inflated == plain, "level {level}");
        }
    }
}

/// The bytes of the window that was just sent.
fn take(writer: &mut Writer, now: Instant) -> Vec<u8> {
    let mut queue = SendQueue::new();
    writer.poll_transmit(now, &mut queue);
    let len = queue.remaining();
    queue.copy_to_bytes(len).into()
}
