//! Mending a spool that recovery refuses, or that is damaged: reports the steps, takes them, and
//! keeps the parts that it cuts in `DIR/lost+found`. A sound group is never touched.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Access, SpoolError,
    clock::now_us,
    consumers,
    disk::{Name, RealDisk},
    examine::{Bounds, Examined, examine},
    folder::{CONSUMERS, Folder, IDENTITY, LOSSES, MARK, SEGMENTS, START},
    format::{FORMAT, Identity},
    index::{self, INDEX, Index, position_in, segment_name},
    lock::Lock,
    losses::{self, Loss, LossWhy},
    mark::Mark,
    recovery, rewrite, rights,
    start::{self, Start},
};

/// The steps that mending took, or would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// Each step, in order.
    pub steps: Vec<Step>,
    /// The position that the next event gets.
    pub position: u64,
}

/// One step of mending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `file_rebuilt`, `index_rebuilt`, `group_cut_out`, `tail_cut`, `segment_set_aside`, `mark_set_aside`, `loss_noted`,
    /// `position_raised`.
    pub what: &'static str,
    /// The file that it changes.
    pub path: PathBuf,
    /// The first position that it affects, if any.
    pub from: Option<u64>,
    /// The position after the last one.
    pub to: Option<u64>,
    /// The reason for it.
    pub why: String,
}

/// Mends the spool in `dir`; with `dry_run` it changes nothing and reports the steps.
///
/// # Errors
/// `spool.locked` while a writer has it, `spool.restored` of a copy from a backup (`adopt` is the cure),
/// `spool.not_a_spool`, `spool.rights`, `spool.format`, `spool.io`.
pub fn mend(dir: &Path, access: Access, dry_run: bool) -> Result<Mended, SpoolError> {
    let folder = Folder::open(dir, access, Arc::new(RealDisk))?;
    let (identity, fault) = match Identity::read(&folder) {
        Ok(Some(identity)) => (identity, None),
        Ok(None) => (of_files(&folder)?, Some("it is missing".to_owned())),
        Err(SpoolError::Corrupt { detail, .. }) => (of_files(&folder)?, Some(detail)),
        // A damaged digit may look like a later format.
        Err(error @ SpoolError::Format { .. }) if Identity::is_damaged(&folder)? => {
            (of_files(&folder)?, Some(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    rights::check(&folder)?;
    let _lock = Lock::writer(&folder)?;
    if !dry_run {
        folder.make_dir(SEGMENTS)?;
        folder.make_dir(CONSUMERS)?;
    }
    let mut mending = Mending {
        known: losses::known(&folder)?,
        folder,
        identity,
        dry_run,
        steps: Vec::new(),
        position: 0,
    };
    if let Some(fault) = fault {
        mending.identity(&fault)?;
    }
    mending.small_files();
    mending.segments()?;
    mending.marks()?;
    let noted = mending.known.iter().map(|loss| loss.to).max();
    let position = mending.durable().max(noted.unwrap_or(0));
    if dry_run {
        return Ok(Mended {
            steps: mending.steps,
            position,
        });
    }
    let state = recovery::recover(&mending.folder)?;
    Ok(Mended {
        steps: mending.steps,
        position: state.recovered.position,
    })
}

/// The identity that the other files of a folder name.
fn of_files(folder: &Folder) -> Result<Identity, SpoolError> {
    let detail = "it has no spool.json that can be read, and no file that names its UUID";
    let not_a_spool = || SpoolError::not_a_spool(folder.dir(), detail);
    if !folder.root().has(SEGMENTS)? {
        return Err(not_a_spool());
    }
    let (mut uuids, mut format) = (Vec::new(), 1);
    let mut add = |uuid: String| {
        uuids.retain(|other| *other != uuid);
        uuids.push(uuid);
    };
    for first in index::list(folder)? {
        if let Ok(index) = Index::open(folder.segments()?, first) {
            format = format.max(if index.header.is_sealed() { FORMAT } else { 1 });
            add(index.header.uuid);
        }
    }
    if let Ok(Some(start)) = Start::read(folder) {
        format = FORMAT;
        add(start.uuid);
    }
    Identity::of_files(uuids, format).ok_or_else(not_a_spool)
}

struct Mending {
    folder: Folder,
    identity: Identity,
    dry_run: bool,
    steps: Vec<Step>,
    /// The position after everything that is known.
    position: u64,
    /// Losses that are noted, or would be by now.
    known: Vec<Loss>,
}

impl Mending {
    fn step(&mut self, what: &'static str, path: &Path, range: Option<(u64, u64)>, why: &str) {
        self.steps.push(Step {
            what,
            path: path.to_owned(),
            from: range.map(|(from, _)| from),
            to: range.map(|(_, to)| to),
            why: why.to_owned(),
        });
    }

    fn note(&mut self, from: u64, to: u64, why: LossWhy) -> Result<(), SpoolError> {
        if from >= to {
            return Ok(());
        }
        let path = self.folder.root().join(LOSSES);
        for (from, to) in losses::without(&self.known, from, to) {
            self.step("loss_noted", &path, Some((from, to)), why.as_str());
            let new = Loss::new(from, to, why);
            self.known.push(new);
            if !self.dry_run {
                losses::add(&self.folder, &self.identity.uuid, &[new])?;
            }
        }
        self.known.sort_by_key(|loss| loss.from);
        Ok(())
    }

    /// Rebuilds `spool.json`.
    fn identity(&mut self, fault: &str) -> Result<(), SpoolError> {
        let path = self.folder.root().join(IDENTITY);
        let Identity { uuid, formerly, .. } = &self.identity;
        let mut why = format!("{fault}; the other files name the UUID {uuid}");
        if !formerly.is_empty() {
            why = format!("{why}, formerly {}", formerly.join(", "));
        }
        self.step("file_rebuilt", &path, None, &why);
        if self.dry_run {
            return Ok(());
        }
        self.identity.write(&self.folder)
    }

    /// Rebuilds the durable mark, the start and the losses, as recovery does.
    fn small_files(&mut self) {
        let root = self.folder.root();
        let found = [
            (MARK, Mark::of(&self.folder).err()),
            (START, Start::read(&self.folder).err()),
            (LOSSES, losses::read(&self.folder).err()),
        ];
        let faults = found.map(|(name, error)| error.map(|error| (root.join(name), error)));
        for (path, error) in faults.into_iter().flatten() {
            self.step("file_rebuilt", &path, None, &error.to_string());
        }
    }

    /// Mends all segments, from the first kept position on.
    fn segments(&mut self) -> Result<(), SpoolError> {
        let start = Start::read(&self.folder).ok().flatten();
        let mut firsts = index::list(&self.folder)?;
        let begin = start.as_ref().map(|start| start.first);
        firsts.retain(|first| begin.is_none_or(|begin| *first >= begin));
        self.position = start.map_or(0, |start| start.position);
        let mut sound = self.sound_segments(&firsts)?;
        let mut next = begin.or(sound.first().copied()).unwrap_or(0);
        let mut at = 0;
        while let Some(first) = sound.get(at).copied() {
            let bounds = Bounds {
                below: sound.get(at + 1).copied().unwrap_or(u64::MAX),
                durable: self.durable(),
            };
            let all = Bounds {
                below: u64::MAX,
                ..bounds
            };
            // A segment that begins inside the sound groups of the one before it was put there by
            // hand.
            let whole = examine(&self.folder, first, all, &self.identity)?;
            if bounds.below < whole.end()
                && whole
                    .groups
                    .iter()
                    .all(|group| group.entry.first != bounds.below)
            {
                let stray = sound.remove(at + 1);
                self.set_aside(stray, "its positions are those of the segment before it")?;
                continue;
            }
            let found = examine(&self.folder, first, bounds, &self.identity)?;
            let below = sound.get(at + 1).copied();
            if let Some(end) = self.segment(&found, below)? {
                self.note(next, first, LossWhy::Removed)?;
                next = end;
            }
            self.position = self.position.max(next);
            at += 1;
        }
        self.orphans(&firsts)?;
        self.note(next, self.durable(), LossWhy::Lost)
    }

    /// The segments that can be examined and hold a group. The others are moved to `lost+found`.
    fn sound_segments(&mut self, firsts: &[u64]) -> Result<Vec<u64>, SpoolError> {
        let mut sound = Vec::new();
        for first in firsts.iter().copied() {
            let bounds = Bounds {
                below: u64::MAX,
                durable: self.durable(),
            };
            match examine(&self.folder, first, bounds, &self.identity) {
                // A stray file must not count as the end of the segment before it.
                Ok(found) if found.groups.is_empty() && found.claimed == first => {
                    if found.len > 0 || found.index_fault.is_some() {
                        self.set_aside(first, "no group in it is sound")?;
                    }
                }
                Ok(_) => sound.push(first),
                Err(
                    error @ (SpoolError::Replaced { .. }
                    | SpoolError::Unplaced { .. }
                    | SpoolError::Corrupt { .. }),
                ) => {
                    let why = match error {
                        SpoolError::Unplaced { detail, .. }
                        | SpoolError::Corrupt { detail, .. } => detail,
                        error => error.to_string(),
                    };
                    self.set_aside(first, &why)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sound)
    }

    fn durable(&self) -> u64 {
        Mark::of(&self.folder)
            .map_or(0, |mark| mark.position)
            .max(self.position)
    }

    /// Mends one segment that could be examined. Returns where its positions end, if it has any.
    fn segment(&mut self, found: &Examined, below: Option<u64>) -> Result<Option<u64>, SpoolError> {
        let first = found.header.first;
        self.position = self.position.max(found.claimed);
        // The step after it notes its losses.
        let lost_to = below.unwrap_or_else(|| self.durable().max(found.claimed));
        let is_noted = losses::without(&self.known, found.end(), lost_to).is_empty();
        if found.groups.is_empty() {
            self.set_aside(first, "no group in it is sound")?;
            self.note(first, lost_to, LossWhy::Corrupt)?;
            return Ok(Some(lost_to));
        }
        if let Some(fault) = &found.index_fault
            && !(is_noted && fault.is_short)
        {
            let path = found.path.with_extension("idx");
            self.step(
                "index_rebuilt",
                &path,
                Some((first, found.end())),
                &fault.text,
            );
            if !self.dry_run {
                rewrite::index(&self.folder, found)?;
            }
        }
        self.cut_out(found)?;
        if found.len > found.stream_end && !(below.is_some() && is_noted && lost_to > found.end()) {
            let why = found.tail_fault.clone();
            let why = why.unwrap_or_else(|| "it is no whole group".to_owned());
            self.keep_bytes(found, "tail_cut", found.stream_end..found.len, None, &why)?;
        }
        for (from, to) in found.holes() {
            self.note(from, to, LossWhy::Corrupt)?;
        }
        if let Some(below) = below {
            self.note(found.end(), below, LossWhy::Lost)?;
        }
        Ok(Some(below.unwrap_or_else(|| found.end())))
    }

    /// Copies the bytes of each damaged group to `lost+found`. They stay in the segment: the groups
    /// after them are sound.
    fn cut_out(&mut self, found: &Examined) -> Result<(), SpoolError> {
        for group in &found.groups {
            let Some(fault) = &group.fault else { continue };
            let entry = group.entry;
            if losses::without(&self.known, entry.first, entry.end()).is_empty() {
                continue;
            }
            let bytes = entry.offset..entry.byte_end().min(found.len);
            let range = Some((entry.first, entry.end()));
            self.keep_bytes(found, "group_cut_out", bytes, range, fault)?;
        }
        Ok(())
    }

    /// Copies bytes of a segment into `lost+found`.
    fn keep_bytes(
        &mut self,
        found: &Examined,
        what: &'static str,
        bytes: Range<u64>,
        range: Option<(u64, u64)>,
        why: &str,
    ) -> Result<(), SpoolError> {
        self.step(what, &found.path, range, why);
        if self.dry_run {
            return Ok(());
        }
        let kept = self.folder.lost_found()?;
        let Range {
            start: from,
            end: to,
        } = bytes;
        let name = format!("{:020}.bytes-{from}-{to}", found.header.first);
        if kept.has(&name)? {
            return Ok(());
        }
        let segment: File = self
            .folder
            .segments()?
            .read_file(&segment_name(found.header.first))?;
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
        segment
            .read_exact_at(&mut bytes, from)
            .map_err(|error| SpoolError::io("read", &found.path, error))?;
        self.folder.replace(&kept, &name, &bytes)
    }

    /// Moves a segment and its index away.
    fn set_aside(&mut self, first: u64, why: &str) -> Result<(), SpoolError> {
        let path = self.folder.segments()?.join(&segment_name(first));
        self.step("segment_set_aside", &path, None, why);
        if self.dry_run {
            return Ok(());
        }
        recovery::set_pair_aside(&self.folder, first)
    }

    /// Indexes without a segment: recovery moves them away and notes the positions that they name.
    fn orphans(&mut self, firsts: &[u64]) -> Result<(), SpoolError> {
        let dir = self.folder.segments()?;
        let mut found = Vec::new();
        for name in dir.names()? {
            let orphan =
                position_in(&name, INDEX).filter(|first| firsts.binary_search(first).is_err());
            if let Some(first) = orphan
                && !dir.has(&segment_name(first))?
            {
                found.push(dir.join(&name));
            }
        }
        for path in found {
            self.step("segment_set_aside", &path, None, "its segment is gone");
        }
        Ok(())
    }

    /// Moves unreadable marks away; the next positions are above the highest mark.
    fn marks(&mut self) -> Result<(), SpoolError> {
        let durable = self.durable();
        let newest = self.newest_epoch();
        let mut highest = durable;
        for name in consumers::names(&self.folder, consumers::MARK)? {
            let read = consumers::read(&self.folder, &name).and_then(|found| {
                found
                    .map(|m| m.check(&self.folder, &self.identity))
                    .transpose()
            });
            match read {
                Ok(Some(mark)) => {
                    let ended = mark.check_end(&self.folder, durable, newest);
                    if let Err(error @ SpoolError::Restored { .. }) = ended {
                        return Err(error);
                    }
                    highest = highest.max(mark.committed);
                }
                Ok(None) => {}
                Err(SpoolError::Corrupt { .. }) => self.set_mark_aside(&name)?,
                Err(error) => return Err(error),
            }
        }
        if highest > durable {
            self.raise(durable, highest)?;
        }
        Ok(())
    }

    fn newest_epoch(&self) -> u64 {
        let epoch = Mark::of(&self.folder).map_or(0, |mark| mark.epoch);
        start::newest_epoch(&self.folder, epoch)
    }

    fn set_mark_aside(&mut self, name: &str) -> Result<(), SpoolError> {
        let dir = self.folder.consumers()?;
        let file = format!("{name}{}", consumers::MARK);
        let cure = format!(
            "it cannot be read; make it anew with `ackline spool consumers add {} {name}`",
            self.folder.dir().display()
        );
        let path = dir.join(&file);
        self.step("mark_set_aside", &path, None, &cure);
        if self.dry_run {
            return Ok(());
        }
        let to = format!("{file}.{}", now_us());
        let (dir, kept) = (self.folder.consumers()?, self.folder.lost_found()?);
        self.folder
            .relocate(Name::new(dir, &file), Name::new(&kept, &to))
    }

    /// Continues above a consumer's mark: the events below it were durable once, and their
    /// positions must not be given to other events.
    fn raise(&mut self, from: u64, to: u64) -> Result<(), SpoolError> {
        let path = self.folder.root().join(START);
        let why = "a consumer's mark is above the end";
        self.step("position_raised", &path, Some((from, to)), why);
        self.note(from, to, LossWhy::Lost)?;
        self.position = to;
        if self.dry_run {
            return Ok(());
        }
        let known = Start::read(&self.folder).ok().flatten();
        let first = index::list(&self.folder)?.first().copied();
        let start = Start {
            uuid: self.identity.uuid.clone(),
            first: known
                .as_ref()
                .map_or_else(|| first.unwrap_or(to), |known| known.first),
            position: to,
            epoch: known.as_ref().map_or(0, |known| known.epoch),
            watched_us: known.as_ref().map_or(0, |known| known.watched_us),
        };
        start.write(&self.folder)
    }
}
