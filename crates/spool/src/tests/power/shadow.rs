//! A disk after a loss of power: each change that was not synced is there, not there, half
//! there, zeroed or out of order, names as well as bytes, and a torn write damages its neighbours in the same
//! sector.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A generator of its own, so that a seed means the same for ever.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1)
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Another generator, whose draws do not depend on how many this one makes later.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.below(u64::MAX))
    }
}

/// A change of the disk; paths are relative to the directory that holds the spool, files are numbered in
/// the order of their creation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    MakeDir(PathBuf),
    Create(PathBuf),
    Write(usize, usize, Vec<u8>),
    /// Cuts a file, or makes it longer.
    Cut(usize, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    /// Whether it succeeded. One that failed may have written anything, and a later one does not make
    /// up for it.
    Sync(usize, bool),
    SyncDir(PathBuf, bool),
}

/// A change of a file that is not synced.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    /// The synced state.
    disk: Vec<u8>,
    /// The length that processes see.
    pub(super) len: usize,
    pending: Vec<Change>,
    /// Whether each write of it is one of whole sectors, which are not torn inside: the text of a lock.
    is_text: bool,
}

impl Inode {
    fn new(path: &Path, bytes: &[u8]) -> Self {
        Self {
            disk: bytes.to_vec(),
            len: bytes.len(),
            pending: Vec::new(),
            is_text: path.to_string_lossy().ends_with("lock"),
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(at, bytes) => {
                let end = at + bytes.len();
                if self.disk.len() < end {
                    self.disk.resize(end, 0);
                }
                self.disk[*at..end].copy_from_slice(bytes);
            }
            Change::Cut(len) => self.disk.resize(*len, 0),
        }
    }

    /// Applies each unsynced change in some form; none is left.
    fn settle(&mut self, dice: &mut Dice) {
        let mut pending = std::mem::take(&mut self.pending);
        if dice.once_in(4) {
            for at in (1..pending.len()).rev() {
                pending.swap(at, dice.index(at + 1));
            }
        }
        for change in pending {
            let (change, is_torn) = match (dice.below(6), change) {
                (0 | 1, _) => continue,
                (3 | 4, change) if self.is_text => (change, false),
                (2, Change::Write(at, bytes)) => (Change::Write(at, vec![0; bytes.len()]), true),
                (3, Change::Write(at, mut bytes)) => {
                    bytes.truncate(dice.index(bytes.len()));
                    (Change::Write(at, bytes), true)
                }
                (4, Change::Write(at, bytes)) => {
                    let from = dice.index(bytes.len());
                    (Change::Write(at + from, bytes[from..].to_vec()), true)
                }
                (_, change) => (change, false),
            };
            self.apply(&change);
            if let Change::Write(at, bytes) = change
                && is_torn
                && !self.is_text
                && dice.once_in(2)
            {
                self.damage_around(at, at + bytes.len(), dice);
            }
        }
    }

    /// Damages bytes beside a torn write, in the sectors that it shares with them.
    fn damage_around(&mut self, begin: usize, end: usize, dice: &mut Dice) {
        let sector = dice.pick(&[512, 4_096]);
        let before = begin / sector * sector..begin.min(self.disk.len());
        let behind = end..end.next_multiple_of(sector).min(self.disk.len());
        for zone in [before, behind] {
            if zone.is_empty() {
                continue;
            }
            let from = zone.start + dice.index(zone.len());
            let to = from + 1 + dice.index(zone.end - from);
            for byte in &mut self.disk[from..to] {
                *byte = u8::try_from(dice.below(256)).unwrap();
            }
        }
    }

    /// The bytes that processes read once the cache has dropped the file's clean pages; `None` while a
    /// page of it is still to be written.
    fn evicted(&self) -> Option<Vec<u8>> {
        self.pending.is_empty().then(|| {
            let mut bytes = self.disk.clone();
            bytes.resize(self.len, 0);
            bytes
        })
    }
}

/// The file or directory of a name.
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

type Names = BTreeMap<PathBuf, Node>;

/// The disk as processes see it, and as it may be found after the power went.
#[derive(Debug, Clone, Default)]
pub(super) struct Shadow {
    pub(super) inodes: Vec<Inode>,
    seen: Names,
    names: Names,
    pending: BTreeMap<PathBuf, Vec<Naming>>,
}

/// A tree of files with their bytes, `None` for directories.
pub(super) type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

impl Shadow {
    /// A disk that certainly holds this.
    pub(super) fn new(image: &Image) -> Self {
        let mut shadow = Self::default();
        for (path, bytes) in image {
            let node = bytes.as_ref().map_or(Node::Dir, |bytes| {
                shadow.inodes.push(Inode::new(path, bytes));
                Node::File(shadow.inodes.len() - 1)
            });
            shadow.names.insert(path.clone(), node);
        }
        shadow.seen = shadow.names.clone();
        shadow
    }

    /// The number of the file with this name.
    pub(super) fn file(&self, path: &Path) -> Option<usize> {
        match self.seen.get(path) {
            Some(Node::File(number)) => Some(*number),
            _ => None,
        }
    }

    /// All files that have a name.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.seen.iter().filter_map(|(path, node)| match node {
            Node::File(number) => Some((path.as_path(), *number)),
            Node::Dir => None,
        })
    }

    /// The bytes of all files that have a name.
    pub(super) fn used(&self) -> usize {
        self.files()
            .map(|(_, number)| self.inodes[number].len)
            .sum()
    }

    /// The bytes of each file once the cache was dropped, as far as they differ from the written ones.
    pub(super) fn evicted(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let kept = |(path, number): (&Path, usize)| {
            Some((path.to_owned(), self.inodes[number].evicted()?))
        };
        self.files().filter_map(kept).collect()
    }

    fn name(&mut self, path: &Path, naming: Naming) {
        naming.apply(&mut self.seen);
        let parent = path.parent().unwrap().to_owned();
        self.pending.entry(parent).or_default().push(naming);
    }

    pub(super) fn play(&mut self, op: &Op, dice: &mut Dice) {
        match op {
            Op::MakeDir(path) => self.name(path, Naming::Add(path.clone(), Node::Dir)),
            Op::Create(path) => {
                self.inodes.push(Inode::new(path, &[]));
                let node = Node::File(self.inodes.len() - 1);
                self.name(path, Naming::Add(path.clone(), node));
            }
            Op::Write(file, at, bytes) => {
                let inode = &mut self.inodes[*file];
                inode.len = inode.len.max(at + bytes.len());
                inode.pending.push(Change::Write(*at, bytes.clone()));
            }
            Op::Cut(file, len) => {
                let inode = &mut self.inodes[*file];
                inode.len = *len;
                inode.pending.push(Change::Cut(*len));
            }
            Op::Rename(from, to) => {
                let node = self.seen[from];
                self.name(to, Naming::Rename(from.clone(), to.clone(), node));
            }
            Op::Remove(path) => self.name(path, Naming::Remove(path.clone())),
            Op::Sync(file, true) => {
                let inode = &mut self.inodes[*file];
                for change in std::mem::take(&mut inode.pending) {
                    inode.apply(&change);
                }
            }
            Op::Sync(file, false) => self.inodes[*file].settle(dice),
            Op::SyncDir(path, whole) => {
                // Names are in the journal: unwritten ones stay to be written.
                for naming in self.pending.remove(path).unwrap_or_default() {
                    if *whole || dice.once_in(2) {
                        naming.apply(&mut self.names);
                    } else {
                        self.pending.entry(path.clone()).or_default().push(naming);
                    }
                }
            }
        }
    }

    /// Returns a possible disk after a loss of power now.
    pub(super) fn crash(mut self, dice: &mut Dice) -> Image {
        for inode in &mut self.inodes {
            inode.settle(dice);
        }
        for naming in self.pending.into_values().flatten() {
            if dice.once_in(2) {
                naming.apply(&mut self.names);
            }
        }
        let mut image = Image::new();
        // Sorted, so that directories come before their contents.
        for (path, node) in self.names {
            let parent = path.parent().unwrap();
            if parent.as_os_str().is_empty() || image.contains_key(parent) {
                let bytes = match node {
                    Node::Dir => None,
                    Node::File(at) => Some(self.inodes[at].disk.clone()),
                };
                image.insert(path, bytes);
            }
        }
        image
    }
}

/// Makes the files of an image.
pub(super) fn write_image(image: &Image, root: &Path) {
    fs::create_dir(root).unwrap();
    for (path, bytes) in image {
        let path = root.join(path);
        let Some(bytes) = bytes else {
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
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
