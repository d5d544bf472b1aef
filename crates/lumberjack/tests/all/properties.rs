//! Random windows in random wrappings, cut anywhere, compared with the input.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, Need, SendQueue};
use ackline_lumberjack::frame::{self, Frame, From, Version};
use ackline_lumberjack::{Event, Expander, Limits, Reader, ReaderConfig, Record, fuzzing};
use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V1), Just(Version::V2)]
}

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), len).prop_map(Bytes::from)
}

fn record(version: Version) -> impl Strategy<Value = Frame> {
    let pairs = proptest::collection::vec((bytes(0..20), bytes(0..60)), 0..5);
    prop_oneof![
        (any::<u32>(), bytes(1..300)).prop_map(move |(sequence_number, payload)| Frame::Json {
            version,
            sequence_number,
            payload
        }),
        (any::<u32>(), pairs).prop_map(move |(sequence_number, pairs)| Frame::Data {
            version,
            sequence_number,
            pairs
        }),
    ]
}

/// A window: its events, and for each whether it starts an envelope, is in it or is alone.
fn window() -> impl Strategy<Value = (Version, Vec<(Frame, u8)>)> {
    version().prop_flat_map(|version| {
        (
            Just(version),
            proptest::collection::vec((record(version), 0_u8..3), 1..12),
        )
    })
}

fn encode(windows: &[(Version, Vec<(Frame, u8)>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (version, records) in windows {
        let version = *version;
        let window_size = u32::try_from(records.len()).unwrap();
        frame::encode(
            &Frame::Window {
                version,
                window_size,
            },
            3,
            &mut out,
        );
        let mut frames: Vec<Frame> = Vec::new();
        for (record, how) in records {
            if *how != 1 && !frames.is_empty() {
                let frames = std::mem::take(&mut frames);
                frame::encode(&Frame::Compressed { version, frames }, 3, &mut out);
            }
            if *how == 2 {
                frame::encode(record, 3, &mut out);
            } else {
                frames.push(record.clone());
            }
        }
        frame::encode(&Frame::Compressed { version, frames }, 3, &mut out);
    }
    out
}

/// The events and acknowledgements that come out when `wire` arrives in chunks.
fn read(wire: &[u8], chunk: usize) -> (Vec<Vec<Frame>>, Vec<u8>) {
    let (now, mut reader) = (Instant::now(), Reader::new(ReaderConfig::bare()));
    let (mut input, mut expander) = (BytesMut::new(), Expander::new());
    let (mut windows, mut sent) = (Vec::new(), Vec::new());
    for part in wire.chunks(chunk) {
        input.extend_from_slice(part);
        loop {
            let need = reader.receive(now, &mut input).unwrap();
            while let Some(Event::Window(window)) = reader.poll_event() {
                let mut frames = Vec::new();
                window
                    .for_each_record(&mut expander, |record| {
                        frames.push(own(window.version, &record));
                    })
                    .unwrap();
                windows.push(frames);
                reader.ack(now, window.id).unwrap();
            }
            let mut queue = SendQueue::new();
            reader.poll_transmit(now, &mut queue);
            sent.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
            if matches!(need, Need::Input { .. }) {
                break;
            }
        }
    }
    assert_eq!(reader.held_bytes(), 0);
    (windows, sent)
}

fn own(version: Version, record: &Record<'_>) -> Frame {
    match record {
        Record::Json { sequence, payload } => Frame::Json {
            version,
            sequence_number: *sequence,
            payload: Bytes::copy_from_slice(payload),
        },
        Record::Data { sequence, pairs } => Frame::Data {
            version,
            sequence_number: *sequence,
            pairs: pairs
                .clone()
                .map(|(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
                .collect(),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_window_is_read_back_and_acknowledged_once(
        windows in proptest::collection::vec(window(), 1..6),
        chunk in 1_usize..400,
    ) {
        let wire = encode(&windows);
        let (came, sent) = read(&wire, chunk);
        let mut acks = Vec::new();
        for ((version, records), came) in windows.iter().zip(&came) {
            let records: Vec<Frame> = records.iter().map(|(frame, _)| frame.clone()).collect();
            prop_assert_eq!(&records, came);
            let (Frame::Json { sequence_number, .. } | Frame::Data { sequence_number, .. }) =
                records.last().unwrap() else { unreachable!() };
            let ack = Frame::Ack { version: *version, sequence_number: *sequence_number };
            frame::encode(&ack, 3, &mut acks);
        }
        prop_assert_eq!(windows.len(), came.len());
        prop_assert_eq!(acks, sent);
    }

    #[test]
    fn a_frame_survives_encoding(frame in version().prop_flat_map(record)) {
        let mut wire = Vec::new();
        frame::encode(&frame, 3, &mut wire);
        let decoded = frame::decode(&wire, &Limits::default(), From::Writer);
        prop_assert_eq!(decoded, Ok(Some((frame, wire.len()))));
    }

    #[test]
    fn any_bytes_keep_the_promises(
        windows in proptest::collection::vec(window(), 0..3),
        split in any::<u8>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ops in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut wire = vec![split];
        wire.extend_from_slice(&encode(&windows));
        for (at, byte) in damage {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        let now = Instant::now();
        fuzzing::receive(now, &wire);
        fuzzing::roundtrip(&wire[1..]);
        fuzzing::ops(now, &ops);
        fuzzing::ops(now, &wire);
        fuzzing::writer(now, &ops);
    }
}
