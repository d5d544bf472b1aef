//! Input from a hostile peer, or one that speaks another protocol.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, ErrorKind, INFLATED_PER_CALL, Need, ProtocolError};
use ackline_lumberjack::frame::{self, Frame, Version};
use ackline_lumberjack::{Event, Expander, Kind, Piece, Reader, ReaderConfig, Window};
use bytes::{Bytes, BytesMut};

const V2: Version = Version::V2;

fn json(sequence_number: u32, payload: Vec<u8>) -> Frame {
    Frame::Json {
        version: V2,
        sequence_number,
        payload: payload.into(),
    }
}

fn wire(frames: &[Frame]) -> Vec<u8> {
    let mut wire = Vec::new();
    for frame in frames {
        frame::encode(frame, 6, &mut wire);
    }
    wire
}

fn window(window_size: u32) -> Frame {
    Frame::Window {
        version: V2,
        window_size,
    }
}

fn envelope(frames: Vec<Frame>) -> Frame {
    Frame::Compressed {
        version: V2,
        frames,
    }
}

/// Everything a reader hands on without any acknowledgement, and the number of calls.
fn read(bytes: &[u8]) -> (Vec<Window>, Result<usize, ProtocolError<Kind>>) {
    let mut reader = Reader::new(ReaderConfig::bare());
    let mut input = BytesMut::from(bytes);
    let mut windows = Vec::new();
    let mut calls = 0;
    loop {
        calls += 1;
        let need = reader.receive(Instant::now(), &mut input);
        while let Some(Event::Window(window)) = reader.poll_event() {
            windows.push(window);
        }
        match need {
            Ok(Need::Again) => {}
            Ok(_) => return (windows, Ok(calls)),
            Err(error) => return (windows, Err(error)),
        }
    }
}

fn refusal(bytes: &[u8]) -> (&'static str, u64) {
    let error = read(bytes).1.unwrap_err();
    (error.kind.code(), error.offset)
}

#[test]
fn a_bomb_is_inflated_in_steps_and_refused_at_its_limit() {
    // 256 MiB would be 256 such payloads; 120 MiB are above the limit of an envelope already.
    let payload = Bytes::from(vec![b'x'; 15 << 20]);
    let frames = (1..=8)
        .map(|sequence_number| Frame::Json {
            version: V2,
            sequence_number,
            payload: payload.clone(),
        })
        .collect();
    let bytes = wire(&[window(8), envelope(frames)]);
    assert!(bytes.len() < 200_000);
    let (windows, end) = read(&bytes);
    let error = end.unwrap_err();
    let limit = error.kind.limit().unwrap();
    assert_eq!(
        (limit.option, limit.limit),
        ("--max-inflated-bytes", 100 << 20)
    );
    assert!(limit.value < limit.limit + (1 << 20));
    assert_eq!((error.offset, windows.len()), (6, 0));
}

#[test]
fn one_call_inflates_a_bounded_amount() {
    let payload = vec![b'x'; 10 << 20];
    let bytes = wire(&[window(1), envelope(vec![json(1, payload)])]);
    let (windows, calls) = read(&bytes);
    assert_eq!(windows.len(), 1);
    assert!(calls.unwrap() >= (10 << 20) / INFLATED_PER_CALL);
    assert!(windows[0].wire_bytes() < 20_000);
}

#[test]
fn announced_lengths_are_refused_before_the_bytes_come() {
    let cases: [(&[u8], &str); 6] = [
        (b"2W\xff\xff\xff\xff", "lumberjack.window_too_large"),
        (
            b"2J\0\0\0\x01\xff\xff\xff\xff",
            "lumberjack.frame_too_large",
        ),
        (b"2C\xff\xff\xff\xff", "lumberjack.frame_too_large"),
        (b"1D\0\0\0\x01\xff\xff\xff\xff", "lumberjack.too_many_pairs"),
        (
            b"1D\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff",
            "lumberjack.field_too_large",
        ),
        (b"2C\0\0\0\0", "lumberjack.zlib"),
    ];
    for (bytes, code) in cases {
        assert_eq!(refusal(bytes), (code, 0));
    }
}

#[test]
fn other_protocols_are_refused_at_the_first_byte_with_a_hint() {
    for (bytes, hint) in [
        (&b"GET / HTTP/1.1\r\n"[..], "HTTP"),
        (b"\x16\x03\x01", "TLS"),
    ] {
        let error = read(bytes).1.unwrap_err();
        assert_eq!(error.kind.code(), "lumberjack.unknown_version");
        assert!(error.to_string().contains(hint));
    }
}

#[test]
fn an_envelope_in_an_envelope_is_refused() {
    let inner = envelope(vec![json(1, b"{}".to_vec())]);
    let bytes = wire(&[window(1), envelope(vec![inner])]);
    assert_eq!(refusal(&bytes), ("lumberjack.nested_envelope", 6));
}

#[test]
fn bytes_behind_the_zlib_stream_are_refused() {
    let mut bytes = wire(&[window(1)]);
    let mut frame = wire(&[envelope(vec![json(1, b"{}".to_vec())])]);
    let len = u32::try_from(frame.len() - 6 + 2).unwrap();
    frame[2..6].copy_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&frame);
    assert_eq!(refusal(&bytes), ("lumberjack.trailing_bytes", 6));
}

#[test]
fn many_windows_in_one_envelope_are_handed_on_as_plain_frames() {
    let frames = (0..1_000)
        .map(|sequence| json(sequence, b"{}".to_vec()))
        .collect();
    let mut input = BytesMut::from(wire(&[envelope(frames)]).as_slice());
    let mut reader = Reader::new(ReaderConfig::bare());
    let (now, mut expander) = (Instant::now(), Expander::new());
    let mut next = 0;
    while next < 1_000 {
        reader.receive(now, &mut input).unwrap();
        while let Some(Event::Window(window)) = reader.poll_event() {
            assert!(matches!(
                window.pieces[..],
                [Piece::Frames { records: 1, .. }]
            ));
            window
                .for_each_record(&mut expander, |_| next += 1)
                .unwrap();
            // Most of it is the memory that inflates the envelope piece by piece.
            assert!(reader.held_bytes() < 250_000);
            reader.ack(now, window.id).unwrap();
        }
        let mut queue = ackline_core::SendQueue::new();
        reader.poll_transmit(now, &mut queue);
    }
    reader.receive(now, &mut input).unwrap();
    assert_eq!((reader.held_bytes(), reader.unacknowledged()), (0, 0));
}

#[test]
fn reading_stops_at_the_unacknowledged_windows() {
    let one = wire(&[window(1), json(1, b"{}".to_vec())]);
    let mut input = BytesMut::from(one.repeat(100).as_slice());
    let mut reader = Reader::new(ReaderConfig::bare());
    let now = Instant::now();
    while reader.receive(now, &mut input).unwrap() != Need::Room {
        while reader.poll_event().is_some() {}
    }
    while reader.poll_event().is_some() {}
    assert_eq!(reader.receive(now, &mut input), Ok(Need::Room));
    assert_eq!((reader.unacknowledged(), input.len()), (64, 36 * one.len()));
}

#[test]
fn an_expander_inflates_no_frame_above_its_limit() {
    let frames = vec![
        json(1, vec![b'x'; 5_000_000]),
        json(2, vec![b'y'; 20_000_000]),
    ];
    let bytes = wire(&[envelope(frames)]);
    let expand = |limit: usize| {
        let mut sequences = Vec::new();
        let expanded = Expander::new()
            .with_limit(limit)
            .expand(&bytes, &mut |record| {
                if let ackline_lumberjack::Record::Json { sequence, .. } = record {
                    sequences.push(sequence);
                }
                std::ops::ControlFlow::Continue(())
            });
        (sequences, expanded)
    };
    assert_eq!(expand(20_000_010), (vec![1, 2], Ok(())));
    for limit in [20_000_009, 10_000_000] {
        let (sequences, expanded) = expand(limit);
        assert_eq!(sequences, [1]);
        let Err(Kind::FrameTooLarge(over)) = expanded else {
            panic!("{expanded:?}");
        };
        assert_eq!(over.limit, limit as u64);
        assert!(over.value > limit as u64);
    }
}
