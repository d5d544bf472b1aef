//! The decoding of the peer's packets.

use ackline_core::Block;

use crate::frame::{Context, Decoded, Hint, Parts, decode};
use crate::{Kind, Limits, LinkConfig, Payload, payload};

/// The state of a link that reads the peer's packets.
#[derive(Debug)]
pub(super) struct Reader {
    context: Context,
    /// Whether hints are told as events.
    hears_hints: bool,
    /// Copies of small messages, while there is input.
    block: Block,
}

impl Reader {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self {
            context: Context {
                from: config.role.peer(),
                connector_channel_id_size: config.parameters.connector_channel_id_size,
                listener_channel_id_size: config.parameters.listener_channel_id_size,
            },
            hears_hints: false,
            block: Block::default(),
        }
    }

    pub(super) const fn hear_hints(&mut self) {
        self.hears_hints = true;
    }

    /// Returns the hint of a nop, if this end has asked for hints.
    pub(super) fn hint(&self, packet: &[u8]) -> Option<Hint> {
        Hint::decode(packet).filter(|_| self.hears_hints)
    }

    pub(super) fn decode<'a>(&self, limits: &Limits, input: &'a [u8]) -> Result<Decoded<'a>, Kind> {
        decode(&self.context, limits, input)
    }

    /// Copies a small message, next to others of the same input; about `count` of them are to come.
    pub(super) fn copy(&mut self, parts: &Parts<'_>, count: usize) -> Payload {
        payload::copied_together(&mut self.block, parts, count)
    }

    /// Lets the memory of the copies go: no more input is there.
    pub(super) fn let_go(&mut self) {
        self.block = Block::default();
    }
}
