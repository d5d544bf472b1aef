//! Runs of messages into blocks: one run, one block, whose stream is the entity that its messages came on.

use std::sync::Arc;
use std::time::Instant;

use ackline_bpmux::ReceiveOptions;
use ackline_bpmux::intake::{Intake, IntakeConfig, MAX_OPENING, Note, Run};
use ackline_core::LimitHit;
use ackline_link::{Budget, PeerInfo, Refused};
use ackline_spool::Block;
use bytes::Bytes;

use super::connection::memory;
use super::layout::{NAME, body};
use crate::ingest::{self, Batch, Ingest, PerConnection, Ready};
use crate::repeats::Judge;

/// Lands the messages of one connection.
#[derive(Debug, Clone)]
pub struct MessageIngest {
    config: IntakeConfig,
}

impl MessageIngest {
    /// For a receiver with this memory; a connection of its own opens a stream at once.
    pub(super) fn new(options: &ReceiveOptions, budget: &Budget, stream: Option<Bytes>) -> Self {
        let config = IntakeConfig::new(options, memory(budget), stream);
        Self { config }
    }
}

impl Ingest for MessageIngest {
    const SCHEME: &'static str = super::SCHEME;
    /// A peer that sends messages again uses another connection, and identifies them in its own words.
    const COMPARES: bool = false;

    type Machine = Intake;

    fn blocks(
        &mut self,
        events: Vec<Run>,
        peer: &PeerInfo,
        link: &Arc<str>,
        _: Option<&mut Judge>,
    ) -> Result<Batch, String> {
        let blocks = events.iter().map(|run| ready(run, peer, link));
        Ok(Batch {
            blocks: blocks.collect(),
            aside: Vec::new(),
        })
    }

    fn tell(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Option<Refused> {
        let stream = run.source.stream.as_deref().unwrap_or_default();
        match run.note.as_ref()? {
            Note::OpeningTooLarge { bytes, limit } => {
                Some(too_large((*bytes, *limit), peer, (link, stream)))
            }
            Note::ClosedWith { begin, bytes } => {
                let (peer, why) = (&*peer.name, begin.escape_ascii().to_string());
                tracing::info!(
                    code = "bpmux.closed_with",
                    peer,
                    link = &**link,
                    stream,
                    bytes,
                    why,
                    "closed"
                );
                None
            }
        }
    }

    fn count(run: &Run) -> (u64, u64, u64) {
        (run.payloads.len() as u64, run.bytes as u64, run.token)
    }
}

impl PerConnection for MessageIngest {
    fn machine(&self) -> Intake {
        let now = tokio::time::Instant::now().into_std();
        Intake::new(now, self.config.clone())
    }

    fn retire(machine: &mut Intake, _: Instant) {
        machine.retire();
    }
}

/// A sink or duplex that was cancelled because of its opening.
fn too_large(
    (bytes, limit): (usize, usize),
    peer: &PeerInfo,
    (link, stream): (&str, &str),
) -> Refused {
    let to_u64 = |number| u64::try_from(number).unwrap_or(u64::MAX);
    let message = format!(
        "connection {link}, sink {stream}: it is opened with {bytes} bytes, of which each of its rows would \
         have a copy; at most {limit} may be"
    );
    let mut refused = Refused::new(peer, "bpmux.opening_too_large", message);
    refused.what = "sink";
    refused.hit = Some(LimitHit {
        value: to_u64(bytes),
        limit: to_u64(limit),
        option: MAX_OPENING,
    });
    refused.option = Some(MAX_OPENING);
    refused
}

fn ready(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Ready {
    let (body, inflated_bytes) = body(&run.payloads);
    let mut block = Block {
        first_sequence: i64::try_from(run.first).unwrap_or(i64::MAX),
        // A run is cut far below.
        count: u32::try_from(run.payloads.len()).unwrap_or(u32::MAX),
        inflated_bytes,
        body,
        ..ingest::block((super::SCHEME, NAME), peer, link, &run.source.attributes)
    };
    block.origin.stream.clone_from(&run.source.stream);
    Ready {
        block,
        tokens: vec![run.token],
        can_wait: true,
    }
}
