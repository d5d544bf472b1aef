//! Windows into blocks: normally one window, one block, its frames as they came.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::ErrorKind;
use ackline_link::PeerInfo;
use ackline_lumberjack::frame::{Frame, encode};
use ackline_lumberjack::{
    Event, Expander, Invalid, Limits, Piece, Reader, ReaderConfig, Record, Version, Window,
};
use ackline_spool::Block;
use bytes::Bytes;

use super::layout::{INVALID, NAME};
use crate::ingest::{Aside, Batch, Ingest, PerConnection, Ready};
use crate::repeats::Judge;

/// A run of windows that share envelopes is cut here at the latest and rewritten as plain frames.
const MAX_RUN_WINDOWS: usize = 64;
const MAX_RUN_BYTES: usize = 8 * 1024 * 1024;

/// Lands the windows of one listener.
#[derive(Debug, Clone)]
pub struct WindowIngest {
    config: ReaderConfig,
}

impl WindowIngest {
    /// For connections with these limits and timers.
    pub fn new(config: ReaderConfig) -> Self {
        Self { config }
    }

    /// The limits that its connections hold.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }
}

impl Ingest for WindowIngest {
    const SCHEME: &'static str = super::SCHEME;
    const COMPARES: bool = true;

    type Machine = Reader;

    fn blocks(
        &mut self,
        events: Vec<Event>,
        peer: &PeerInfo,
        link: &Arc<str>,
        mut judge: Option<&mut Judge>,
    ) -> Result<Batch, String> {
        let mut batch = Batch::default();
        let mut run: Vec<Window> = Vec::new();
        for event in events {
            match event {
                Event::Window(window) => run.push(window),
                Event::Invalid(invalid) => {
                    batch.aside.push(aside(&invalid, peer, link));
                    continue;
                }
            }
            if ends_run(&run) {
                batch.blocks.push(block(
                    &std::mem::take(&mut run),
                    peer,
                    link,
                    judge.as_deref_mut(),
                )?);
            }
        }
        if !run.is_empty() {
            batch.blocks.push(block(&run, peer, link, judge)?);
        }
        Ok(batch)
    }

    fn count(event: &Event) -> (u64, u64, u64) {
        match event {
            Event::Window(window) => (
                u64::from(window.records),
                window.wire_bytes() as u64,
                window.id,
            ),
            Event::Invalid(invalid) => (
                u64::from(invalid.window_size),
                invalid.bytes.len() as u64,
                invalid.id,
            ),
        }
    }

    fn settle(machine: &mut Reader, now: Instant, token: u64) -> bool {
        machine.ack(now, token).is_ok()
    }

    fn landed(machine: &mut Reader, now: Instant, token: u64) {
        // A connection that is over holds nothing.
        let _ = machine.landed(now, token);
    }

    fn refuse(machine: &mut Reader, now: Instant, token: u64) {
        // A connection that is over needs no second end.
        let _ = machine.refuse(now, token);
    }

    fn stop(machine: &mut Reader, now: Instant) {
        machine.stop(now);
    }

    fn unsettled(machine: &Reader) -> usize {
        machine.unacknowledged()
    }

    fn owed_at_end(machine: &Reader) -> bool {
        machine.owed_at_end()
    }
}

impl PerConnection for WindowIngest {
    fn machine(&self) -> Reader {
        Reader::new(self.config.clone())
    }

    fn retire(machine: &mut Reader, now: Instant) {
        machine.retire(now);
    }
}

fn ends_run(run: &[Window]) -> bool {
    let bytes: usize = run.iter().map(Window::wire_bytes).sum();
    run.last().is_none_or(Window::ends_on_frame)
        || run.len() >= MAX_RUN_WINDOWS
        || bytes > MAX_RUN_BYTES
}

fn block(
    run: &[Window],
    peer: &PeerInfo,
    link: &Arc<str>,
    judge: Option<&mut Judge>,
) -> Result<Ready, String> {
    let count: u32 = run.iter().map(|window| window.records).sum();
    let (body, inflated_bytes, has_envelope) = if is_whole_frames(run) {
        as_it_came(run)
    } else {
        rewritten(run)?
    };
    let repeats = match judge {
        Some(judge) => judged(run, judge)?,
        None => Vec::new(),
    };
    let first = run.first();
    let version = first.map_or(Version::V2, |window| window.version);
    let mut block = Block {
        protocol: Arc::from(super::SCHEME),
        peer: Arc::clone(&peer.name),
        link: Arc::clone(link),
        stream: None,
        layout: NAME,
        codec: if has_envelope { "zlib" } else { "none" },
        first_sequence: first.map_or(0, |window| i64::from(window.first_sequence)),
        count,
        windows: u32::try_from(run.len()).unwrap_or(u32::MAX),
        inflated_bytes,
        repeats: Some(repeats),
        attributes: vec![
            attribute("lumberjack.version", &version.number().to_string()),
            attribute(
                "lumberjack.window",
                &first.map_or(0, |window| window.id).to_string(),
            ),
        ],
        body,
    };
    block.attributes.extend_from_slice(&peer.attributes);
    Ok(Ready {
        block,
        tokens: run.iter().map(|window| window.id).collect(),
        can_wait: run.iter().all(|window| window.version == Version::V2),
    })
}

fn attribute(name: &str, value: &str) -> (Arc<str>, Arc<str>) {
    (Arc::from(name), Arc::from(value))
}

/// A window that cannot be read, as one row.
fn aside(invalid: &Invalid, peer: &PeerInfo, link: &Arc<str>) -> Aside {
    let (code, message) = (invalid.kind.code(), invalid.kind.to_string());
    let mut block = Block {
        protocol: Arc::from(super::SCHEME),
        peer: Arc::clone(&peer.name),
        link: Arc::clone(link),
        stream: None,
        layout: INVALID,
        codec: "none",
        first_sequence: i64::from(invalid.window_size),
        count: 1,
        windows: 1,
        inflated_bytes: invalid.bytes.len() as u64,
        repeats: None,
        attributes: vec![
            attribute("code", code),
            attribute("message", &message),
            attribute("lumberjack.events", &invalid.window_size.to_string()),
            attribute("lumberjack.version", &invalid.version.number().to_string()),
            attribute("lumberjack.window", &invalid.id.to_string()),
        ],
        body: vec![invalid.bytes.clone()],
    };
    block.attributes.extend_from_slice(&peer.attributes);
    Aside {
        block,
        token: invalid.id,
        events: u64::from(invalid.window_size),
        code,
        message,
        offset: invalid.offset,
    }
}

/// Whether the run begins and ends where wire frames do.
fn is_whole_frames(run: &[Window]) -> bool {
    let begins = run.iter().find_map(|window| window.pieces.first());
    let begins_inside = matches!(begins, Some(Piece::Envelope { first, .. }) if *first > 0);
    !begins_inside && run.last().is_none_or(Window::ends_on_frame)
}

fn as_it_came(run: &[Window]) -> (Vec<Bytes>, u64, bool) {
    let (mut body, mut inflated, mut has_envelope) = (Vec::new(), 0, false);
    for piece in run.iter().flat_map(|window| &window.pieces) {
        match piece {
            Piece::Frames { bytes, .. } => {
                inflated += bytes.len() as u64;
                body.push(bytes.clone());
            }
            // The rest of an envelope that an earlier window of the run brought in whole.
            Piece::Envelope {
                first,
                inflated_bytes,
                ..
            } if *first > 0 => {
                inflated += inflated_bytes;
            }
            Piece::Envelope {
                bytes,
                inflated_bytes,
                ..
            } => {
                inflated += inflated_bytes;
                has_envelope = true;
                body.push(bytes.clone());
            }
        }
    }
    (body, inflated, has_envelope)
}

fn rewritten(run: &[Window]) -> Result<(Vec<Bytes>, u64, bool), String> {
    let mut plain = Vec::new();
    let mut expander = Expander::new();
    for window in run {
        let version = window.version;
        window
            .for_each_record(&mut expander, |record| {
                encode(&owned(record, version), 0, &mut plain);
            })
            .map_err(|kind| kind.to_string())?;
    }
    let inflated = plain.len() as u64;
    Ok((vec![plain.into()], inflated, false))
}

fn owned(record: Record<'_>, version: Version) -> Frame {
    match record {
        Record::Json { sequence, payload } => Frame::Json {
            version,
            sequence_number: sequence,
            payload: Bytes::copy_from_slice(payload),
        },
        Record::Data { sequence, pairs } => Frame::Data {
            version,
            sequence_number: sequence,
            pairs: pairs
                .map(|(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
                .collect(),
        },
    }
}

fn judged(run: &[Window], judge: &mut Judge) -> Result<Vec<u8>, String> {
    let mut expander = Expander::new();
    for window in run {
        if judge.is_done() {
            break;
        }
        let ask = |record: Record<'_>| match record {
            Record::Json { payload, .. } => judge.payload(payload),
            Record::Data { pairs, .. } => judge.parts(pairs.flat_map(|(key, value)| [key, value])),
        };
        window
            .for_each_record(&mut expander, ask)
            .map_err(|kind| kind.to_string())?;
        judge.end_window();
    }
    Ok(judge.end_block())
}
