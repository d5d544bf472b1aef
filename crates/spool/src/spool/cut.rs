//! Cutting a range into batches and slices.

use std::{ops::Range, sync::Arc};

use super::{Size, Slice};
use crate::{
    Loss, LossWhy, Spool, SpoolError,
    index::Entry,
    read::OnLoss,
    walk::{Segment, Step},
};

impl Spool {
    /// The end of a batch that begins at `start` and holds at most so many events and inflated
    /// bytes: at a block's end if at least one whole block fits, else inside it, after at least one
    /// event. It never reaches beyond lost positions.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn end_for(
        &self,
        start: u64,
        max_rows: Option<u64>,
        max_bytes: Option<u64>,
    ) -> Result<u64, SpoolError> {
        self.end_for_with(start, max_rows, max_bytes, OnLoss::Fail)
    }

    /// The same; with [`OnLoss::Skip`] lost positions do not count, and the batch may end after
    /// them.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn end_for_with(
        &self,
        start: u64,
        max_rows: Option<u64>,
        max_bytes: Option<u64>,
        on_loss: OnLoss,
    ) -> Result<u64, SpoolError> {
        let mut walk = self.walk(start..self.durable()?)?;
        let is_limited = max_rows.is_some() || max_bytes.is_some();
        if !is_limited && on_loss == OnLoss::Skip {
            return Ok(walk.end().max(start));
        }
        if !is_limited {
            walk.pass_whole();
        }
        let mut batch = Batch {
            at: start,
            is_empty: true,
            rows: max_rows.unwrap_or(u64::MAX),
            bytes: max_bytes.unwrap_or(u64::MAX),
        };
        loop {
            if let Some(footer) = walk.whole()?
                && batch.takes(footer.count, footer.inflated)
            {
                batch.at = footer.end();
                walk.go_to(footer.end());
                continue;
            }
            let hole = match walk.next()? {
                None => break,
                Some(Step::Hole(hole)) => hole,
                Some(Step::Group(segment, entry, span)) => {
                    match self.add_group(&mut batch, &segment, &entry, &span) {
                        Ok(None) => continue,
                        Ok(Some(end)) => return Ok(end),
                        Err(_) if walk.looks_elsewhere(&segment, &entry, span.start) => continue,
                        Err(SpoolError::Corrupt { .. }) if on_loss == OnLoss::Skip => {
                            Loss::new(span.start, span.end, LossWhy::Corrupt)
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            match on_loss {
                OnLoss::Skip => batch.at = hole.to.min(walk.end()),
                OnLoss::Fail if hole.from <= start => return Err(self.listed.refusal(&hole)),
                // Readable events come before lost ones.
                OnLoss::Fail => return Ok(hole.from),
            }
        }
        if !is_limited {
            self.listed.note_whole(start..walk.end());
        }
        Ok(walk.end().max(start))
    }

    /// Adds a group to a batch as a whole or by its blocks. Returns the end of the batch if it is
    /// in the group.
    fn add_group(
        &self,
        batch: &mut Batch,
        segment: &Segment,
        entry: &Entry,
        span: &Range<u64>,
    ) -> Result<Option<u64>, SpoolError> {
        let is_whole = (span.start, span.end) == (entry.first, entry.end());
        if is_whole && batch.takes(entry.count, entry.inflated) {
            batch.at = entry.end();
            return Ok(None);
        }
        if batch.rows == u64::MAX && batch.bytes == u64::MAX {
            batch.at = span.end;
            return Ok(None);
        }
        batch.at = batch.at.max(span.start);
        for &(first, count, inflated) in self.sizes(segment, entry)?.iter() {
            let end = first.saturating_add(count).min(span.end);
            let Some(left) = end.checked_sub(batch.at).filter(|left| *left > 0) else {
                continue;
            };
            if let Some(end) = batch.add_block(left, share(inflated, left, count)) {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// Cuts a range into slices of about equal inflated bytes: at most `max_slices`, none below
    /// `min_bytes`, but at least one for each segment it touches.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), wherever in the range.
    pub fn slices(
        &self,
        range: Range<u64>,
        max_slices: usize,
        min_bytes: u64,
    ) -> Result<Vec<Slice>, SpoolError> {
        self.slices_with(range, max_slices, min_bytes, OnLoss::Fail)
    }

    /// The same; with [`OnLoss::Skip`] lost positions are in no slice.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), wherever in the range.
    pub fn slices_with(
        &self,
        range: Range<u64>,
        max_slices: usize,
        min_bytes: u64,
        on_loss: OnLoss,
    ) -> Result<Vec<Slice>, SpoolError> {
        let most = max_slices.max(1) as u64;
        let total = self.inflated(range.clone(), on_loss)?;
        let target = total.div_ceil(most).max(min_bytes).max(1);
        let mut cut = Cut {
            uuid: self.uuid(),
            target,
            slices: Vec::new(),
            open: None,
            weight: 0,
        };
        let mut walk = self.walk(range)?;
        while let Some(step) = walk.next()? {
            let Step::Group(segment, entry, span) = step else {
                // A slice never spans a hole.
                cut.end();
                continue;
            };
            // A group that is a small part of a slice is not split.
            let sizes = if entry.inflated <= target / 4 {
                Ok(Arc::new(vec![(entry.first, entry.count, entry.inflated)]))
            } else {
                self.sizes(&segment, &entry)
            };
            match sizes {
                Ok(sizes) => cut.add(&segment, &entry, &span, &sizes),
                Err(_) if walk.looks_elsewhere(&segment, &entry, span.start) => {}
                Err(SpoolError::Corrupt { .. }) if on_loss == OnLoss::Skip => cut.end(),
                Err(error) => return Err(error),
            }
        }
        cut.end();
        Ok(cut.slices)
    }

    /// The inflated bytes of the groups that hold a range.
    fn inflated(&self, range: Range<u64>, on_loss: OnLoss) -> Result<u64, SpoolError> {
        let mut walk = self.walk(range)?;
        let mut total: u64 = 0;
        loop {
            if let Some(footer) = walk.whole()? {
                total = total.saturating_add(footer.inflated);
                walk.go_to(footer.end());
                continue;
            }
            match walk.next()? {
                None => return Ok(total),
                Some(Step::Group(_, entry, _)) => total = total.saturating_add(entry.inflated),
                Some(Step::Hole(hole)) if on_loss == OnLoss::Fail => {
                    return Err(self.listed.refusal(&hole));
                }
                Some(Step::Hole(_)) => {}
            }
        }
    }
}

/// A batch whose size is being measured.
struct Batch {
    /// The end of the part that it holds.
    at: u64,
    /// Whether it holds no event yet.
    is_empty: bool,
    /// Events and inflated bytes that it may still take.
    rows: u64,
    bytes: u64,
}

impl Batch {
    /// Takes so many events and bytes if they fit.
    fn takes(&mut self, rows: u64, bytes: u64) -> bool {
        let fits = rows <= self.rows && bytes <= self.bytes;
        if fits {
            self.rows -= rows;
            self.bytes -= bytes;
            self.is_empty &= rows == 0;
        }
        fits
    }

    /// Adds the next events of a block, which have so many bytes. Returns the end of the batch if
    /// they do not fit.
    fn add_block(&mut self, rows: u64, bytes: u64) -> Option<u64> {
        if self.takes(rows, bytes) {
            self.at = self.at.saturating_add(rows);
            return None;
        }
        if !self.is_empty {
            return Some(self.at);
        }
        let fits = share(rows, self.bytes, bytes.max(1))
            .min(self.rows)
            .min(rows);
        Some(self.at.saturating_add(fits.max(1)))
    }
}

/// A range that is being cut into slices.
struct Cut<'a> {
    uuid: &'a str,
    /// Inflated bytes of a slice.
    target: u64,
    slices: Vec<Slice>,
    open: Option<Slice>,
    weight: u64,
}

impl Cut<'_> {
    fn add(&mut self, segment: &Segment, entry: &Entry, span: &Range<u64>, sizes: &[Size]) {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.path != segment.path)
        {
            self.end();
        }
        for &(first, count, inflated) in sizes {
            let start = first.max(span.start);
            let end = first.saturating_add(count).min(span.end);
            if start >= end {
                continue;
            }
            let slice = self.open.get_or_insert_with(|| Slice {
                path: segment.path.clone(),
                uuid: self.uuid.to_owned(),
                byte_start: entry.offset,
                byte_end: 0,
                start,
                end,
            });
            slice.byte_end = entry.byte_end();
            slice.end = end;
            self.weight = self
                .weight
                .saturating_add(share(inflated, end - start, count));
            if self.weight >= self.target {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        self.slices.extend(self.open.take());
        self.weight = 0;
    }
}

/// `value * part / whole` without overflow.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
