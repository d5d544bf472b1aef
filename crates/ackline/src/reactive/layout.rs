//! A block of elements: how it is written, and back into event rows.

use std::ops::Range;

use ackline_reactive::intake::Elements;
use ackline_reactive::stored::{StoredElements, put_number};
use ackline_spool::{Layout, LayoutError, Rows, StoredBlock};
use bytes::Bytes;

use crate::pieces::Pieces;

/// `reactive/1`: the body is the size of every element as a varint, and then, if it is 0, each element behind its length,
/// else one element behind the other. The block's stream is the publisher; its elements have consecutive numbers.
#[derive(Debug, Clone, Copy)]
pub struct ElementLayout;

/// The name of [`ElementLayout`], with its version.
pub(super) const NAME: &str = "reactive/1";

/// The body of a block of these elements, and the bytes in it.
pub(super) fn body(elements: &Elements) -> (Vec<Bytes>, u64) {
    let (mut body, mut number) = (Pieces::default(), Vec::new());
    let mut put = |body: &mut Pieces, value| {
        number.clear();
        put_number(&mut number, value);
        body.copy(&number);
    };
    match elements {
        Elements::Any(elements) => {
            put(&mut body, 0);
            for element in elements {
                put(&mut body, element.bytes() as u64);
                element.as_slice().iter().for_each(|piece| body.put(piece));
            }
        }
        Elements::Fixed { size, pieces } => {
            put(&mut body, *size);
            for piece in pieces {
                body.put(piece);
            }
        }
    }
    body.finish()
}

impl Layout for ElementLayout {
    fn name(&self) -> &'static str {
        NAME
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
        let mut elements = StoredElements::new(block.body, block.count).map_err(LayoutError)?;
        elements.skip(rows.start).map_err(LayoutError)?;
        for row in rows {
            if out.is_full() {
                return Ok(());
            }
            let element = elements.read().map_err(LayoutError)?;
            let sequence = block.first_sequence.saturating_add(i64::from(row));
            out.push_payload(sequence, element);
        }
        Ok(())
    }
}
