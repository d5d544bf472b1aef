//! Rewriting the files that recovery keeps: the index from the found groups, and the last group,
//! which may exist in the page cache alone. Each new file is written under a temporary name, synced
//! and renamed.

use std::{fs::File, os::unix::fs::FileExt};

use arrow_schema::ArrowError;

use crate::{
    SpoolError,
    catalog::{Kept, Last},
    disk::Name,
    examine::Examined,
    folder::{Folder, TEMPORARY},
    index::{Entry, IndexHeader, Kind, index_name, segment_name},
    segment::{self, END_OF_STREAM, Encoder},
};

/// Rewrites the index of a segment with the found groups.
pub(crate) fn index(folder: &Folder, found: &Examined) -> Result<(), SpoolError> {
    let entries: Vec<Entry> = found.groups.iter().map(|group| group.entry).collect();
    let name = index_name(found.header.first);
    let bytes = index_bytes(
        &found.header,
        &entries,
        found.is_ended.then_some(found.last_us),
    );
    tracing::warn!(code = "spool.index_rebuilt", path = %found.path.display(), groups = entries.len(),
        "the index of a segment was made anew from the segment");
    folder.replace(folder.segments()?, &name, &bytes)
}

/// Ends a segment that no writer ended, and rewrites its last group: into a segment of its own,
/// unless it is the only one. The segment becomes one or two, in order.
pub(crate) fn anew(folder: &Folder, found: &Examined) -> Result<Vec<Kept>, SpoolError> {
    let Some((last, before)) = found.groups.split_last() else {
        return Ok(Vec::new());
    };
    let file = folder
        .segments()?
        .read_file(&segment_name(found.header.first))?;
    let last = moved(folder, found, &file, &last.entry, before.is_empty())?;
    if before.is_empty() {
        return Ok(vec![last]);
    }
    let entries: Vec<Entry> = before.iter().map(|group| group.entry).collect();
    // The damaged groups at its end go with the one that followed them.
    let first = shortened(folder, found, &entries)?;
    Ok(vec![first, last])
}

/// Writes one group as a whole segment. It keeps its place in the file if it is the first one
/// there.
fn moved(
    folder: &Folder,
    found: &Examined,
    file: &File,
    group: &Entry,
    is_only: bool,
) -> Result<Kept, SpoolError> {
    let mut bytes = piece(file, found, group.offset, u64::from(group.length))?;
    let broken = |error: ArrowError| SpoolError::corrupt(&found.path, error.to_string());
    let (header, begin, entry) = if is_only {
        // Byte for byte, so that the existing index fits until it is replaced too.
        let begin = piece(file, found, 0, group.offset)?;
        (found.header.clone(), begin, *group)
    } else {
        // In the format of this release, whose groups need no index to be found.
        let time_us = found.header.first_time_us;
        let header = IndexHeader::new(found.header.uuid.clone(), group.first, time_us);
        let begin = Encoder::new(&header).map_err(broken)?.1;
        let entry =
            segment::seal_at_offset(&mut bytes, group, begin.len() as u64).map_err(broken)?;
        (header, begin, entry)
    };
    let footer = footer(&header, &[entry], found.last_us);
    let index = index_bytes(&header, &[entry], Some(found.last_us));
    let (dir, first) = (folder.segments()?, header.first);
    replace(
        folder,
        &segment_name(first),
        &[&begin, &bytes, &END_OF_STREAM],
    )?;
    // The index comes after it: one that names events and has no segment would report a segment
    // that was removed by hand.
    folder.disk().sync_dir(dir)?;
    replace(folder, &index_name(first), &[&index])?;
    Ok(Kept {
        first,
        end: entry.end(),
        bytes: footer.byte_end() + index.len() as u64,
        last: Some(last_of(found, &entry)),
    })
}

/// Cuts a segment after these groups and ends it.
fn shortened(folder: &Folder, found: &Examined, entries: &[Entry]) -> Result<Kept, SpoolError> {
    let (dir, first) = (folder.segments()?, found.header.first);
    let (name, path) = (segment_name(first), &found.path);
    let last = entries.last().copied();
    let time_us = last.map_or(found.last_us, |entry| entry.time_us.min(found.last_us));
    let footer = footer(&found.header, entries, time_us);
    let disk = folder.disk();
    let file = disk.open(dir, &name)?;
    // Neither is synced: the moved group does not count here, even if a part of it is left.
    disk.cut(&file, path, footer.offset)?;
    disk.publish(&file, path, &END_OF_STREAM, footer.offset)?;
    let index = index_bytes(&found.header, entries, Some(time_us));
    folder.replace(dir, &index_name(first), &index)?;
    Ok(Kept {
        first,
        end: footer.end(),
        bytes: footer.byte_end() + index.len() as u64,
        last: last.map(|entry| last_of(found, &entry)),
    })
}

fn last_of(found: &Examined, entry: &Entry) -> Last {
    Last {
        wall_us: found.last_us,
        watched_us: entry.watched_us,
    }
}

/// Bytes of the segment, from this offset on.
fn piece(file: &File, found: &Examined, at: u64, length: u64) -> Result<Vec<u8>, SpoolError> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)
        .map_err(|error| SpoolError::io("read", &found.path, error))?;
    Ok(bytes)
}

/// Replaces a file by one with these bytes; its directory is still to be synced.
fn replace(folder: &Folder, name: &str, pieces: &[&[u8]]) -> Result<(), SpoolError> {
    let (dir, disk) = (folder.segments()?, folder.disk());
    let temporary = format!(".{name}.{}{TEMPORARY}", std::process::id());
    disk.remove(dir, &temporary)?;
    let file = folder.create(dir, &temporary)?;
    let path = dir.join(&temporary);
    disk.write(&file, &path, pieces)?;
    disk.sync(&file, &path)?;
    disk.rename(Name::new(dir, &temporary), Name::new(dir, name))
}

/// The bytes of an index; it has a footer if the time of its last block is given.
fn index_bytes(header: &IndexHeader, entries: &[Entry], ended_us: Option<i64>) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    for entry in entries {
        bytes.extend(entry.encode());
    }
    if let Some(time_us) = ended_us {
        bytes.extend(footer(header, entries, time_us).encode());
    }
    bytes
}

/// The footer after these groups.
fn footer(header: &IndexHeader, entries: &[Entry], time_us: i64) -> Entry {
    let last = entries.last();
    Entry {
        kind: Kind::Footer,
        blocks: entries
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.blocks)),
        offset: last.map_or(0, Entry::byte_end),
        length: u32::try_from(END_OF_STREAM.len()).unwrap_or_default(),
        crc: crc32c::crc32c(&END_OF_STREAM),
        first: header.first,
        count: last.map_or(0, Entry::end).saturating_sub(header.first),
        time_us,
        inflated: entries
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.inflated)),
        epoch: last.map_or(0, |entry| entry.epoch),
        watched_us: last.map_or(0, |entry| entry.watched_us),
        is_sealed: header.is_sealed(),
    }
}
