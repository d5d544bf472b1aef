//! The index beside a segment: a header, then one entry for each group commit, and a footer. Encoding and
//! checks only.
//!
//! A group of format 2 contains a second copy of its entry, its *seal*: a missing or damaged index
//! is rebuilt from the segment alone.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use crate::{
    SpoolError,
    folder::{Dir, Folder},
    format::{FORMAT, array, check_format, is_sealed, seal, uuid_bytes, uuid_text},
};

/// The name of the segment that begins at a position.
pub(crate) fn segment_name(first: u64) -> String {
    format!("{first:020}{SEGMENT}")
}

/// The name of the index beside it.
pub(crate) fn index_name(first: u64) -> String {
    format!("{first:020}{INDEX}")
}

/// The position in the name of a segment or an index with this extension.
pub(crate) fn position_in(name: &str, ending: &str) -> Option<u64> {
    let digits = name.strip_suffix(ending)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The first positions of all segments, in order; none where the directory is missing.
pub(crate) fn list(folder: &Folder) -> Result<Vec<u64>, SpoolError> {
    let names = match folder.segments().and_then(Dir::names) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        names => names?,
    };
    let mut firsts: Vec<u64> = names
        .iter()
        .filter_map(|name| position_in(name, SEGMENT))
        .collect();
    firsts.sort_unstable();
    Ok(firsts)
}

/// The header of an index: 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) uuid: String,
    /// The segment's first position.
    pub(crate) first: u64,
    /// When its first block was received, in microseconds since 1970.
    pub(crate) first_time_us: i64,
    /// Bytes of each entry.
    pub(crate) entry_bytes: usize,
}

impl IndexHeader {
    /// The header that this release writes.
    pub(crate) fn new(uuid: String, first: u64, first_time_us: i64) -> Self {
        Self {
            uuid,
            first,
            first_time_us,
            entry_bytes: ENTRY_BYTES,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let format: u16 = if self.is_sealed() { 2 } else { 1 };
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&format.to_le_bytes());
        out[10..12].copy_from_slice(&format.to_le_bytes());
        let entry_bytes = u32::try_from(self.entry_bytes).unwrap_or_default();
        out[12..16].copy_from_slice(&entry_bytes.to_le_bytes());
        out[16..32].copy_from_slice(&uuid_bytes(&self.uuid).unwrap_or_default());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_time_us.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Checks the header of the index at `path`.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Self, SpoolError> {
        let sound = bytes.len() == HEADER_BYTES && bytes[..8] == *MAGIC && is_sealed(bytes);
        if !sound {
            return Err(SpoolError::corrupt(
                path,
                "the header of the index is not sound",
            ));
        }
        let format = u64::from(u16::from_le_bytes(array(bytes, 8)));
        let reader = u64::from(u16::from_le_bytes(array(bytes, 10)));
        check_format(path, Some(format), Some(reader))?;
        let entry_bytes = u32::from_le_bytes(array(bytes, 12)) as usize;
        // A later release may add to an entry, before its CRC.
        let is_known = match format {
            1 => entry_bytes == OLD_ENTRY_BYTES,
            _ => (ENTRY_BYTES..=MOST_ENTRY_BYTES).contains(&entry_bytes),
        };
        if !is_known {
            let detail = format!("its entries have {entry_bytes} bytes");
            return Err(SpoolError::corrupt(path, detail));
        }
        Ok(Self {
            uuid: uuid_text(&array(bytes, 16)),
            first: u64::from_le_bytes(array(bytes, 32)),
            first_time_us: i64::from_le_bytes(array(bytes, 40)),
            entry_bytes,
        })
    }

    /// Whether each group of the segment carries its entry as a seal.
    pub(crate) fn is_sealed(&self) -> bool {
        self.entry_bytes != OLD_ENTRY_BYTES
    }

    /// The offset of the entry of this number in the index.
    pub(crate) fn at(&self, number: u64) -> u64 {
        HEADER_BYTES as u64 + number * self.entry_bytes as u64
    }

    /// The entries that fit into an index of so many bytes.
    pub(crate) fn entries_in(&self, len: u64) -> u64 {
        len.saturating_sub(HEADER_BYTES as u64) / self.entry_bytes as u64
    }
}

/// One entry of an index: a group commit, or the end of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) blocks: u32,
    /// The offset of the group in the segment.
    pub(crate) offset: u64,
    /// Bytes of the group.
    pub(crate) length: u32,
    /// CRC-32C of the group's bytes, without its seal if it has one.
    pub(crate) crc: u32,
    /// The position of its first event.
    pub(crate) first: u64,
    /// Events.
    pub(crate) count: u64,
    /// A group: when it was made durable. The footer: when the last block was received.
    pub(crate) time_us: i64,
    /// Bytes of the bodies with nothing compressed.
    pub(crate) inflated: u64,
    /// The writer's epoch; 0 in format 1.
    pub(crate) epoch: u64,
    /// The time for which writers had watched the spool, in microseconds; 0 in format 1.
    pub(crate) watched_us: u64,
    /// Whether the group carries this entry as its seal.
    pub(crate) is_sealed: bool,
}

/// The kind of an index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Footer,
}

impl Entry {
    /// The position after its last event.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// The byte after its last one.
    pub(crate) fn byte_end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// Its bytes in an index, in the entry's own format.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![
            0;
            if self.is_sealed {
                ENTRY_BYTES
            } else {
                OLD_ENTRY_BYTES
            }
        ];
        let kind: u32 = if self.kind == Kind::Group { 1 } else { 2 };
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.length.to_le_bytes());
        out[20..24].copy_from_slice(&self.crc.to_le_bytes());
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.count.to_le_bytes());
        out[40..48].copy_from_slice(&self.time_us.to_le_bytes());
        out[48..56].copy_from_slice(&self.inflated.to_le_bytes());
        if self.is_sealed {
            out[56..64].copy_from_slice(&self.epoch.to_le_bytes());
            out[64..72].copy_from_slice(&self.watched_us.to_le_bytes());
        }
        seal(&mut out);
        out
    }

    /// The entry, if its CRC is right. Its length says its format.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let is_sealed_group = bytes.len() >= ENTRY_BYTES;
        if (!is_sealed_group && bytes.len() != OLD_ENTRY_BYTES) || !is_sealed(bytes) {
            return None;
        }
        let kind = match u32::from_le_bytes(array(bytes, 0)) {
            1 => Kind::Group,
            2 => Kind::Footer,
            _ => return None,
        };
        let number = |at: usize| {
            if is_sealed_group {
                u64::from_le_bytes(array(bytes, at))
            } else {
                0
            }
        };
        Some(Self {
            kind,
            blocks: u32::from_le_bytes(array(bytes, 4)),
            offset: u64::from_le_bytes(array(bytes, 8)),
            length: u32::from_le_bytes(array(bytes, 16)),
            crc: u32::from_le_bytes(array(bytes, 20)),
            first: u64::from_le_bytes(array(bytes, 24)),
            count: u64::from_le_bytes(array(bytes, 32)),
            time_us: i64::from_le_bytes(array(bytes, 40)),
            inflated: u64::from_le_bytes(array(bytes, 48)),
            epoch: number(56),
            watched_us: number(64),
            is_sealed: is_sealed_group,
        })
    }
}

/// An open index: its header, and its entries one at a time. It holds a descriptor and no entry.
#[derive(Debug)]
pub(crate) struct Index {
    file: File,
    pub(crate) path: std::path::PathBuf,
    pub(crate) header: IndexHeader,
}

impl Index {
    /// Opens the index of the segment that begins at `first`.
    ///
    /// # Errors
    /// `spool.io` when it is missing, `spool.corrupt` when its header is not sound.
    pub(crate) fn open(segments: &Dir, first: u64) -> Result<Self, SpoolError> {
        let name = index_name(first);
        let path = segments.join(&name);
        let file = segments.read_file(&name)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)
            .map_err(|error| SpoolError::corrupt(&path, error.to_string()))?;
        let header = IndexHeader::decode(&header, &path)?;
        if header.first != first {
            let detail = format!(
                "it is the index of the segment at position {}",
                header.first
            );
            return Err(SpoolError::corrupt(&path, detail));
        }
        Ok(Self { file, path, header })
    }

    /// The number of entries that its length has now; the last ones may be half written.
    pub(crate) fn len(&self) -> u64 {
        let len = self.file.metadata().map_or(0, |meta| meta.len());
        self.header.entries_in(len)
    }

    /// At most so many entries from this number on; an unsound one is `None`.
    pub(crate) fn entries(&self, from: u64, most: u64) -> Result<Vec<Option<Entry>>, SpoolError> {
        let count = most.min(self.len().saturating_sub(from));
        let size = self.header.entry_bytes;
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * size];
        match self.file.read_exact_at(&mut bytes, self.header.at(from)) {
            // A writer has cut the remains of a failed write meanwhile.
            Err(_) if self.len() < from.saturating_add(count) => self.entries(from, most),
            Err(error) => Err(SpoolError::io("read", &self.path, error)),
            Ok(()) => Ok(bytes.chunks(size).map(Entry::decode).collect()),
        }
    }

    /// The entry of this number; `None` if it is missing or not sound.
    pub(crate) fn entry(&self, number: u64) -> Result<Option<Entry>, SpoolError> {
        Ok(self.entries(number, 1)?.pop().flatten())
    }
}

pub(crate) const HEADER_BYTES: usize = 64;

/// Bytes of an entry of this release.
pub(crate) const ENTRY_BYTES: usize = 96;

/// Bytes of an entry of format 1.
pub(crate) const OLD_ENTRY_BYTES: usize = 64;

/// More than a later release will need.
const MOST_ENTRY_BYTES: usize = 4_096;

/// The extension of a segment.
pub(crate) const SEGMENT: &str = ".arrows";

/// The extension of an index.
pub(crate) const INDEX: &str = ".idx";

const MAGIC: &[u8; 8] = b"ACKLIDX1";

/// The format of the written headers.
const _: () = assert!(FORMAT == 2, "IndexHeader::encode writes 2");

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(is_sealed: bool) -> Entry {
        Entry {
            kind: Kind::Group,
            blocks: 3,
            offset: 712,
            length: 999,
            crc: 7,
            first: 4,
            count: 9,
            time_us: 5,
            inflated: 6,
            epoch: if is_sealed { 8 } else { 0 },
            watched_us: if is_sealed { 9 } else { 0 },
            is_sealed,
        }
    }

    #[test]
    fn an_entry_with_any_flipped_bit_is_not_sound() {
        for is_sealed in [false, true] {
            let entry = entry(is_sealed);
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes), Some(entry));
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Entry::decode(&bad), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn additions_of_a_later_release_to_an_entry_are_ignored() {
        let mut bytes = entry(true).encode();
        bytes.truncate(92);
        bytes.extend([0xAB; 32]);
        bytes.extend([0; 4]);
        seal(&mut bytes);
        assert_eq!(Entry::decode(&bytes), Some(entry(true)));
    }
}
