//! The groups of a segment, and which of them are sound: by its index, and by the groups' own seals
//! if the index is missing or damaged. Recovery and mending rely on the result; nothing is changed.

use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use crate::{
    SpoolError,
    folder::Folder,
    format::Identity,
    group::{self, Group},
    index::{
        ENTRY_BYTES, Entry, HEADER_BYTES, IndexHeader, Kind, OLD_ENTRY_BYTES, index_name,
        segment_name,
    },
    segment::{self, END_OF_STREAM, SECTOR_BYTES},
    walk,
};

/// The result of examining a segment.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) path: PathBuf,
    /// The header of its index, from any place where it could be read.
    pub(crate) header: IndexHeader,
    /// Bytes before its first group.
    pub(crate) begin: u64,
    /// Its groups in order, from the first to the last sound one.
    pub(crate) groups: Vec<Found>,
    /// The fault of its index; `None` if it names all groups, and nothing else.
    pub(crate) index_fault: Option<IndexFault>,
    /// Whether the segment was ended in good order and nothing must be cut.
    pub(crate) is_ended: bool,
    /// When its last block was received.
    pub(crate) last_us: i64,
    /// The end of the last whole entry of the index, also of one whose group is not sound:
    /// positions up to there may have been acknowledged.
    pub(crate) claimed: u64,
    /// The byte after the last sound group, and after the end of the stream if that follows.
    pub(crate) stream_end: u64,
    /// Bytes of both files after that.
    pub(crate) tail_bytes: u64,
    /// Bytes of the segment.
    pub(crate) len: u64,
    /// The fault of the first group after the last sound one.
    pub(crate) tail_fault: Option<String>,
}

/// The fault of an index.
#[derive(Debug, Clone)]
pub(crate) struct IndexFault {
    pub(crate) text: String,
    /// Whether the only fault is that the index ends before the last found group.
    pub(crate) is_short: bool,
}

/// A group of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) entry: Entry,
    /// The fault of its bytes.
    pub(crate) fault: Option<String>,
}

impl Examined {
    /// The position after the last sound group.
    pub(crate) fn end(&self) -> u64 {
        self.groups
            .last()
            .map_or(self.header.first, |group| group.entry.end())
    }

    /// The byte after the last sound group.
    pub(crate) fn byte_end(&self) -> u64 {
        self.groups
            .last()
            .map_or(self.begin, |group| group.entry.byte_end())
    }

    /// Positions before the end that no sound group has.
    pub(crate) fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut next = self.header.first;
        let mut add = |from: u64, to: u64| match holes.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ if from < to => holes.push((from, to)),
            _ => {}
        };
        for Found { entry, fault } in &self.groups {
            add(next, entry.first);
            if fault.is_some() {
                add(entry.first, entry.end());
            }
            next = entry.end();
        }
        holes
    }
}

/// The positions that an examination depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Groups at or above this position are ignored.
    pub(crate) below: u64,
    /// Everything below this position was published.
    pub(crate) durable: u64,
}

/// Examines the segment that begins at `first`: every group within the bounds, each checked whole.
///
/// # Errors
/// `spool.replaced` of another spool's segment, `spool.unplaced` when its groups contradict each other,
/// `spool.format`, `spool.io`.
pub(crate) fn examine(
    folder: &Folder,
    first: u64,
    bounds: Bounds,
    identity: &Identity,
) -> Result<Examined, SpoolError> {
    let dir = folder.segments()?;
    let path = dir.join(&segment_name(first));
    let file = dir.read_file(&segment_name(first))?;
    let len = file.metadata().map_or(0, |meta| meta.len());
    let (begin, own) = begin_or_sector(&file, &path)?;
    let mut read = ReadIndex::read(folder, first, own.as_ref(), &file)?;
    let header = read.header_or(own, first, identity);
    if !identity.knows(&header.uuid) {
        return Err(SpoolError::Replaced {
            path,
            expected: identity.uuid.clone(),
            found: header.uuid,
        });
    }
    let begin = match read.groups.first() {
        // A segment whose own beginning is damaged.
        Some(entry) if begin > entry.offset => entry.offset,
        _ => begin,
    };
    let segment = Unexamined {
        file: &file,
        path: &path,
        header: &header,
        bytes: begin..len,
    };
    let (known, index_is_short) = segment.known_groups(&mut read, bounds)?;
    check_order(folder, &path, first, &known)?;
    let claimed = read
        .groups
        .iter()
        .filter(|entry| entry.first < bounds.below)
        .map(Entry::end);
    let mut examined = Examined {
        last_us: header.first_time_us,
        header,
        begin,
        groups: Vec::new(),
        index_fault: read.fault.clone().map(|text| IndexFault {
            text,
            is_short: index_is_short,
        }),
        is_ended: false,
        claimed: claimed.max().unwrap_or(first),
        stream_end: begin,
        tail_bytes: 0,
        len,
        tail_fault: None,
        path,
    };
    examined.check_groups(&file, known)?;
    examined.judge_end(&file, &read);
    Ok(examined)
}

/// A segment whose groups are being searched.
struct Unexamined<'a> {
    file: &'a File,
    path: &'a Path,
    header: &'a IndexHeader,
    /// The bytes after its beginning.
    bytes: Range<u64>,
}

/// The length of a segment's beginning and its copy of the index header; one sector and none if the
/// beginning is damaged.
fn begin_or_sector(file: &File, path: &Path) -> Result<(u64, Option<IndexHeader>), SpoolError> {
    match segment::begin_of(file, path) {
        Err(SpoolError::Corrupt { .. }) => Ok((SECTOR_BYTES as u64, None)),
        begin => begin,
    }
}

impl Unexamined<'_> {
    /// The groups that the index names, with those found in the segment where the index is damaged
    /// or too short; and whether its being too short is the index's only fault, which is noted.
    fn known_groups(
        &self,
        read: &mut ReadIndex,
        bounds: Bounds,
    ) -> Result<(Vec<Entry>, bool), SpoolError> {
        let first = self.header.first;
        let named_to = read.groups.last().map_or(first, Entry::end);
        let is_short = named_to < bounds.durable.min(bounds.below);
        let mut groups: BTreeMap<u64, Entry> = BTreeMap::new();
        if read.fault.is_some() || is_short {
            let mut add = |entry: Entry| {
                groups.insert(entry.offset, entry);
                Ok(())
            };
            if self.header.is_sealed() {
                let Range { start, end } = self.bytes;
                walk::scan(self.file, self.path, start, end, &mut add)?;
            } else if read.fault.is_some() {
                let bytes = self.bytes.clone();
                scan_old(self.file, self.path, bytes, &read.groups, &mut add)?;
            }
        }
        let mut index_is_short = false;
        let found_to = groups.values().map(Entry::end).max().unwrap_or(first);
        if is_short && found_to > named_to {
            let why = format!("it ends at position {named_to}, the segment's groups at {found_to}");
            index_is_short = read.fault.is_none();
            read.fault.get_or_insert(why);
        }
        if let Some(fault) = &read.fault {
            tracing::warn!(code = "spool.index_damaged", path = %self.path.display(), fault,
                "the index of a segment is missing or damaged: its groups are looked for in the segment");
        }
        for entry in &read.groups {
            groups.entry(entry.offset).or_insert(*entry);
        }
        let known = groups.into_values();
        let known = known.filter(|entry| entry.first < bounds.below).collect();
        Ok((known, index_is_short))
    }
}

impl Examined {
    /// Reads each group, and leaves out those after the last sound one.
    fn check_groups(&mut self, file: &File, known: Vec<Entry>) -> Result<(), SpoolError> {
        let mut buffer = Vec::new();
        for entry in known {
            let fault = match Group::read(file, &self.path, &entry, std::mem::take(&mut buffer)) {
                Ok(group) => {
                    let last = group.blocks().map(|block| block.received_at_us).max();
                    self.last_us = self.last_us.max(last.unwrap_or(0));
                    buffer = group.into_buffer();
                    None
                }
                Err(SpoolError::Corrupt { detail, .. }) => Some(detail),
                Err(error) => return Err(error),
            };
            self.groups.push(Found { entry, fault });
        }
        while let Some(last) = self.groups.pop_if(|group| group.fault.is_some()) {
            self.tail_fault = last.fault;
        }
        Ok(())
    }

    fn judge_end(&mut self, file: &File, read: &ReadIndex) {
        let (byte_end, end) = (self.byte_end(), self.end());
        let index_end = self.header.at(self.groups.len() as u64);
        let mut marker = [0; END_OF_STREAM.len()];
        let has_marker =
            file.read_exact_at(&mut marker, byte_end).is_ok() && marker == END_OF_STREAM;
        let mut ends = (byte_end, index_end);
        if has_marker {
            ends.0 += END_OF_STREAM.len() as u64;
        }
        if let Some(footer) = read.footer
            && footer.offset == byte_end
            && footer.end() == end
            && has_marker
        {
            ends.1 += self.header.entry_bytes as u64;
            self.is_ended = read.fault.is_none();
        }
        self.stream_end = ends.0;
        self.tail_bytes =
            self.len.saturating_sub(ends.0) + read.len.saturating_sub(ends.1.min(read.len));
        // A spool never writes bytes after a footer: the segment is ended again.
        self.is_ended &= self.tail_bytes == 0;
    }
}

/// The sound entries of a segment's index.
struct ReadIndex {
    header: Option<IndexHeader>,
    entry_bytes: usize,
    /// Its groups, in order of their offsets.
    groups: Vec<Entry>,
    footer: Option<Entry>,
    /// Its fault.
    fault: Option<String>,
    /// Bytes.
    len: u64,
}

impl ReadIndex {
    /// Its header, or the segment's `own` copy, or one made of the known values.
    fn header_or(&self, own: Option<IndexHeader>, first: u64, identity: &Identity) -> IndexHeader {
        self.header.clone().or(own).unwrap_or(IndexHeader {
            uuid: identity.uuid.clone(),
            first,
            first_time_us: 0,
            entry_bytes: self.entry_bytes,
        })
    }

    fn read(
        folder: &Folder,
        first: u64,
        own: Option<&IndexHeader>,
        segment: &File,
    ) -> Result<Self, SpoolError> {
        let dir = folder.segments()?;
        let name = index_name(first);
        let path = dir.join(&name);
        let bytes = match dir.read_file(&name) {
            Ok(file) => Some(read_all(&file, &path)?),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let mut fault = bytes.is_none().then(|| "it is missing".to_owned());
        let bytes = bytes.unwrap_or_default();
        let header = match IndexHeader::decode(bytes.get(..HEADER_BYTES).unwrap_or_default(), &path)
        {
            Ok(header) if header.first == first => Some(header),
            Ok(_) => {
                fault.get_or_insert_with(|| "it is another segment's".to_owned());
                None
            }
            Err(error @ SpoolError::Format { .. }) => return Err(error),
            Err(error) => {
                fault.get_or_insert_with(|| error.to_string());
                None
            }
        };
        let entry_bytes = match header.as_ref().or(own) {
            Some(header) => header.entry_bytes,
            None if starts_sealed(segment, &path)? => ENTRY_BYTES,
            None => OLD_ENTRY_BYTES,
        };
        let mut read = Self {
            header,
            entry_bytes,
            groups: Vec::new(),
            footer: None,
            fault,
            len: bytes.len() as u64,
        };
        for entry in bytes
            .get(HEADER_BYTES..)
            .unwrap_or_default()
            .chunks(entry_bytes)
        {
            read.entry(Entry::decode(entry));
        }
        read.groups.sort_by_key(|entry| entry.offset);
        Ok(read)
    }

    fn entry(&mut self, entry: Option<Entry>) {
        match entry {
            Some(entry) if entry.kind == Kind::Footer => self.footer = Some(entry),
            Some(entry) => self.groups.push(entry),
            None => {
                self.fault
                    .get_or_insert_with(|| "an entry of the index is not sound".to_owned());
            }
        }
    }
}

fn read_all(file: &File, path: &Path) -> Result<Vec<u8>, SpoolError> {
    let failed = |error| SpoolError::io("read", path, error);
    let len = file.metadata().map_err(failed)?.len();
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

fn starts_sealed(file: &File, path: &Path) -> Result<bool, SpoolError> {
    let len = file.metadata().map_or(0, |meta| meta.len());
    let found = segment::seal_at(file, path, SECTOR_BYTES as u64, len)?;
    Ok(found.is_some())
}

/// Refuses groups that claim the same positions or the same bytes.
fn check_order(
    folder: &Folder,
    path: &Path,
    first: u64,
    groups: &[Entry],
) -> Result<(), SpoolError> {
    let (mut position, mut byte) = (first, 0);
    for entry in groups {
        if entry.first < position || entry.offset < byte {
            return Err(SpoolError::Unplaced {
                dir: folder.dir().to_owned(),
                path: path.to_owned(),
                detail: format!(
                    "the group at byte {} has positions {} to {}, which another group before it has too",
                    entry.offset,
                    entry.first,
                    entry.end()
                ),
            });
        }
        (position, byte) = (entry.end(), entry.byte_end());
    }
    Ok(())
}

/// Searches for groups of format 1, which have no seal, where the index does not name them: message
/// after message of the Arrow stream. A group counts if its blocks follow each other and each body
/// matches its checksum.
fn scan_old(
    file: &File,
    path: &Path,
    bytes: Range<u64>,
    known: &[Entry],
    add: &mut dyn FnMut(Entry) -> Result<(), SpoolError>,
) -> Result<(), SpoolError> {
    let (mut at, len) = (bytes.start, bytes.end);
    while at < len {
        if let Some(entry) = known.iter().find(|entry| entry.offset == at) {
            at = entry.byte_end();
            continue;
        }
        let Some((length, message)) = segment::message_at(file, path, at, len)? else {
            // The next group that the index names.
            let Some(next) = known.iter().find(|entry| entry.offset > at) else {
                return Ok(());
            };
            at = next.offset;
            continue;
        };
        // Arrow may panic on bytes that no checksum covers.
        let decoded = catch_unwind(AssertUnwindSafe(|| group::old_entry(&message, at)));
        if let Ok(Some(entry)) = decoded {
            add(entry)?;
        }
        at += length;
    }
    Ok(())
}
