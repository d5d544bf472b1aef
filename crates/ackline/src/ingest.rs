//! The part of a protocol in a receiver that lands its messages: the machine that serves a link, the blocks that its
//! events become, and the verb that acknowledges a block that is safe.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::Connection;
pub use ackline_core::Landable;
use ackline_link::{PeerInfo, Refused};
use ackline_spool::{Block, Origin};

use crate::repeats::Judge;

/// Blocks made from events.
#[derive(Debug, Default)]
pub struct Batch {
    /// Blocks for the spool.
    pub blocks: Vec<Ready>,
    /// Windows and messages that cannot be read, for the quarantine.
    pub aside: Vec<Aside>,
}

/// A block for the spool.
#[derive(Debug)]
pub struct Ready {
    /// The block.
    pub block: Block,
    /// The tokens that [`Landable::settle`] is given once it is kept as promised.
    pub tokens: Vec<u64>,
    /// Whether its sender can be told to wait, so that its acknowledgement may come with a commit.
    pub can_wait: bool,
}

/// A window or message that cannot be read, to be kept as it came.
#[derive(Debug)]
pub struct Aside {
    /// It, as a block of one row.
    pub block: Block,
    /// The token that [`Landable::settle`] or [`Landable::refuse`] is given.
    pub token: u64,
    /// Events it was announced to hold.
    pub events: u64,
    /// The stable name of the error.
    pub code: &'static str,
    /// The same as a sentence.
    pub message: String,
    /// Bytes received on the connection before it.
    pub offset: u64,
}

/// One protocol's way into a spool.
pub trait Ingest: Send + 'static {
    /// The scheme of the protocol's URLs.
    const SCHEME: &'static str;

    /// Whether a sender that comes back may send events again which only their bytes tell from new ones.
    const COMPARES: bool;

    /// The machine at our end of a link: of a connection, or of a link that outlives its connections.
    type Machine: Landable;

    /// Turns the events that are there into blocks. Every event must be in a block when this returns:
    /// a sender may be waiting for the acknowledgement of the last one.
    ///
    /// # Errors
    /// The machine handed out an event that cannot be read; the connection is ended with the text.
    fn blocks(
        &mut self,
        events: Vec<<Self::Machine as Connection>::Event>,
        peer: &PeerInfo,
        link: &Arc<str>,
        judge: Option<&mut Judge>,
    ) -> Result<Batch, String>;

    /// Tells an operator of an event, whether or not it is kept; returns the request that the peer made in
    /// vain, while its link goes on.
    fn tell(
        event: &<Self::Machine as Connection>::Event,
        peer: &PeerInfo,
        link: &Arc<str>,
    ) -> Option<Refused> {
        let _ = (event, peer, link);
        None
    }

    /// Counts events without keeping them, for `--discard`: `(events, bytes, token)`.
    fn count(event: &<Self::Machine as Connection>::Event) -> (u64, u64, u64);
}

/// A block of uncompressed messages, without its messages.
pub(crate) fn block(
    (protocol, layout): (&'static str, &'static str),
    peer: &PeerInfo,
    link: &Arc<str>,
    attributes: &[(Arc<str>, Arc<str>)],
) -> Block {
    Block {
        origin: Origin {
            protocol: Arc::from(protocol),
            peer: Arc::clone(&peer.name),
            link: Arc::clone(link),
            stream: None,
        },
        layout,
        codec: "none",
        first_sequence: 0,
        count: 0,
        windows: 1,
        inflated_bytes: 0,
        repeats: None,
        attributes: [attributes, &peer.attributes].concat(),
        body: Vec::new(),
    }
}

/// A protocol whose links are connections: each has a machine of its own, and ends with it.
pub trait PerConnection: Ingest + Clone {
    /// The machine for a new connection.
    fn machine(&self) -> Self::Machine;

    /// As [`Landable::stop`], but everything that the peer has begun may be completed first.
    fn retire(machine: &mut Self::Machine, now: Instant);
}
