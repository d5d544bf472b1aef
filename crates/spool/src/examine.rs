//! Which groups of a segment are sound: the walk along its index that recovery cuts by.

use std::{fs, fs::File, io::ErrorKind, os::unix::fs::FileExt, path::Path};

use crate::{
    SpoolError,
    format::{ENTRY_BYTES, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, index_of},
    segment::{END_OF_STREAM, Encoder, Group},
};

/// What was found in a segment.
#[derive(Debug, Default)]
pub(crate) struct Sound {
    /// The sound groups from the first one on.
    pub(crate) entries: Vec<Entry>,
    /// Whether the segment was ended in good order and nothing must be cut.
    pub(crate) ended: bool,
    /// When its last block was received.
    pub(crate) last_us: i64,
    /// What lies behind the last sound group.
    pub(crate) cut_bytes: u64,
    /// Whether its index has a sound header.
    pub(crate) header: bool,
    /// The end of the last whole entry, also of one whose group is not sound: up to there positions may
    /// have been acknowledged.
    pub(crate) claimed: u64,
    /// What is wrong with the first group that is not sound.
    pub(crate) why: Option<String>,
    /// Whether a group behind that one is sound: such damage is no torn tail.
    pub(crate) followed: bool,
}

/// Walks the index of the segment at `path` and checks each group whose positions lie below `below`.
pub(crate) fn examine(
    path: &Path,
    first: u64,
    below: u64,
    identity: &Identity,
) -> Result<Sound, SpoolError> {
    let index_path = index_of(path);
    let index = match fs::read(&index_path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|error| SpoolError::io("read", &index_path, error))?,
    };
    let file = File::open(path).map_err(|error| SpoolError::io("open", path, error))?;
    let segment_len = file.metadata().map_or(0, |meta| meta.len());
    let header =
        match IndexHeader::check(index.get(..HEADER_BYTES).unwrap_or_default(), &index_path) {
            Ok(header) => header,
            Err(error @ SpoolError::Format { .. }) => return Err(error),
            Err(error) => {
                return Ok(Sound {
                    why: Some(error.to_string()),
                    cut_bytes: segment_len + index.len() as u64,
                    claimed: first,
                    ..Sound::default()
                });
            }
        };
    if !identity.knows(&header.uuid) {
        let (expected, found) = (identity.uuid.clone(), header.uuid);
        return Err(SpoolError::Replaced {
            path: index_path,
            expected,
            found,
        });
    }
    let mut walk = Walk::new(&file, path, first, below, &header);
    for bytes in index[HEADER_BYTES..].chunks(ENTRY_BYTES) {
        walk.entry(bytes)?;
    }
    Ok(walk.end(segment_len, index.len() as u64))
}

/// The state of a walk: where the sound part ends in both files.
struct Walk<'a> {
    file: &'a File,
    path: &'a Path,
    below: u64,
    next: u64,
    index_end: u64,
    segment_end: u64,
    buffer: Vec<u8>,
    sound: Sound,
}

impl<'a> Walk<'a> {
    fn new(file: &'a File, path: &'a Path, first: u64, below: u64, header: &IndexHeader) -> Self {
        let begin = Encoder::new(header).map_or(0, |(_, begin)| begin.len() as u64);
        Self {
            file,
            path,
            below,
            next: first,
            index_end: HEADER_BYTES as u64,
            segment_end: begin,
            buffer: Vec::new(),
            sound: Sound {
                header: true,
                claimed: first,
                last_us: header.first_time_us,
                ..Sound::default()
            },
        }
    }

    fn entry(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        if self.sound.ended {
            return Ok(());
        }
        let Some(entry) = Entry::decode(bytes) else {
            self.broken("an entry of the index is not sound");
            return Ok(());
        };
        if entry.kind == Kind::Footer {
            self.footer(&entry);
            return Ok(());
        }
        if entry.first >= self.below {
            self.broken("its positions belong to the next segment");
            return Ok(());
        }
        self.sound.claimed = self.sound.claimed.max(entry.end());
        if self.sound.why.is_none()
            && (entry.offset != self.segment_end || entry.first != self.next)
        {
            self.broken("an entry of the index does not follow the one before");
        }
        let buffer = std::mem::take(&mut self.buffer);
        match Group::read(self.file, self.path, &entry, buffer) {
            Ok(group) if self.sound.why.is_none() => {
                let last = group.blocks().map(|block| block.received_at_us).max();
                self.sound.last_us = self.sound.last_us.max(last.unwrap_or(0));
                self.buffer = group.into_buffer();
                self.next = entry.end();
                self.index_end += ENTRY_BYTES as u64;
                self.segment_end = entry.byte_end();
                self.sound.entries.push(entry);
            }
            Ok(_) => self.sound.followed = true,
            Err(SpoolError::Corrupt { detail, .. }) => self.broken(&detail),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn footer(&mut self, entry: &Entry) {
        let mut marker = [0; END_OF_STREAM.len()];
        let follows = self.sound.why.is_none()
            && entry.offset == self.segment_end
            && entry.end() == self.next;
        if follows
            && self.file.read_exact_at(&mut marker, entry.offset).is_ok()
            && marker == END_OF_STREAM
        {
            self.sound.ended = true;
            self.index_end += ENTRY_BYTES as u64;
            self.segment_end = entry.byte_end();
        }
    }

    fn broken(&mut self, why: &str) {
        self.sound.why.get_or_insert_with(|| why.to_owned());
    }

    fn end(mut self, segment_len: u64, index_len: u64) -> Sound {
        self.sound.cut_bytes =
            segment_len.saturating_sub(self.segment_end) + index_len.saturating_sub(self.index_end);
        // What follows a footer was never written by a spool: end the segment anew.
        self.sound.ended &= self.sound.cut_bytes == 0;
        self.sound
    }
}
