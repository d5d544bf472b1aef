//! Bodies of every protocol back into events, with less memory than they take.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::Arc;

use ackline::spool::{
    Block, Origin, Promise, ReadOptions, Settle, Spool, SpoolError, Writer, WriterOptions,
};
use ackline_bpmux::Target;
use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_lumberjack::frame::{self, Frame, Version};
use ackline_micromsg::stored::put_length;
use ackline_relink::frame::{Out, encode_message};
use ackline_relink::{ChannelId, Payload};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;

use crate::common::DEADLINE;

struct Nobody;

impl Settle for Nobody {
    fn settle(&self, _tokens: &[u64]) {}
    fn failed(&self, _error: &SpoolError) {}
}

/// A spool of one block, which says that it inflates to so many bytes.
fn spool_of(
    layout: &'static str,
    count: u32,
    inflated_bytes: u64,
    body: Vec<u8>,
) -> (tempfile::TempDir, Spool) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("spool");
    let (writer, _) = Writer::open(&dir, WriterOptions::default()).unwrap();
    let block = Block {
        origin: Origin {
            protocol: "test".into(),
            peer: "127.0.0.1:1".into(),
            link: "link".into(),
            stream: None,
        },
        layout,
        codec: "frames",
        first_sequence: 1,
        count,
        windows: 1,
        inflated_bytes,
        repeats: None,
        attributes: Vec::new(),
        body: vec![Bytes::from(body)],
    };
    writer.append(block, Arc::new(Nobody), 0, Promise::Durable);
    assert!(writer.flush(DEADLINE));
    writer.close(DEADLINE);
    let spool = Spool::open(&dir).unwrap();
    (temp, spool)
}

fn json(sequence_number: u32, payload: &[u8]) -> Frame {
    Frame::Json {
        version: Version::V2,
        sequence_number,
        payload: payload.to_vec().into(),
    }
}

fn wire(frame: &Frame) -> Vec<u8> {
    let mut wire = Vec::new();
    frame::encode(frame, 6, &mut wire);
    wire
}

fn envelope(frames: Vec<Frame>) -> Vec<u8> {
    wire(&Frame::Compressed {
        version: Version::V2,
        frames,
    })
}

/// A chunk of bpmux with a whole message.
fn chunk(payload: &[u8]) -> Vec<u8> {
    let role = PayloadRole::Message(Target::Top);
    let length = payload.len() as u64;
    let head = encode(Head::Payload { role, length });
    [head.as_ref(), payload].concat()
}

/// The bytes of a packet of Relink.
#[derive(Default)]
struct Packet(Vec<u8>);

impl Out for Packet {
    fn put_slice(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    fn put_part(&mut self, part: &Bytes) {
        self.0.extend_from_slice(part);
    }
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let mut packet = Packet::default();
    let payload = Payload::from(Bytes::copy_from_slice(payload));
    encode_message(&[ChannelId::IMPLICIT], &payload, &mut packet);
    packet.0
}

/// A message as it is kept, with a property.
fn kept(payload: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for part in [b"k:Tvalue;", payload] {
        put_length(&mut kept, part.len());
        kept.extend_from_slice(part);
    }
    kept
}

/// Reads everything: the positions, the largest batch in bytes, and the error at the end.
fn read(spool: &Spool, memory: u64, threads: usize) -> (Vec<i64>, usize, Option<SpoolError>) {
    let options = ReadOptions {
        threads,
        memory,
        ..ReadOptions::default()
    };
    let end = spool.durable().unwrap();
    let reader = spool.read(&ackline::layouts(), 0..end, &options).unwrap();
    let (mut positions, mut largest, mut error) = (Vec::new(), 0, None);
    for batch in reader {
        match batch {
            Ok(batch) => {
                let column = batch["position"].as_primitive::<Int64Type>();
                positions.extend_from_slice(column.values());
                largest = largest.max(RecordBatch::get_array_memory_size(&batch));
            }
            Err(found) => error = Some(found),
        }
    }
    (positions, largest, error)
}

#[test]
fn a_block_of_any_protocol_that_does_not_fit_the_memory_comes_in_parts() {
    let payload = vec![b'x'; 100_000];
    let inflated = envelope((1..=500).map(|at| json(at, &payload)).collect());
    let plain: Vec<u8> = (1..=50).flat_map(|at| wire(&json(at, &payload))).collect();
    let spools = [
        ("lumberjack/1", 500, inflated),
        ("lumberjack/1", 50, plain),
        ("bpmux/1", 50, chunk(&payload).repeat(50)),
        ("relink/1", 50, packet(&payload).repeat(50)),
        ("micromsg/1", 50, kept(&payload).repeat(50)),
    ];
    for (layout, count, body) in spools {
        let (_temp, spool) = spool_of(layout, count, 1, body);
        for threads in [1, 4] {
            let (positions, largest, error) = read(&spool, 8 << 20, threads);
            assert!(error.is_none(), "{layout}: {error:?}");
            assert_eq!(positions, (0..i64::from(count)).collect::<Vec<_>>());
            assert!(largest < 4 << 20, "{layout}: {largest}");
        }
    }
}

#[test]
fn an_event_that_inflates_to_more_than_the_memory_is_never_inflated() {
    let frames = vec![
        json(1, b"{}"),
        json(2, &vec![b' '; 60_000_000]),
        json(3, b"{}"),
    ];
    let (_temp, spool) = spool_of("lumberjack/1", 3, 60_000_034, envelope(frames));
    for threads in [1, 4] {
        let (_, _, error) = read(&spool, 16 << 20, threads);
        let error = error.unwrap();
        assert_eq!(error.code(), "spool.memory");
        let text = error.to_string();
        assert!(
            text.contains("position 0") && text.contains("--memory"),
            "{text}"
        );
        let (positions, _, error) = read(&spool, 512 << 20, threads);
        assert!(error.is_none() && positions == [0, 1, 2], "{error:?}");
    }
}
