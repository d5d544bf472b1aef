//! Looking back at single blocks: where the last ones are, and the contents of some of them.
//!
//! A group may hold the blocks of a thousand links. If only a few of them are needed, only the
//! descriptions of its blocks are held, and the needed bodies.

use std::{path::Path, sync::Arc};

use ackline_core::locked;
use arrow_array::cast::AsArray;

use crate::{
    DIGEST, Digester, LayoutError, Layouts, Loss, Rows, Spool, SpoolError, StoredBlock,
    index::Entry,
    losses,
    outline::Outline,
    segment::check_group,
    walk::{Listed, Segment},
};

/// The position and the owner of a block.
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

/// The result of [`Spool::digests`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digests {
    /// The digest of each kept event, in order.
    pub found: Vec<u128>,
    /// For each block the number of its events in `found`; `None` for those that are not kept any
    /// more.
    pub events: Vec<Option<usize>>,
}

impl Spool {
    /// The blocks below `end`, which is durable, from the last one back: group after group, as many
    /// as take at most `most_bytes` on disk. Lost positions are skipped.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`; those of single groups come from the iterator.
    pub fn back_from(
        &self,
        end: u64,
        most_bytes: u64,
    ) -> Result<impl Iterator<Item = Result<Vec<Standing>, SpoolError>> + use<>, SpoolError> {
        Ok(Back {
            losses: losses::known(&self.folder)?,
            start: self.listed.start()?,
            listed: Arc::clone(&self.listed),
            end,
            left: most_bytes,
            segment: None,
            groups: Vec::new(),
        })
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
        let start = self.listed.start()?;
        let losses = losses::known(&self.folder)?;
        let mut rows = Rows::of_digests(digester.clone())?;
        let mut events = Vec::with_capacity(blocks.len());
        let mut found: Option<Found> = None;
        for &block in blocks {
            if block < start
                || losses
                    .iter()
                    .any(|loss| (loss.from..loss.to).contains(&block))
            {
                events.push(None);
                continue;
            }
            if found.as_ref().is_none_or(|found| !found.holds(block)) {
                found = self.outline_at(block, durable)?;
            }
            let Some(found) = &found else {
                events.push(None);
                continue;
            };
            let (segment, outline) = (&found.segment, &found.outline);
            let (stored, body) = outline.block(segment.file()?, &segment.path, block)?;
            let stored = StoredBlock {
                body: &body,
                ..stored
            };
            digest_block(layouts, &segment.path, &stored, &mut rows)?;
            events.push(Some(stored.count as usize));
        }
        let unbuilt = |error: LayoutError| SpoolError::Layout {
            path: self.folder.dir().to_owned(),
            position: blocks.first().copied().unwrap_or(0),
            detail: error.0,
        };
        rows.finish().map_err(unbuilt)?;
        let mut found = Vec::new();
        while let Some(batch) = rows.take() {
            let digests = batch[DIGEST].as_binary::<i32>();
            let whole = digests
                .iter()
                .flatten()
                .filter_map(|one| one.try_into().ok());
            found.extend(whole.map(u128::from_le_bytes));
        }
        Ok(Digests { found, events })
    }

    /// The group that holds a position, checked; `None` if it is gone.
    fn outline_at(&self, at: u64, durable: u64) -> Result<Option<Found>, SpoolError> {
        let place = self.listed.around(at, durable)?;
        let limit = place.next.map_or(durable, |next| next.min(durable));
        let Some(first) = place.first else {
            return Ok(None);
        };
        let looked = || -> Result<Option<Found>, SpoolError> {
            let segment = Segment::open(&self.listed, first)?;
            let (segment, entry) = segment.group_at(&self.listed, at, limit)?;
            let Some(entry) = entry else {
                return Ok(None);
            };
            self.check_once(&segment, &entry)?;
            let outline = Outline::read(segment.file()?, &segment.path, &entry)?;
            Ok(Some(Found { segment, outline }))
        };
        match looked() {
            Err(error) if error.is_not_found() => {
                self.listed.forget();
                Ok(None)
            }
            found => found,
        }
    }

    /// Checks a group unless that was done: a thousand senders may ask for their blocks in it.
    fn check_once(&self, segment: &Segment, entry: &Entry) -> Result<(), SpoolError> {
        if locked(&self.cache).checked.contains(&entry.first) {
            return Ok(());
        }
        check_group(segment.file()?, &segment.path, entry)?;
        let checked = &mut locked(&self.cache).checked;
        if checked.len() >= MOST_CHECKED {
            checked.clear();
        }
        checked.insert(entry.first);
        Ok(())
    }
}

/// A group in which blocks are looked up.
struct Found {
    segment: Arc<Segment>,
    outline: Outline,
}

impl Found {
    fn holds(&self, position: u64) -> bool {
        let entry = self.outline.entry();
        (entry.first..entry.end()).contains(&position)
    }
}

/// Groups from the last one back, those of one segment at a time.
struct Back {
    listed: Arc<Listed>,
    losses: Vec<Loss>,
    start: u64,
    /// Everything below is still to be read.
    end: u64,
    /// Bytes on disk that may still be read.
    left: u64,
    segment: Option<Arc<Segment>>,
    groups: Vec<Entry>,
}

impl Back {
    /// The next group back that is not noted as lost or damaged.
    fn group(&mut self) -> Result<Option<(Arc<Segment>, Entry)>, SpoolError> {
        loop {
            while let (Some(segment), Some(entry)) = (&self.segment, self.groups.pop()) {
                let is_noted = |loss: &Loss| loss.from < entry.end() && loss.to > entry.first;
                if entry.end() <= self.start || self.losses.iter().any(is_noted) {
                    continue;
                }
                let Some(left) = self.left.checked_sub(entry.length.into()) else {
                    self.end = 0;
                    self.groups.clear();
                    return Ok(None);
                };
                self.left = left;
                return Ok(Some((Arc::clone(segment), entry)));
            }
            if !self.turn_back()? {
                return Ok(None);
            }
        }
    }

    /// Opens the previous segment. Returns whether there is one.
    fn turn_back(&mut self) -> Result<bool, SpoolError> {
        let Some(last) = self.end.checked_sub(1).filter(|last| *last >= self.start) else {
            return Ok(false);
        };
        let Some(first) = self.listed.around(last, self.end)?.first else {
            return Ok(false);
        };
        let opened = Segment::open(&self.listed, first);
        let opened = opened.and_then(|segment| segment.all(&self.listed, self.end));
        self.end = first;
        match opened {
            Ok((segment, groups)) => (self.segment, self.groups) = (Some(segment), groups),
            // Retired meanwhile.
            Err(error) if error.is_not_found() => self.end = 0,
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

impl Iterator for Back {
    type Item = Result<Vec<Standing>, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (segment, entry) = match self.group() {
            Ok(found) => found?,
            Err(error) => {
                self.end = 0;
                return Some(Err(error));
            }
        };
        let read = || -> Result<Vec<Standing>, SpoolError> {
            let file = segment.file()?;
            check_group(file, &segment.path, &entry)?;
            let outline = Outline::read(file, &segment.path, &entry)?;
            let mut blocks: Vec<_> = outline.standings().collect();
            blocks.reverse();
            Ok(blocks)
        };
        match read() {
            // Retired meanwhile.
            Err(error) if error.is_not_found() => {
                (self.end, self.segment) = (0, None);
                None
            }
            read => Some(read),
        }
    }
}

fn digest_block(
    layouts: &Layouts,
    path: &Path,
    block: &StoredBlock<'_>,
    rows: &mut Rows,
) -> Result<(), SpoolError> {
    let failed = |detail| SpoolError::Layout {
        path: path.to_owned(),
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

/// Groups that are known to be sound: a few hundred kilobytes.
const MOST_CHECKED: usize = 16_384;
