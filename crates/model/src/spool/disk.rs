//! The disk, the page cache, and the reads of them. This module decides nothing.

use super::State;

/// A value in the page cache and on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell<T> {
    /// The page cache, which every process reads.
    pub cache: T,
    /// The synced state, which a loss of power leaves.
    pub disk: T,
    /// Whether the kernel has still to write it.
    pub is_dirty: bool,
}

impl<T: Copy> Cell<T> {
    /// The same value in both.
    pub fn durable(value: T) -> Self {
        Self {
            cache: value,
            disk: value,
            is_dirty: false,
        }
    }

    /// Writes to the cache.
    pub fn write(&mut self, value: T) {
        self.cache = value;
        self.is_dirty = true;
    }

    /// A sync that succeeds. It writes a dirty value, and no other.
    pub fn sync(&mut self) {
        if self.is_dirty {
            *self = Self::durable(self.cache);
        }
    }

    /// A sync that fails. The pages stay in the cache, and count as written.
    pub fn fail(&mut self) {
        self.is_dirty = false;
    }

    /// Applies a loss of power: 0 loses an unsynced write, 1 keeps it, 2 tears it.
    pub fn lose_power(&mut self, fates: &mut u8, torn: T) {
        let fate = *fates % 3;
        match (self.is_dirty, fate) {
            (true, 1) => self.disk = self.cache,
            (true, 2) => self.disk = torn,
            _ => {}
        }
        if self.is_dirty {
            *fates /= 3;
        }
        *self = Self::durable(self.disk);
    }
}

/// A slot of the durable mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The epoch of the writer that wrote it.
    pub epoch: u8,
    /// The number of publications.
    pub generation: u8,
    /// Every event below is durable.
    pub position: u8,
}

/// The file `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Start {
    /// The first position that is kept.
    pub first: u8,
    /// A position that was published.
    pub position: u8,
    /// The epoch of the last writer that finished opening the spool.
    pub epoch: u8,
}

/// The bytes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bytes {
    /// No bytes.
    Absent,
    /// The bytes of this event.
    Sound(u8),
    /// Other bytes.
    Torn,
}

/// The index of a segment, which is one sector: a torn write damages every entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// It names so many groups.
    Names(u8),
    /// It is damaged or missing.
    Torn,
}

/// A segment and its index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The position of its first group.
    pub first: u8,
    /// The epoch of the writer that made its files.
    pub owner: u8,
    /// Its groups, a position each.
    pub groups: Vec<Cell<Bytes>>,
    /// Its index.
    pub index: Cell<Index>,
}

impl Segment {
    /// The groups that its index names, or that can be found by their seals where it is damaged.
    pub fn known(&self, has_seals: bool) -> u8 {
        match self.index.cache {
            Index::Names(count) => count,
            Index::Torn if has_seals => len(&self.groups),
            Index::Torn => 0,
        }
    }

    /// The group at a place, in the cache.
    pub fn group(&self, at: u8) -> Option<u8> {
        match self.groups.get(usize::from(at))?.cache {
            Bytes::Sound(id) => Some(id),
            Bytes::Absent | Bytes::Torn => None,
        }
    }

    /// The position after the groups that are named.
    pub fn end(&self) -> u8 {
        self.first + self.known(true)
    }
}

impl State {
    /// Returns the durable mark: the newest sound slot.
    pub fn mark(&self) -> Slot {
        let sound = self.slots.iter().filter_map(|slot| slot.cache);
        let newest = sound.max();
        newest.unwrap_or_else(|| Slot {
            position: self
                .start
                .position
                .max(self.segments.last().map_or(0, |last| last.first)),
            ..Slot::default()
        })
    }

    /// The event that a reader finds at a position.
    pub fn read(&self, at: u8) -> Option<u8> {
        let segment = self.segments.iter().rfind(|one| one.first <= at)?;
        let place = at - segment.first;
        let is_named = place < segment.known(true) && !has(self.losses, at);
        segment.group(place).filter(|_| is_named)
    }

    /// Whether a reader finds a group at a position that does not fit its checksum.
    pub fn is_torn(&self, at: u8) -> bool {
        let segment = self.segments.iter().rfind(|one| one.first <= at);
        let group = segment.and_then(|one| one.groups.get(usize::from(at - one.first)));
        group.is_some_and(|group| group.cache == Bytes::Torn)
    }

    /// Whether the event at a position is on the disk, and named there if the index is sound.
    pub fn is_on_disk(&self, at: u8) -> bool {
        let Some(segment) = self.segments.iter().rfind(|one| one.first <= at) else {
            return false;
        };
        let place = at - segment.first;
        let is_named = match segment.index.disk {
            Index::Names(count) => place < count,
            Index::Torn => true,
        };
        let group = segment.groups.get(usize::from(place));
        is_named && group.is_some_and(|group| matches!(group.disk, Bytes::Sound(_)))
    }

    /// The segment of this first position.
    pub fn segment(&mut self, first: u8) -> Option<&mut Segment> {
        self.segments.iter_mut().find(|one| one.first == first)
    }

    /// Adds a segment in its place.
    pub fn insert(&mut self, segment: Segment) {
        self.segments.retain(|one| one.first != segment.first);
        self.segments.push(segment);
        self.segments.sort_by_key(|one| one.first);
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.epoch, self.generation).cmp(&(other.epoch, other.generation))
    }
}

/// Whether a set of positions has this one.
pub fn has(positions: u8, at: u8) -> bool {
    positions & (1 << at) != 0
}

/// The set of the positions [from, to).
pub fn range(from: u8, to: u8) -> u8 {
    (from..to).fold(0, |all, at| all | 1 << at)
}

/// The length of a short list.
pub fn len<T>(list: &[T]) -> u8 {
    u8::try_from(list.len()).unwrap_or(u8::MAX)
}
