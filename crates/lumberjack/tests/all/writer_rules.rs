//! The promises of the writer beyond the conversations of tests/vectors.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::Connection;
use ackline_lumberjack::{
    Limits, OutRecord, SequenceMode, Version, Writer, WriterConfig, WriterEvent,
};
use bytes::{Bytes, BytesMut};

use crate::wire::{seconds, sent};

fn writer(version: Version, sequence: SequenceMode) -> Writer {
    Writer::new(WriterConfig {
        version,
        sequence,
        compression: None,
        max_in_flight: 3,
        ..WriterConfig::bare()
    })
}

fn cumulative(next: u32) -> SequenceMode {
    SequenceMode::Cumulative { next }
}

fn events(count: usize) -> Vec<OutRecord> {
    vec![OutRecord::Json(Bytes::from_static(b"{}")); count]
}

fn ack(writer: &mut Writer, version: Version, number: u32) -> Vec<WriterEvent> {
    let mut frame = BytesMut::from(&[version.byte(), b'A'][..]);
    frame.extend_from_slice(&number.to_be_bytes());
    writer.receive(Instant::now(), &mut frame).unwrap();
    std::iter::from_fn(|| writer.poll_event()).collect()
}

/// The sequence numbers in plain windows of `{}` events.
fn numbers(wire: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut rest = wire;
    while let Some((head, behind)) = rest.split_first_chunk::<6>() {
        let number = u32::from_be_bytes(head[2..].try_into().unwrap());
        rest = behind;
        if head[1] == b'J' {
            numbers.push(number);
            rest = &rest[6..];
        }
    }
    numbers
}

#[test]
fn version_1_has_one_window_in_flight() {
    let now = Instant::now();
    let mut writer = writer(Version::V1, cumulative(1));
    assert_eq!(writer.room(), 1);
    writer.send_window(now, &events(1)).unwrap();
    assert_eq!(writer.room(), 0);
    let refused = writer.send_window(now, &events(1)).unwrap_err();
    assert_eq!(refused.code, "too_many_in_flight");
}

#[test]
fn room_shrinks_with_each_window_and_grows_with_its_acknowledgement() {
    let now = Instant::now();
    let mut writer = writer(Version::V2, SequenceMode::PerWindow);
    for left in (0..3).rev() {
        writer.send_window(now, &events(1)).unwrap();
        assert_eq!(writer.room(), left);
    }
    ack(&mut writer, Version::V2, 1);
    assert_eq!(writer.room(), 1);
    writer.finish(now);
    assert_eq!(writer.room(), 0);
}

#[test]
fn version_1_counts_through_0_and_takes_it_as_an_acknowledgement() {
    let now = Instant::now();
    let mut writer = writer(Version::V1, cumulative(u32::MAX));
    writer.send_window(now, &events(2)).unwrap();
    assert_eq!(numbers(&sent(&mut writer, now)), [u32::MAX, 0]);
    let acknowledged = [WriterEvent::Acknowledged { window: 1 }];
    assert_eq!(ack(&mut writer, Version::V1, 0), acknowledged);
}

#[test]
fn version_2_never_numbers_an_event_0() {
    let now = Instant::now();
    let mut writer = writer(Version::V2, cumulative(u32::MAX));
    writer.send_window(now, &events(1)).unwrap();
    writer.send_window(now, &events(2)).unwrap();
    assert_eq!(numbers(&sent(&mut writer, now)), [u32::MAX, 1, 2]);
    assert_eq!(ack(&mut writer, Version::V2, 2).len(), 2);
}

#[test]
fn a_cumulative_number_that_was_covered_before_changes_nothing() {
    let now = Instant::now();
    let mut writer = writer(Version::V2, cumulative(u32::MAX));
    writer.send_window(now, &events(3)).unwrap();
    assert_eq!(ack(&mut writer, Version::V2, 2).len(), 1);
    writer.send_window(now, &events(2)).unwrap();
    for old in [2, 1, u32::MAX] {
        assert_eq!(ack(&mut writer, Version::V2, old), []);
    }
    assert_eq!(writer.unacknowledged(), 2);
}

#[test]
fn events_are_refused_above_the_limits_of_readers() {
    let now = Instant::now();
    let limits = Limits::default();
    let data = |pairs: &[(usize, usize)]| {
        let own = |&(key, value)| (Bytes::from(vec![0; key]), Bytes::from(vec![0; value]));
        OutRecord::Data(pairs.iter().map(own).collect())
    };
    let json = |len| OutRecord::Json(Bytes::from(vec![b' '; len]));
    let most_pairs = usize::try_from(limits.max_pairs).unwrap();
    // 16 values fill a data frame except its header and their lengths.
    let filled = |more: usize| {
        let mut pairs = vec![(0, limits.max_field_bytes - 8); 16];
        pairs[0].1 = limits.max_field_bytes - 18 + more;
        data(&pairs)
    };
    let cases = [
        (json(limits.max_json_bytes), json(limits.max_json_bytes + 1)),
        (
            data(&[(limits.max_field_bytes, 0)]),
            data(&[(limits.max_field_bytes + 1, 0)]),
        ),
        (
            data(&[(0, limits.max_field_bytes)]),
            data(&[(0, limits.max_field_bytes + 1)]),
        ),
        (
            data(&vec![(0, 0); most_pairs]),
            data(&vec![(0, 0); most_pairs + 1]),
        ),
        (filled(0), filled(1)),
    ];
    for (fits, above) in cases {
        let mut writer = writer(Version::V2, SequenceMode::PerWindow);
        let refused = writer.send_window(now, &[above]).unwrap_err();
        assert_eq!(refused.code, "frame_too_large");
        assert_eq!(writer.send_window(now, &[fits]), Ok(1));
    }
}

#[test]
fn an_error_names_the_bytes_before_its_frame() {
    let now = Instant::now();
    let mut writer = writer(Version::V2, SequenceMode::PerWindow);
    writer.send_window(now, &events(1)).unwrap();
    let mut input = BytesMut::from(&b"2A\0\0\0\0"[..]);
    input.extend_from_slice(b"2A\0\0\0\x01GET");
    let error = writer.receive(now, &mut input).unwrap_err();
    assert_eq!(error.offset, 12);
}

#[test]
fn only_new_bytes_restart_the_read_timeout() {
    let now = Instant::now();
    let mut writer = Writer::new(WriterConfig {
        read_timeout: Some(seconds(30)),
        ..WriterConfig::bare()
    });
    writer.send_window(now, &events(1)).unwrap();
    let mut input = BytesMut::from(&b"2A\0"[..]);
    writer.receive(now + seconds(1), &mut input).unwrap();
    writer.receive(now + seconds(20), &mut input).unwrap();
    assert_eq!(writer.poll_timeout(), Some(now + seconds(31)));
}

#[test]
fn deadlines_stand_still_while_reading_is_off() {
    let now = Instant::now();
    let one = |read: Option<u64>, progress: Option<u64>| {
        Writer::new(WriterConfig {
            read_timeout: read.map(seconds),
            progress_timeout: progress.map(seconds),
            ..WriterConfig::bare()
        })
    };
    for mut writer in [one(Some(30), None), one(None, Some(30))] {
        writer.send_window(now, &events(1)).unwrap();
        writer.reading(now + seconds(10), false);
        writer.reading(now + seconds(20), false);
        assert_eq!(writer.poll_timeout(), None);
        writer.handle_timeout(now + seconds(100)).unwrap();
        writer.reading(now + seconds(110), true);
        assert_eq!(writer.poll_timeout(), Some(now + seconds(130)));
        assert!(writer.handle_timeout(now + seconds(130)).is_err());
    }
}

#[test]
fn nothing_leaves_after_the_end() {
    let now = Instant::now();
    let mut writer = writer(Version::V2, SequenceMode::PerWindow);
    writer.send_window(now, &events(2)).unwrap();
    writer.receive_eof(now).unwrap();
    assert_eq!(sent(&mut writer, now), b"");
    let end = WriterEvent::Unacknowledged { window: 1, from: 0 };
    assert_eq!(writer.poll_event(), Some(end));
    assert_eq!(writer.unacknowledged(), 2);
}

#[test]
fn level_0_sends_plain_frames_as_beats_does() {
    let now = Instant::now();
    for compression in [Some(0), None] {
        let mut writer = Writer::new(WriterConfig {
            compression,
            ..WriterConfig::bare()
        });
        writer.send_window(now, &events(2)).unwrap();
        assert_eq!(numbers(&sent(&mut writer, now)), [1, 2]);
    }
}

#[test]
fn an_allowance_is_the_exact_limit_of_the_next_window() {
    let now = Instant::now();
    let mut writer = Writer::new(WriterConfig {
        max_in_flight: 4,
        max_in_flight_events: Some(5),
        max_in_flight_bytes: Some(50),
        max_window: 3,
        ..WriterConfig::bare()
    });
    let allowance = |writer: &Writer| writer.allowance().map(|one| (one.events, one.bytes));
    // A frame of `{}` has 12 bytes.
    assert_eq!(allowance(&writer), Some((3, 50)));
    writer.send_window(now, &events(3)).unwrap();
    assert_eq!(allowance(&writer), Some((2, 14)));
    let refused = writer.send_window(now, &events(2)).unwrap_err();
    assert_eq!(refused.code, "too_many_in_flight");
    writer.send_window(now, &events(1)).unwrap();
    assert_eq!(allowance(&writer), Some((1, 2)));
    ack(&mut writer, Version::V2, 2);
    assert_eq!(allowance(&writer), Some((3, 2)));
    ack(&mut writer, Version::V2, 3);
    assert_eq!(allowance(&writer), Some((3, 38)));
    ack(&mut writer, Version::V2, 1);
    assert_eq!(allowance(&writer), Some((3, 50)));
    writer.finish(now);
    assert_eq!(allowance(&writer), None);
}
