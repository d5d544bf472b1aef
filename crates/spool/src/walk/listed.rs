//! The list of a spool's segments: made once, then kept up to date by looking for new ones only.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ackline_core::locked;

use crate::{
    Loss, LossWhy, SpoolError,
    folder::{Dir, Folder, Key},
    format::Identity,
    index::{self, Entry, Index, Kind, segment_name},
    mark::Mark,
    start::Start,
};

/// The segments of a spool by their first positions.
#[derive(Debug)]
pub(crate) struct Listed {
    folder: Folder,
    /// The UUIDs that the spool's files may carry.
    uuids: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// First positions, in order; `None` until they are requested.
    firsts: Option<Vec<u64>>,
    /// Every segment that begins below is listed.
    seen: u64,
    /// Whether a list was found to be wrong.
    is_stale: bool,
    /// Positions that are known to have all their entries.
    whole: Range<u64>,
    /// The entries of the last segment that were taken from its seals.
    rebuilt: Option<Rebuilt>,
    /// Segments whose rebuilt index was logged.
    said: BTreeSet<u64>,
}

/// The entries of a segment from its seals.
#[derive(Debug, Clone)]
pub(crate) struct Rebuilt {
    pub(crate) first: u64,
    /// The bytes of the segment that were scanned.
    pub(crate) len: u64,
    pub(crate) entries: Arc<[Entry]>,
}

/// The segment that may hold a position, and the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The last first position at or below it.
    pub(crate) first: Option<u64>,
    /// The first first position above it.
    pub(crate) next: Option<u64>,
}

/// The next segment after the last listed one.
enum Behind {
    Segment(u64),
    /// There is none below the durable position.
    Nothing,
    /// A new list is needed.
    Unknown,
}

impl Listed {
    /// The segments of the spool in this folder; nothing is listed yet.
    pub(crate) fn new(folder: Folder, identity: &Identity) -> Self {
        let uuids = std::iter::once(&identity.uuid).chain(&identity.formerly);
        Self {
            folder,
            uuids: uuids.cloned().collect(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whether a file with this UUID is one of the spool's.
    pub(crate) fn knows(&self, uuid: &str) -> bool {
        self.uuids.iter().any(|known| known == uuid)
    }

    /// The UUID of the spool.
    pub(crate) fn uuid(&self) -> &str {
        self.uuids.first().map_or("", String::as_str)
    }

    /// The first kept position: by the file `start`, or by the first segment if there is no file.
    pub(crate) fn first_kept(&self, durable: u64) -> Result<u64, SpoolError> {
        if let Some(found) = self.read_start()? {
            return Ok(found.first.min(durable));
        }
        let first = self.first(durable)?;
        Ok(first.map_or(durable, |first| first.min(durable)))
    }

    /// The position below which everything counts as gone by the file `start`; 0 if there is no
    /// file.
    pub(crate) fn start(&self) -> Result<u64, SpoolError> {
        Ok(self.read_start()?.map_or(0, |found| found.first))
    }

    /// The position below which every event is durable, by the current mark.
    pub(crate) fn durable(&self) -> Result<u64, SpoolError> {
        Ok(Mark::of(&self.folder)?.position)
    }

    fn read_start(&self) -> Result<Option<Start>, SpoolError> {
        Start::read_of(&self.folder, self.uuid(), |uuid| self.knows(uuid))
    }

    /// The first segment that still exists.
    fn first(&self, durable: u64) -> Result<Option<u64>, SpoolError> {
        let mut state = self.up_to(durable)?;
        let firsts = state.firsts.get_or_insert_default();
        while let Some(&first) = firsts.first() {
            if self.has(first)? {
                return Ok(Some(first));
            }
            firsts.remove(0);
        }
        Ok(None)
    }

    /// The segments around a position.
    pub(crate) fn around(&self, at: u64, durable: u64) -> Result<Place, SpoolError> {
        let mut state = self.up_to(durable)?;
        let firsts = state.firsts.get_or_insert_default();
        let above = firsts.partition_point(|first| *first <= at);
        let below = above.checked_sub(1).and_then(|below| firsts.get(below));
        Ok(Place {
            first: below.copied(),
            next: firsts.get(above).copied(),
        })
    }

    /// The first positions of the segments that begin in a range.
    pub(crate) fn within(&self, range: &Range<u64>, durable: u64) -> Result<Vec<u64>, SpoolError> {
        let mut state = self.up_to(durable)?;
        let firsts = state.firsts.get_or_insert_default();
        let from = firsts.partition_point(|first| *first < range.start);
        let to = firsts.partition_point(|first| *first < range.end);
        Ok(firsts.get(from..to).unwrap_or_default().to_vec())
    }

    /// Lists again at the next look: a segment was not in its listed place.
    pub(crate) fn forget(&self) {
        let mut state = locked(&self.state);
        state.firsts = None;
        state.is_stale = true;
        state.whole = 0..0;
    }

    /// Drops segments below the start.
    pub(crate) fn drop_below(&self, start: u64) {
        if let Some(firsts) = &mut locked(&self.state).firsts {
            let above = firsts.partition_point(|first| *first <= start);
            firsts.drain(..above.saturating_sub(1));
        }
    }

    /// The end of the positions from `at` on that are known to have all their entries.
    pub(crate) fn whole_to(&self, at: u64) -> u64 {
        let whole = locked(&self.state).whole.clone();
        if whole.contains(&at) { whole.end } else { at }
    }

    /// Notes positions that have all their entries.
    pub(crate) fn note_whole(&self, range: Range<u64>) {
        let whole = &mut locked(&self.state).whole;
        if range.start > whole.end || range.end < whole.start || whole.is_empty() {
            *whole = range;
        } else {
            *whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
    }

    /// The groups that a segment's seals named the last time.
    pub(crate) fn rebuilt(&self, first: u64, len: u64) -> Option<Arc<[Entry]>> {
        let state = locked(&self.state);
        let known = state.rebuilt.as_ref();
        let known = known.filter(|known| known.first == first && known.len == len);
        known.map(|known| Arc::clone(&known.entries))
    }

    /// Keeps the entries from a segment's seals. Returns whether that is the first time.
    pub(crate) fn note_rebuilt(&self, rebuilt: Rebuilt) -> bool {
        let mut state = locked(&self.state);
        if state.said.len() >= MOST_SAID {
            state.said.clear();
        }
        let is_new = state.said.insert(rebuilt.first);
        state.rebuilt = Some(rebuilt);
        is_new
    }

    /// The error of a strict reader at a hole.
    pub(crate) fn refusal(&self, loss: &Loss) -> SpoolError {
        let Loss { from, to, why, .. } = *loss;
        match why {
            LossWhy::Lost | LossWhy::Removed => SpoolError::Gap {
                position: from,
                first_kept: to,
            },
            LossWhy::Corrupt => {
                let segments = self.folder.dir().join(crate::folder::SEGMENTS);
                let place = self.around(from, to).ok();
                let name = place.and_then(|place| place.first).map(segment_name);
                let path = name.map_or(segments.clone(), |name| segments.join(name));
                let detail = format!("positions {from} to {to} are damaged and cannot be read");
                SpoolError::corrupt(&path, detail)
            }
        }
    }

    /// Whether the segments were requested.
    #[cfg(test)]
    pub(crate) fn is_listed(&self) -> bool {
        locked(&self.state).firsts.is_some()
    }

    fn has(&self, first: u64) -> Result<bool, SpoolError> {
        self.folder.segments()?.has(&segment_name(first))
    }

    /// The list with every segment that has positions below `durable`.
    fn up_to(&self, durable: u64) -> Result<MutexGuard<'_, State>, SpoolError> {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        if state.firsts.is_none() && !state.is_stale {
            self.remember(state, durable)?;
        }
        while let Some(firsts) = &mut state.firsts {
            if state.seen >= durable {
                return Ok(guard);
            }
            let Some(&last) = firsts.last() else { break };
            match self.behind(last, state.seen.max(last), durable)? {
                Behind::Segment(first) => {
                    firsts.push(first);
                    state.seen = first;
                }
                Behind::Nothing => state.seen = durable,
                Behind::Unknown => break,
            }
        }
        state.firsts = Some(index::list(&self.folder)?);
        (state.seen, state.is_stale) = (durable, false);
        Ok(guard)
    }

    /// Takes over the list of another spool object in this process.
    fn remember(&self, state: &mut State, durable: u64) -> Result<(), SpoolError> {
        let key = self.folder.segments()?.key()?;
        let Ok(remembered) = REMEMBERED.try_lock() else {
            return Ok(());
        };
        let found = remembered
            .iter()
            .find(|one| one.key == key && one.uuid == self.uuid() && one.seen <= durable);
        let Some((firsts, seen)) = found.map(|one| (one.firsts.clone(), one.seen)) else {
            return Ok(());
        };
        drop(remembered);
        if let Some(last) = firsts.last()
            && self.has(*last)?
        {
            (state.firsts, state.seen) = (Some(firsts), seen);
        }
        Ok(())
    }

    /// Looks for the segment after the last listed one. It begins where that one was ended, or at
    /// the end of a group after which nothing was acknowledged, at `seen` or above.
    fn behind(&self, last: u64, seen: u64, durable: u64) -> Result<Behind, SpoolError> {
        let index = match Index::open(self.folder.segments()?, last) {
            Ok(index) => index,
            Err(error) if error.is_not_found() => return Ok(Behind::Unknown),
            Err(SpoolError::Corrupt { .. }) => return Ok(Behind::Unknown),
            Err(error) => return Err(error),
        };
        let is_there = |at: u64| Ok(at > last && self.has(at)?);
        let len = index.len();
        let tail = index.entries(len.saturating_sub(2), 2)?;
        if let [Some(group), Some(footer)] = tail[..]
            && footer.kind == Kind::Footer
        {
            let end = group.end();
            return Ok(if end >= durable {
                Behind::Nothing
            } else if is_there(end)? {
                Behind::Segment(end)
            } else {
                Behind::Unknown
            });
        }
        if is_there(seen)? {
            return Ok(Behind::Segment(seen));
        }
        // Few groups were added since the last look.
        let mut from = len;
        let mut at = u64::MAX;
        let mut looks = 0;
        while at > seen && from > 0 && looks < MOST_LOOKS {
            let count = from.min(CHUNK);
            from -= count;
            let entries = index.entries(from, count)?;
            looks += count;
            at = entries
                .iter()
                .flatten()
                .next()
                .map_or(at, |entry| entry.first);
        }
        if at > seen && from > 0 {
            return Ok(Behind::Unknown);
        }
        let mut covered = seen;
        for entry in index.entries(from, looks)? {
            let Some(entry) = entry else { break };
            if entry.end() <= covered {
                continue;
            }
            covered = entry.end();
            if covered >= durable {
                return Ok(Behind::Nothing);
            }
            if is_there(covered)? {
                return Ok(Behind::Segment(covered));
            }
        }
        Ok(Behind::Unknown)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (seen, firsts) = (state.seen, state.firsts.take());
        let Some(firsts) = firsts.filter(|firsts| firsts.len() >= MANY) else {
            return;
        };
        let Ok(Ok(key)) = self.folder.segments().map(Dir::key) else {
            return;
        };
        let uuid = self.uuids.first().cloned().unwrap_or_default();
        // A fork may have left the lock taken: then it is listed again.
        if let Ok(mut remembered) = REMEMBERED.try_lock() {
            remembered.retain(|one| one.key != key);
            remembered.truncate(MOST_REMEMBERED - 1);
            let one = Remembered {
                key,
                uuid,
                firsts,
                seen,
            };
            remembered.insert(0, one);
        }
    }
}

/// Lists of spools that are not open any more, for readers that open their spool for each batch.
#[derive(Debug)]
struct Remembered {
    /// The key of the directory of segments.
    key: Key,
    uuid: String,
    firsts: Vec<u64>,
    seen: u64,
}

/// Lists of the last spools that were closed.
static REMEMBERED: Mutex<Vec<Remembered>> = Mutex::new(Vec::new());

/// A list of a megabyte at 100,000 segments.
const MOST_REMEMBERED: usize = 8;

/// Listing fewer segments is as quick as remembering them.
const MANY: usize = 1_024;

/// Entries read at once.
pub(crate) const CHUNK: u64 = 256;

/// Groups after which a segment is looked for before all are listed: a few milliseconds.
const MOST_LOOKS: u64 = 2_048;

/// Segments whose damage is logged once; more are logged again.
const MOST_SAID: usize = 1_024;
