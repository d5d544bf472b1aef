//! Runs of messages into blocks: one run, one block, whose stream is the channel.

use std::sync::Arc;

use ackline_core::LimitHit;
use ackline_link::{PeerInfo, Refused};
use ackline_relink::Reason;
use ackline_spool::Block;

use super::intake::{Intake, NoRoom, Run};
use super::layout::{NAME, Packets};
use super::staged::{PART, PART_OF_ALL, to_u64};
use crate::ingest::{self, Batch, Ingest, Ready};
use crate::repeats::Judge;

/// Lands the messages of one link.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageIngest;

impl Ingest for MessageIngest {
    const SCHEME: &'static str = super::SCHEME;
    /// The protocol tells repeats apart.
    const COMPARES: bool = false;

    type Machine = Intake;

    fn blocks(
        &mut self,
        events: Vec<Run>,
        peer: &PeerInfo,
        link: &Arc<str>,
        _: Option<&mut Judge>,
    ) -> Result<Batch, String> {
        let blocks = events.into_iter().map(|run| ready(&run, peer, link));
        Ok(Batch {
            blocks: blocks.collect(),
            aside: Vec::new(),
        })
    }

    fn tell(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Option<Refused> {
        told(run, peer, link)
    }

    fn count(run: &Run) -> (u64, u64, u64) {
        (run.payloads.len() as u64, run.bytes as u64, run.token)
    }
}

/// A transaction whose sender is told *uncommitted*.
fn told(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Option<Refused> {
    let NoRoom {
        messages,
        bytes,
        over,
    } = run.no_room?;
    let (limit, why) = match over {
        Reason::OverLink(limit) => (
            limit,
            format!("undecided messages of a link may take {limit} bytes, {PART} of --memory"),
        ),
        Reason::OverAll(limit) => (
            limit,
            format!(
                "undecided messages of all links may take {PART_OF_ALL} of --memory, and those of one link half \
                 of the part that the others leave: {limit} bytes"
            ),
        ),
    };
    let message = format!(
        "link {link}, channel {}: a transaction of {messages} messages with {bytes} bytes is answered as \
         uncommitted; {why}",
        run.channel
    );
    let mut refused = Refused::new(peer, "relink.transaction_refused", message);
    refused.what = "transaction";
    refused.hit = Some(LimitHit {
        value: to_u64(bytes),
        limit,
        option: "--memory",
    });
    refused.option = Some("--memory");
    Some(refused)
}

fn ready(run: &Run, peer: &PeerInfo, link: &Arc<str>) -> Ready {
    let mut packets = Packets::default();
    run.payloads
        .iter()
        .for_each(|payload| packets.push(payload));
    let (body, inflated_bytes) = packets.finish();
    let mut block = Block {
        first_sequence: i64::from(run.first.0),
        // A run is cut far below.
        count: u32::try_from(run.payloads.len()).unwrap_or(u32::MAX),
        inflated_bytes,
        repeats: Some(Vec::new()),
        body,
        ..ingest::block((super::SCHEME, NAME), peer, link, &[])
    };
    block.origin.stream = Some(Arc::from(run.channel.to_string()));
    Ready {
        block,
        tokens: vec![run.token],
        can_wait: true,
    }
}
