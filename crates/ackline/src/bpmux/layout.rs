//! A block of bpmux messages: how it is written, and back into event rows.

use std::ops::Range;

use ackline_bpmux::Target;
use ackline_bpmux::chunk::{Carrier, Decoded, Head, decode, encode};
use ackline_core::Payload;
use ackline_spool::{Layout, LayoutError, Rows, StoredBlock};
use bytes::Bytes;

use crate::pieces::Pieces;

/// `bpmux/1`: the body is one chunk for each event, in the form of a whole message of the
/// top-level, regardless of the entity and the number of parts in which it came. The block's stream
/// is that entity; its messages have consecutive numbers.
#[derive(Debug, Clone, Copy)]
pub struct MessageLayout;

/// The name of [`MessageLayout`], with its version.
pub(super) const NAME: &str = "bpmux/1";

/// The bytes of a block.
#[derive(Debug, Default)]
pub(super) struct Chunks(Pieces);

impl Chunks {
    /// Appends a message.
    pub(super) fn push(&mut self, payload: &Payload) {
        let length = u64::try_from(payload.bytes()).unwrap_or(u64::MAX);
        let carrier = Carrier::Message(Target::Top);
        let head = Head::Payload { carrier, length };
        self.0.copy(encode(head).as_ref());
        payload
            .as_slice()
            .iter()
            .for_each(|piece| self.0.put(piece));
    }

    /// The pieces, and the bytes in them.
    pub(super) fn finish(self) -> (Vec<Bytes>, u64) {
        self.0.finish()
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
        for row in 0..rows.end {
            if out.is_full() {
                return Ok(());
            }
            let (payload, behind) = split(rest, row, rows.end)?;
            rest = behind;
            if row >= rows.start {
                let sequence = block.first_sequence.saturating_add(i64::from(row));
                out.push_payload(sequence, payload);
            }
        }
        Ok(())
    }
}

/// The first payload of a body, and the bytes behind it.
fn split(body: &[u8], row: u32, announced: u32) -> Result<(&[u8], &[u8]), LayoutError> {
    let short = || {
        LayoutError(format!(
            "the block announces {announced} messages and holds {row}"
        ))
    };
    let (length, head) = match decode(body).map_err(|kind| LayoutError(kind.to_string()))? {
        Decoded::Whole {
            head:
                Head::Payload {
                    carrier: Carrier::Message(Target::Top),
                    length,
                },
            len,
        } => (length, len),
        Decoded::Whole { .. } => return Err(LayoutError(format!("event {row} is no message"))),
        Decoded::Partial { .. } => return Err(short()),
    };
    let end = usize::try_from(length).ok();
    let end = end
        .and_then(|length| head.checked_add(length))
        .ok_or_else(short)?;
    let payload = body.get(head..end).ok_or_else(short)?;
    Ok((payload, body.get(end..).unwrap_or_default()))
}
