//! The segment that is written: one group and its entry at a time, each synced before the next step.

use std::{fs::File, path::PathBuf, time::Instant};

use crate::{
    SpoolError,
    disk::Disk,
    format::{Entry, Kind, index_of, now_us},
    place::Place,
    segment::{Encoder, Placed},
};

/// The segment that is written.
pub(crate) struct Active {
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
    pub(crate) segment: File,
    pub(crate) index: File,
    /// Of both.
    pub(crate) places: [Place; 2],
    pub(crate) encoder: Encoder,
    /// Bytes of the segment up to its last durable block, and of the index.
    pub(crate) segment_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) opened: Instant,
    pub(crate) blocks: u32,
    pub(crate) inflated: u64,
    /// When its last block was received.
    pub(crate) last_us: i64,
}

impl Active {
    /// Writes and syncs a group and its entry; the position after it.
    pub(crate) fn write(
        &mut self,
        disk: &mut dyn Disk,
        first: u64,
        placed: &[Placed],
    ) -> Result<u64, SpoolError> {
        let buffers = self
            .encoder
            .group(first, placed)
            .map_err(|error| SpoolError::corrupt(&self.path, error.to_string()))?;
        let pieces: Vec<&[u8]> = buffers.iter().map(arrow_buffer::Buffer::as_slice).collect();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let entry = Entry {
            kind: Kind::Group,
            blocks: u32::try_from(placed.len()).unwrap_or(u32::MAX),
            offset: self.segment_bytes,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            crc: pieces
                .iter()
                .fold(0, |crc, piece| crc32c::crc32c_append(crc, piece)),
            first,
            count: placed
                .iter()
                .map(|placed| u64::from(placed.block.count))
                .sum(),
            time_us: now_us(),
            inflated: placed
                .iter()
                .map(|placed| placed.block.inflated_bytes)
                .sum(),
        };
        disk.write(&self.segment, &self.path, &pieces)?;
        disk.sync(&self.segment, &self.path)?;
        let index_path = index_of(&self.path);
        let bytes = entry.encode();
        disk.write(&self.index, &index_path, &[&bytes])?;
        disk.sync(&self.index, &index_path)?;
        self.segment_bytes = entry.byte_end();
        self.index_bytes += bytes.len() as u64;
        self.blocks = self.blocks.saturating_add(entry.blocks);
        self.inflated = self.inflated.saturating_add(entry.inflated);
        self.last_us = placed
            .last()
            .map_or(self.last_us, |placed| placed.received_at_us);
        Ok(entry.end())
    }
}
