//! Opening a spool for writing: creates it, or finds the end of what is sound and cuts the rest.
//!
//! Only the last segment can have a torn tail: an earlier one counts up to the first position of the
//! next one, whatever else a failed write left in it.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use crate::{
    SpoolError,
    consumers::replace,
    disk::{Disk, RealDisk, make_dir},
    format::{
        DurableMark, ENTRY_BYTES, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, Layout,
        index_of,
    },
    segment::{END_OF_STREAM, Group},
};

/// A segment that is no longer written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Of segment and index.
    pub(crate) bytes: u64,
}

/// What was found, and where to go on.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) created: bool,
    pub(crate) cut_bytes: u64,
    pub(crate) position: u64,
    pub(crate) last_us: i64,
    pub(crate) kept: VecDeque<Kept>,
    pub(crate) mark: File,
}

/// Creates the directory if need be, so that it can be locked.
pub(crate) fn prepare(layout: &Layout) -> Result<(), SpoolError> {
    let dir = &layout.dir;
    if !dir.exists() {
        make_dir(dir)?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        RealDisk.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    if layout.identity().exists() {
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(|error| SpoolError::io("list", dir, error))?;
    for entry in entries {
        let name = entry
            .map_err(|error| SpoolError::io("list", dir, error))?
            .file_name();
        // What a creation that was cut short leaves behind.
        if name != "lock" && name != "spool.json.tmp" {
            let detail = format!("it has no spool.json, but holds {}", name.to_string_lossy());
            return Err(SpoolError::NotASpool {
                dir: dir.clone(),
                detail,
            });
        }
    }
    Ok(())
}

/// Recovers the spool. The lock is held.
pub(crate) fn recover(layout: &Layout) -> Result<State, SpoolError> {
    let path = layout.identity();
    let found = Identity::read(&path)?;
    let created = found.is_none();
    let identity = if let Some(identity) = found {
        identity
    } else {
        let new = Identity::random().map_err(|error| SpoolError::io("create", &path, error))?;
        let temporary = path.with_extension("json.tmp");
        replace(&mut RealDisk, &path, &temporary, &new.encode())?;
        new
    };
    make_dir(&layout.segments())?;
    make_dir(&layout.consumers())?;
    RealDisk.sync_dir(&layout.dir)?;
    let mut firsts = layout.list()?;
    let (mark, durable) = open_mark(layout, firsts.is_empty())?;
    let mut state = State {
        identity,
        created,
        cut_bytes: 0,
        position: durable,
        last_us: 0,
        kept: VecDeque::new(),
        mark,
    };
    while let Some(first) = firsts.last().copied() {
        if let Some(last) = last_segment(layout, first, &mut state)? {
            state.kept.push_front(last);
            break;
        }
        firsts.pop();
    }
    for at in (1..firsts.len()).rev() {
        let (first, end) = (firsts[at - 1], firsts[at]);
        state.kept.push_front(Kept {
            first,
            end,
            bytes: bytes_of(&layout.segment(first)),
        });
    }
    remove_orphans(layout)?;
    RealDisk.sync_dir(&layout.segments())?;
    publish(&state, layout)?;
    Ok(state)
}

/// The bytes of a segment and its index.
pub(crate) fn bytes_of(segment: &Path) -> u64 {
    let len = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    len(segment) + len(&index_of(segment))
}

/// Ends a segment: the end of the Arrow stream, and the footer in the index.
pub(crate) fn write_footer(
    disk: &mut dyn Disk,
    path: &Path,
    (segment, index): (&File, &File),
    footer: &Entry,
) -> Result<(), SpoolError> {
    disk.write(segment, path, &[&END_OF_STREAM])?;
    disk.sync(segment, path)?;
    let index_path = index_of(path);
    disk.write(index, &index_path, &[&footer.encode()])?;
    disk.sync(index, &index_path)
}

fn open_mark(layout: &Layout, empty: bool) -> Result<(File, u64), SpoolError> {
    let path = layout.durable();
    let new = !path.exists();
    if new && !empty {
        return Err(SpoolError::corrupt(&path, "the durable mark is missing"));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| SpoolError::io("open", &path, error))?;
    let unwritten = file.metadata().map_or(0, |meta| meta.len()) == 0;
    let durable = if unwritten && empty {
        0
    } else {
        DurableMark::read(&file, &path)?
    };
    RealDisk.sync_dir(&layout.dir)?;
    Ok((file, durable))
}

fn publish(state: &State, layout: &Layout) -> Result<(), SpoolError> {
    let path = layout.durable();
    for turn in 0..2 {
        let (slot, at) = DurableMark::encode(turn, state.position);
        RealDisk.publish(&state.mark, &path, &slot, at)?;
    }
    RealDisk.sync(&state.mark, &path)
}

/// Cuts the last segment to what is sound and ends it; `None` when it held nothing and is gone.
fn last_segment(
    layout: &Layout,
    first: u64,
    state: &mut State,
) -> Result<Option<Kept>, SpoolError> {
    let path = layout.segment(first);
    let sound = examine(&path, first, &state.identity)?;
    let end = sound.entries.last().map_or(first, Entry::end);
    if end < state.position {
        let detail = format!(
            "sound data ends at position {end}, but everything below {} was durable{}",
            state.position,
            sound
                .why
                .as_ref()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default()
        );
        return Err(SpoolError::corrupt(&path, detail));
    }
    state.last_us = state.last_us.max(sound.last_us);
    state.cut_bytes += sound.cut_bytes;
    let Some(last) = sound.entries.last() else {
        state.position = first;
        publish(state, layout)?;
        for path in [path.clone(), index_of(&path)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(SpoolError::io("remove", &path, error));
                }
                _ => {}
            }
        }
        return Ok(None);
    };
    state.position = end;
    if !sound.ended {
        let count = sound.entries.iter().map(|entry| entry.count).sum();
        let footer = Entry {
            kind: Kind::Footer,
            blocks: sound.entries.iter().map(|entry| entry.blocks).sum(),
            offset: last.byte_end(),
            length: 8,
            crc: crc32c::crc32c(&END_OF_STREAM),
            first,
            count,
            time_us: sound.last_us,
            inflated: sound.entries.iter().map(|entry| entry.inflated).sum(),
        };
        let index_end = (HEADER_BYTES + sound.entries.len() * ENTRY_BYTES) as u64;
        let segment = cut(&path, last.byte_end())?;
        let index = cut(&index_of(&path), index_end)?;
        write_footer(&mut RealDisk, &path, (&segment, &index), &footer)?;
    }
    Ok(Some(Kept {
        first,
        end,
        bytes: bytes_of(&path),
    }))
}

fn cut(path: &Path, len: u64) -> Result<File, SpoolError> {
    let open = OpenOptions::new().append(true).open(path);
    let file = open.map_err(|error| SpoolError::io("open", path, error))?;
    file.set_len(len)
        .and_then(|()| file.sync_all())
        .map_err(|error| SpoolError::io("cut", path, error))?;
    Ok(file)
}

#[derive(Debug, Default)]
struct Sound {
    entries: Vec<Entry>,
    ended: bool,
    last_us: i64,
    cut_bytes: u64,
    /// Why the first unsound group is not sound.
    why: Option<String>,
}

/// Walks the index of a segment and checks each group.
fn examine(path: &Path, first: u64, identity: &Identity) -> Result<Sound, SpoolError> {
    let index_path = index_of(path);
    let read = |path: &Path| match fs::read(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(SpoolError::io("read", path, error))
        }
        read => Ok(read.unwrap_or_default()),
    };
    let index = read(&index_path)?;
    let file = File::open(path).map_err(|error| SpoolError::io("open", path, error))?;
    let segment_len = file.metadata().map_or(0, |meta| meta.len());
    let mut sound = Sound::default();
    let header = IndexHeader::check(index.get(..HEADER_BYTES).unwrap_or_default(), &index_path);
    let header = match header {
        Ok(header) => header,
        Err(error @ SpoolError::Format { .. }) => return Err(error),
        Err(error) => {
            // A creation that was cut short: nothing in it was ever durable.
            sound.why = Some(error.to_string());
            sound.cut_bytes = segment_len + index.len() as u64;
            return Ok(sound);
        }
    };
    if header.uuid != identity.uuid {
        let (expected, found) = (identity.uuid.clone(), header.uuid);
        return Err(SpoolError::Replaced {
            path: index_path,
            expected,
            found,
        });
    }
    sound.last_us = header.first_time_us;
    let mut index_end = HEADER_BYTES as u64;
    let mut segment_end = None;
    let mut next = first;
    let mut buffer = Vec::new();
    for bytes in index[HEADER_BYTES..].chunks(ENTRY_BYTES) {
        let Some(entry) = Entry::decode(bytes) else {
            sound.why = Some("an entry of the index is not sound".to_owned());
            break;
        };
        let follows = segment_end.is_none_or(|end| end == entry.offset);
        if entry.kind == Kind::Footer {
            let mut marker = END_OF_STREAM;
            sound.ended = follows && file.read_exact_at(&mut marker, entry.offset).is_ok();
            sound.ended &= marker == END_OF_STREAM && entry.end() == next;
            if sound.ended {
                index_end += ENTRY_BYTES as u64;
                segment_end = Some(entry.byte_end());
            }
            break;
        }
        if !follows || entry.first != next {
            sound.why = Some("an entry of the index does not follow the one before".to_owned());
            break;
        }
        match Group::read(&file, path, &entry, buffer) {
            Ok(group) => {
                let last = group.blocks().map(|block| block.received_at_us).max();
                sound.last_us = sound.last_us.max(last.unwrap_or(0));
                buffer = group.into_buffer();
            }
            Err(SpoolError::Corrupt { detail, .. }) => {
                sound.why = Some(detail);
                break;
            }
            Err(error) => return Err(error),
        }
        next = entry.end();
        index_end += ENTRY_BYTES as u64;
        segment_end = Some(entry.byte_end());
        sound.entries.push(entry);
    }
    let begin = crate::segment::Encoder::new(&header).map_or(0, |(_, begin)| begin.len() as u64);
    let segment_end = segment_end.unwrap_or(begin);
    sound.cut_bytes =
        segment_len.saturating_sub(segment_end) + (index.len() as u64).saturating_sub(index_end);
    // What follows a footer was never written by a spool: end the segment anew.
    sound.ended &= sound.cut_bytes == 0;
    Ok(sound)
}

/// Removes indexes whose segment is gone: a retirement or a creation that was cut short.
fn remove_orphans(layout: &Layout) -> Result<(), SpoolError> {
    let dir = layout.segments();
    let entries = fs::read_dir(&dir).map_err(|error| SpoolError::io("list", &dir, error))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let orphan = path.extension().is_some_and(|extension| extension == "idx")
            && !path.with_extension("arrows").exists();
        if orphan {
            fs::remove_file(&path).map_err(|error| SpoolError::io("remove", &path, error))?;
        }
    }
    Ok(())
}
