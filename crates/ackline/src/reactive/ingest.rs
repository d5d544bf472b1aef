//! Runs of elements into blocks: one run, one block, whose stream is the publisher.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::Room;
use ackline_link::{Budget, PeerInfo, Refused};
use ackline_reactive::intake::{Completion, Intake, IntakeConfig, Note, Run};
use ackline_reactive::{ReceiveOptions, Role};
use ackline_spool::Block;

use super::layout::{NAME, body};
use crate::ingest::{self, Batch, Ingest, PerConnection, Ready};
use crate::repeats::Judge;

/// Lands the elements of one connection.
#[derive(Debug, Clone)]
pub struct ElementIngest {
    config: IntakeConfig,
}

impl ElementIngest {
    /// For a receiver with this memory and room in its spool, which subscribes to these publishers of its peer.
    pub(super) fn new(
        role: Role,
        options: &ReceiveOptions,
        publishers: &[String],
        (budget, room): (&Budget, Room),
    ) -> Self {
        let config = IntakeConfig::new(role, options, publishers, (budget.largest(), room));
        Self { config }
    }

    /// Whether the streams of its connections are complete.
    pub(super) const fn completion(&self) -> &Completion {
        self.config.completion()
    }
}

impl Ingest for ElementIngest {
    const SCHEME: &'static str = super::SCHEME;
    /// A publisher that publishes elements again does that on another connection, and its elements have no names.
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
        let (peer, link, publisher) = (&*peer.name, &**link, &*run.source.publisher);
        match run.note.as_ref()? {
            Note::Completed { elements } => tracing::info!(
                code = "reactive.completed",
                peer,
                link,
                publisher,
                elements,
                "the publisher has completed its stream"
            ),
            Note::Failed { error } => {
                let why = error.escape_debug().to_string();
                tracing::warn!(
                    code = "reactive.subscription_failed",
                    peer,
                    link,
                    publisher,
                    why,
                    "the subscription has ended before its stream was complete"
                );
            }
        }
        None
    }

    fn count(run: &Run) -> (u64, u64, u64) {
        (u64::from(run.count), run.bytes as u64, run.token)
    }
}

impl PerConnection for ElementIngest {
    fn machine(&self) -> Intake {
        let now = tokio::time::Instant::now().into_std();
        Intake::new(now, self.config.clone())
    }

    fn retire(machine: &mut Intake, _: Instant) {
        machine.retire();
    }
}

fn ready(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Ready {
    let (body, inflated_bytes) = body(&run.elements);
    let mut block = Block {
        first_sequence: i64::try_from(run.first).unwrap_or(i64::MAX),
        count: run.count,
        inflated_bytes,
        body,
        ..ingest::block((super::SCHEME, NAME), peer, link, &run.source.attributes)
    };
    block.origin.stream = Some(Arc::clone(&run.source.publisher));
    Ready {
        block,
        tokens: vec![run.token],
        // No consumer commits a note.
        can_wait: run.note.is_none(),
    }
}
