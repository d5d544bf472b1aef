//! Opening a spool for writing: creates it, or finds the end of what is sound and cuts the rest.
//!
//! Only the last segment can have a torn tail: an earlier one counts up to the first position of the
//! next one, whatever else a failed write left in it. A tail is cut also where positions in it had been
//! published (a disk that lost what it had said was written): they are told as lost and never given out
//! again. Damage with something sound behind it is no tail: then nothing is cut and nothing opened.

use std::{
    collections::VecDeque,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::{
    SpoolError,
    consumers::{self, replace},
    disk::Disk,
    examine::{Sound, examine},
    format::{
        DurableMark, ENTRY_BYTES, Entry, HEADER_BYTES, Identity, Kind, Layout, index_of, now_us,
        us_since_1970,
    },
    key,
    rights::{self, make_dir},
    segment::END_OF_STREAM,
};

/// A segment that is no longer written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Of segment and index.
    pub(crate) bytes: u64,
    /// When its last block was received; a little later where it has no footer.
    pub(crate) last_us: i64,
}

/// A range of positions whose events were acknowledged and did not survive: the disk lost what it had
/// said was written. They are never given out again; who reads them gets `spool.gap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first lost position.
    pub from: u64,
    /// The position after the last lost one.
    pub to: u64,
}

/// What was found, and where to go on.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) created: bool,
    pub(crate) cut_bytes: u64,
    pub(crate) position: u64,
    pub(crate) lost: Option<Lost>,
    /// Groups at or above this position do not count: the position was given to something lost.
    below: u64,
    pub(crate) last_us: i64,
    pub(crate) kept: VecDeque<Kept>,
    pub(crate) mark: File,
}

/// Creates the directory if need be, so that it can be locked.
pub(crate) fn prepare(disk: &mut dyn Disk, layout: &Layout) -> Result<(), SpoolError> {
    let dir = &layout.dir;
    if !dir.exists() {
        make_dir(disk, dir, layout)?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        disk.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    if layout.identity().exists() {
        return rights::check(layout);
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
    rights::take_over(layout)
}

/// Recovers the spool. The lock is held.
pub(crate) fn recover(disk: &mut dyn Disk, layout: &Layout) -> Result<State, SpoolError> {
    let path = layout.identity();
    let found = Identity::read(&path)?;
    let created = found.is_none();
    let identity = if let Some(identity) = found {
        identity
    } else {
        let new = Identity::random().map_err(|error| SpoolError::io("create", &path, error))?;
        let temporary = path.with_extension("json.tmp");
        replace(disk, layout, &path, &temporary, &new.encode())?;
        new
    };
    make_dir(disk, &layout.segments(), layout)?;
    make_dir(disk, &layout.consumers(), layout)?;
    disk.sync_dir(&layout.dir)?;
    let mut firsts = layout.list()?;
    let (mark, durable) = open_mark(disk, layout, firsts.last().copied())?;
    let mut state = State {
        identity,
        created,
        cut_bytes: 0,
        position: durable,
        lost: None,
        below: u64::MAX,
        last_us: 0,
        kept: VecDeque::new(),
        mark,
    };
    while let Some(first) = firsts.last().copied() {
        if let Some(last) = last_segment(disk, layout, first, &mut state)? {
            state.kept.push_front(last);
            break;
        }
        firsts.pop();
    }
    for at in (1..firsts.len()).rev() {
        let (first, end) = (firsts[at - 1], firsts[at]);
        let path = layout.segment(first);
        state.kept.push_front(Kept {
            first,
            end,
            bytes: bytes_of(&path),
            last_us: last_time(&path),
        });
    }
    beyond_marks(layout, &mut state)?;
    remove_orphans(disk, layout)?;
    disk.sync_dir(&layout.segments())?;
    publish(disk, &state, layout)?;
    key::ensure(disk, layout)?;
    Ok(state)
}

/// Goes on above every consumer's mark: what it counts as done was durable once, and its positions must
/// not be given to other events.
fn beyond_marks(layout: &Layout, state: &mut State) -> Result<(), SpoolError> {
    let mut highest = 0;
    for name in consumers::names(layout, consumers::MARK)? {
        match consumers::read(layout, &name) {
            Ok(Some(mark)) if state.identity.knows(&mark.uuid) => {
                highest = highest.max(mark.committed);
            }
            Ok(_) => {}
            // Who holds the spool back is not known then; what arrives is kept all the same.
            Err(error) => {
                tracing::error!(code = "consumer.unreadable", consumer = name, %error,
                    "a consumer's mark cannot be read");
            }
        }
    }
    if highest <= state.position {
        return Ok(());
    }
    let from = state.lost.map_or(state.position, |lost| lost.from);
    state.lost = Some(Lost { from, to: highest });
    state.position = highest;
    Ok(())
}

/// The bytes of a segment and its index.
pub(crate) fn bytes_of(segment: &Path) -> u64 {
    let len = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    len(segment) + len(&index_of(segment))
}

/// The time of the last entry of a segment's index; without one, that of the file.
fn last_time(segment: &Path) -> i64 {
    let path = index_of(segment);
    let last = || {
        let file = File::open(&path).ok()?;
        let entries = file
            .metadata()
            .ok()?
            .len()
            .checked_sub(HEADER_BYTES as u64)?
            / ENTRY_BYTES as u64;
        let mut bytes = [0; ENTRY_BYTES];
        let at = HEADER_BYTES as u64 + entries.checked_sub(1)? * ENTRY_BYTES as u64;
        file.read_exact_at(&mut bytes, at).ok()?;
        Entry::decode(&bytes).map(|entry| entry.time_us)
    };
    last().unwrap_or_else(|| {
        let written = fs::metadata(&path).and_then(|meta| meta.modified());
        written.map_or_else(|_| now_us(), us_since_1970)
    })
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

/// The durable mark and what it says. `last` is the first position of the last segment.
fn open_mark(
    disk: &mut dyn Disk,
    layout: &Layout,
    last: Option<u64>,
) -> Result<(File, u64), SpoolError> {
    let path = layout.durable();
    if !path.exists() {
        if last.is_some() {
            return Err(SpoolError::corrupt(&path, "the durable mark is missing"));
        }
        // Whole from the beginning: a mark of which nothing is sound is damage then.
        let slots = [0, 1].map(|turn| DurableMark::encode(turn, 0).0).concat();
        replace(disk, layout, &path, &path.with_extension("tmp"), &slots)?;
    }
    let file = disk.open(&path)?;
    let unwritten = file.metadata().map_or(0, |meta| meta.len()) == 0;
    let durable = match (DurableMark::read(&file, &path), last) {
        (Ok(durable), _) => durable,
        (Err(_), None) if unwritten => 0,
        (Err(SpoolError::Corrupt { .. }), Some(last)) => {
            tracing::error!(code = "spool.mark_rebuilt", dir = %layout.dir.display(), from = last,
                "neither slot of the durable mark is sound: it is rebuilt from the last segment, whose sound \
                 groups all count; what the disk may have lost behind them cannot be told");
            last
        }
        (Err(SpoolError::Corrupt { path, detail }), None) => {
            let detail = format!(
                "{detail}, and there is no segment to rebuild it from; the spool holds no events: move it \
                 away and begin a new one"
            );
            return Err(SpoolError::Corrupt { path, detail });
        }
        (Err(error), _) => return Err(error),
    };
    disk.sync_dir(&layout.dir)?;
    Ok((file, durable))
}

fn publish(disk: &mut dyn Disk, state: &State, layout: &Layout) -> Result<(), SpoolError> {
    let path = layout.durable();
    for turn in 0..2 {
        let (slot, at) = DurableMark::encode(turn, state.position);
        disk.publish(&state.mark, &path, &slot, at)?;
        // Whatever happens to one of them, the other one is sound.
        disk.sync(&state.mark, &path)?;
    }
    Ok(())
}

/// Cuts the last segment to what is sound and ends it; `None` when it held nothing and is gone.
fn last_segment(
    disk: &mut dyn Disk,
    layout: &Layout,
    first: u64,
    state: &mut State,
) -> Result<Option<Kept>, SpoolError> {
    let path = layout.segment(first);
    let sound = examine(&path, first, state.below, &state.identity)?;
    let end = sound.entries.last().map_or(first, Entry::end);
    if sound.followed || (!sound.header && first < state.position) {
        return Err(unmendable(&path, end, &sound, state));
    }
    state.last_us = state.last_us.max(sound.last_us);
    state.cut_bytes += sound.cut_bytes;
    state.position = state.position.max(sound.claimed).max(end);
    if end < state.position {
        // The positions are never given out again, whatever happens to this process.
        publish(disk, state, layout)?;
        state.lost = Some(Lost {
            from: end,
            to: state.position,
        });
        state.below = first;
    }
    if sound.entries.is_empty() {
        publish(disk, state, layout)?;
        remove_pair(disk, &path)?;
        return Ok(None);
    }
    if !sound.ended {
        end_anew(disk, &path, first, &sound)?;
    }
    Ok(Some(Kept {
        first,
        end,
        bytes: bytes_of(&path),
        last_us: sound.last_us,
    }))
}

/// Why a spool is not opened, and what helps.
fn unmendable(path: &Path, end: u64, sound: &Sound, state: &State) -> SpoolError {
    let why = sound.why.as_deref().unwrap_or("damaged");
    let why = why.trim_end_matches('.');
    let detail = format!(
        "sound data ends at position {end}, but everything below {} was durable ({why}); this is no torn \
         tail and nothing was cut: restore the file, or move it and its .idx out of the spool to go on at \
         position {} without its events",
        state.position.max(sound.claimed),
        state.position.max(sound.claimed),
    );
    SpoolError::corrupt(path, detail)
}

/// Cuts both files of a segment behind the last sound group and ends it.
fn end_anew(disk: &mut dyn Disk, path: &Path, first: u64, sound: &Sound) -> Result<(), SpoolError> {
    let entries = &sound.entries;
    let byte_end = entries.last().map_or(0, Entry::byte_end);
    let footer = Entry {
        kind: Kind::Footer,
        blocks: entries.iter().map(|entry| entry.blocks).sum(),
        offset: byte_end,
        length: 8,
        crc: crc32c::crc32c(&END_OF_STREAM),
        first,
        count: entries.iter().map(|entry| entry.count).sum(),
        time_us: sound.last_us,
        inflated: entries.iter().map(|entry| entry.inflated).sum(),
    };
    let index_end = (HEADER_BYTES + entries.len() * ENTRY_BYTES) as u64;
    let segment = disk.cut(path, byte_end)?;
    disk.sync(&segment, path)?;
    let index = disk.cut(&index_of(path), index_end)?;
    disk.sync(&index, &index_of(path))?;
    write_footer(disk, path, (&segment, &index), &footer)
}

/// Removes a segment and its index, as far as they are there.
pub(crate) fn remove_pair(disk: &mut dyn Disk, segment: &Path) -> Result<(), SpoolError> {
    disk.remove(segment)?;
    disk.remove(&index_of(segment)).map(drop)
}

/// Removes indexes whose segment is gone: a retirement or a creation that was cut short.
fn remove_orphans(disk: &mut dyn Disk, layout: &Layout) -> Result<(), SpoolError> {
    let dir = layout.segments();
    let entries = fs::read_dir(&dir).map_err(|error| SpoolError::io("list", &dir, error))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let orphan = path.extension().is_some_and(|extension| extension == "idx")
            && !path.with_extension("arrows").exists();
        if orphan {
            disk.remove(&path)?;
        }
    }
    Ok(())
}
