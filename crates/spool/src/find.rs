//! The position of a time, and the backlog above a position.
//!
//! `received_at` never falls in a spool, so that both searches are binary: segments by the time in
//! their header, which is that of their first block, then groups by their first block. The time in
//! an index entry is when the group became durable, by a clock that may have been set back: it is
//! not used.

use std::sync::Arc;

use ackline_core::locked;

use crate::{
    Spool, SpoolError, StoredBlock,
    index::{Entry, index_name, list, segment_name},
    outline::Outline,
    walk::{Segment, Step},
};

/// The backlog above a position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Kept events above it.
    pub events: u64,
    /// The bytes on disk of their group commits.
    pub bytes: u64,
    /// When the first of them was received, in microseconds since 1970 (UTC); `None` if there is
    /// none.
    pub oldest_us: Option<i64>,
}

/// First position and time of each block of a group.
pub(crate) type Times = Vec<(u64, i64)>;

impl Spool {
    /// The first position that was received at `at_us` (microseconds since 1970, UTC) or later; the
    /// durable position if there is none.
    ///
    /// # Errors
    /// `spool.corrupt`, `spool.replaced`, `spool.io`.
    pub fn find(&self, at_us: i64) -> Result<u64, SpoolError> {
        again(|| {
            let found = self.find_once(at_us);
            if found.as_ref().is_err_and(SpoolError::is_not_found) {
                self.listed.forget();
            }
            found
        })
    }

    /// The backlog above a position. Lost positions do not count.
    ///
    /// # Errors
    /// `spool.behind_checkpoint` above the durable position, `spool.corrupt`, `spool.replaced`,
    /// `spool.io`.
    pub fn lag(&self, position: u64) -> Result<Lag, SpoolError> {
        again(|| self.lag_once(position))
    }

    /// When the first event from a position on was received, in microseconds since 1970; `None` if
    /// there is none. Unlike [`lag`](Self::lag), this does not look at the rest of the backlog.
    ///
    /// # Errors
    /// Those of [`lag`](Self::lag).
    pub fn waiting_since(&self, position: u64) -> Result<Option<i64>, SpoolError> {
        again(|| {
            let durable = self.durable()?;
            if position > durable {
                return Err(SpoolError::BehindCheckpoint { position, durable });
            }
            let mut walk = self.walk(position..durable)?;
            while let Some(step) = walk.next()? {
                let Step::Group(segment, entry, span) = step else {
                    continue;
                };
                let since = self.received(&segment, &entry, span.start)?;
                if since.is_some() {
                    return Ok(since);
                }
            }
            Ok(None)
        })
    }

    /// The bytes of segments and indexes.
    ///
    /// # Errors
    /// `spool.io`.
    pub fn bytes(&self) -> Result<u64, SpoolError> {
        let mut bytes: u64 = 0;
        let firsts = list(&self.folder)?;
        for name in firsts
            .iter()
            .flat_map(|first| [segment_name(*first), index_name(*first)])
        {
            let seen = self.folder.segments()?.look(&name)?;
            bytes = bytes.saturating_add(seen.map_or(0, |seen| seen.len));
        }
        Ok(bytes)
    }

    fn find_once(&self, at_us: i64) -> Result<u64, SpoolError> {
        let durable = self.durable()?;
        let start = self.listed.start()?;
        // The segment that holds the first kept position may begin below it.
        let place = self.listed.around(start, durable)?;
        let kept = place.first.unwrap_or(start)..durable;
        let firsts = self.listed.within(&kept, durable)?;
        let mut failed = None;
        let earlier = firsts.partition_point(|first| {
            // After a failure the result does not count.
            failed.is_none()
                && match self.first_time(*first) {
                    Ok(time) => time.is_none_or(|time| time < at_us),
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let next = firsts.get(earlier).copied().unwrap_or(durable);
        let last = earlier.checked_sub(1).and_then(|at| firsts.get(at));
        let found = match last {
            Some(first) => self.find_in(*first, next, at_us)?,
            None => next,
        };
        Ok(found.max(start.min(durable)))
    }

    /// The same in one segment; `next` if everything in it was received earlier.
    fn find_in(&self, first: u64, next: u64, at_us: i64) -> Result<u64, SpoolError> {
        let segment = Segment::open(&self.listed, first)?;
        let (segment, entries) = segment.all(&self.listed, next)?;
        let (mut from, mut to) = (0, entries.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let rest = entries.get(middle..to).unwrap_or_default();
            // A damaged group is skipped: the next sound one decides.
            let mut earlier = None;
            for (number, entry) in (middle..).zip(rest) {
                if let Some(times) = self.times_if_sound(&segment, entry)? {
                    let is_earlier = times.first().is_none_or(|(_, time)| *time < at_us);
                    earlier = is_earlier.then_some(number);
                    break;
                }
            }
            match earlier {
                Some(number) => from = number + 1,
                None => to = middle,
            }
        }
        // The last group that begins earlier may hold it, or the next one begins with it.
        if let Some(entry) = from.checked_sub(1).and_then(|at| entries.get(at)) {
            let times = self.times_if_sound(&segment, entry)?.unwrap_or_default();
            let found = times.iter().find(|(_, time)| *time >= at_us);
            if let Some((position, _)) = found {
                return Ok(*position);
            }
        }
        Ok(entries.get(from).map_or(next, |entry| entry.first))
    }

    fn lag_once(&self, position: u64) -> Result<Lag, SpoolError> {
        let durable = self.durable()?;
        if position > durable {
            return Err(SpoolError::BehindCheckpoint { position, durable });
        }
        let mut lag = Lag::default();
        let mut walk = self.walk(position..durable)?;
        loop {
            if lag.oldest_us.is_some()
                && let Some(footer) = walk.whole()?
            {
                let begin = walk.begin()?.unwrap_or(footer.offset);
                lag.events = lag.events.saturating_add(footer.count);
                let bytes = footer.offset.saturating_sub(begin);
                lag.bytes = lag.bytes.saturating_add(bytes);
                walk.go_to(footer.end());
                continue;
            }
            let (segment, entry, span) = match walk.next()? {
                None => return Ok(lag),
                Some(Step::Hole(_)) => continue,
                Some(Step::Group(segment, entry, span)) => (segment, entry, span),
            };
            lag.events += span.end - span.start;
            lag.bytes += u64::from(entry.length);
            if lag.oldest_us.is_none() {
                lag.oldest_us = self.received(&segment, &entry, span.start)?;
            }
        }
    }

    /// When a position of a group was received; `None` if the group is damaged.
    fn received(
        &self,
        segment: &Segment,
        entry: &Entry,
        position: u64,
    ) -> Result<Option<i64>, SpoolError> {
        let times = self.times_if_sound(segment, entry)?;
        Ok(times.and_then(|times| {
            let after = times.partition_point(|(block, _)| *block <= position);
            times.get(after.saturating_sub(1)).map(|(_, time)| *time)
        }))
    }

    /// When the first block of a segment was received; `None` if unknown.
    fn first_time(&self, first: u64) -> Result<Option<i64>, SpoolError> {
        let segment = Segment::open(&self.listed, first)?;
        Ok(segment.header().map(|header| header.first_time_us))
    }

    fn times_if_sound(
        &self,
        segment: &Segment,
        entry: &Entry,
    ) -> Result<Option<Arc<Times>>, SpoolError> {
        match self.times(segment, entry) {
            Err(SpoolError::Corrupt { .. }) if segment.lacks(entry) => self.times_elsewhere(entry),
            Err(SpoolError::Corrupt { .. }) => Ok(None),
            times => times.map(Some),
        }
    }

    /// The same for a group that a start of the writer may have moved.
    fn times_elsewhere(&self, entry: &Entry) -> Result<Option<Arc<Times>>, SpoolError> {
        self.listed.forget();
        match self.walk(entry.first..entry.end())?.next()? {
            Some(Step::Group(segment, entry, _)) if !segment.lacks(&entry) => {
                self.times_if_sound(&segment, &entry)
            }
            _ => Ok(None),
        }
    }

    fn times(&self, segment: &Segment, entry: &Entry) -> Result<Arc<Times>, SpoolError> {
        if let Some(times) = locked(&self.cache).times.get(&entry.first) {
            return Ok(times.clone());
        }
        let group = Outline::checked(segment, entry)?;
        let time = |block: StoredBlock<'_>| (block.first_position, block.received_at_us);
        let times = Arc::new(group.blocks().map(time).collect::<Times>());
        let known = &mut locked(&self.cache).times;
        if known.len() >= MAX_TIMES {
            known.clear();
        }
        known.insert(entry.first, times.clone());
        Ok(times)
    }
}

/// Repeats a look when a segment was retired between listing and reading.
pub(crate) fn again<T>(look: impl Fn() -> Result<T, SpoolError>) -> Result<T, SpoolError> {
    let mut tries = 0;
    loop {
        match look() {
            Err(error) if error.is_not_found() && tries < MAX_TRIES => tries += 1,
            found => return found,
        }
    }
}

/// Groups whose times are cached: a caller that asks for a lag asks again.
const MAX_TIMES: usize = 64;

/// Retirement goes on during the look, but not as fast as that.
const MAX_TRIES: u32 = 8;
