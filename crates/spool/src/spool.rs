//! A spool for reading: its begin and end, its batches and slices.
//!
//! Everything here sees only positions below the published durable mark, so that it is safe beside
//! a writer and after one that died. Only the requested parts are read and held.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ackline_core::locked;

use crate::{
    Access, BlockInfo, Layouts, Loss, LossWhy, SpoolError,
    disk::RealDisk,
    find::Times,
    folder::{Folder, MARK},
    format::Identity,
    index::{Entry, SEGMENT, position_in},
    mark::Mark,
    outline::Outline,
    read::{ReadOptions, Reader},
    rights,
    segment::check_group,
    walk::{Listed, Segment, Step, Walk},
};

mod cut;
mod verify;

pub use verify::Report;

/// A part of one segment that can be read without listing the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The segment's file; its index is beside it.
    pub path: PathBuf,
    /// The spool's UUID.
    pub uuid: String,
    /// The offset of its first group in the file.
    pub byte_start: u64,
    /// The end of its last group in the file.
    pub byte_end: u64,
    /// The first position.
    pub start: u64,
    /// The position after the last one.
    pub end: u64,
}

/// A spool, for reading: in any process, also beside a writer.
#[derive(Debug)]
pub struct Spool {
    pub(crate) folder: Folder,
    pub(crate) identity: Identity,
    pub(crate) mark: File,
    pub(crate) listed: Arc<Listed>,
    pub(crate) cache: Mutex<Cache>,
}

/// Values of a few groups that have been read and cannot change any more.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// When the blocks of a group were received, by its first position.
    pub(crate) times: HashMap<u64, Arc<Times>>,
    /// First position, count and inflated bytes of the blocks of one group, by its first position.
    sizes: Option<(u64, Arc<Vec<Size>>)>,
    /// Groups whose CRC was checked, by their first position.
    pub(crate) checked: HashSet<u64>,
}

type Size = (u64, u64, u64);

impl Spool {
    /// Opens the spool in `dir`, to which only its owner has access.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub fn open(dir: &Path) -> Result<Self, SpoolError> {
        Self::open_with(dir, Access::default())
    }

    /// Opens the spool in `dir`. The amount of data makes no difference: segments are listed on
    /// request.
    ///
    /// # Errors
    /// `spool.not_a_spool`, `spool.rights` if users other than `access` allows can read it,
    /// `spool.format`, `spool.corrupt`, `spool.io`.
    pub fn open_with(dir: &Path, access: Access) -> Result<Self, SpoolError> {
        Self::open_in(folder_of(dir, access)?)
    }

    /// Opens the spool in this folder.
    pub(crate) fn open_in(folder: Folder) -> Result<Self, SpoolError> {
        let identity = identity_of(&folder)?;
        rights::check(&folder)?;
        let mark = match folder.root().read_file(MARK) {
            Err(error) if error.is_not_found() && identity.format > 1 => {
                let path = folder.root().join(MARK);
                let cure = format!(
                    "it is missing: start a receiver on the spool, or `ackline spool mend {}`, which make it \
                     anew",
                    folder.dir().display()
                );
                return Err(SpoolError::corrupt(&path, cure));
            }
            opened => opened?,
        };
        Ok(Self {
            listed: Arc::new(Listed::new(folder.clone(), &identity)),
            folder,
            identity,
            mark,
            cache: Mutex::default(),
        })
    }

    /// The spool's UUID.
    pub fn uuid(&self) -> &str {
        &self.identity.uuid
    }

    /// The first kept position; the durable position if nothing is kept.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn first_kept(&self) -> Result<u64, SpoolError> {
        self.listed.first_kept(self.durable()?)
    }

    /// The durable position: every event below it is kept or was retired.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn durable(&self) -> Result<u64, SpoolError> {
        Ok(self.published()?.position)
    }

    /// The epoch of the last writer; 0 of a spool of format 1.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn newest_epoch(&self) -> Result<u64, SpoolError> {
        Ok(self.published()?.epoch)
    }

    /// The epoch of the writer that wrote a position; `None` if the position is not kept, or was
    /// written in format 1.
    ///
    /// # Errors
    /// `spool.io`, `spool.corrupt`.
    pub fn epoch_at(&self, position: u64) -> Result<Option<u64>, SpoolError> {
        let durable = self.durable()?;
        if position >= durable {
            return Ok(None);
        }
        let mut walk = Walk::new(&self.listed, position..position + 1, durable)?;
        Ok(match walk.next()? {
            Some(Step::Group(_, entry, _)) => entry.is_sealed.then_some(entry.epoch),
            _ => None,
        })
    }

    /// Reads the events of a range of positions. A strict reader ends at the first position that is lost or
    /// damaged, see [`OnLoss`](crate::OnLoss).
    ///
    /// # Errors
    /// `spool.gap` if the first position is retired or lost, `spool.behind_checkpoint` above the
    /// durable one, `spool.unknown_column`, `spool.corrupt`, `spool.io`.
    pub fn read(
        &self,
        layouts: &Layouts,
        range: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Reader, SpoolError> {
        let walk = self.walk(range)?;
        Reader::new(layouts, self.uuid(), walk, options)
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
        match walk_slice(slice) {
            Err(error) if error.is_not_found() => Err(SpoolError::Gap {
                position: slice.start,
                first_kept: slice.end,
            }),
            walk => Reader::new(layouts, &slice.uuid, walk?, options),
        }
    }

    /// Returns the blocks that hold a range of positions, in order, without bodies; lost positions
    /// are skipped.
    ///
    /// # Errors
    /// `spool.gap` below the first kept position, `spool.behind_checkpoint`, `spool.io`; those of single
    /// groups come from the iterator.
    pub fn blocks(
        &self,
        range: Range<u64>,
    ) -> Result<impl Iterator<Item = Result<BlockInfo, SpoolError>> + use<>, SpoolError> {
        let first_kept = self.first_kept()?;
        if range.start < first_kept && range.start < range.end {
            let hole = Loss::new(range.start, first_kept, LossWhy::Removed);
            return Err(self.listed.refusal(&hole));
        }
        Ok(Blocks {
            walk: self.walk(range)?,
            ready: VecDeque::new(),
        })
    }

    /// Every hole in a range of durable positions, in order: positions that are noted as lost or
    /// damaged, and those that no segment has. With `check` also groups whose bytes have changed:
    /// every byte of the range is read.
    ///
    /// # Errors
    /// `spool.behind_checkpoint`, `spool.io`.
    pub fn holes(&self, range: Range<u64>, check: bool) -> Result<Vec<Loss>, SpoolError> {
        let mut walk = self.walk(range)?;
        let mut holes: Vec<Loss> = Vec::new();
        loop {
            if !check && let Some(footer) = walk.whole()? {
                walk.go_to(footer.end());
                continue;
            }
            let hole = match walk.next()? {
                None => return Ok(holes),
                Some(Step::Hole(hole)) => hole,
                Some(Step::Group(..)) if !check => continue,
                Some(Step::Group(segment, entry, span)) => {
                    match check_group(segment.file()?, &segment.path, &entry) {
                        Ok(()) => continue,
                        Err(_) if walk.looks_elsewhere(&segment, &entry, span.start) => continue,
                        Err(SpoolError::Corrupt { .. }) => {
                            Loss::new(span.start, span.end, LossWhy::Corrupt)
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            let to = hole.to.min(walk.end());
            match holes.last_mut() {
                Some(last) if last.to == hole.from && last.why == hole.why => last.to = to,
                _ => holes.push(Loss { to, ..hole }),
            }
        }
    }

    /// The positions above the first kept one that are known to be unreadable: those that are
    /// noted, and those that no segment has. Groups are not read.
    ///
    /// # Errors
    /// `spool.corrupt`, `spool.io`.
    pub fn losses(&self) -> Result<Vec<Loss>, SpoolError> {
        let durable = self.durable()?;
        let first = self.listed.first_kept(durable)?;
        self.holes(first..durable, false)
    }

    /// The contents of the durable mark.
    pub(crate) fn published(&self) -> Result<Mark, SpoolError> {
        Mark::read(&self.mark, &self.folder.root().join(MARK))
    }

    /// Walks a range, which must be durable.
    pub(crate) fn walk(&self, range: Range<u64>) -> Result<Walk, SpoolError> {
        let durable = self.durable()?;
        let position = range.start.max(range.end);
        if position > durable {
            return Err(SpoolError::BehindCheckpoint { position, durable });
        }
        Walk::new(&self.listed, range, durable)
    }

    fn sizes(&self, segment: &Segment, entry: &Entry) -> Result<Arc<Vec<Size>>, SpoolError> {
        if let Some((first, sizes)) = &locked(&self.cache).sizes
            && *first == entry.first
        {
            return Ok(sizes.clone());
        }
        let group = Outline::checked(segment, entry)?;
        let size = |b: crate::StoredBlock<'_>| (b.first_position, b.count.into(), b.inflated_bytes);
        let sizes = Arc::new(group.blocks().map(size).collect::<Vec<Size>>());
        locked(&self.cache).sizes = Some((entry.first, sizes.clone()));
        Ok(sizes)
    }
}

/// The blocks of a range without their bodies, a group at a time.
struct Blocks {
    walk: Walk,
    ready: VecDeque<BlockInfo>,
}

impl Iterator for Blocks {
    type Item = Result<BlockInfo, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            let (segment, entry, span) = match self.walk.next() {
                Ok(None) => return None,
                Ok(Some(Step::Hole(_))) => continue,
                Ok(Some(Step::Group(segment, entry, span))) => (segment, entry, span),
                Err(error) => {
                    self.walk.go_to(self.walk.end());
                    return Some(Err(error));
                }
            };
            match Outline::checked(&segment, &entry) {
                Ok(group) => {
                    let infos = group.blocks().map(BlockInfo::from);
                    self.ready.extend(infos.filter(|info| {
                        let end = info.first_position + u64::from(info.count);
                        end > span.start && info.first_position < span.end
                    }));
                }
                Err(error) => {
                    if !self.walk.looks_elsewhere(&segment, &entry, span.start) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

/// Walks a slice by its file, as long as that holds the planned groups.
fn walk_slice(slice: &Slice) -> Result<Walk, SpoolError> {
    let not_found = || SpoolError::io("open", &slice.path, std::io::ErrorKind::NotFound.into());
    let name = slice.path.file_name().unwrap_or_default().to_string_lossy();
    let first = position_in(&name, SEGMENT).ok_or_else(not_found)?;
    let dir = slice.path.parent().and_then(Path::parent);
    // The process that planned the slice has checked the spool's rights.
    let access = Access { group: true };
    let folder = Folder::open(dir.ok_or_else(not_found)?, access, Arc::new(RealDisk))?;
    let identity = identity_of(&folder)?;
    let listed = Arc::new(Listed::new(folder, &identity));
    let segment = Segment::open_any(&listed, first)?;
    if let Some(header) = segment.header() {
        let was_adopted = identity.uuid == slice.uuid && identity.knows(&header.uuid);
        if header.uuid != slice.uuid && !was_adopted {
            return Err(SpoolError::Replaced {
                path: slice.path.clone(),
                expected: slice.uuid.clone(),
                found: header.uuid.clone(),
            });
        }
    }
    Walk::inside(listed, segment, slice.start..slice.end)
}

/// Opens the folder of a spool.
pub(crate) fn folder_of(dir: &Path, access: Access) -> Result<Folder, SpoolError> {
    match Folder::open(dir, access, Arc::new(RealDisk)) {
        Err(error) if error.is_not_found() => Err(SpoolError::not_a_spool(dir, NO_IDENTITY)),
        folder => folder,
    }
}

/// The identity of the spool in a folder.
pub(crate) fn identity_of(folder: &Folder) -> Result<Identity, SpoolError> {
    Identity::read(folder)?.ok_or_else(|| SpoolError::not_a_spool(folder.dir(), NO_IDENTITY))
}

const NO_IDENTITY: &str = "it has no spool.json";
