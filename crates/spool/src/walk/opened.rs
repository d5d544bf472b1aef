//! One segment, open for reading: its entries by number or by position, its bytes on request.

use std::{fs::File, io, path::PathBuf, sync::Arc, sync::OnceLock};

use super::{
    listed::{CHUNK, Listed, Rebuilt},
    scan,
};
use crate::{
    LossWhy, SpoolError,
    folder::Folder,
    index::{Entry, Index, IndexHeader, Kind, index_name, segment_name},
    rights,
    segment::{SECTOR_BYTES, begin_of},
};

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) first: u64,
    /// The segment's file.
    pub(crate) path: PathBuf,
    folder: Folder,
    entries: Entries,
    file: OnceLock<File>,
}

/// The source of a segment's entries.
#[derive(Debug)]
enum Entries {
    Index(Index),
    /// The index is missing or damaged: the entries of the segment's seals, and the header at its
    /// beginning.
    Seals(Arc<[Entry]>, Option<IndexHeader>),
}

impl Segment {
    /// Opens the segment that begins at `first`, by its index; without a sound one, by its seals.
    ///
    /// # Errors
    /// `spool.io` when it is missing, `spool.rights`, `spool.replaced`, `spool.format`.
    pub(crate) fn open(listed: &Listed, first: u64) -> Result<Self, SpoolError> {
        let opened = Self::open_any(listed, first)?;
        match opened.header() {
            Some(header) if !listed.knows(&header.uuid) => Err(SpoolError::Replaced {
                path: opened.path.clone(),
                expected: listed.uuid().to_owned(),
                found: header.uuid.clone(),
            }),
            _ => Ok(opened),
        }
    }

    /// The same, also for a segment of another spool.
    pub(crate) fn open_any(listed: &Listed, first: u64) -> Result<Self, SpoolError> {
        let folder = listed.folder();
        let (segments, name) = (folder.segments()?, segment_name(first));
        let path = segments.join(&name);
        if !segments.has(&name)? {
            return Err(SpoolError::io(
                "open",
                &path,
                io::ErrorKind::NotFound.into(),
            ));
        }
        rights::check_name(segments, &name, folder)?;
        rights::check_name(segments, &index_name(first), folder)?;
        let mut opened = Self {
            first,
            path,
            folder: folder.clone(),
            entries: Entries::Seals(Arc::from([]), None),
            file: OnceLock::new(),
        };
        match Index::open(segments, first) {
            Ok(index) => opened.entries = Entries::Index(index),
            Err(SpoolError::Corrupt { .. }) => opened.rebuild(listed)?,
            Err(error) if error.is_not_found() => opened.rebuild(listed)?,
            Err(error) => return Err(error),
        }
        Ok(opened)
    }

    /// The same segment, read by its seals; `None` if that was done, or it has none.
    fn anew(&self, listed: &Listed) -> Result<Option<Self>, SpoolError> {
        match &self.entries {
            Entries::Index(index) if index.header.is_sealed() => {}
            _ => return Ok(None),
        }
        let mut anew = Self {
            first: self.first,
            path: self.path.clone(),
            folder: self.folder.clone(),
            entries: Entries::Seals(Arc::from([]), None),
            file: OnceLock::new(),
        };
        anew.rebuild(listed)?;
        Ok(Some(anew))
    }

    fn rebuild(&mut self, listed: &Listed) -> Result<(), SpoolError> {
        let file = self.file()?;
        let len = self.len()?;
        let (begin, header) = match begin_of(file, &self.path) {
            Err(SpoolError::Corrupt { .. }) => (0, None),
            begin => begin?,
        };
        let entries = if let Some(known) = listed.rebuilt(self.first, len) {
            known
        } else {
            let mut entries = Vec::new();
            scan(file, &self.path, begin, len, &mut |entry| {
                entries.push(entry);
                Ok(())
            })?;
            let entries: Arc<[Entry]> = Arc::from(entries);
            let is_new = listed.note_rebuilt(Rebuilt {
                first: self.first,
                len,
                entries: Arc::clone(&entries),
            });
            if is_new {
                tracing::warn!(code = "spool.index_rebuilt", path = %self.path.display(), groups = entries.len(),
                    "the index of a segment is missing or damaged: its groups are read by their seals");
            }
            entries
        };
        self.entries = Entries::Seals(entries, header);
        Ok(())
    }

    /// Whether the index is missing or damaged.
    pub(crate) fn is_rebuilt(&self) -> bool {
        matches!(self.entries, Entries::Seals(..))
    }

    /// The header of the index, or its copy in the segment.
    pub(crate) fn header(&self) -> Option<&IndexHeader> {
        match &self.entries {
            Entries::Index(index) => Some(&index.header),
            Entries::Seals(_, header) => header.as_ref(),
        }
    }

    /// The segment's bytes.
    pub(crate) fn file(&self) -> Result<&File, SpoolError> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self
            .folder
            .segments()?
            .read_file(&segment_name(self.first))?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Whether the file exists and ends before the group does: it was cut.
    pub(crate) fn lacks(&self, entry: &Entry) -> bool {
        self.len().is_ok_and(|len| len < entry.byte_end())
    }

    fn len(&self) -> Result<u64, SpoolError> {
        let meta = self.file()?.metadata();
        let meta = meta.map_err(|error| SpoolError::io("look at", &self.path, error))?;
        Ok(meta.len())
    }

    /// At most so many entries from this number on; an unsound one is `None`.
    fn entries(&self, from: u64, most: u64) -> Result<Vec<Option<Entry>>, SpoolError> {
        match &self.entries {
            Entries::Index(index) => index.entries(from, most),
            Entries::Seals(entries, _) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                let rest = entries.get(from..).unwrap_or_default().iter();
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                Ok(rest.take(most).copied().map(Some).collect())
            }
        }
    }

    /// The number of the first entry that may hold `at` or something above it.
    fn seek(&self, at: u64) -> Result<u64, SpoolError> {
        let index = match &self.entries {
            Entries::Index(index) => index,
            Entries::Seals(entries, _) => {
                return Ok(entries.partition_point(|entry| entry.end() <= at) as u64);
            }
        };
        let (mut from, mut to) = (0, index.len());
        while from < to {
            let middle = u64::midpoint(from, to);
            let mut probe = index.entries(middle, 1)?;
            if probe.first().is_none_or(Option::is_none) {
                // An unsound entry decides nothing: the next sound one does.
                probe = index.entries(middle, PROBE.min(to - middle))?;
            }
            let found = (middle..).zip(probe).find_map(|(at, one)| Some((at, one?)));
            match found {
                Some((number, entry)) if entry.kind == Kind::Group && entry.end() <= at => {
                    from = number + 1;
                }
                _ => to = middle,
            }
        }
        Ok(from)
    }

    /// The offset of the first group.
    pub(crate) fn begin(&self) -> Result<Option<u64>, SpoolError> {
        let first = self.entries(0, 1)?.pop().flatten();
        Ok(first.map(|entry| entry.offset))
    }

    /// The group that holds a position, at `limit` or below.
    pub(crate) fn group_at(
        self,
        listed: &Listed,
        at: u64,
        limit: u64,
    ) -> Result<(Arc<Self>, Option<Entry>), SpoolError> {
        let mut groups = Groups::new(self, at, limit)?;
        let found = groups.next(listed)?.filter(|entry| entry.first <= at);
        Ok((groups.segment, found))
    }

    /// All groups that do not end above `limit`.
    pub(crate) fn all(
        self,
        listed: &Listed,
        limit: u64,
    ) -> Result<(Arc<Self>, Vec<Entry>), SpoolError> {
        let first = self.first;
        let mut groups = Groups::new(self, first, limit)?;
        let mut all = Vec::new();
        while let Some(entry) = groups.next(listed)? {
            all.push(entry);
        }
        Ok((groups.segment, all))
    }

    /// The footer of a segment that was ended in good order and has all entries below its end.
    pub(crate) fn whole(&self) -> Result<Option<Entry>, SpoolError> {
        let Entries::Index(index) = &self.entries else {
            return Ok(None);
        };
        let tail = index.entries(index.len().saturating_sub(2), 2)?;
        let [Some(group), Some(footer)] = tail[..] else {
            return Ok(None);
        };
        let is_whole = footer.kind == Kind::Footer
            && group.kind == Kind::Group
            && footer.first == self.first
            && footer.end() == group.end();
        Ok(is_whole.then_some(footer))
    }
}

/// The groups of one segment, in order.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) segment: Arc<Segment>,
    /// The number of the next entry to be read.
    number: u64,
    chunk: std::vec::IntoIter<Option<Entry>>,
    /// The end of the groups that were returned.
    at: u64,
    /// A group that ends above does not count.
    pub(crate) limit: u64,
    /// The end of the last returned group in the file.
    byte_end: u64,
    ended: bool,
    /// Whether an entry was not sound.
    is_damaged: bool,
}

impl Groups {
    /// The groups that end above `at` and not above `limit`.
    pub(crate) fn new(segment: Segment, at: u64, limit: u64) -> Result<Self, SpoolError> {
        let number = segment.seek(at)?;
        Ok(Self {
            segment: Arc::new(segment),
            number,
            chunk: Vec::new().into_iter(),
            at,
            limit,
            byte_end: 0,
            ended: false,
            is_damaged: false,
        })
    }

    /// The next group. Unsound entries are looked up in the segment's seals.
    pub(crate) fn next(&mut self, listed: &Listed) -> Result<Option<Entry>, SpoolError> {
        while self.at < self.limit {
            let Some(next) = self.chunk.next() else {
                let read = self.segment.entries(self.number, CHUNK)?;
                let is_last = read.is_empty();
                self.number += read.len() as u64;
                self.chunk = read.into_iter();
                if is_last && !self.turn_to_seals(listed)? {
                    return Ok(None);
                }
                continue;
            };
            let Some(entry) = next else {
                self.is_damaged = !self.turn_to_seals(listed)?;
                continue;
            };
            if entry.kind == Kind::Footer {
                self.ended = true;
                return Ok(None);
            }
            if entry.end() > self.limit {
                return Ok(None);
            }
            if entry.end() > self.at {
                (self.at, self.byte_end) = (entry.end(), entry.byte_end());
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Continues with the segment's seals. Returns whether it has any that were not read.
    fn turn_to_seals(&mut self, listed: &Listed) -> Result<bool, SpoolError> {
        let Some(anew) = self.segment.anew(listed)? else {
            return Ok(false);
        };
        self.number = anew.seek(self.at)?;
        self.chunk = Vec::new().into_iter();
        self.segment = Arc::new(anew);
        Ok(true)
    }

    /// Returns the fate of the positions before a returned group.
    pub(crate) fn why_between(&self) -> LossWhy {
        if self.segment.is_rebuilt() || self.is_damaged {
            LossWhy::Corrupt
        } else {
            LossWhy::Lost
        }
    }

    /// Returns the fate of the positions after the last group.
    pub(crate) fn why_behind(&self) -> LossWhy {
        let is_sealed = |header: &IndexHeader| header.is_sealed();
        let is_sealed = self.segment.header().is_none_or(is_sealed);
        if self.ended && !self.is_damaged {
            // Format 2 notes the losses of its recovery; format 1 noted nothing.
            return if is_sealed {
                LossWhy::Removed
            } else {
                LossWhy::Lost
            };
        }
        let len = self.segment.len().unwrap_or(0);
        let has_more = len >= self.byte_end.saturating_add(SECTOR_BYTES as u64);
        if has_more || !is_sealed || self.is_damaged {
            LossWhy::Corrupt
        } else {
            LossWhy::Lost
        }
    }
}

/// Entries in a row that are read when one is not sound.
const PROBE: u64 = 64;
