//! The segment that is written: one group and its entry at a time, each synced before the next step.

use std::{fs::File, path::PathBuf, time::Instant};

use crate::{
    SpoolError,
    catalog::{Kept, Last},
    folder::Folder,
    index::{Entry, IndexHeader, Kind, index_name, segment_name},
    place::Place,
    segment::{END_OF_STREAM, Encoder, Placed, Stamp},
};

/// The segment that is written.
pub(crate) struct Active {
    pub(crate) first: u64,
    pub(crate) segment: Written,
    pub(crate) index: Written,
    encoder: Encoder,
    pub(crate) opened: Instant,
    blocks: u32,
    inflated: u64,
    /// When its last block was received, and how long the spool had been watched then.
    pub(crate) last: Last,
    epoch: u64,
}

/// When its last block was received, by both clocks.
pub(crate) struct Written {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
    /// Bytes up to the end of the durable part.
    pub(crate) bytes: u64,
}

impl Written {
    /// Durable bytes of the file.
    fn create(folder: &Folder, name: &str, begin: &[u8]) -> Result<Self, SpoolError> {
        let (dir, disk) = (folder.segments()?, folder.disk());
        let path = dir.join(name);
        let file = folder.create(dir, name)?;
        let made = Self {
            place: Place::of(&file, &path)?,
            file,
            path,
            bytes: begin.len() as u64,
        };
        let written = disk.write(&made.file, &made.path, &[begin]);
        written
            .and_then(|()| disk.sync(&made.file, &made.path))
            .inspect_err(|_| made.remove(folder))?;
        Ok(made)
    }

    /// Removes it, unless another writer's file stands in its place.
    fn remove(&self, folder: &Folder) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let removed = self
            .place
            .check()
            .and_then(|()| folder.disk().remove(folder.segments()?, &name));
        if let Err(error) = removed {
            tracing::warn!(code = "spool.left_behind", path = %self.path.display(), %error,
                "a file of a segment that failed could not be removed: the next start does that");
        }
    }

    fn append(&self, folder: &Folder, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        folder.disk().write(&self.file, &self.path, pieces)?;
        folder.disk().sync(&self.file, &self.path)
    }

    /// Removes it, unless another writer's file has taken its place.
    fn cut_back(&self, folder: &Folder) -> Result<(), SpoolError> {
        folder.disk().cut(&self.file, &self.path, self.bytes)?;
        folder.disk().sync(&self.file, &self.path)
    }

    /// Cuts the bytes that a failed write or sync may have left after the durable ones.
    pub(crate) fn check(&self) -> Result<(), SpoolError> {
        self.place.check_written(self.bytes)
    }
}

impl Active {
    /// Checks that it is in its place with the bytes that were written.
    pub(crate) fn begin(
        folder: &Folder,
        header: &IndexHeader,
        epoch: u64,
        watched_us: u64,
    ) -> Result<Self, SpoolError> {
        let first = header.first;
        let dir = folder.segments()?;
        let path = dir.join(&segment_name(first));
        let (encoder, begin) =
            Encoder::new(header).map_err(|error| SpoolError::corrupt(&path, error.to_string()))?;
        let index = Written::create(folder, &index_name(first), &header.encode())?;
        let segment = Written::create(folder, &segment_name(first), &begin)
            .inspect_err(|_| index.remove(folder))?;
        folder.disk().sync_dir(dir).inspect_err(|_| {
            segment.remove(folder);
            index.remove(folder);
        })?;
        Ok(Self {
            first,
            segment,
            index,
            encoder,
            opened: Instant::now(),
            blocks: 0,
            inflated: 0,
            last: Last {
                wall_us: header.first_time_us,
                watched_us,
            },
            epoch,
        })
    }

    /// Begins the segment of a position: its index first, since a listed segment has one.
    pub(crate) fn write(
        &mut self,
        folder: &Folder,
        first: u64,
        placed: &[Placed],
        watched_us: u64,
    ) -> Result<u64, SpoolError> {
        let stamp = Stamp {
            first,
            offset: self.segment.bytes,
            time_us: folder.disk().now_us(),
            epoch: self.epoch,
            watched_us,
        };
        let (entry, buffers) = self
            .encoder
            .group(placed, &stamp)
            .map_err(|error| SpoolError::corrupt(&self.segment.path, error.to_string()))?;
        let pieces: Vec<&[u8]> = buffers.iter().map(arrow_buffer::Buffer::as_slice).collect();
        self.segment.append(folder, &pieces)?;
        let bytes = entry.encode();
        self.index.append(folder, &[&bytes])?;
        self.segment.bytes = entry.byte_end();
        self.index.bytes += bytes.len() as u64;
        self.blocks = self.blocks.saturating_add(entry.blocks);
        self.inflated = self.inflated.saturating_add(entry.inflated);
        self.last = Last {
            wall_us: placed
                .last()
                .map_or(self.last.wall_us, |placed| placed.received_at_us),
            watched_us,
        };
        Ok(entry.end())
    }

    /// Writes and syncs a group and its entry. Returns the position after it.
    pub(crate) fn end(&mut self, folder: &Folder, position: u64) -> Result<(), SpoolError> {
        let footer = Entry {
            kind: Kind::Footer,
            blocks: self.blocks,
            offset: self.segment.bytes,
            length: u32::try_from(END_OF_STREAM.len()).unwrap_or_default(),
            crc: crc32c::crc32c(&END_OF_STREAM),
            first: self.first,
            count: position - self.first,
            time_us: self.last.wall_us,
            inflated: self.inflated,
            epoch: self.epoch,
            watched_us: self.last.watched_us,
            is_sealed: true,
        };
        // Not synced: without it the segment counts just the same, and is ended anew.
        let (file, path) = (&self.segment.file, &self.segment.path);
        folder.disk().write(file, path, &[&END_OF_STREAM])?;
        self.segment.bytes += END_OF_STREAM.len() as u64;
        let bytes = footer.encode();
        self.index.append(folder, &[&bytes])?;
        self.index.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Not synced: without the footer the segment counts just the same, and is ended again.
    pub(crate) fn cut_back(&self, folder: &Folder) -> Result<(), SpoolError> {
        self.index.cut_back(folder)?;
        self.segment.cut_back(folder)
    }

    /// Cuts the bytes that a failed write or sync may have left in the page cache, so that no later
    /// start believes them: the entry before the group that it names.
    pub(crate) fn remove(&self, folder: &Folder) {
        // An index that could not be cut names a group: without its segment it would tell of a loss.
        self.index.remove(folder);
        let _ = folder
            .segments()
            .and_then(|dir| folder.disk().sync_dir(dir));
        self.segment.remove(folder);
    }

    /// An index that could not be cut names a group: without its segment it would report a loss.
    pub(crate) fn kept(&self, end: u64) -> Kept {
        Kept {
            first: self.first,
            end,
            bytes: self.bytes(),
            last: Some(self.last),
        }
    }

    /// Returns its place and size when nothing more is written to it.
    pub(crate) fn bytes(&self) -> u64 {
        self.segment.bytes + self.index.bytes
    }
}
