//! A block of bpmux messages: how it is written, and back into event rows.

use std::ops::Range;

use ackline_bpmux::chunk::{split_stored, stored_head};
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

/// The body of a block of these messages, and the bytes in it.
pub(super) fn body(messages: &[Payload]) -> (Vec<Bytes>, u64) {
    let mut body = Pieces::default();
    for message in messages {
        body.copy(stored_head(message.bytes()).as_ref());
        message.as_slice().iter().for_each(|piece| body.put(piece));
    }
    body.finish()
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
            let (payload, behind) = split_stored(rest, row, rows.end).map_err(LayoutError)?;
            rest = behind;
            if row >= rows.start {
                let sequence = block.first_sequence.saturating_add(i64::from(row));
                out.push_payload(sequence, payload);
            }
        }
        Ok(())
    }
}
