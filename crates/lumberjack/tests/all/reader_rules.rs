//! The promises of the reader beyond the conversations of tests/vectors: order, charges,
//! acknowledgements.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

mod ends;

use std::time::Instant;

use ackline_core::{Connection, EVENTS_PER_CALL, ErrorKind, Lifecycle, Need, SendQueue};
use ackline_lumberjack::frame::{Frame, Version};
use ackline_lumberjack::{Event, Expander, Piece, Reader, ReaderConfig, ReaderStats, Window};
use bytes::{Bytes, BytesMut};

use crate::wire::{self, envelope, feed, json, seconds, sent, window};

const V1: Version = Version::V1;
const V2: Version = Version::V2;

fn reader() -> Reader {
    Reader::new(ReaderConfig::bare())
}

/// Incompressible events, so that their envelope is as long as they are.
fn noise(sequence_number: u32, len: usize) -> Frame {
    let mut state = 0x9e37_79b9_u32;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    Frame::Json {
        version: V2,
        sequence_number,
        payload: (0..len).map(byte).collect(),
    }
}

#[test]
fn a_frame_that_violates_the_order_is_refused_at_its_offset() {
    let json_2 = || json(V2, 1);
    let cases: [(Vec<Frame>, &str, u64); 10] = [
        // Two windows announced in a row; bytes before the fault count.
        (vec![window(V2, 1), window(V2, 1)], "premature_window", 6),
        (
            vec![
                window(V2, 1),
                json_2(),
                window(V2, 2),
                json_2(),
                window(V2, 1),
            ],
            "premature_window",
            36,
        ),
        // An event of the other version in an envelope.
        (
            vec![window(V2, 2), envelope(V2, vec![json_2(), json(V1, 2)])],
            "version_mixed",
            6,
        ),
        (
            vec![window(V2, 2), json_2(), json(V1, 2)],
            "version_mixed",
            18,
        ),
        (vec![envelope(V2, vec![json(V1, 1)])], "version_mixed", 0),
        (
            vec![envelope(V2, vec![window(V1, 1), json(V1, 1)])],
            "version_mixed",
            0,
        ),
        // Only the next window may follow an empty one.
        (vec![window(V2, 0), json_2()], "overrun", 6),
        (
            vec![window(V1, 2), window(V1, 0), json(V1, 1)],
            "overrun",
            12,
        ),
        // A v1 window opens again by itself, but only for v1.
        (vec![window(V1, 1), json(V1, 1), json_2()], "overrun", 18),
        (vec![window(V2, 1), json_2(), json_2()], "overrun", 18),
    ];
    for (frames, code, offset) in cases {
        let error = feed(&mut reader(), Instant::now(), &mut wire::wire(&frames)).unwrap_err();
        assert_eq!(error.kind.code().split_once('.').unwrap().1, code);
        assert_eq!(error.offset, offset, "{code}");
    }
}

#[test]
fn the_offset_behind_an_envelope_counts_all_of_it() {
    let mut input = wire::wire(&[window(V2, 1), envelope(V2, vec![json(V2, 1)])]);
    let whole = u64::try_from(input.len()).unwrap();
    input.extend_from_slice(b"X");
    let error = feed(&mut reader(), Instant::now(), &mut input).unwrap_err();
    assert_eq!(error.offset, whole);
}

#[test]
fn an_envelope_that_ends_inside_a_frame_is_refused() {
    let inner = &wire::wire(&[json(V2, 1), json(V2, 2)])[..23];
    // One stored block: nothing must be deflated.
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in inner {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    let mut stream = vec![0x78, 0x01, 1, 23, 0, !23, 0xff];
    stream.extend_from_slice(inner);
    stream.extend_from_slice(&(high << 16 | low).to_be_bytes());
    let mut input = wire::wire(&[window(V2, 2)]);
    input.extend_from_slice(b"2C");
    input.extend_from_slice(&u32::try_from(stream.len()).unwrap().to_be_bytes());
    input.extend_from_slice(&stream);
    let error = feed(&mut reader(), Instant::now(), &mut input).unwrap_err();
    assert_eq!(
        (error.kind.code(), error.offset),
        ("lumberjack.truncated_envelope", 6)
    );
}

#[test]
fn a_window_is_acknowledged_once() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 1), json(V2, 1), window(V2, 1), json(V2, 1)]);
    feed(&mut reader, now, &mut input).unwrap();
    reader.ack(now, 2).unwrap();
    for window in [0, 2, 3] {
        assert_eq!(reader.ack(now, window).unwrap_err().code, "unknown_window");
    }
    assert_eq!(reader.unacknowledged(), 1);
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x012A\0\0\0\x01");
    assert_eq!(reader.ack(now, 1).unwrap_err().code, "unknown_window");
}

#[test]
fn a_window_complete_before_a_violation_may_not_be_acknowledged_after_it() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 1), json(V2, 1), window(V2, 2), json(V2, 1)]);
    feed(&mut reader, now, &mut input).unwrap();
    reader.ack(now, 1).unwrap();
    input.extend_from_slice(b"GET");
    let error = reader.receive(now, &mut input).unwrap_err();
    assert_eq!(reader.ack(now, 1).unwrap_err().code, "closed");
    // An earlier acknowledgement still leaves, and the violation stays.
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x01");
    assert_eq!(reader.held_bytes(), 0);
    assert_eq!(reader.receive(now, &mut input), Err(error.clone()));
    assert_eq!(reader.handle_timeout(now), Err(error.clone()));
    assert_eq!(reader.receive_eof(now), Err(error));
    assert_eq!(reader.lifecycle(), Lifecycle::Closed);
}

#[test]
fn held_bytes_are_the_received_and_unacknowledged_ones() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 3), json(V2, 1), json(V2, 2)]);
    feed(&mut reader, now, &mut input).unwrap();
    assert_eq!(reader.held_bytes(), 24, "of a window that is being filled");
    let mut input = wire::wire(&[json(V2, 3), window(V2, 1), json(V2, 1)]);
    feed(&mut reader, now, &mut input).unwrap();
    assert_eq!(reader.held_bytes(), 48, "of windows that wait");
    for (window, held) in [(2, 48), (1, 0)] {
        reader.ack(now, window).unwrap();
        sent(&mut reader, now);
        assert_eq!(reader.held_bytes(), held);
    }
}

#[test]
fn an_envelope_is_held_while_it_is_worked_on() {
    let payload = Bytes::from(vec![b'x'; 4 << 20]);
    let large = Frame::Json {
        version: V2,
        sequence_number: 1,
        payload,
    };
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 1), envelope(V2, vec![large])]);
    let len = input.len() - 6;
    assert_eq!(reader.receive(now, &mut input), Ok(Need::Again));
    assert_eq!(reader.held_bytes(), len);
}

#[test]
fn windows_that_share_an_envelope_are_each_charged_their_own_bytes() {
    let (now, mut reader) = (Instant::now(), reader());
    let shared = vec![
        json(V2, 1),
        window(V2, 1),
        json(V2, 1),
        window(V2, 2),
        json(V2, 1),
    ];
    let mut input = wire::wire(&[window(V2, 1), envelope(V2, shared)]);
    let (windows, _) = feed(&mut reader, now, &mut input).unwrap();
    let bytes = |window: &Window| (window.wire_bytes(), window.inflated_bytes());
    assert_eq!(windows.iter().map(bytes).collect::<Vec<_>>(), [(12, 12); 2]);
    assert_eq!(reader.held_bytes(), 36, "and the part of the third");
    let (windows, _) = feed(&mut reader, now, &mut wire::wire(&[json(V2, 2)])).unwrap();
    assert_eq!((windows[0].wire_bytes(), windows[0].pieces.len()), (24, 1));
    for window in [2, 1, 3] {
        reader.ack(now, window).unwrap();
    }
    sent(&mut reader, now);
    assert_eq!(reader.held_bytes(), 0);
}

/// As on the wire: also a window frame inside the envelope whose events fill one window alone.
#[test]
fn an_envelope_of_one_window_stays_as_it_came() {
    for version in [V1, V2] {
        let inside = [envelope(
            version,
            vec![window(version, 2), json(version, 1), json(version, 2)],
        )];
        let in_two = [
            window(version, 3),
            envelope(version, vec![json(version, 1), json(version, 2)]),
            envelope(version, vec![json(version, 3)]),
        ];
        for frames in [&inside[..], &in_two[..]] {
            let mut input = wire::wire(frames);
            let (windows, _) = feed(&mut reader(), Instant::now(), &mut input).unwrap();
            let is_envelope = |piece: &Piece| matches!(piece, Piece::Envelope { .. });
            assert_eq!(windows.len(), 1);
            assert!(windows[0].pieces.iter().all(is_envelope), "{windows:?}");
        }
    }
}

/// Each call announces the bytes that it may add: the buffers that inflate piece by piece, and the
/// inflated bytes.
#[test]
fn memory_for_a_shared_envelope_is_requested_before_it_is_inflated() {
    let (now, mut reader) = (Instant::now(), reader());
    let noise = |sequence| noise(sequence, 600_000);
    let shared = vec![window(V2, 1), noise(1), window(V2, 1), noise(1)];
    let mut input = wire::wire(&[envelope(V2, shared)]);
    let mut most = 0;
    let mut windows = 0;
    loop {
        let granted = reader.held_bytes() + reader.step_bytes();
        let before = (input.len(), reader.held_bytes());
        let need = reader.receive(now, &mut input).unwrap();
        while reader.poll_event().is_some() {
            windows += 1;
        }
        let taken = before.0 - input.len();
        assert!(
            reader.held_bytes() <= granted + taken,
            "{} after {before:?} and {granted}",
            reader.held_bytes()
        );
        most = most.max(reader.held_bytes());
        if need != Need::Again {
            break;
        }
    }
    assert_eq!(windows, 2);
    assert!(most < 4_000_000, "{most}");
    for window in 1..=2 {
        reader.ack(now, window).unwrap();
    }
    sent(&mut reader, now);
    assert_eq!((reader.held_bytes(), reader.step_bytes()), (0, 0));
}

#[test]
fn a_shared_envelope_of_too_many_times_its_bytes_is_refused_and_one_of_one_window_is_not() {
    let zeros = |sequence, bytes| Frame::Json {
        version: V2,
        sequence_number: sequence,
        payload: vec![b'0'; bytes].into(),
    };
    for (bytes, is_refused) in [(30_000, false), (300_000, true)] {
        let shared = vec![
            window(V2, 1),
            zeros(1, bytes),
            window(V2, 1),
            zeros(1, bytes),
        ];
        let mut input = wire::wire(&[envelope(V2, shared)]);
        let told = feed(&mut reader(), Instant::now(), &mut input);
        let code = told.map(|_| ()).map_err(|error| error.kind.code());
        let refused = Err("lumberjack.shared_envelope");
        assert_eq!(code, if is_refused { refused } else { Ok(()) });
    }
    let alone = vec![zeros(1, 300_000), zeros(2, 300_000)];
    let mut input = wire::wire(&[window(V2, 2), envelope(V2, alone)]);
    let (windows, _) = feed(&mut reader(), Instant::now(), &mut input).unwrap();
    assert_eq!(windows.len(), 1);
}

#[test]
fn the_shares_of_an_envelope_know_their_size() {
    let (now, mut reader) = (Instant::now(), reader());
    let shared = vec![json(V2, 1), window(V2, 2), json(V2, 1), json(V2, 2)];
    let mut input = wire::wire(&[window(V2, 1), envelope(V2, shared)]);
    let whole = wire::wire(&[window(V2, 1), envelope(V2, vec![json(V2, 1)])]);
    input.extend_from_slice(&whole);
    let (windows, _) = feed(&mut reader, now, &mut input).unwrap();
    let sizes: Vec<u64> = windows.iter().map(Window::inflated_bytes).collect();
    assert_eq!(sizes, [12, 24, 12]);
}

#[test]
fn gaps_are_counted_in_envelopes_and_between_them() {
    let gaps = |frames: &[Frame]| {
        let mut reader = reader();
        feed(&mut reader, Instant::now(), &mut wire::wire(frames)).unwrap();
        reader.stats().gaps
    };
    let pair = |from, to| envelope(V2, vec![json(V2, from), json(V2, to)]);
    assert_eq!(gaps(&[window(V2, 4), pair(1, 2), pair(3, 4)]), 0);
    assert_eq!(gaps(&[window(V2, 4), pair(1, 3), pair(4, 6)]), 2);
    assert_eq!(gaps(&[window(V2, 4), pair(1, 2), pair(4, 5)]), 1);
    assert_eq!(gaps(&[window(V2, 2), json(V2, 1), json(V2, 3)]), 1);
    assert_eq!(gaps(&[window(V2, 2), pair(u32::MAX, 0)]), 0);
    assert_eq!(gaps(&[window(V2, 2), pair(u32::MAX, 1)]), 0);
    assert_eq!(gaps(&[window(V2, 2), pair(u32::MAX, 2)]), 1);
}

#[test]
fn each_byte_window_event_and_acknowledgement_is_counted_once() {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        keepalive: Some(seconds(3)),
        ..ReaderConfig::bare()
    });
    let whole = wire::wire(&[window(V2, 2), json(V2, 1), json(V2, 2), window(V2, 0)]);
    let mut input = BytesMut::new();
    for byte in &whole {
        input.extend_from_slice(&[*byte]);
        feed(&mut reader, now, &mut input).unwrap();
    }
    reader.handle_timeout(now + seconds(3)).unwrap();
    sent(&mut reader, now + seconds(3));
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x022A\0\0\0\0");
    let counted = ReaderStats {
        windows: 1,
        events: 2,
        bytes: 36,
        gaps: 0,
        acked_windows: 1,
        acked_events: 2,
        keepalives: 1,
    };
    assert_eq!(reader.stats(), counted);
}

#[test]
fn acknowledgements_wait_for_room_in_the_send_queue() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 1), json(V2, 1)]);
    feed(&mut reader, now, &mut input).unwrap();
    reader.ack(now, 1).unwrap();
    let mut full = SendQueue::new();
    full.put(vec![0; full.room()].into());
    let len = full.len();
    reader.poll_transmit(now, &mut full);
    assert_eq!(full.len(), len);
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x01");
}

#[test]
fn one_call_takes_a_bounded_number_of_windows_and_of_tiny_envelopes() {
    let now = Instant::now();
    let mut config = ReaderConfig::bare();
    config.limits.max_unacked_windows = usize::MAX;
    let mut reader = Reader::new(config);
    let one = wire::wire(&[window(V2, 1), json(V2, 1)]);
    let mut input = BytesMut::from(one.repeat(3 * EVENTS_PER_CALL).as_slice());
    assert_eq!(reader.receive(now, &mut input), Ok(Need::Room));
    assert_eq!(
        reader.stats().windows,
        u64::try_from(EVENTS_PER_CALL).unwrap()
    );

    let mut reader = self::reader();
    let empty = wire::wire(&[envelope(V2, vec![])]);
    let mut input = BytesMut::from(empty.repeat(10_000).as_slice());
    assert_eq!(reader.receive(now, &mut input), Ok(Need::Again));
    assert!(!input.is_empty());
}

#[test]
fn the_reader_asks_for_the_least_bytes_of_the_frame() {
    let cases: [(&[u8], usize); 9] = [
        (b"", 6),
        (b"2", 6),
        (b"2W", 6),
        (b"2J", 10),
        (b"2J\0\0\0\x01\0\0\0\x64", 110),
        (b"2J\0\0\0\x01\0\0\0\x64{\"", 110),
        // Two lengths, then a key of 5 bytes and one length.
        (b"2D\0\0\0\x01\0\0\0\x01", 18),
        (b"2D\0\0\0\x01\0\0\0\x01\0\0", 18),
        (b"2D\0\0\0\x01\0\0\0\x01\0\0\0\x05k", 23),
    ];
    for (bytes, at_least) in cases {
        let mut input = BytesMut::from(bytes);
        let need = reader().receive(Instant::now(), &mut input);
        assert_eq!(need, Ok(Need::Input { at_least }), "{bytes:?}");
    }
}

#[test]
fn many_windows_announced_in_one_envelope_are_handed_on_as_plain_frames() {
    for version in [V1, V2] {
        let pairs = (0..100).flat_map(|_| [window(version, 1), json(version, 1)]);
        let mut input = wire::wire(&[envelope(version, pairs.collect())]);
        let (now, mut reader) = (Instant::now(), reader());
        let mut expander = Expander::new();
        for _ in 0..100 {
            reader.receive(now, &mut input).unwrap();
            while let Some(Event::Window(window)) = reader.poll_event() {
                assert!(matches!(
                    window.pieces[..],
                    [Piece::Frames { records: 1, .. }]
                ));
                let mut events = 0;
                window
                    .for_each_record(&mut expander, |_| events += 1)
                    .unwrap();
                assert_eq!((events, window.wire_bytes()), (1, 12));
                reader.ack(now, window.id).unwrap();
            }
            sent(&mut reader, now);
        }
        assert_eq!((reader.stats().windows, reader.held_bytes()), (100, 0));
    }
}

#[test]
fn small_windows_do_not_pin_the_buffer_they_were_read_into() {
    let (now, mut reader) = (Instant::now(), reader());
    let small = [
        window(V2, 1),
        json(V2, 1),
        window(V2, 1),
        envelope(V2, vec![json(V2, 1)]),
    ];
    let mut input = wire::wire(&small);
    input.extend_from_slice(&wire::wire(&[window(V2, 2), noise(1, 20_000)]));
    let buffer = input.as_ptr_range();
    let (mut windows, _) = feed(&mut reader, now, &mut input).unwrap();
    let mut rest = wire::wire(&[json(V2, 2)]);
    windows.extend(feed(&mut reader, now, &mut rest).unwrap().0);
    let pinned = windows
        .iter()
        .flat_map(|window| &window.pieces)
        .map(|piece| buffer.contains(&piece.bytes().as_ptr()));
    // Only the run of 20 kB stays in its read buffer.
    assert_eq!(pinned.collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn short_runs_of_a_large_window_are_copied_together() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut windows = feed(&mut reader, now, &mut wire::wire(&[window(V2, 40)])).unwrap();
    for sequence in 1..=40 {
        let mut input = wire::wire(&[noise(sequence, 1_000)]);
        windows = feed(&mut reader, now, &mut input).unwrap();
    }
    assert!(matches!(
        windows.0[0].pieces[..],
        [Piece::Frames { records: 40, .. }]
    ));
}
