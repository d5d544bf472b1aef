//! A block of messages: how it is written, and back into event rows.

use std::ops::Range;

use ackline_micromsg::intake::Kept;
use ackline_micromsg::stored::{StoredMessages, attributes, put_length};
use ackline_spool::{Layout, LayoutError, Rows, SENDER, StoredBlock};
use bytes::Bytes;

use crate::pieces::Pieces;

/// `micromsg/1`: the body is, for each message, its properties behind their length and its payload behind its length. The
/// block's stream is the destination; its messages have consecutive numbers. The properties of a message are attributes of
/// its row.
#[derive(Debug, Clone, Copy)]
pub struct MessageLayout;

/// The name of [`MessageLayout`], with its version.
pub(super) const NAME: &str = "micromsg/1";

/// The body of a block of these messages, and the bytes in it.
pub(super) fn body(messages: &[Kept]) -> (Vec<Bytes>, u64) {
    let (mut body, mut length) = (Pieces::default(), Vec::new());
    let mut put_length = |body: &mut Pieces, bytes| {
        length.clear();
        put_length(&mut length, bytes);
        body.copy(&length);
    };
    for message in messages {
        put_length(&mut body, message.properties.len());
        body.put(&message.properties);
        put_length(&mut body, message.payload.bytes());
        for piece in message.payload.as_slice() {
            body.put(piece);
        }
    }
    body.finish()
}

impl Layout for MessageLayout {
    fn name(&self) -> &'static str {
        NAME
    }

    fn has_attributes(&self) -> bool {
        true
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut messages = StoredMessages::new(block.body, block.count);
        messages.skip(rows.start).map_err(LayoutError)?;
        for row in rows {
            if out.is_full() {
                return Ok(());
            }
            let message = messages.read().map_err(LayoutError)?;
            let sequence = block.first_sequence.saturating_add(i64::from(row));
            out.push_payload_with(
                sequence,
                message.payload,
                attributes(message.properties, FACTS),
            );
        }
        Ok(())
    }
}

/// Names of facts about a peer that any protocol may give a block.
const FACTS: &[&str] = &[SENDER, "proxy"];
