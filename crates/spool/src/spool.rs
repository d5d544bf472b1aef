//! A spool for reading: where it begins and ends, how it is cut into batches and slices.
//!
//! Everything here sees only what lies below the published durable mark, so that it is safe beside a
//! writer and after one that died.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Access, BlockInfo, Layouts, SpoolError, consumers,
    find::Times,
    format::{
        DurableMark, ENTRY_BYTES, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, Layout,
        index_of,
    },
    read::{Part, ReadOptions, Reader},
    rights,
    segment::Group,
};

/// A part of one segment that can be read without listing the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The segment's file; its index stands beside it.
    pub path: PathBuf,
    /// The spool's UUID.
    pub uuid: String,
    /// Where its first group begins in the file.
    pub byte_start: u64,
    /// Where its last group ends in the file.
    pub byte_end: u64,
    /// The first position.
    pub start: u64,
    /// The position after the last one.
    pub end: u64,
}

/// What [`Spool::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments looked at.
    pub segments: u64,
    /// Group commits looked at.
    pub groups: u64,
    /// Blocks looked at.
    pub blocks: u64,
    /// Events counted.
    pub events: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is wrong, empty when nothing is.
    pub problems: Vec<String>,
}

/// A spool, for reading: in any process, also beside a writer.
#[derive(Debug)]
pub struct Spool {
    pub(crate) layout: Layout,
    pub(crate) identity: Identity,
    pub(crate) mark: File,
    pub(crate) cache: Mutex<Cache>,
}

/// What has been read and cannot change any more.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) entries: HashMap<u64, Arc<Vec<Entry>>>,
    /// When the blocks of a group were received, by its first position.
    pub(crate) times: HashMap<u64, Arc<Times>>,
    /// First position, count and inflated bytes of the blocks of one group, by its first position.
    sizes: Option<(u64, Arc<Vec<Size>>)>,
    /// Groups whose CRC was checked, by their first position.
    pub(crate) checked: HashSet<u64>,
}

type Size = (u64, u64, u64);

impl Spool {
    /// Opens the spool in `dir`, which is its owner's alone.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub fn open(dir: &Path) -> Result<Self, SpoolError> {
        Self::open_with(dir, Access::default())
    }

    /// Opens the spool in `dir`.
    ///
    /// # Errors
    /// `spool.not_a_spool`, `spool.rights` when others than `access` allows can read it,
    /// `spool.format`, `spool.corrupt`, `spool.io`.
    pub fn open_with(dir: &Path, access: Access) -> Result<Self, SpoolError> {
        let layout = Layout::new(dir).with(access);
        let identity =
            Identity::read(&layout.identity())?.ok_or_else(|| SpoolError::NotASpool {
                dir: dir.to_owned(),
                detail: "it has no spool.json".to_owned(),
            })?;
        rights::check(&layout)?;
        let path = layout.durable();
        let mark = File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?;
        Ok(Self {
            layout,
            identity,
            mark,
            cache: Mutex::default(),
        })
    }

    /// The spool's UUID.
    pub fn uuid(&self) -> &str {
        &self.identity.uuid
    }

    /// The first position that is kept; the durable position when nothing is.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn first_kept(&self) -> Result<u64, SpoolError> {
        let durable = self.durable()?;
        Ok(self
            .layout
            .list()?
            .first()
            .map_or(durable, |first| durable.min(*first)))
    }

    /// The durable position: every event below it is kept or was retired.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn durable(&self) -> Result<u64, SpoolError> {
        DurableMark::read(&self.mark, &self.layout.durable())
    }

    /// Reads the events of a range of positions.
    ///
    /// # Errors
    /// `spool.gap` below the first kept position and for lost ones, `spool.behind_checkpoint` above the
    /// durable one,
    /// `spool.unknown_column`, `spool.corrupt`, `spool.io`.
    pub fn read(
        &self,
        layouts: &Layouts,
        range: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Reader, SpoolError> {
        let parts = self.parts(&range)?;
        Reader::new(layouts, self.uuid(), parts, range, options)
    }

    /// Reads a slice by its file alone.
    ///
    /// # Errors
    /// `spool.gap` when its segment was retired, `spool.replaced` when the file is another spool's,
    /// and those of [`read`](Self::read).
    pub fn read_slice(
        layouts: &Layouts,
        slice: &Slice,
        options: &ReadOptions,
    ) -> Result<Reader, SpoolError> {
        let retired = |error: SpoolError| {
            if error.is_not_found() {
                return SpoolError::Gap {
                    position: slice.start,
                    first_kept: slice.end,
                };
            }
            error
        };
        let (header, mut entries, _) =
            read_index(&slice.path, u64::MAX, Vec::new()).map_err(retired)?;
        if header.uuid != slice.uuid && !was_adopted(slice, &header.uuid)? {
            return Err(SpoolError::Replaced {
                path: slice.path.clone(),
                expected: slice.uuid.clone(),
                found: header.uuid,
            });
        }
        entries.retain(|e| e.offset >= slice.byte_start && e.byte_end() <= slice.byte_end);
        let whole = entries
            .first()
            .is_some_and(|entry| entry.first <= slice.start)
            && entries.last().is_some_and(|entry| entry.end() >= slice.end);
        if !whole && slice.start < slice.end {
            return Err(SpoolError::corrupt(
                &slice.path,
                "its index does not hold the slice",
            ));
        }
        let part = Part::open(&slice.path, entries).map_err(retired)?;
        Reader::new(
            layouts,
            &slice.uuid,
            vec![part],
            slice.start..slice.end,
            options,
        )
    }

    /// Where a batch ends that begins at `start` and holds at most so many events and inflated bytes:
    /// at a block's end if at least one whole block fits, else inside it, after at least one event. It
    /// never reaches beyond lost positions.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn end_for(
        &self,
        start: u64,
        max_rows: Option<u64>,
        max_bytes: Option<u64>,
    ) -> Result<u64, SpoolError> {
        let found = self.look_up(&(start..self.durable()?))?;
        // What is readable comes before what is lost.
        let end = match found.lost.first() {
            Some(lost) if lost.start <= start => return Err(gap(start, lost)),
            Some(lost) => lost.start,
            None => found.durable,
        };
        if start == end || (max_rows.is_none() && max_bytes.is_none()) {
            return Ok(end);
        }
        let mut rows = max_rows.unwrap_or(u64::MAX);
        let mut bytes = max_bytes.unwrap_or(u64::MAX);
        let mut at = start;
        for part in found.parts {
            if part.entries.first().is_some_and(|entry| entry.first >= end) {
                break;
            }
            for entry in &part.entries {
                if entry.first >= at && entry.count <= rows && entry.inflated <= bytes {
                    rows -= entry.count;
                    bytes -= entry.inflated;
                    at = entry.end();
                    continue;
                }
                for &(first, count, inflated) in self.sizes(&part, entry)?.iter() {
                    let end = first + count;
                    if end <= at {
                        continue;
                    }
                    let left = end - at;
                    let weight = share(inflated, left, count);
                    if left <= rows && weight <= bytes {
                        rows -= left;
                        bytes -= weight;
                        at = end;
                    } else if at > start {
                        return Ok(at);
                    } else {
                        let fits = share(left, bytes, weight.max(1)).min(rows).min(left);
                        return Ok(at + fits.max(1));
                    }
                }
            }
        }
        Ok(at)
    }

    /// Cuts a range into slices of about equal inflated bytes: at most `max_slices`, none below
    /// `min_bytes`, but at least one for each segment it touches.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn slices(
        &self,
        range: Range<u64>,
        max_slices: usize,
        min_bytes: u64,
    ) -> Result<Vec<Slice>, SpoolError> {
        let parts = self.parts(&range)?;
        let total: u64 = parts
            .iter()
            .flat_map(|part| &part.entries)
            .map(|e| e.inflated)
            .sum();
        let target = total
            .div_ceil(max_slices.max(1) as u64)
            .max(min_bytes)
            .max(1);
        let mut slices = Vec::new();
        for part in &parts {
            let mut open: Option<Slice> = None;
            let mut weight = 0;
            for entry in &part.entries {
                // A group that is a small part of a slice is not looked into.
                let sizes = if entry.inflated <= target / 4 {
                    Arc::new(vec![(entry.first, entry.count, entry.inflated)])
                } else {
                    self.sizes(part, entry)?
                };
                for &(first, count, inflated) in sizes.iter() {
                    let (start, end) = (first.max(range.start), (first + count).min(range.end));
                    if start >= end {
                        continue;
                    }
                    let slice = open.get_or_insert_with(|| Slice {
                        path: part.path.clone(),
                        uuid: self.uuid().to_owned(),
                        byte_start: entry.offset,
                        byte_end: 0,
                        start,
                        end,
                    });
                    slice.byte_end = entry.byte_end();
                    slice.end = end;
                    weight += share(inflated, end - start, count);
                    if weight >= target {
                        slices.extend(open.take());
                        weight = 0;
                    }
                }
            }
            slices.extend(open);
        }
        Ok(slices)
    }

    /// What is known of the blocks that hold a range of positions, in order; lost positions are passed
    /// over.
    ///
    /// # Errors
    /// Those of [`read`](Self::read); those of single groups come from the iterator.
    pub fn blocks(
        &self,
        range: Range<u64>,
    ) -> Result<impl Iterator<Item = Result<BlockInfo, SpoolError>> + use<>, SpoolError> {
        let groups = self.look_up(&range)?.parts.into_iter().flat_map(|part| {
            let part = Arc::new(part);
            let entries = part.entries.clone();
            entries.into_iter().map(move |entry| (part.clone(), entry))
        });
        Ok(groups.flat_map(move |(part, entry)| {
            let read = Group::read(&part.file, &part.path, &entry, Vec::new());
            let infos: Vec<_> = match read {
                Ok(group) => group
                    .blocks()
                    .map(|block| Ok(BlockInfo::from(block)))
                    .collect(),
                Err(error) => vec![Err(error)],
            };
            let inside = |info: &Result<BlockInfo, SpoolError>| {
                info.as_ref().map_or(true, |info| {
                    let end = info.first_position + u64::from(info.count);
                    end > range.start && info.first_position < range.end
                })
            };
            infos.into_iter().filter(inside).collect::<Vec<_>>()
        }))
    }

    /// Reads and checks everything that is durable, and both slots of the durable mark, and whether what
    /// consumers still want is there. `progress` is told the events done and the events in all.
    ///
    /// # Errors
    /// When the spool cannot be read at all; what is damaged stands in the report.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, SpoolError> {
        let (first, durable) = (self.first_kept()?, self.durable()?);
        let mut report = Report::default();
        let mut next = first;
        let mut buffer = Vec::new();
        report.problems = DurableMark::problems(&self.mark, &self.layout.durable())?;
        for part in self.look_up(&(first..durable))?.parts {
            report.segments += 1;
            for entry in &part.entries {
                if entry.first != next {
                    report
                        .problems
                        .push(format!("positions {next} to {} are missing", entry.first));
                }
                next = entry.end();
                report.groups += 1;
                report.bytes += u64::from(entry.length);
                match Group::read(&part.file, &part.path, entry, std::mem::take(&mut buffer)) {
                    Ok(group) => {
                        verify_group(&group, entry, &mut report);
                        buffer = group.into_buffer();
                    }
                    Err(error) => report.problems.push(error.to_string()),
                }
                progress(next - first, durable - first);
            }
        }
        if next != durable {
            report
                .problems
                .push(format!("positions {next} to {durable} are missing"));
        }
        let gone = self.wanted_and_gone(first, durable)?;
        report.problems.extend(gone);
        Ok(report)
    }

    /// What consumers still want below the first kept position, and marks that cannot be read.
    fn wanted_and_gone(&self, first: u64, durable: u64) -> Result<Vec<String>, SpoolError> {
        let (mut problems, mut highest) = (Vec::new(), None);
        // What went by age was meant to go.
        let noted = std::fs::read_to_string(self.layout.retired()).ok();
        let noted = noted.and_then(|text| text.trim_end().parse().ok());
        let retired: u64 = noted.unwrap_or(0);
        for name in consumers::names(&self.layout, consumers::MARK)? {
            let read = consumers::read(&self.layout, &name).and_then(|found| {
                let check = |mark: consumers::Mark| mark.check(&self.layout, &self.identity);
                found.map(check).transpose()
            });
            match read {
                Ok(None) => {}
                Ok(Some(mark)) => {
                    highest = highest.max(Some(mark.committed));
                    let from = mark.committed.max(retired);
                    if from < first {
                        problems.push(format!(
                            "positions {from} to {first} are gone and consumer {name:?} has not committed them: \
                             their segments were removed by hand"
                        ));
                    }
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        if first == durable && durable > retired && highest.is_none() {
            problems.push(format!(
                "nothing is left of the {durable} events up to the durable position and no consumer has \
                 committed them: the segments were removed by hand"
            ));
        }
        Ok(problems)
    }

    /// The segments and groups that hold a range, all of it.
    fn parts(&self, range: &Range<u64>) -> Result<Vec<Part>, SpoolError> {
        let found = self.look_up(range)?;
        match found.lost.first() {
            Some(lost) => Err(gap(range.start, lost)),
            None => Ok(found.parts),
        }
    }

    /// What is there of a range, and what is not.
    fn look_up(&self, range: &Range<u64>) -> Result<Found, SpoolError> {
        let durable = self.durable()?;
        if range.start > durable || range.end > durable {
            let position = range.start.max(range.end);
            return Err(SpoolError::BehindCheckpoint { position, durable });
        }
        let firsts = self.layout.list()?;
        let first_kept = firsts.first().map_or(durable, |first| durable.min(*first));
        if range.start < first_kept && range.start < range.end {
            return Err(gap(range.start, &(range.start..first_kept)));
        }
        let mut found = Found {
            durable,
            ..Found::default()
        };
        for (at, &first) in firsts.iter().enumerate() {
            let end = firsts
                .get(at + 1)
                .map_or(durable, |next| durable.min(*next));
            if end <= range.start || first >= range.end {
                continue;
            }
            let opened = self.entries(first, end).and_then(|entries| {
                let from = entries.partition_point(|entry| entry.end() <= range.start);
                let to = entries.partition_point(|entry| entry.first < range.end);
                let covered = entries.last().map_or(first, Entry::end);
                let part = Part::open(&self.layout.segment(first), entries[from..to].to_vec())?;
                Ok((part, covered))
            });
            let (part, covered) = match opened {
                Ok(opened) => opened,
                // Retired since it was listed.
                Err(error) if error.is_not_found() => {
                    return Err(gap(range.start, &(range.start..self.first_kept()?)));
                }
                Err(error) => return Err(error),
            };
            found.parts.push(part);
            if covered < end && covered < range.end {
                found.lost.push(covered.max(range.start)..end);
            }
        }
        Ok(found)
    }

    /// The entries of a segment below `end`, which is durable. They end before it where the segment was
    /// ended there: the rest was lost.
    pub(crate) fn entries(&self, first: u64, end: u64) -> Result<Arc<Vec<Entry>>, SpoolError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache().entries.get(&first).cloned().unwrap_or_default();
        if known.last().is_some_and(|entry| entry.end() >= end) {
            return Ok(known);
        }
        let path = self.layout.segment(first);
        let (header, entries, footer) = read_index(&path, end, known.to_vec())?;
        if !self.identity.knows(&header.uuid) {
            let (expected, found) = (self.uuid().to_owned(), header.uuid);
            return Err(SpoolError::Replaced {
                path,
                expected,
                found,
            });
        }
        let covered = entries.last().map_or(first, Entry::end);
        if covered < end && footer.is_none_or(|footer| footer.end() != covered) {
            let detail = format!("its index ends at position {covered}, {end} is durable");
            return Err(SpoolError::corrupt(&path, detail));
        }
        let entries = Arc::new(entries);
        cache().entries.insert(first, entries.clone());
        Ok(entries)
    }

    fn sizes(&self, part: &Part, entry: &Entry) -> Result<Arc<Vec<Size>>, SpoolError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, sizes)) = &cache().sizes
            && *first == entry.first
        {
            return Ok(sizes.clone());
        }
        let group = Group::read(&part.file, &part.path, entry, Vec::new())?;
        let size = |b: crate::StoredBlock<'_>| (b.first_position, b.count.into(), b.inflated_bytes);
        let sizes = Arc::new(group.blocks().map(size).collect::<Vec<Size>>());
        cache().sizes = Some((entry.first, sizes.clone()));
        Ok(sizes)
    }
}

/// Whether the segment was written before its spool was adopted under the slice's UUID.
fn was_adopted(slice: &Slice, found: &str) -> Result<bool, SpoolError> {
    let Some(dir) = slice.path.parent().and_then(Path::parent) else {
        return Ok(false);
    };
    let identity = Identity::read(&Layout::new(dir).identity())?;
    Ok(identity.is_some_and(|now| now.uuid == slice.uuid && now.knows(found)))
}

fn verify_group(group: &Group, entry: &Entry, report: &mut Report) {
    let mut next = entry.first;
    for block in group.blocks() {
        if block.first_position != next {
            let found = block.first_position;
            report
                .problems
                .push(format!("a block begins at position {found}, not at {next}"));
        }
        if crc32c::crc32c(block.body) != block.checksum {
            report.problems.push(format!(
                "the body at position {next} does not fit its checksum"
            ));
        }
        next = block.first_position + u64::from(block.count);
        report.blocks += 1;
        report.events += u64::from(block.count);
    }
    if next != entry.end() {
        report.problems.push(format!(
            "a group ends at position {next}, not at {}",
            entry.end()
        ));
    }
}

/// What is there of a range.
#[derive(Debug, Default)]
struct Found {
    durable: u64,
    parts: Vec<Part>,
    /// Positions that no segment holds although they were given out, in order.
    lost: Vec<Range<u64>>,
}

/// The error of who asks for `position` when `lost` is not there.
fn gap(position: u64, lost: &Range<u64>) -> SpoolError {
    SpoolError::Gap {
        position: position.max(lost.start),
        first_kept: lost.end,
    }
}

/// The header of a segment's index, its entries up to position `end`, and its footer if that comes
/// next; `known` are its first entries.
fn read_index(
    segment: &Path,
    end: u64,
    mut known: Vec<Entry>,
) -> Result<(IndexHeader, Vec<Entry>, Option<Entry>), SpoolError> {
    let path = index_of(segment);
    let file = File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)
        .map_err(|error| SpoolError::corrupt(&path, error.to_string()))?;
    let header = IndexHeader::check(&header, &path)?;
    let from = (HEADER_BYTES + known.len() * ENTRY_BYTES) as u64;
    let len = file
        .metadata()
        .map_or(0, |meta| meta.len())
        .saturating_sub(from);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0) / ENTRY_BYTES * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, from)
        .map_err(|error| SpoolError::io("read", &path, error))?;
    let mut footer = None;
    for bytes in bytes.chunks(ENTRY_BYTES) {
        // What is not sound or above the mark may be half written: the caller knows what must be there.
        match Entry::decode(bytes) {
            Some(entry) if entry.kind == Kind::Group && entry.end() <= end => known.push(entry),
            entry => {
                footer = entry.filter(|entry| entry.kind == Kind::Footer);
                break;
            }
        }
    }
    Ok((header, known, footer))
}

/// `value * part / whole` without overflow.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
