//! Windows into blocks: one window, one block, its frames as they came.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::ErrorKind;
use ackline_link::PeerInfo;
use ackline_lumberjack::{
    Event, Expander, Invalid, Limits, Piece, Reader, ReaderConfig, Record, Version, Window,
};
use ackline_spool::Block;

use super::layout::{INVALID, NAME};
use crate::ingest::{self, Aside, Batch, Ingest, PerConnection, Ready};
use crate::repeats::Judge;

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
        for event in events {
            match event {
                Event::Window(window) => {
                    let ready = block(&window, peer, link, judge.as_deref_mut())?;
                    batch.blocks.push(ready);
                }
                Event::Invalid(invalid) => batch.aside.push(aside(&invalid, peer, link)),
            }
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
}

impl PerConnection for WindowIngest {
    fn machine(&self) -> Reader {
        Reader::new(self.config.clone())
    }

    fn retire(machine: &mut Reader, now: Instant) {
        machine.retire(now);
    }
}

fn block(
    window: &Window,
    peer: &PeerInfo,
    link: &Arc<str>,
    judge: Option<&mut Judge>,
) -> Result<Ready, String> {
    let is_envelope = |piece: &Piece| matches!(piece, Piece::Envelope { .. });
    let has_envelope = window.pieces.iter().any(is_envelope);
    let pieces = window.pieces.iter().map(Piece::bytes);
    let repeats = match judge {
        Some(judge) => judged(window, judge)?,
        None => Vec::new(),
    };
    let attributes = [
        attribute("lumberjack.version", &window.version.number().to_string()),
        attribute("lumberjack.window", &window.id.to_string()),
    ];
    let block = Block {
        codec: if has_envelope { "zlib" } else { "none" },
        first_sequence: i64::from(window.first_sequence),
        count: window.records,
        inflated_bytes: window.inflated_bytes(),
        repeats: Some(repeats),
        body: pieces.cloned().collect(),
        ..ingest::block((super::SCHEME, NAME), peer, link, &attributes)
    };
    Ok(Ready {
        block,
        tokens: vec![window.id],
        can_wait: window.version == Version::V2,
    })
}

fn attribute(name: &str, value: &str) -> (Arc<str>, Arc<str>) {
    (Arc::from(name), Arc::from(value))
}

/// A window that cannot be read, as one row.
fn aside(invalid: &Invalid, peer: &PeerInfo, link: &Arc<str>) -> Aside {
    let (code, message) = (invalid.kind.code(), invalid.kind.to_string());
    let attributes = [
        attribute("code", code),
        attribute("message", &message),
        attribute("lumberjack.events", &invalid.window_size.to_string()),
        attribute("lumberjack.version", &invalid.version.number().to_string()),
        attribute("lumberjack.window", &invalid.id.to_string()),
    ];
    let block = Block {
        first_sequence: i64::from(invalid.window_size),
        count: 1,
        inflated_bytes: invalid.bytes.len() as u64,
        body: vec![invalid.bytes.clone()],
        ..ingest::block((super::SCHEME, INVALID), peer, link, &attributes)
    };
    Aside {
        block,
        token: invalid.id,
        events: u64::from(invalid.window_size),
        code,
        message,
        offset: invalid.offset,
    }
}

fn judged(window: &Window, judge: &mut Judge) -> Result<Vec<u8>, String> {
    let is_done = judge.is_done();
    if !judge.needs_nothing() {
        let ask = |record: Record<'_>| match record {
            Record::Json { payload, .. } => judge.payload(payload),
            Record::Data { pairs, .. } => judge.parts(pairs.flat_map(|(key, value)| [key, value])),
        };
        window
            .for_each_record(&mut Expander::new(), ask)
            .map_err(|kind| kind.to_string())?;
    }
    if !is_done {
        judge.end_window();
    }
    Ok(judge.end_block())
}
