//! The groups of a spool in order, one segment open at a time, and the holes between them.
//!
//! A position belongs to a group, or to a hole: it is noted as lost, or below the start, or no
//! segment has an entry for it. Whether the bytes of a group are sound is found when they are read.

mod listed;
mod opened;

use std::{fs::File, ops::Range, path::Path, sync::Arc};

pub(crate) use listed::Listed;
pub(crate) use opened::{Groups, Segment};

use crate::{
    Loss, LossWhy, SpoolError,
    index::Entry,
    losses,
    segment::{SECTOR_BYTES, seal_at},
};

/// The next step through a range of positions.
#[derive(Debug)]
pub(crate) enum Step {
    /// A group in its segment, and its requested positions.
    Group(Arc<Segment>, Entry, Range<u64>),
    /// Positions that cannot be read; they may end above the range.
    Hole(Loss),
}

/// Walks a range of durable positions.
#[derive(Debug)]
pub(crate) struct Walk {
    listed: Arc<Listed>,
    /// Positions that are noted as lost or damaged, in order and disjoint.
    losses: Vec<Loss>,
    at: u64,
    end: u64,
    /// Everything below counts as gone.
    start: u64,
    /// Everything above does not count.
    durable: u64,
    groups: Option<Groups>,
    held: Option<Entry>,
    /// The last position for which the segments were listed again.
    looked_at: Option<u64>,
    /// The last segment whose file was found to be cut.
    cut: Option<u64>,
}

impl Walk {
    /// Walks a range of a spool that is durable.
    pub(crate) fn new(
        listed: &Arc<Listed>,
        range: Range<u64>,
        durable: u64,
    ) -> Result<Self, SpoolError> {
        let start = listed.start()?;
        listed.drop_below(start);
        Ok(Self {
            losses: losses::known(listed.folder())?,
            listed: Arc::clone(listed),
            at: range.start,
            end: range.end,
            start,
            durable,
            groups: None,
            held: None,
            looked_at: None,
            cut: None,
        })
    }

    /// Walks a range that was in one segment when it was planned.
    pub(crate) fn inside(
        listed: Arc<Listed>,
        segment: Segment,
        range: Range<u64>,
    ) -> Result<Self, SpoolError> {
        // The range may end inside a group.
        let groups = Groups::new(segment, range.start, u64::MAX)?;
        Ok(Self {
            losses: losses::known(listed.folder())?,
            listed,
            at: range.start,
            end: range.end,
            start: 0,
            durable: range.end,
            groups: Some(groups),
            held: None,
            looked_at: None,
            cut: None,
        })
    }

    /// The segments it walks through.
    pub(crate) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// The first position that was not returned yet.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The position at which it ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the positions that are noted as lost or damaged.
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Continues at a later position.
    pub(crate) fn go_to(&mut self, at: u64) {
        self.at = self.at.max(at);
    }

    /// The next group or hole; each position is in one of them.
    pub(crate) fn next(&mut self) -> Result<Option<Step>, SpoolError> {
        if self.at >= self.end {
            return Ok(None);
        }
        if let Some(hole) = self.known_hole() {
            return Ok(Some(self.hole(hole)));
        }
        let stop = self.next_loss();
        if self.must_enter()
            && let Some(hole) = self.enter()?
        {
            return Ok(Some(self.hole(hole)));
        }
        let Some(groups) = &mut self.groups else {
            return Ok(None);
        };
        let mut next = self.held;
        while next.is_none_or(|entry| entry.end() <= self.at) {
            next = groups.next(&self.listed)?;
            if next.is_none() {
                break;
            }
        }
        self.held = next;
        let (segment, between) = (Arc::clone(&groups.segment), groups.why_between());
        let Some(entry) = next else {
            let to = groups.limit.min(self.durable).min(stop);
            let hole = Loss::new(self.at, to, groups.why_behind());
            if self.looks_again() {
                return self.next();
            }
            return Ok(Some(self.hole(hole)));
        };
        if entry.first > self.at {
            let hole = Loss::new(self.at, entry.first.min(stop), between);
            return Ok(Some(self.hole(hole)));
        }
        let span = self.at..entry.end().min(stop).min(self.end);
        self.at = span.end;
        Ok(Some(Step::Group(segment, entry, span)))
    }

    /// Returns the footer of the segment that begins at the next position, if the whole segment
    /// lies in the range and no hole is known in it. [`go_to`](Self::go_to) its end skips it.
    pub(crate) fn whole(&mut self) -> Result<Option<Entry>, SpoolError> {
        if self.at >= self.end || self.known_hole().is_some() || !self.must_enter() {
            return Ok(None);
        }
        let place = self.listed.around(self.at, self.durable)?;
        if place.first != Some(self.at) || self.enter()?.is_some() {
            return Ok(None);
        }
        let Some(groups) = &self.groups else {
            return Ok(None);
        };
        let most = groups.limit.min(self.end).min(self.next_loss());
        let whole = groups.segment.whole()?;
        Ok(whole.filter(|footer| footer.first == self.at && footer.end() <= most))
    }

    /// The offset of the first group in the segment that was entered last.
    pub(crate) fn begin(&self) -> Result<Option<u64>, SpoolError> {
        let groups = self.groups.as_ref();
        groups.map_or(Ok(None), |groups| groups.segment.begin())
    }

    /// Skips positions that are known to have all their entries.
    pub(crate) fn pass_whole(&mut self) {
        if self.known_hole().is_none() {
            let known = self.listed.whole_to(self.at);
            self.go_to(known.min(self.end).min(self.next_loss()));
        }
    }

    fn hole(&mut self, hole: Loss) -> Step {
        self.at = hole.to;
        Step::Hole(hole)
    }

    fn known_hole(&self) -> Option<Loss> {
        if self.at < self.start {
            return Some(Loss::new(self.at, self.start, LossWhy::Removed));
        }
        let after = self.losses.partition_point(|loss| loss.to <= self.at);
        let found = self.losses.get(after).filter(|loss| loss.from <= self.at);
        found.map(|loss| Loss {
            from: self.at,
            ..*loss
        })
    }

    /// The begin of the next noted hole.
    fn next_loss(&self) -> u64 {
        let after = self.losses.partition_point(|loss| loss.to <= self.at);
        self.losses.get(after).map_or(u64::MAX, |loss| loss.from)
    }

    /// Lists the segments again before positions count as a hole: since they were listed a start of
    /// the writer may have moved a group to a segment of its own. Returns whether this was the
    /// first time at this position.
    fn looks_again(&mut self) -> bool {
        if self.looked_at.replace(self.at) == Some(self.at) {
            return false;
        }
        self.list_anew();
        true
    }

    /// Goes back to the begin of a group that was returned and is no longer in its file, if a new
    /// list of the segments may show where it is now. Returns whether the next step must be taken
    /// instead. Once for each file: the writer cuts none twice.
    pub(crate) fn looks_elsewhere(&mut self, segment: &Segment, entry: &Entry, from: u64) -> bool {
        if self.cut == Some(segment.first) || !segment.lacks(entry) {
            return false;
        }
        (self.cut, self.at) = (Some(segment.first), from);
        self.list_anew();
        true
    }

    fn list_anew(&mut self) {
        self.listed.forget();
        (self.groups, self.held) = (None, None);
        // A slice knows neither: its planner did, and its end may be inside a group. If they cannot
        // be read, the slice's own values suffice.
        self.start = self.start.max(self.listed.start().unwrap_or(0));
        self.durable = self.durable.max(self.listed.durable().unwrap_or(0));
    }

    fn must_enter(&self) -> bool {
        let is_inside = |groups: &Groups| self.at < groups.limit;
        !self.groups.as_ref().is_some_and(is_inside)
    }

    /// Opens the segment that may hold the next position; a hole if there is none.
    fn enter(&mut self) -> Result<Option<Loss>, SpoolError> {
        let mut tries = 0;
        (self.groups, self.held) = (None, None);
        loop {
            let place = self.listed.around(self.at, self.durable)?;
            let limit = place
                .next
                .map_or(self.durable, |next| next.min(self.durable));
            let Some(first) = place.first else {
                if self.looks_again() {
                    continue;
                }
                let to = limit.min(self.next_loss());
                return Ok(Some(Loss::new(self.at, to, LossWhy::Removed)));
            };
            match Segment::open(&self.listed, first) {
                Ok(segment) => {
                    self.groups = Some(Groups::new(segment, self.at, limit)?);
                    return Ok(None);
                }
                // Removed since it was listed.
                Err(error) if error.is_not_found() && tries < MAX_TRIES => {
                    tries += 1;
                    self.listed.forget();
                    self.start = self.listed.start()?;
                    if let Some(hole) = self.known_hole() {
                        return Ok(Some(hole));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Calls `each` with the entries of all sealed groups of a segment, in order, by their seals alone.
/// `begin` is where the first group may begin, `len` the bytes to read. Where no group begins, the
/// search continues at the next sector. A group that does not end within `len` is skipped. The
/// groups' own bytes are not checked: see [`check_group`](crate::segment::check_group).
///
/// # Errors
/// `spool.io`, and those of `each`.
pub(crate) fn scan(
    file: &File,
    path: &Path,
    begin: u64,
    len: u64,
    each: &mut dyn FnMut(Entry) -> Result<(), SpoolError>,
) -> Result<(), SpoolError> {
    let sector = SECTOR_BYTES as u64;
    let mut at = begin;
    // A body may hold bytes that look like a group: positions and epochs never fall.
    let (mut next, mut epoch) = (0, 0);
    while at.saturating_add(sector) <= len {
        let found = seal_at(file, path, at, len)?
            .filter(|entry| entry.byte_end() <= len && entry.first >= next && entry.epoch >= epoch);
        let Some(entry) = found else {
            at = at.saturating_add(1).next_multiple_of(sector);
            continue;
        };
        (next, epoch, at) = (entry.end(), entry.epoch, entry.byte_end());
        each(entry)?;
    }
    Ok(())
}

/// Retirement continues meanwhile, but not as fast as that.
const MAX_TRIES: u32 = 8;
