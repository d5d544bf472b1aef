//! A block of Relink messages: how it is written, and back into event rows.

use std::ops::Range;

use ackline_core::Sequence;
use ackline_relink::frame::{Body, Context, Decoded, Out, Packet, Role, decode, encode_message};
use ackline_relink::{ChannelId, Limits, Payload};
use ackline_spool::{Layout, LayoutError, Rows, StoredBlock};
use bytes::Bytes;

use crate::pieces::Pieces;

/// `relink/1`: the body is one message packet for each event, in the smallest form, with a channel id of
/// size 0. The block's stream is the channel; its messages have consecutive numbers. A message of one part
/// is one payload; any other number of parts are the parts.
#[derive(Debug, Clone, Copy)]
pub struct MessageLayout;

/// The name of [`MessageLayout`], with its version.
pub(crate) const NAME: &str = "relink/1";

/// The bytes of a block.
#[derive(Debug, Default)]
pub(super) struct Packets(Pieces);

impl Packets {
    /// Appends a message.
    pub(super) fn push(&mut self, payload: &Payload) {
        encode_message(&[ChannelId::IMPLICIT], payload, self);
    }

    /// The pieces, and the bytes in them.
    pub(super) fn finish(self) -> (Vec<Bytes>, u64) {
        self.0.finish()
    }
}

impl Out for Packets {
    fn put_slice(&mut self, piece: &[u8]) {
        self.0.copy(piece);
    }

    fn put_part(&mut self, part: &Bytes) {
        self.0.put(part);
    }
}

impl Layout for MessageLayout {
    fn name(&self) -> &'static str {
        NAME
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        let mut rest = block.body;
        let first = u32::try_from(block.first_sequence)
            .map_err(|_| LayoutError("its first sequence number is none".to_owned()))?;
        for row in 0..rows.end {
            if out.is_full() {
                return Ok(());
            }
            let decoded = decode(&CONTEXT, &NO_LIMITS, rest);
            let decoded = decoded.map_err(|kind| LayoutError(kind.to_string()))?;
            let Decoded::Whole { packet, len } = decoded else {
                return Err(LayoutError(format!(
                    "the block announces {} messages and holds {row}",
                    rows.end
                )));
            };
            let Packet::Channel {
                body: Body::Message(parts),
                ..
            } = packet
            else {
                return Err(LayoutError(format!("event {row} is no message")));
            };
            rest = rest.get(len..).unwrap_or_default();
            if row < rows.start {
                continue;
            }
            let sequence = i64::from(Sequence(first).plus(row).0);
            match parts.iter().next() {
                Some(payload) if parts.len() == 1 => out.push_payload(sequence, payload),
                _ => out.push_parts(sequence, parts.iter()),
            }
        }
        Ok(())
    }
}

const CONTEXT: Context = Context {
    from: Role::Connector,
    connector_channel_id_size: 0,
    listener_channel_id_size: 0,
};

/// No limits: a received message has kept to the limits of its link.
const NO_LIMITS: Limits = Limits {
    max_channel_ids: u32::MAX,
    max_message_parts: u32::MAX,
    max_part_bytes: u64::MAX,
    max_message_bytes: u64::MAX,
    max_multicast_bytes: u64::MAX,
    copies: u32::MAX,
};
