//! A block of Lumberjack frames back into event rows.

use std::ops::{ControlFlow, Range};

use ackline_lumberjack::{Expander, Kind, Record};
use ackline_spool::{Layout, LayoutError, Rows, StoredBlock};

/// `lumberjack/1`: the body is `J`, `D` and `C` frames as they came, without `W`. A `J` is one payload; a
/// `D` is the parts key, value, key, value… as received.
#[derive(Debug, Clone, Copy)]
pub struct EventLayout;

/// The name of [`EventLayout`], with its version.
pub(crate) const NAME: &str = "lumberjack/1";

impl Layout for EventLayout {
    fn name(&self) -> &'static str {
        NAME
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        let most_bytes = out.most_event_bytes();
        let mut row = 0;
        let mut push = |record: Record<'_>| {
            if row >= rows.end || out.is_full() {
                return ControlFlow::Break(());
            }
            if row >= rows.start {
                match record {
                    Record::Json { sequence, payload } => {
                        out.push_payload(i64::from(sequence), payload);
                    }
                    Record::Data { sequence, pairs } => out.push_parts(
                        i64::from(sequence),
                        pairs.flat_map(|(key, value)| [key, value]),
                    ),
                }
            }
            row += 1;
            ControlFlow::Continue(())
        };
        let expanded = Expander::new()
            .with_limit(most_bytes)
            .expand(block.body, &mut push);
        if let Err(Kind::FrameTooLarge(over)) = expanded {
            out.refuse_event(usize::try_from(over.value).unwrap_or(usize::MAX));
        }
        expanded.map_err(|kind| LayoutError(kind.to_string()))?;
        if row < rows.end && !out.is_full() {
            return Err(LayoutError(format!(
                "the block announces {} events and holds {row}",
                rows.end
            )));
        }
        Ok(())
    }
}

/// `lumberjack/invalid/1`: the body is one `C` frame that cannot be read, as it came. It is one row: the
/// frame is its payload, the announced number of events its sequence, the error its attributes.
#[derive(Debug, Clone, Copy)]
pub struct InvalidLayout;

/// The name of [`InvalidLayout`], with its version.
pub(crate) const INVALID: &str = "lumberjack/invalid/1";

impl Layout for InvalidLayout {
    fn name(&self) -> &'static str {
        INVALID
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        if rows.end > 1 {
            return Err(LayoutError(format!(
                "the block announces {} events and holds 1",
                rows.end
            )));
        }
        if rows.start < rows.end {
            out.push_payload(block.first_sequence, block.body);
        }
        Ok(())
    }
}
