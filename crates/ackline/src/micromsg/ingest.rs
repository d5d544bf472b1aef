//! Runs of messages into blocks: one run, one block, whose stream is the destination.

use std::sync::Arc;
use std::time::Instant;

use ackline_link::{Budget, PeerInfo, Refused};
use ackline_micromsg::ReceiveOptions;
use ackline_micromsg::intake::{Intake, IntakeConfig, Memory, Note, Run, Subscription};
use ackline_micromsg::text::shown;
use ackline_spool::Block;

use super::layout::{NAME, body};
use crate::ingest::{self, Batch, Ingest, PerConnection, Ready};
use crate::repeats::Judge;

/// Lands the messages of one connection.
#[derive(Debug, Clone)]
pub struct MessageIngest {
    config: IntakeConfig,
}

impl MessageIngest {
    /// For the connections that a receiver with this memory accepts.
    pub(super) fn accepting(options: &ReceiveOptions, budget: &Budget) -> Self {
        let config = IntakeConfig::server(options, memory(budget));
        Self { config }
    }

    /// For the connections that a receiver with this memory makes, each with this subscription.
    pub(super) fn connecting(
        options: &ReceiveOptions,
        budget: &Budget,
        subscription: Subscription,
    ) -> Self {
        let config = IntakeConfig::client(options, memory(budget), subscription);
        Self { config }
    }
}

fn memory(budget: &Budget) -> Memory {
    Memory {
        largest: budget.largest(),
        quota: budget.quota(),
    }
}

impl Ingest for MessageIngest {
    const SCHEME: &'static str = super::SCHEME;
    /// A peer that sends messages again does that on another connection, whose numbers begin anew.
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
        let from = peer;
        let (peer, link) = (&*peer.name, &**link);
        match run.note.as_ref()? {
            Note::NoAcks => tracing::info!(
                code = "micromsg.no_acks",
                peer,
                link,
                "messages of this connection are landed and not acknowledged"
            ),
            Note::Ignored { name } => {
                let name = shown(name);
                tracing::info!(
                    code = "micromsg.ignored",
                    peer,
                    link,
                    name,
                    "a receiver ignores commands and frames of extensions; further ones are not told"
                );
            }
            Note::Failed { error } => {
                log_error_frame(from, Some(link), &shown(error));
            }
        }
        None
    }

    fn count(run: &Run) -> (u64, u64, u64) {
        (run.messages.len() as u64, run.bytes as u64, run.token)
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

/// Logs the ERROR frame of a peer; its text is escaped.
pub(super) fn log_error_frame(peer: &PeerInfo, link: Option<&str>, why: &str) {
    let peer = &*peer.name;
    tracing::warn!(
        code = "micromsg.error_received",
        peer,
        link,
        why,
        "the peer has ended the connection with an error"
    );
}

fn ready(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Ready {
    let (body, inflated_bytes) = body(&run.messages);
    let mut block = Block {
        first_sequence: i64::try_from(run.first).unwrap_or(i64::MAX),
        // A run is cut far below.
        count: u32::try_from(run.messages.len()).unwrap_or(u32::MAX),
        inflated_bytes,
        body,
        ..ingest::block((super::SCHEME, NAME), peer, link, &run.source.attributes)
    };
    block.origin.stream.clone_from(&run.source.destination);
    Ready {
        block,
        tokens: vec![run.token],
        // No sender waits for the commit of anything else.
        can_wait: run.is_acknowledged,
    }
}
