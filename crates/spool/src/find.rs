//! From a time to a position, and how far a position is behind.
//!
//! `received_at` never falls in a spool, so that both searches are binary: segments by the time in their
//! header, which is that of their first block, then groups by their first block. The time in an index
//! entry is when the group became durable, by a clock that may have been set back: it is not looked at.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, PoisonError},
};

use crate::{
    Spool, SpoolError,
    format::{Entry, HEADER_BYTES, IndexHeader, index_of},
    recovery::bytes_of,
    segment::Group,
};

/// What lies above a position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events that are kept.
    pub events: u64,
    /// The bytes on disk of the group commits they are in.
    pub bytes: u64,
    /// When the first of them was received, in microseconds since 1970 (UTC); `None` when there is none.
    pub oldest_us: Option<i64>,
}

/// First position and time of each block of a group.
pub(crate) type Times = Vec<(u64, i64)>;

impl Spool {
    /// The first position that was received at `at_us` (microseconds since 1970, UTC) or later; the
    /// durable position when there is none.
    ///
    /// # Errors
    /// `spool.corrupt`, `spool.replaced`, `spool.io`.
    pub fn find(&self, at_us: i64) -> Result<u64, SpoolError> {
        again(|| self.find_once(at_us))
    }

    /// How much is kept above a position, and since when.
    ///
    /// # Errors
    /// `spool.behind_checkpoint` above the durable position, `spool.corrupt`, `spool.replaced`,
    /// `spool.io`.
    pub fn lag(&self, position: u64) -> Result<Lag, SpoolError> {
        again(|| self.lag_once(position))
    }

    /// The bytes of segments and indexes.
    ///
    /// # Errors
    /// `spool.io`.
    pub fn bytes(&self) -> Result<u64, SpoolError> {
        let firsts = self.layout.list()?;
        let bytes = |first| bytes_of(&self.layout.segment(first));
        Ok(firsts.into_iter().map(bytes).sum())
    }

    fn find_once(&self, at_us: i64) -> Result<u64, SpoolError> {
        let (firsts, durable) = self.kept()?;
        let mut failed = None;
        let earlier = firsts.partition_point(|first| {
            // Once one fails the answer does not count.
            failed.is_none()
                && match self.first_time(*first) {
                    Ok(time) => time < at_us,
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
        let Some(first) = earlier.checked_sub(1).map(|at| firsts[at]) else {
            return Ok(next);
        };
        let path = self.layout.segment(first);
        let file = File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?;
        let entries = self.entries(first, next)?;
        let (mut from, mut to) = (0, entries.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let times = self.times(&file, &path, &entries[middle])?;
            if times.first().is_none_or(|(_, time)| *time < at_us) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        // The last group that begins earlier may hold it, or the next one begins with it.
        if let Some(at) = from.checked_sub(1) {
            let times = self.times(&file, &path, &entries[at])?;
            let found = times.iter().find(|(_, time)| *time >= at_us);
            if let Some((position, _)) = found {
                return Ok(*position);
            }
        }
        Ok(entries.get(from).map_or(next, |entry| entry.first))
    }

    fn lag_once(&self, position: u64) -> Result<Lag, SpoolError> {
        let (firsts, durable) = self.kept()?;
        if position > durable {
            return Err(SpoolError::BehindCheckpoint { position, durable });
        }
        let mut lag = Lag::default();
        for (at, &first) in firsts.iter().enumerate() {
            let end = firsts.get(at + 1).copied().unwrap_or(durable);
            if end <= position {
                continue;
            }
            let entries = self.entries(first, end)?;
            for entry in entries.iter().filter(|entry| entry.end() > position) {
                lag.events += entry.end() - entry.first.max(position);
                lag.bytes += u64::from(entry.length);
                if lag.oldest_us.is_none() {
                    let path = self.layout.segment(first);
                    let file =
                        File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?;
                    let times = self.times(&file, &path, entry)?;
                    let after = times.partition_point(|(block, _)| *block <= position);
                    lag.oldest_us = times.get(after.saturating_sub(1)).map(|(_, time)| *time);
                }
            }
        }
        Ok(lag)
    }

    /// The first positions of the segments that hold something durable, and the durable position.
    fn kept(&self) -> Result<(Vec<u64>, u64), SpoolError> {
        let durable = self.durable()?;
        let mut firsts = self.layout.list()?;
        firsts.retain(|first| *first < durable);
        Ok((firsts, durable))
    }

    /// When the first block of a segment was received.
    fn first_time(&self, first: u64) -> Result<i64, SpoolError> {
        let path = index_of(&self.layout.segment(first));
        let file = File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)
            .map_err(|error| SpoolError::corrupt(&path, error.to_string()))?;
        Ok(IndexHeader::check(&header, &path)?.first_time_us)
    }

    fn times(&self, file: &File, path: &Path, entry: &Entry) -> Result<Arc<Times>, SpoolError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = cache().times.get(&entry.first) {
            return Ok(times.clone());
        }
        let group = Group::read(file, path, entry, Vec::new())?;
        let time = |block: crate::StoredBlock<'_>| (block.first_position, block.received_at_us);
        let times = Arc::new(group.blocks().map(time).collect::<Times>());
        let known = &mut cache().times;
        if known.len() >= MAX_TIMES {
            known.clear();
        }
        known.insert(entry.first, times.clone());
        Ok(times)
    }
}

/// Looks again when a segment was retired between listing and reading.
pub(crate) fn again<T>(look: impl Fn() -> Result<T, SpoolError>) -> Result<T, SpoolError> {
    let mut tries = 0;
    loop {
        match look() {
            Err(error) if error.is_not_found() && tries < MAX_TRIES => tries += 1,
            found => return found,
        }
    }
}

/// Groups whose times are remembered: who asks for a lag asks again.
const MAX_TIMES: usize = 64;

/// Retirement goes on while we look, but not as fast as that.
const MAX_TRIES: u32 = 8;
