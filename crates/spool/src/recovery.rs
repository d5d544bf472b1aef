//! Opening a spool for writing: creates it, or finds the end of its sound groups and continues
//! after them.
//!
//! Only the last segment can have a torn tail: an earlier one counts up to the first position of
//! the next one; further bytes that a failed write left in it do not count. A tail is also cut if
//! positions in it had been published (a disk that lost acknowledged writes): they are reported as
//! lost and never given out again. Damage before a sound group is a hole: it is noted, and the
//! groups around it stay.
//!
//! Being readable proves nothing: the last group may exist in the page cache alone, since a failed
//! sync leaves it there. So it is rewritten, synced and renamed into its place before anything
//! after it is acknowledged.

mod durable_mark;

use std::{collections::VecDeque, fs::File, path::Path, sync::Arc};

use crate::{
    Access, Recovered, SpoolError,
    catalog::Kept,
    clock::now_us,
    consumers,
    disk::{Disk, Name},
    examine::{Bounds, Examined, examine},
    folder::{CONSUMERS, Dir, Folder, IDENTITY, LOCK, LOSSES, SEGMENTS, TEMPORARY},
    format::Identity,
    index::{self, INDEX, Index, index_name, position_in, segment_name},
    key,
    lock::Lock,
    losses::{self, Loss, LossWhy},
    mark::Mark,
    migrate,
    retention::last_of,
    rewrite, rights,
    start::Start,
    watch::Watch,
};
pub(crate) use durable_mark::publish;
use durable_mark::{open_mark, raise};

/// A range of positions whose events were acknowledged and did not survive: the disk lost
/// acknowledged writes. They are never given out again; a reader of them gets `spool.gap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first lost position.
    pub from: u64,
    /// The position after the last lost one.
    pub to: u64,
}

/// The state of a spool, as recovery found or made it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) recovered: Recovered,
    /// Holes found now: positions without a sound group, before a sound one.
    pub(crate) losses: Vec<Loss>,
    /// Groups at or above this position do not count: the position was given to a lost event.
    below: u64,
    pub(crate) last_us: i64,
    pub(crate) kept: VecDeque<Kept>,
    pub(crate) mark: File,
    /// The durable mark with the epoch of this writer.
    pub(crate) published: Mark,
    pub(crate) watch: Watch,
    /// The epoch before this writer's.
    former_epoch: u64,
    start: u64,
}

/// Opens the folder of a spool, and makes it if it is missing.
pub(crate) fn prepare(
    dir: &Path,
    access: Access,
    disk: Arc<dyn Disk>,
) -> Result<Folder, SpoolError> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !dir.exists() {
        let above = Dir::open(parent)?;
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let was_missing = disk.make_dir(&above, &name, access.dir_mode())?;
        disk.sync_dir(&above)?;
        let folder = Folder::open(dir, access, disk)?;
        if was_missing {
            rights::settle_root(&folder, parent)?;
        }
        return Ok(folder);
    }
    let folder = Folder::open(dir, access, disk)?;
    if folder.root().has(IDENTITY)? {
        rights::check(&folder)?;
        return Ok(folder);
    }
    for name in folder.root().names()? {
        // The remains of an interrupted creation.
        if name != LOCK && !name.ends_with(TEMPORARY) {
            let mut detail = format!("it has no spool.json, but holds {name}");
            if folder.root().has(SEGMENTS)? {
                detail += "; if it was a spool, `ackline spool mend` makes that file anew";
            }
            return Err(SpoolError::not_a_spool(dir, detail));
        }
    }
    rights::take_over(&folder)?;
    // The process that made it may have ended before its name was on the disk.
    if let Ok(above) = Dir::open(parent) {
        folder.disk().sync_dir(&above)?;
    }
    Ok(folder)
}

/// Recovers the spool. The caller holds the lock.
pub(crate) fn recover(folder: &Folder) -> Result<State, SpoolError> {
    let found = Identity::read(folder)?;
    let created = found.is_none();
    let mut identity = match found {
        Some(identity) => identity,
        None => Identity::random()
            .map_err(|error| SpoolError::io("create", &folder.root().join(IDENTITY), error))?,
    };
    if created {
        identity.write(folder)?;
    }
    folder.make_dir(SEGMENTS)?;
    folder.make_dir(CONSUMERS)?;
    folder.disk().sync_dir(folder.root())?;
    remove_temporary(folder)?;
    migrate::identity(folder, &mut identity)?;
    let mut state = begin(folder, identity, created)?;
    // From here on an older writer finds that it has been replaced; nothing is read before that.
    raise(folder, &mut state)?;
    look_again(folder, &mut state)?;
    recover_raised(folder, &mut state)?;
    Ok(state)
}

/// Includes the changes that an older writer made before it could find that it has been replaced.
fn look_again(folder: &Folder, state: &mut State) -> Result<(), SpoolError> {
    // Positions that are noted as lost are never given out again.
    for loss in losses::known(folder)? {
        state.recovered.position = state.recovered.position.max(loss.to);
    }
    if let Ok(Some(start)) = Start::read(folder)
        && state.identity.knows(&start.uuid)
    {
        state.recovered.position = state.recovered.position.max(start.position);
        state.start = state.start.max(start.first);
    }
    Ok(())
}

fn recover_raised(folder: &Folder, state: &mut State) -> Result<(), SpoolError> {
    let mut firsts = index::list(folder)?;
    remove_below_start(folder, state, &mut firsts)?;
    let orphans = sort_orphans(folder, state, &firsts)?;
    while let Some(first) = firsts.last().copied() {
        if last_segment(folder, first, state)? {
            break;
        }
        firsts.pop();
    }
    firsts.retain(|first| state.kept.front().is_none_or(|last| *first < last.first));
    let mut end = state
        .kept
        .front()
        .map_or(state.recovered.position, |last| last.first);
    let last = end;
    for first in firsts.into_iter().rev() {
        // An interrupted recovery may have left the one before the last as it found it.
        let kept = earlier_segment(folder, first, end, state, end == last)?;
        state.kept.push_front(kept);
        end = first;
    }
    consumers::check_marks(
        folder,
        &state.identity,
        state.recovered.position,
        state.former_epoch,
    )?;
    migrate::gaps(folder, state)?;
    renew_losses(folder)?;
    losses::add(folder, &state.identity.uuid, &state.losses)?;
    folder.disk().sync_dir(folder.segments()?)?;
    state.published.position = state.recovered.position;
    publish(folder, state)?;
    // Their positions are noted and published: the files that name them may go.
    for name in orphans {
        set_aside(folder, &name)?;
    }
    write_start(folder, state)?;
    migrate::old_slots(folder, state)?;
    key::ensure(folder)
}

/// Writes the first kept position, which an older writer's retention may have moved meanwhile.
fn write_start(folder: &Folder, state: &State) -> Result<(), SpoolError> {
    let _lock = Lock::marks(folder)?;
    let known = Start::read(folder).ok().flatten();
    let known = known.filter(|start| state.identity.knows(&start.uuid));
    let moved = known.map_or(0, |start| start.first);
    let start = Start {
        uuid: state.identity.uuid.clone(),
        first: state.start.max(moved).min(state.recovered.position),
        position: state.recovered.position,
        epoch: state.published.epoch,
        watched_us: state.published.watched_us,
    };
    start.write(folder)
}

/// Reads position, epoch and time from the small files.
fn begin(folder: &Folder, identity: Identity, created: bool) -> Result<State, SpoolError> {
    let firsts = index::list(folder)?;
    let start = Start::read_of(folder, &identity.uuid, |uuid| identity.knows(uuid));
    let start = match start {
        Err(error @ (SpoolError::Corrupt { .. } | SpoolError::Replaced { .. })) => {
            tracing::error!(code = "spool.start_rebuilt", dir = %folder.dir().display(), %error,
                "where the spool begins cannot be read: it begins with its first segment");
            None
        }
        read => read?,
    };
    let (file, found) = open_mark(folder, start.as_ref(), &firsts)?;
    let position = found
        .position
        .max(start.as_ref().map_or(0, |start| start.position));
    // The epoch of the last writer that got this far: a refused one has raised the mark's alone.
    let epoch = start.as_ref().map_or(found.epoch, |start| start.epoch);
    let watched_us = found
        .watched_us
        .max(start.as_ref().map_or(0, |start| start.watched_us));
    let first = firsts.first().copied();
    Ok(State {
        identity,
        recovered: Recovered {
            created,
            cut_bytes: 0,
            position,
            lost: None,
        },
        losses: Vec::new(),
        below: u64::MAX,
        last_us: 0,
        kept: VecDeque::new(),
        mark: file,
        published: found,
        watch: Watch::begin(watched_us, folder.disk().now_us()),
        former_epoch: epoch,
        start: start.map_or_else(|| first.unwrap_or(position), |start| start.first),
    })
}

/// Removes the rest of retention's work: segments whose positions all lie below the start.
fn remove_below_start(
    folder: &Folder,
    state: &State,
    firsts: &mut Vec<u64>,
) -> Result<(), SpoolError> {
    // The end of the last segment is in its index alone; the start is never inside a segment.
    let gone = firsts.partition_point(|first| *first < state.start);
    firsts
        .drain(..gone)
        .try_for_each(|first| remove_pair(folder, first))
}

/// Handles indexes without a segment. An index that names events shows that their segment was
/// removed by hand. Returns their names: they are removed when their positions are noted.
fn sort_orphans(
    folder: &Folder,
    state: &mut State,
    firsts: &[u64],
) -> Result<Vec<String>, SpoolError> {
    let dir = folder.segments()?;
    let mut orphans = Vec::new();
    for name in dir.names()? {
        let Some(first) = position_in(&name, INDEX) else {
            continue;
        };
        if firsts.binary_search(&first).is_ok() || dir.has(&segment_name(first))? {
            continue;
        }
        let end = match Index::open(dir, first) {
            Ok(index) => end_of(&index)?,
            Err(SpoolError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        match end {
            Some(end) if first >= state.start => {
                let next = firsts.get(firsts.partition_point(|other| *other < first));
                let to = next.map_or(end, |next| end.min(*next));
                state.recovered.position = state.recovered.position.max(end);
                state.losses.push(Loss::new(first, to, LossWhy::Removed));
                tracing::error!(code = "spool.lost", dir = %folder.dir().display(), from = first, to,
                    "a segment was removed by hand: its index is left and names these positions");
                orphans.push(name);
            }
            // An interrupted retirement or creation.
            _ => {
                folder.disk().remove(dir, &name)?;
            }
        }
    }
    Ok(orphans)
}

/// The position after the last sound group that an index names.
fn end_of(index: &Index) -> Result<Option<u64>, SpoolError> {
    let mut at = index.len();
    while let Some(before) = at.checked_sub(1) {
        if let Some(entry) = index.entry(before)? {
            return Ok(Some(entry.end()));
        }
        at = before;
    }
    Ok(None)
}

/// Moves a segment's or an index's file to `lost+found`.
pub(crate) fn set_aside(folder: &Folder, name: &str) -> Result<(), SpoolError> {
    let kept = folder.lost_found()?;
    let mut to = name.to_owned();
    let mut number = 1;
    while kept.has(&to)? {
        number += 1;
        to = format!("{name}.{number}");
    }
    folder.relocate(Name::new(folder.segments()?, name), Name::new(&kept, &to))
}

/// Moves those of a segment's two files that exist to `lost+found`.
pub(crate) fn set_pair_aside(folder: &Folder, first: u64) -> Result<(), SpoolError> {
    for name in [segment_name(first), index_name(first)] {
        if folder.segments()?.has(&name)? {
            set_aside(folder, &name)?;
        }
    }
    Ok(())
}

/// Moves a damaged list of losses away, so that the next one is whole.
fn renew_losses(folder: &Folder) -> Result<(), SpoolError> {
    let Err(SpoolError::Corrupt { .. }) = losses::read(folder) else {
        return Ok(());
    };
    let to = format!("{LOSSES}.{}", now_us());
    folder.relocate(
        Name::new(folder.root(), LOSSES),
        Name::new(&folder.lost_found()?, &to),
    )
}

/// Cuts the last segment to its sound groups. Returns whether there were any; an empty segment is
/// removed.
fn last_segment(folder: &Folder, first: u64, state: &mut State) -> Result<bool, SpoolError> {
    let dir = folder.segments()?;
    rights::check_name(dir, &segment_name(first), folder)?;
    rights::check_name(dir, &index_name(first), folder)?;
    let bounds = Bounds {
        below: state.below,
        durable: state.recovered.position,
    };
    let found = examine(folder, first, bounds, &state.identity)?;
    let end = found.end();
    state.last_us = state.last_us.max(found.last_us);
    state.recovered.cut_bytes += found.tail_bytes;
    state.recovered.position = state.recovered.position.max(found.claimed).max(end);
    if let Some(entry) = found.groups.last().map(|group| group.entry) {
        let before_us = entry.watched_us.max(state.watch.watched_us());
        state.watch = Watch::begin(before_us, folder.disk().now_us());
    }
    for (from, to) in found.holes() {
        tracing::error!(code = "spool.corrupt_group", path = %found.path.display(), from, to,
            "events are damaged; those before and after them stay");
        state.losses.push(Loss::new(from, to, LossWhy::Corrupt));
    }
    // A segment that never held an event, such as a stray file, says nothing about those before it.
    let held_none = found.groups.is_empty() && found.claimed == first;
    if end < state.recovered.position && !held_none {
        // The positions are never given out again, even if this process dies now.
        state.published.position = state.recovered.position;
        publish(folder, state)?;
        state.recovered.lost = Some(Lost {
            from: end,
            to: state.recovered.position,
        });
        state
            .losses
            .push(Loss::new(end, state.recovered.position, LossWhy::Lost));
        state.below = first;
    }
    // Before anything is cut: the record of these positions may be cut with it.
    losses::add(folder, &state.identity.uuid, &state.losses)?;
    if found.groups.is_empty() {
        leave_empty(folder, first, &found, state)?;
        return Ok(false);
    }
    let mut kept = if found.is_ended {
        // Its footer may exist in the page cache alone. If it is half written to the disk, and
        // damages the entries next to it, the groups are found by their seals.
        vec![whole(folder, first, &found)?]
    } else {
        rewrite::anew(folder, &found)?
    };
    while let Some(last) = kept.pop() {
        state.kept.push_front(last);
    }
    Ok(true)
}

/// Removes a segment that never held an event. One that may have held events is moved to
/// `lost+found`.
fn leave_empty(
    folder: &Folder,
    first: u64,
    found: &Examined,
    state: &mut State,
) -> Result<(), SpoolError> {
    state.published.position = state.recovered.position;
    publish(folder, state)?;
    let held_none = first >= state.recovered.position && found.index_fault.is_none();
    if found.claimed == first && (held_none || found.len <= found.begin) {
        return remove_pair(folder, first);
    }
    tracing::error!(code = "spool.set_aside", path = %found.path.display(), bytes = found.len,
        "no group of a segment is sound: the rest of it is kept in lost+found");
    set_pair_aside(folder, first)
}

/// A segment before the last one: its index is rebuilt if it is missing, and next to the last one
/// also if it is damaged.
fn earlier_segment(
    folder: &Folder,
    first: u64,
    end: u64,
    state: &State,
    is_next_to_last: bool,
) -> Result<Kept, SpoolError> {
    let dir = folder.segments()?;
    let (segment, name) = (segment_name(first), index_name(first));
    rights::check_name(dir, &segment, folder)?;
    rights::check_name(dir, &name, folder)?;
    let mut last = None;
    let is_missing = !dir.has(&name)?;
    if is_missing || (is_next_to_last && !index_reaches(folder, first, end)?) {
        let bounds = Bounds {
            below: end,
            durable: end,
        };
        let found = examine(folder, first, bounds, &state.identity)?;
        if found.groups.is_empty() {
            return Err(SpoolError::Unplaced {
                dir: folder.dir().to_owned(),
                path: found.path,
                detail: "its index is missing or damaged and no sound group is found in it"
                    .to_owned(),
            });
        }
        rewrite::index(folder, &found)?;
        last = last_of(folder, first);
    }
    let len = |name: &str| -> Result<u64, SpoolError> { Ok(dir.look(name)?.map_or(0, |s| s.len)) };
    Ok(Kept {
        first,
        end,
        bytes: len(&segment)? + len(&name)?,
        last,
    })
}

/// Whether each entry of an index up to this position is sound.
fn index_reaches(folder: &Folder, first: u64, end: u64) -> Result<bool, SpoolError> {
    let index = match Index::open(folder.segments()?, first) {
        Err(SpoolError::Corrupt { .. }) => return Ok(false),
        index => index?,
    };
    for number in 0..index.len() {
        match index.entry(number)? {
            None => return Ok(false),
            Some(entry) if entry.end() >= end => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

fn whole(folder: &Folder, first: u64, found: &Examined) -> Result<Kept, SpoolError> {
    let dir = folder.segments()?;
    let index = dir.look(&index_name(first))?.map_or(0, |seen| seen.len);
    Ok(Kept {
        first,
        end: found.end(),
        bytes: found.len + index,
        last: last_of(folder, first),
    })
}

/// Removes a segment without an acknowledged event, and its index, if they exist. Nothing is
/// synced: if one of them comes back, the next start removes it again.
pub(crate) fn remove_pair(folder: &Folder, first: u64) -> Result<(), SpoolError> {
    let (dir, disk) = (folder.segments()?, folder.disk());
    disk.remove(dir, &segment_name(first))?;
    disk.remove(dir, &index_name(first)).map(drop)
}

/// Removes temporary files of processes that have ended.
fn remove_temporary(folder: &Folder) -> Result<(), SpoolError> {
    for dir in [folder.root(), folder.consumers()?, folder.segments()?] {
        for name in dir.names()? {
            let Some(stem) = name.strip_suffix(TEMPORARY) else {
                continue;
            };
            let pid = stem
                .rsplit('.')
                .next()
                .and_then(|pid| pid.parse::<u32>().ok());
            let own = std::process::id();
            let is_left = |pid: u32| pid == own || !Path::new(&format!("/proc/{pid}")).exists();
            let seen = dir.look(&name)?;
            let age_s = seen.map_or(0, |seen| now_us() / 1_000_000 - seen.modified_s);
            if pid.is_none_or(is_left) || age_s > OLD_S {
                folder.disk().remove(dir, &name)?;
            }
        }
    }
    Ok(())
}

/// No process takes so long to replace a small file, in seconds.
const OLD_S: i64 = 600;
