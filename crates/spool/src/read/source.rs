//! The groups of a read, in order, and the blocks in them.

use std::{ops::Range, sync::Arc};

use super::{BYTES_BESIDE_PAYLOAD, OnLoss};
use crate::{
    Loss, LossWhy, SpoolError,
    expand::Blocks,
    group::Group,
    index::Entry,
    walk::{Segment, Step, Walk},
};

/// The source of groups.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) walk: Walk,
    /// A step that was read ahead.
    pub(super) first: Option<Step>,
    pub(super) on_loss: OnLoss,
    pub(super) skips_repeats: bool,
    pub(super) skipped: Vec<Loss>,
    pub(super) current: Option<Blocks>,
    /// The most bytes of a group.
    pub(super) most_bytes: u64,
    /// The reader's memory in bytes, for its error.
    pub(super) memory: u64,
    /// Bytes of the groups that were read in this round.
    pub(super) loaded: u64,
    /// The error of a step that was read ahead.
    pub(super) failed: Option<SpoolError>,
}

impl Source {
    /// The bytes of the group that the next blocks are read from; 0 if one is already read.
    pub(super) fn next_bytes(&mut self) -> u64 {
        if self.current.is_some() || self.failed.is_some() {
            return 0;
        }
        if self.first.is_none() {
            match self.walk.next() {
                Ok(step) => self.first = step,
                Err(error) => self.failed = Some(error),
            }
        }
        match &self.first {
            Some(Step::Group(_, entry, _)) => entry.length.into(),
            _ => 0,
        }
    }

    /// Counts the groups of a round of threads, which begins with the one that is already read.
    pub(super) fn begin_round(&mut self) {
        let current = self.current.as_ref();
        self.loaded = current.map_or(0, |blocks| blocks.group.bytes());
    }

    /// The bytes of the groups of this round with the next one.
    pub(super) fn loaded_with_next(&mut self) -> u64 {
        self.loaded.saturating_add(self.next_bytes())
    }

    /// Takes back the blocks that were handed out last.
    pub(super) fn put_back(&mut self, blocks: Blocks) {
        let rest = self.current.take();
        let end = rest.map_or(blocks.rows.end, |rest| rest.rows.end);
        let rows = blocks.rows.start..end;
        self.current = Some(Blocks { rows, ..blocks });
    }

    pub(super) fn next_blocks(
        &mut self,
        events: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Blocks>, SpoolError> {
        loop {
            let next = match self.current.take() {
                None => self.next_group(buffer)?,
                current => current,
            };
            let Some(mut blocks) = next else {
                return Ok(None);
            };
            let Range { start, end } = blocks.rows;
            let (mut at, mut held) = (start, 0);
            while at < end && (at == start || held < events) {
                held += u64::from(blocks.group.block(at).count);
                at += 1;
            }
            if at < end {
                let rows = at..end;
                self.current = Some(Blocks {
                    rows,
                    ..blocks.clone()
                });
            }
            blocks.rows.end = at;
            if at > start {
                return Ok(Some(blocks));
            }
        }
    }

    /// The next group that can be read.
    pub(super) fn next_group(
        &mut self,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Blocks>, SpoolError> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let step = match self.first.take() {
                Some(step) => Some(step),
                None => self.walk.next()?,
            };
            let (segment, entry, span) = match step {
                None => return Ok(None),
                Some(Step::Hole(hole)) => {
                    let refusal = self.walk.listed().refusal(&hole);
                    self.skip(hole, refusal)?;
                    continue;
                }
                Some(Step::Group(segment, entry, span)) => (segment, entry, span),
            };
            self.check_room(&segment, &entry)?;
            match read_group(&segment, &entry, std::mem::take(buffer)) {
                Ok(group) => {
                    self.loaded = self.loaded.saturating_add(group.bytes());
                    let (rows, group) = (0..group.len(), Arc::new(group));
                    return Ok(Some(Blocks {
                        segment,
                        group,
                        rows,
                        span,
                    }));
                }
                Err(error) => {
                    if self.walk.looks_elsewhere(&segment, &entry, span.start) {
                        continue;
                    }
                    let (hole, error) = self.unread(&span, error)?;
                    self.skip(hole, error)?;
                }
            }
        }
    }

    /// Refuses a group that does not fit into the memory.
    pub(super) fn check_room(&self, segment: &Segment, entry: &Entry) -> Result<(), SpoolError> {
        let bytes = u64::from(entry.length);
        if bytes <= self.most_bytes || segment.lacks(entry) {
            return Ok(());
        }
        Err(SpoolError::Memory {
            path: segment.path.clone(),
            position: entry.first,
            what: "the group",
            bytes,
            room: self.most_bytes,
            memory: self.memory,
        })
    }

    /// The hole of an unreadable group, and the error of a strict reader.
    pub(super) fn unread(
        &self,
        span: &Range<u64>,
        error: SpoolError,
    ) -> Result<(Loss, SpoolError), SpoolError> {
        if matches!(error, SpoolError::Corrupt { .. }) {
            return Ok((Loss::new(span.start, span.end, LossWhy::Corrupt), error));
        }
        if error.is_not_found() {
            // The segment was removed since its index was opened.
            let to = self.walk.listed().start()?.max(span.end);
            let hole = Loss::new(span.start, to, LossWhy::Removed);
            return Ok((hole, self.walk.listed().refusal(&hole)));
        }
        Err(error)
    }

    /// Skips a hole and notes it, or refuses it.
    pub(super) fn skip(&mut self, hole: Loss, refusal: SpoolError) -> Result<(), SpoolError> {
        if self.on_loss == OnLoss::Fail {
            return Err(refusal);
        }
        self.walk.go_to(hole.to);
        let to = hole.to.min(self.walk.end());
        match self.skipped.last_mut() {
            Some(last) if last.to == hole.from && last.why == hole.why => last.to = to,
            _ => self.skipped.push(Loss { to, ..hole }),
        }
        Ok(())
    }
}

impl Blocks {
    pub(super) fn events(&self) -> u64 {
        let count = |at| u64::from(self.group.block(at).count);
        self.rows.clone().map(count).sum()
    }

    /// The approximate bytes of its events, as the blocks say.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |at| {
            let block = self.group.block(at);
            let inflated = block.inflated_bytes.max(block.body.len() as u64);
            inflated.saturating_add(u64::from(block.count) * BYTES_BESIDE_PAYLOAD)
        };
        self.rows.clone().map(bytes).fold(0, u64::saturating_add)
    }
}

/// Reads a group and checks its CRC.
pub(crate) fn read_group(
    segment: &Segment,
    entry: &Entry,
    buffer: Vec<u8>,
) -> Result<Group, SpoolError> {
    Group::read(segment.file()?, &segment.path, entry, buffer)
}
