//! Power loss. Everything that is done to the disk is recorded; from every prefix of that an image is
//! made of what a disk may hold after the power went: each effect that was not synced is there, not
//! there, half there, zeroed or out of order, names as well as bytes. Each image is opened again, and
//! what is done to it is recorded in turn.
//!
//! `ACKLINE_POWER_SEEDS` sets how many random lives are lived (1,000).

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
};

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{
    commit::Pace,
    consumers::{self, Mark},
    disk::{Disk, RealDisk},
    format,
};

/// A generator of its own, so that a seed means the same for ever.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What was done to the disk; paths are relative to the directory that holds the spool.
#[derive(Debug, Clone)]
enum Op {
    MakeDir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Vec<u8>, Option<u64>),
    Cut(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    /// Whether it succeeded. One that failed may have written anything, and a later one does not make
    /// up for it.
    Sync(PathBuf, bool),
    SyncDir(PathBuf, bool),
    /// Every event below this position was promised.
    Promised(u64),
    /// A consumer's mark: about to be written, and written.
    Marking(u64),
    Marked(u64),
}

#[derive(Clone)]
struct Recording {
    root: PathBuf,
    log: Arc<Mutex<Vec<Op>>>,
    /// Fails one sync in so many, once it is armed.
    faults: Arc<Mutex<Option<(Dice, u64)>>>,
}

impl Recording {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            log: Arc::default(),
            faults: Arc::default(),
        }
    }

    fn note(&self, op: Op) {
        self.log.lock().unwrap().push(op);
    }

    fn path(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap().to_owned()
    }

    fn synced(&self, path: &Path, op: fn(PathBuf, bool) -> Op) -> Result<(), SpoolError> {
        let mut faults = self.faults.lock().unwrap();
        let fails = faults
            .as_mut()
            .is_some_and(|(dice, times)| dice.once_in(*times));
        self.note(op(self.path(path), !fails));
        if fails {
            let error = std::io::ErrorKind::Other.into();
            return Err(SpoolError::io("sync", path, error));
        }
        Ok(())
    }
}

impl Disk for Recording {
    fn make_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        if !path.exists() {
            self.note(Op::MakeDir(self.path(path)));
        }
        RealDisk.make_dir(path)
    }

    fn open(&mut self, path: &Path) -> Result<File, SpoolError> {
        if !path.exists() {
            self.note(Op::Create(self.path(path)));
        }
        RealDisk.open(path)
    }

    fn create(&mut self, path: &Path) -> Result<File, SpoolError> {
        let file = RealDisk.create(path)?;
        self.note(Op::Create(self.path(path)));
        Ok(file)
    }

    fn write(&mut self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        self.note(Op::Write(self.path(path), pieces.concat(), None));
        RealDisk.write(file, path, pieces)
    }

    fn sync(&mut self, _: &File, path: &Path) -> Result<(), SpoolError> {
        self.synced(path, Op::Sync)
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        self.synced(path, Op::SyncDir)
    }

    fn publish(
        &mut self,
        file: &File,
        path: &Path,
        bytes: &[u8],
        at: u64,
    ) -> Result<(), SpoolError> {
        self.note(Op::Write(self.path(path), bytes.to_vec(), Some(at)));
        RealDisk.publish(file, path, bytes, at)
    }

    fn cut(&mut self, path: &Path, len: u64) -> Result<File, SpoolError> {
        self.note(Op::Cut(self.path(path), len));
        RealDisk.cut(path, len)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SpoolError> {
        self.note(Op::Rename(self.path(from), self.path(to)));
        RealDisk.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> Result<bool, SpoolError> {
        let was_there = RealDisk.remove(path)?;
        if was_there {
            self.note(Op::Remove(self.path(path)));
        }
        Ok(was_there)
    }
}

/// A change of a file that is not synced.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What is on the disk for sure.
    bytes: Vec<u8>,
    /// The length that processes see.
    len: usize,
    pending: Vec<Change>,
}

impl Inode {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(at, bytes) => {
                let end = at + bytes.len();
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                self.bytes[*at..end].copy_from_slice(bytes);
            }
            Change::Cut(len) => self.bytes.resize(*len, 0),
        }
    }

    /// Each change that was not synced happens somehow.
    fn settle(&mut self, dice: &mut Dice) {
        let mut pending = std::mem::take(&mut self.pending);
        if dice.once_in(4) {
            for at in (1..pending.len()).rev() {
                pending.swap(at, usize::try_from(dice.below(at as u64 + 1)).unwrap());
            }
        }
        for change in pending {
            let change = match (dice.below(6), change) {
                (0 | 1, _) => continue,
                (2, Change::Write(at, bytes)) => Change::Write(at, vec![0; bytes.len()]),
                (3, Change::Write(at, mut bytes)) => {
                    bytes.truncate(usize::try_from(dice.below(bytes.len() as u64)).unwrap());
                    Change::Write(at, bytes)
                }
                (4, Change::Write(at, bytes)) => {
                    let from = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
                    Change::Write(at + from, bytes[from..].to_vec())
                }
                (_, change) => change,
            };
            self.apply(&change);
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

/// A change of a directory that is not synced.
#[derive(Debug, Clone)]
enum Naming {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

type Names = BTreeMap<PathBuf, Node>;

/// The disk as processes see it, and as it may be found after the power went.
#[derive(Debug, Clone, Default)]
struct Shadow {
    inodes: Vec<Inode>,
    seen: Names,
    names: Names,
    pending: BTreeMap<PathBuf, Vec<Naming>>,
}

/// A tree of files with their bytes, `None` for directories.
type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl Shadow {
    fn new(image: &Image) -> Self {
        let mut shadow = Self::default();
        for (path, bytes) in image {
            let node = bytes.as_ref().map_or(Node::Dir, |bytes| {
                shadow.inodes.push(Inode {
                    len: bytes.len(),
                    bytes: bytes.clone(),
                    pending: Vec::new(),
                });
                Node::File(shadow.inodes.len() - 1)
            });
            shadow.names.insert(path.clone(), node);
        }
        shadow.seen = shadow.names.clone();
        shadow
    }

    fn inode(&mut self, path: &Path) -> &mut Inode {
        let Some(Node::File(at)) = self.seen.get(path) else {
            panic!("{} is no file", path.display());
        };
        &mut self.inodes[*at]
    }

    fn name(&mut self, path: &Path, naming: Naming) {
        naming.apply(&mut self.seen);
        let parent = path.parent().unwrap().to_owned();
        self.pending.entry(parent).or_default().push(naming);
    }

    fn play(&mut self, op: &Op, dice: &mut Dice) {
        match op {
            Op::MakeDir(path) => self.name(path, Naming::Add(path.clone(), Node::Dir)),
            Op::Create(path) => {
                self.inodes.push(Inode::default());
                let node = Node::File(self.inodes.len() - 1);
                self.name(path, Naming::Add(path.clone(), node));
            }
            Op::Write(path, bytes, at) => {
                let inode = self.inode(path);
                let at = at.map_or(inode.len, |at| usize::try_from(at).unwrap());
                inode.len = inode.len.max(at + bytes.len());
                inode.pending.push(Change::Write(at, bytes.clone()));
            }
            Op::Cut(path, len) => {
                let inode = self.inode(path);
                inode.len = usize::try_from(*len).unwrap();
                inode.pending.push(Change::Cut(inode.len));
            }
            Op::Rename(from, to) => {
                let node = self.seen[from];
                self.name(to, Naming::Rename(from.clone(), to.clone(), node));
            }
            Op::Remove(path) => self.name(path, Naming::Remove(path.clone())),
            Op::Sync(path, true) => {
                let inode = self.inode(path);
                for change in std::mem::take(&mut inode.pending) {
                    inode.apply(&change);
                }
            }
            Op::Sync(path, false) => self.inode(path).settle(dice),
            Op::SyncDir(path, whole) => {
                // Names are in the journal: what was not written stays to be written.
                for naming in self.pending.remove(path).unwrap_or_default() {
                    if *whole || dice.once_in(2) {
                        naming.apply(&mut self.names);
                    } else {
                        self.pending.entry(path.clone()).or_default().push(naming);
                    }
                }
            }
            Op::Promised(_) | Op::Marking(_) | Op::Marked(_) => {}
        }
    }

    /// What is found when the power went now.
    fn crash(mut self, dice: &mut Dice) -> Image {
        for inode in &mut self.inodes {
            inode.settle(dice);
        }
        for naming in self.pending.into_values().flatten() {
            if dice.once_in(2) {
                naming.apply(&mut self.names);
            }
        }
        let mut image = Image::new();
        // Sorted, so that directories come before what is in them.
        for (path, node) in self.names {
            let parent = path.parent().unwrap();
            if parent.as_os_str().is_empty() || image.contains_key(parent) {
                let bytes = match node {
                    Node::Dir => None,
                    Node::File(at) => Some(self.inodes[at].bytes.clone()),
                };
                image.insert(path, bytes);
            }
        }
        image
    }
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

fn write_image(image: &Image, root: &Path) {
    fs::create_dir(root).unwrap();
    for (path, bytes) in image {
        let path = root.join(path);
        let Some(bytes) = bytes else {
            make_dir(&path).unwrap();
            continue;
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        file.unwrap().write_all(bytes).unwrap();
    }
}

/// What must be true of whatever is found.
#[derive(Debug, Clone, Copy, Default)]
struct Owed {
    /// Every event below was promised.
    promised: u64,
    /// The mark that was written for sure, and the highest one that may have been.
    marked: u64,
    marking: u64,
}

impl Owed {
    fn learn(&mut self, op: &Op) {
        match op {
            Op::Promised(end) => self.promised = self.promised.max(*end),
            Op::Marking(at) => self.marking = self.marking.max(*at),
            Op::Marked(at) => self.marked = self.marked.max(*at),
            _ => {}
        }
    }
}

/// Tells the log up to where events were promised.
struct Promises {
    disk: Recording,
    end: u64,
}

impl Settle for Promises {
    fn settle(&self, _: &[u64]) {
        self.disk.note(Op::Promised(self.end));
    }

    fn failed(&self, _: &SpoolError) {}
}

/// One life on one image: recovers, checks, goes on for a while; what was done.
struct Life {
    disk: Recording,
    dir: PathBuf,
    dice: Dice,
    story: String,
    mark: u64,
}

impl Life {
    fn live(mut self, owed: Owed) -> Vec<Op> {
        let budget = [12_000, 30_000, 100_000][usize::try_from(self.dice.below(3)).unwrap()];
        let options = WriterOptions {
            budget,
            segment_bytes: 1 + self.dice.below(8_000),
            ..WriterOptions::default()
        };
        let disk = Box::new(self.disk.clone());
        let pace = Pace {
            recheck: Duration::from_millis(1),
            ..Pace::default()
        };
        let opened = Writer::open_on(&self.dir, options, disk, pace);
        let (writer, recovered) = opened.unwrap_or_else(|error| panic!("{}: {error}", self.story));
        assert_eq!(recovered.lost, None, "{}", self.story);
        // What a smaller budget has no room for is retired first.
        writer.append(block(0, 0), Arc::new(Told::default()), 0, Promise::Durable);
        assert!(writer.flush(WAIT));
        self.check(owed, recovered.position);
        if self.dice.once_in(2) {
            let faults = (self.dice.clone(), 12);
            *self.disk.faults.lock().unwrap() = Some(faults);
        }
        self.mark = owed.marking;
        let end = self.work(&writer, recovered.position);
        writer.close(WAIT);
        *self.disk.faults.lock().unwrap() = None;
        if let Some(promised) = end {
            self.check(Owed { promised, ..owed }, promised);
        }
        std::mem::take(&mut *self.disk.log.lock().unwrap())
    }

    /// Appends and commits for a while; up to where events were promised, unless the disk was given up.
    fn work(&mut self, writer: &Writer, mut position: u64) -> Option<u64> {
        let mut end = position;
        for _ in 0..self.dice.below(14) {
            for _ in 0..=self.dice.below(3) {
                let count = 1 + self.dice.below(4);
                let (disk, next) = (self.disk.clone(), position + count);
                let told = Arc::new(Promises { disk, end: next });
                let block = block(position, u32::try_from(count).unwrap());
                writer.append(block, told, 0, Promise::Durable);
                position = next;
            }
            while !writer.flush(Duration::from_millis(2)) {
                match writer.stats().state {
                    WriterState::Failed => return None,
                    _ => self.commit(writer.stats().durable),
                }
            }
            end = position;
            if self.dice.once_in(3) {
                let behind = self.dice.below(3).min(end);
                self.commit(end - behind);
            }
        }
        Some(end)
    }

    fn commit(&mut self, position: u64) {
        self.mark = self.mark.max(position);
        let position = self.mark;
        let layout = format::Layout::new(&self.dir);
        let identity = format::Identity::read(&layout.identity());
        let identity = identity.unwrap().unwrap();
        self.disk.note(Op::Marking(position));
        let mark = Mark::new("etl", position);
        if consumers::write(&mut self.disk, &layout, &identity, &mark).is_ok() {
            self.disk.note(Op::Marked(position));
        }
    }

    /// Everything promised is there, whole and once; nothing is half there.
    fn check(&self, owed: Owed, position: u64) {
        let story = &self.story;
        assert!(position >= owed.promised, "{story}: {position} of {owed:?}");
        let spool = Spool::open(&self.dir).unwrap();
        let (first, durable) = (spool.first_kept().unwrap(), spool.durable().unwrap());
        assert_eq!(durable, position, "{story}");
        let problems = spool.verify(&mut |_, _| {}).unwrap().problems;
        assert_eq!(problems, Vec::<String>::new(), "{story}");
        let read = spool.read(&layouts(), first..durable, &ReadOptions::default());
        let read = read.unwrap_or_else(|error| panic!("{story}: {error}"));
        let mut next = first;
        for batch in read {
            let batch = batch.unwrap();
            for payload in batch["payload"].as_binary::<i32>() {
                let want = format!("{next:08}");
                assert_eq!(payload, Some(want.as_bytes()), "{story}: position {next}");
                next += 1;
            }
        }
        assert_eq!(next, durable, "{story}");
        let marks = spool.consumers().unwrap();
        let mark = marks.first().map_or(0, |consumer| consumer.committed);
        assert!(mark >= owed.marked, "{story}: the mark is {mark}, {owed:?}");
        let mut own = owed;
        for op in &*self.disk.log.lock().unwrap() {
            own.learn(op);
        }
        assert!(
            first <= own.marking,
            "{story}: {first} is the first kept of {own:?}"
        );
    }
}

fn seeds() -> u64 {
    let set = std::env::var("ACKLINE_POWER_SEEDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(1_000)
}

/// Lives a few lives, each on what the power left of the one before.
fn lives(seed: u64, temp: &Path) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut image, mut owed) = (Image::new(), Owed::default());
    for life in 0..4 {
        let root = temp.join(format!("{seed}-{life}"));
        write_image(&image, &root);
        let disk = Recording::new(&root);
        let begun = Life {
            dir: root.join("spool"),
            disk,
            dice: dice.clone(),
            story: format!("seed {seed}, life {life}"),
            mark: 0,
        };
        let log = begun.live(owed);
        fs::remove_dir_all(&root).unwrap();
        dice.below(2);
        let cut = usize::try_from(dice.below(log.len() as u64 + 1)).unwrap();
        let mut shadow = Shadow::new(&image);
        for op in &log[..cut] {
            shadow.play(op, &mut dice);
            owed.learn(op);
        }
        image = shadow.crash(&mut dice);
    }
}

#[test]
fn nothing_promised_is_missing_and_nothing_is_half_there_whenever_the_power_goes() {
    let temp = tempfile::tempdir_in(temp().0.path().parent().unwrap()).unwrap();
    let (first, seeds) = (AtomicU64::new(0), seeds());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = first.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    lives(seed, temp.path());
                }
            });
        }
    });
}

#[test]
fn every_prefix_of_a_life_leaves_what_was_promised() {
    let (_temp, dir) = temp();
    let base = dir.parent().unwrap().to_owned();
    for seed in 1..=4 {
        let root = base.join(format!("{seed}"));
        write_image(&Image::new(), &root);
        let dice = Dice(seed * 7_919);
        let story = format!("prefix seed {seed}");
        let disk = Recording::new(&root);
        let life = |root: &Path, disk: Recording, story: String| Life {
            dir: root.join("spool"),
            disk,
            dice: dice.clone(),
            story,
            mark: 0,
        };
        let log = life(&root, disk, story).live(Owed::default());
        for cut in 0..=log.len() {
            let (mut shadow, mut owed) = (Shadow::default(), Owed::default());
            let mut dice = Dice(seed << 32 | (cut as u64 + 1));
            for op in &log[..cut] {
                shadow.play(op, &mut dice);
                owed.learn(op);
            }
            let root = base.join(format!("{seed}-{cut}"));
            write_image(&shadow.crash(&mut dice), &root);
            let disk = Recording::new(&root);
            life(&root, disk, format!("prefix seed {seed}, cut {cut}")).live(owed);
            fs::remove_dir_all(&root).unwrap();
        }
    }
}
