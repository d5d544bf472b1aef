//! Expands blocks into batches as far as memory allows: when it is used up, the rest waits until
//! the batches were taken.

use std::{collections::VecDeque, ops::Range, path::PathBuf, sync::Arc};

use arrow_array::RecordBatch;

use crate::{LayoutError, Layouts, Rows, SpoolError, StoredBlock, group::Group, walk::Segment};

/// Blocks of a group, and the requested positions of the group.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    pub(crate) segment: Arc<Segment>,
    pub(crate) group: Arc<Group>,
    pub(crate) rows: Range<usize>,
    pub(crate) span: Range<u64>,
}

/// Blocks that are expanded in order.
#[derive(Debug)]
pub(crate) struct Expansion {
    rows: Rows,
    blocks: VecDeque<Blocks>,
    /// Whether the first block waits for space.
    is_begun: bool,
    /// Whether the events after the last full batch become a batch.
    ends: bool,
    /// The last block that was read: its segment and its first position.
    last: Option<(Arc<Segment>, u64)>,
    /// The reader's memory in bytes, for its error.
    memory: u64,
}

impl Expansion {
    /// An expansion of no blocks yet.
    pub(crate) fn new(rows: Rows, memory: u64) -> Self {
        Self {
            rows,
            blocks: VecDeque::new(),
            is_begun: false,
            ends: false,
            last: None,
            memory,
        }
    }

    /// Appends blocks.
    pub(crate) fn push(&mut self, blocks: Blocks) {
        self.blocks.push_back(blocks);
    }

    /// Marks the end of the blocks: the last batch may be short.
    pub(crate) fn end(&mut self) {
        self.ends = true;
    }

    /// Whether everything appended is in batches, or waits for more events to fill one.
    pub(crate) fn is_over(&self) -> bool {
        self.blocks.is_empty() && !self.ends
    }

    /// Whether it is empty, also of events that wait for more.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_over() && self.rows.is_empty()
    }

    /// The next batch.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        self.rows.take()
    }

    /// Expands blocks until none is left or memory is used up. Returns the last finished group.
    pub(crate) fn run(&mut self, layouts: &Layouts) -> Result<Option<Arc<Group>>, SpoolError> {
        let mut finished = None;
        while let Some(mut blocks) = self.blocks.pop_front() {
            while !blocks.rows.is_empty() {
                let at = blocks.rows.start;
                let block = blocks.group.block(at);
                if let Err(error) = self.expand(layouts, &blocks, &block, at) {
                    (self.is_begun, self.ends) = (false, false);
                    self.blocks.clear();
                    return Err(error);
                }
                self.is_begun = self.rows.is_full();
                if self.is_begun {
                    self.blocks.push_front(blocks);
                    return Ok(finished);
                }
                blocks.rows.start += 1;
            }
            finished = Some(blocks.group);
        }
        if std::mem::take(&mut self.ends) {
            let finished = self.rows.finish();
            finished.map_err(|error| self.failed(error.0))?;
        }
        Ok(finished)
    }

    /// Expands the requested events of a block that were not expanded yet.
    fn expand(
        &mut self,
        layouts: &Layouts,
        blocks: &Blocks,
        block: &StoredBlock<'_>,
        at: usize,
    ) -> Result<(), SpoolError> {
        let out = &mut self.rows;
        let inside = |position: u64| {
            let row = position.saturating_sub(block.first_position);
            u32::try_from(row).unwrap_or(u32::MAX).min(block.count)
        };
        let mut rows = inside(blocks.span.start)..inside(blocks.span.end);
        if self.is_begun {
            let left = u32::try_from(out.resume()).unwrap_or(u32::MAX);
            rows.start = rows.end.saturating_sub(left).max(rows.start);
        } else if !rows.is_empty() {
            out.begin(block, blocks.group.attributes(at), &rows);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let position = block.first_position;
        self.last = Some((Arc::clone(&blocks.segment), position));
        let layout = layouts.get(block.layout);
        let has_attributes = layout.is_some_and(|layout| layout.has_attributes());
        let expanded = if !out.needs_body(has_attributes) {
            out.fill();
            Ok(())
        } else if let Some(layout) = layout {
            layout.expand(block, rows, out)
        } else {
            let text = format!("its layout {:?} is not built", block.layout);
            Err(LayoutError(text))
        };
        if let Some(bytes) = out.too_large() {
            return Err(SpoolError::Memory {
                path: blocks.segment.path.clone(),
                position,
                what: "an event of the block",
                bytes: bytes as u64,
                room: out.most_event_bytes() as u64,
                memory: self.memory,
            });
        }
        expanded
            .and_then(|()| out.end())
            .map_err(|error| self.failed(error.0))
    }

    /// The error of the last block.
    fn failed(&self, detail: String) -> SpoolError {
        let last = self.last.as_ref();
        SpoolError::Layout {
            path: last.map_or_else(PathBuf::new, |(segment, _)| segment.path.clone()),
            position: last.map_or(0, |(_, position)| *position),
            detail,
        }
    }
}
