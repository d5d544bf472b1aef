//! Looking back at single blocks: where the last ones stand, and what is in some of them.
//!
//! A group may hold the blocks of a thousand links. Of one that is looked into for few of them only what
//! describes its blocks is held, and the bodies that are wanted.

use std::{
    ops::Range,
    sync::{Arc, PoisonError},
};

use arrow_array::cast::AsArray;

use crate::{
    DIGEST, Digester, Layouts, Rows, Spool, SpoolError, StoredBlock, format::Entry,
    outline::Outline, read::Part,
};

/// Where a block stands, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The position of its first event.
    pub first_position: u64,
    /// The number of events.
    pub events: u32,
    /// The number of the protocol's windows in it.
    pub windows: u32,
    /// Its sender: see [`sender_of`](crate::sender_of).
    pub sender: String,
    /// Its link's name.
    pub link: String,
}

/// What [`Spool::digests`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digests {
    /// The digest of each event that is kept, in order.
    pub found: Vec<u128>,
    /// Blocks that are not kept any more.
    pub gone: u64,
}

impl Spool {
    /// The blocks below `end`, which is durable, from the last one back: group after group, as many as
    /// take at most `most_bytes` on disk. Lost positions are passed over.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`; those of single groups come from the iterator.
    pub fn back_from(
        &self,
        end: u64,
        most_bytes: u64,
    ) -> Result<impl Iterator<Item = Result<Vec<Standing>, SpoolError>> + use<>, SpoolError> {
        let mut firsts = self.layout.list()?;
        firsts.retain(|first| *first < end);
        let mut groups: Vec<(Arc<Part>, Entry)> = Vec::new();
        let (mut next, mut left) = (end, most_bytes);
        'segments: for first in firsts.into_iter().rev() {
            let entries = self.entries(first, next)?;
            let part = Arc::new(Part::open(&self.layout.segment(first), Vec::new())?);
            for entry in entries.iter().rev() {
                let Some(rest) = left.checked_sub(entry.length.into()) else {
                    break 'segments;
                };
                left = rest;
                groups.push((Arc::clone(&part), *entry));
            }
            next = first;
        }
        Ok(groups.into_iter().map(|(part, entry)| {
            Outline::check(&part.file, &part.path, &entry)?;
            let outline = Outline::read(&part.file, &part.path, &entry)?;
            let mut blocks: Vec<_> = outline.standings().collect();
            blocks.reverse();
            Ok(blocks)
        }))
    }

    /// The digests of the events of the blocks that begin at these positions, which are in order and
    /// durable.
    ///
    /// # Errors
    /// `spool.corrupt`, `spool.io`, `spool.layout`.
    pub fn digests(
        &self,
        layouts: &Layouts,
        blocks: &[u64],
        digester: &Digester,
    ) -> Result<Digests, SpoolError> {
        let durable = self.durable()?;
        let firsts = self.layout.list()?;
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |first: &u64| firsts.binary_search(first).is_ok();
        cache().entries.retain(|first, _| is_kept(first));
        let mut rows = Rows::of_digests(digester.clone())?;
        let mut gone = 0;
        let mut blocks = blocks.iter().copied().peekable();
        let mut run = Vec::new();
        while let Some(first) = blocks.next() {
            run.push(first);
            let segment = |position: u64| firsts.partition_point(|first| *first <= position);
            let at = segment(first);
            while let Some(block) = blocks.next_if(|block| segment(*block) == at) {
                run.push(block);
            }
            let found = at.checked_sub(1).and_then(|before| firsts.get(before));
            let end = firsts.get(at).copied().unwrap_or(durable);
            gone += match found {
                Some(found) => self.digest_segment(layouts, *found..end, &run, &mut rows)?,
                None => run.len() as u64,
            };
            run.clear();
        }
        rows.finish()?;
        let mut found = Vec::new();
        while let Some(batch) = rows.take() {
            let digests = batch[DIGEST].as_binary::<i32>();
            let whole = digests
                .iter()
                .flatten()
                .filter_map(|one| one.try_into().ok());
            found.extend(whole.map(u128::from_le_bytes));
        }
        Ok(Digests { found, gone })
    }

    /// Digests blocks of one segment; how many of them are gone.
    fn digest_segment(
        &self,
        layouts: &Layouts,
        segment: Range<u64>,
        blocks: &[u64],
        rows: &mut Rows,
    ) -> Result<u64, SpoolError> {
        let path = self.layout.segment(segment.start);
        let opened = self
            .entries(segment.start, segment.end)
            .and_then(|entries| Ok((Part::open(&path, Vec::new())?, entries)));
        let (part, entries) = match opened {
            Err(error) if error.is_not_found() => return Ok(blocks.len() as u64),
            opened => opened?,
        };
        let mut gone = 0;
        let mut outline: Option<Outline> = None;
        for &block in blocks {
            let at = entries.partition_point(|entry| entry.end() <= block);
            let Some(entry) = entries.get(at).filter(|entry| entry.first <= block) else {
                gone += 1;
                continue;
            };
            if outline
                .as_ref()
                .is_none_or(|outline| outline.entry() != entry)
            {
                self.check_once(&part, entry)?;
                outline = Some(Outline::read(&part.file, &path, entry)?);
            }
            if let Some(outline) = &outline {
                let (stored, body) = outline.block(&part.file, &path, block)?;
                let stored = StoredBlock {
                    body: &body,
                    ..stored
                };
                digest_block(layouts, &stored, rows)?;
            }
        }
        Ok(gone)
    }

    /// Checks a group unless that was done: a thousand senders may come back for their blocks in it.
    fn check_once(&self, part: &Part, entry: &Entry) -> Result<(), SpoolError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache().checked.contains(&entry.first) {
            return Ok(());
        }
        Outline::check(&part.file, &part.path, entry)?;
        let checked = &mut cache().checked;
        if checked.len() >= MOST_CHECKED {
            checked.clear();
        }
        checked.insert(entry.first);
        Ok(())
    }
}

fn digest_block(
    layouts: &Layouts,
    block: &StoredBlock<'_>,
    rows: &mut Rows,
) -> Result<(), SpoolError> {
    let failed = |detail| SpoolError::Layout {
        position: block.first_position,
        detail,
    };
    let layout = layouts
        .get(block.layout)
        .ok_or_else(|| failed(format!("its layout {:?} is not built", block.layout)))?;
    rows.begin(block, Arc::from([]), &(0..block.count));
    layout
        .expand(block, 0..block.count, rows)
        .and_then(|()| rows.end())
        .map_err(|error| failed(error.0))
}

/// Groups of which it is known that they are sound: a few hundred kilobytes.
const MOST_CHECKED: usize = 16_384;
