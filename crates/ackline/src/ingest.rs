//! What a protocol must say so that the receiver can land its messages: which machine serves a new
//! connection, how its events become blocks, and which verb acknowledges a block that is safe.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::Connection;
use ackline_spool::Block;

use crate::repeats::Judge;

/// Blocks made from events, each with the tokens that settle it.
#[derive(Debug, Default)]
pub struct Batch {
    /// A block and what [`Ingest::settle`] is given once it is durable.
    pub blocks: Vec<(Block, Vec<u64>)>,
}

/// One protocol's way into a spool.
pub trait Ingest: Send + 'static {
    /// The scheme of the protocol's URLs.
    const SCHEME: &'static str;

    /// The machine at our end of a connection.
    type Machine: Connection<Event: Send, Kind: Send> + Send + 'static;

    /// The machine for a new connection.
    fn machine(&self) -> Self::Machine;

    /// Turns the events that are there into blocks. Every event must be in a block when this returns:
    /// a sender may be waiting for the acknowledgement of the last one.
    ///
    /// # Errors
    /// The machine handed out an event that cannot be read; the connection is ended with the text.
    fn blocks(
        &mut self,
        events: Vec<<Self::Machine as Connection>::Event>,
        peer: &Arc<str>,
        link: &Arc<str>,
        judge: Option<&Judge>,
    ) -> Result<Batch, String>;

    /// Counts events without keeping them, for `--discard`: `(events, bytes, token)`.
    fn count(event: &<Self::Machine as Connection>::Event) -> (u64, u64, u64);

    /// The block of this token is safe: the machine may acknowledge it. Answers whether it will: after
    /// the connection's end there is nobody to tell.
    fn settle(machine: &mut Self::Machine, now: Instant, token: u64) -> bool;

    /// No more input: what is complete is still acknowledged, then the connection ends.
    fn stop(machine: &mut Self::Machine, now: Instant);

    /// Windows or messages handed out and not settled.
    fn unsettled(machine: &Self::Machine) -> usize;
}
