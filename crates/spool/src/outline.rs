//! A group without its bodies: the descriptions of its blocks, and single bodies on request.
//!
//! The CRC of a group is checked once, while it is read. Another block of the same group needs no
//! second check, since each body is checked against the checksum of its block.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use crate::{
    SpoolError, Standing, StoredBlock,
    digest::sender_of,
    group::Group,
    index::Entry,
    segment::{MOST_HEAD_BYTES, check_group},
    walk::Segment,
};

/// The columns that describe the blocks of one group.
#[derive(Debug)]
pub(crate) struct Outline {
    group: Group,
    entry: Entry,
    /// The offset of the bodies in the file.
    bodies_at: u64,
}

impl Outline {
    /// Reads the part before the bodies of a group that was [checked](crate::segment::check_group).
    pub(crate) fn read(file: &File, path: &Path, entry: &Entry) -> Result<Self, SpoolError> {
        let read = |bytes: &mut [u8], at: u64| {
            file.read_exact_at(bytes, entry.offset + at)
                .map_err(|error| SpoolError::io("read", path, error))
        };
        let broken = |what: &str| {
            SpoolError::corrupt(path, format!("the group at byte {}: {what}", entry.offset))
        };
        let length = entry.length as usize;
        let mut prefix = [0; 8];
        read(&mut prefix, 0)?;
        let [.., a, b, c, d] = prefix;
        let head = 8 + u64::from(u32::from_le_bytes([a, b, c, d]));
        let head_end = usize::try_from(head).unwrap_or(usize::MAX);
        if head_end > length || head > MOST_HEAD_BYTES {
            return Err(broken("its head does not fit it"));
        }
        let mut message = vec![0; head_end - 8];
        read(&mut message, 8)?;
        let bodies = bodies(&message, length - head_end).ok_or_else(|| broken("no sound head"))?;
        // Never touched after the read part: it takes no memory there.
        let mut buffer = vec![0; length];
        let described = head_end + bodies;
        if described > MOST_DESCRIBED_BYTES {
            return Err(broken(&format!(
                "{described} bytes describe its blocks, more than {MOST_DESCRIBED_BYTES}"
            )));
        }
        read(buffer.get_mut(..described).unwrap_or_default(), 0)?;
        Ok(Self {
            group: Group::of(buffer, path, entry)?,
            entry: *entry,
            bodies_at: entry.offset + described as u64,
        })
    }

    /// Checks a group and reads the part before its bodies.
    pub(crate) fn checked(segment: &Segment, entry: &Entry) -> Result<Self, SpoolError> {
        check_group(segment.file()?, &segment.path, entry)?;
        Self::read(segment.file()?, &segment.path, entry)
    }

    /// Its blocks, in order; their bodies are zeros of the right length.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = StoredBlock<'_>> {
        self.group.blocks()
    }

    /// The index entry by which it was read.
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The block that begins at this position, without its body, and its body.
    pub(crate) fn block(
        &self,
        file: &File,
        path: &Path,
        position: u64,
    ) -> Result<(StoredBlock<'_>, Vec<u8>), SpoolError> {
        let found = self.group.blocks().enumerate();
        let mut found = found.filter(|(_, block)| block.first_position == position);
        let Some((at, block)) = found.next() else {
            let detail = format!("no block begins at position {position}");
            return Err(SpoolError::corrupt(path, detail));
        };
        let range = self.group.body_range(at);
        let mut body = vec![0; block.body.len()];
        file.read_exact_at(&mut body, self.bodies_at + range.start)
            .map_err(|error| SpoolError::io("read", path, error))?;
        if crc32c::crc32c(&body) != block.checksum {
            let detail = format!("the body at position {position} does not fit its checksum");
            return Err(SpoolError::corrupt(path, detail));
        }
        Ok((StoredBlock { body: &[], ..block }, body))
    }

    /// Its blocks, in order.
    pub(crate) fn standings(&self) -> impl Iterator<Item = Standing> {
        self.group.blocks().enumerate().map(|(at, block)| {
            let attributes = self.group.attributes(at);
            let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
            Standing {
                first_position: block.first_position,
                events: block.count,
                windows: block.windows,
                sender: sender_of(block.origin.peer, pairs).to_owned(),
                link: block.origin.link.to_owned(),
            }
        })
    }
}

/// The offset of the bodies, the last buffer, after the head; `None` unless every buffer lies
/// inside.
fn bodies(message: &[u8], length: usize) -> Option<usize> {
    let message = arrow_ipc::root_as_message(message).ok()?;
    let buffers = message.header_as_record_batch()?.buffers()?;
    let mut begin = None;
    for buffer in buffers {
        let at = usize::try_from(buffer.offset()).ok()?;
        let len = usize::try_from(buffer.length()).ok()?;
        if at.checked_add(len)? > length {
            return None;
        }
        begin = Some(at);
    }
    begin
}

/// More than the description of any group commit, which is at most 64 MiB or one block.
const MOST_DESCRIBED_BYTES: usize = 128 << 20;
