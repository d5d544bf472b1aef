//! The inside of a compressed frame, checked as a whole before anything in it takes effect: at once
//! if it is small enough and sound, else through one scratch buffer, piece by piece.

use bytes::{Bytes, BytesMut};
use flate2::{Decompress, Status};

use crate::inflate::{AtOnce, Tries};
use crate::record::inflate_step;
use crate::walker::{Head, Walked, Walker, wide};
use crate::wire::{From, HEADER, Version};
use crate::{Kind, Limits};
use ackline_core::LimitHit;

/// A zlib stream that is read through the scratch buffer. It allocates with the first piece.
#[derive(Debug, Default)]
pub(crate) struct Inflate {
    zlib: Option<Decompress>,
    scratch: Vec<u8>,
    /// The unread part of the scratch: from `at` to `filled`.
    at: usize,
    filled: usize,
    taken: usize,
    made: usize,
    ended: bool,
}

impl Inflate {
    /// Back to the start of a stream.
    pub(crate) fn restart(&mut self) {
        if let Some(zlib) = &mut self.zlib {
            zlib.reset(true);
        }
        self.at = 0;
        self.filled = 0;
        self.taken = 0;
        self.made = 0;
        self.ended = false;
    }

    /// Inflates the next piece of `stream` into the scratch. Returns its length, 0 at the sound
    /// end.
    pub(crate) fn fill(&mut self, stream: &[u8], limit: usize) -> Result<usize, Kind> {
        self.at = 0;
        self.filled = 0;
        let zlib = self.zlib.get_or_insert_with(|| Decompress::new(true));
        self.scratch.resize(SCRATCH, 0);
        while !self.ended && self.filled == 0 {
            let input = stream.get(self.taken..).unwrap_or_default();
            let (status, taken, made) = inflate_step(zlib, input, self.scratch.as_mut_slice())?;
            self.taken = self.taken.saturating_add(taken);
            self.made = self.made.saturating_add(made);
            self.filled = made;
            if self.made > limit {
                return Err(Kind::InflatedTooLarge(LimitHit {
                    value: wide(self.made),
                    limit: wide(limit),
                    option: "--max-inflated-bytes",
                }));
            }
            self.ended = status == Status::StreamEnd;
            let trailing = stream.len().saturating_sub(self.taken);
            if self.ended && trailing > 0 {
                return Err(Kind::TrailingBytes(wide(trailing)));
            }
            if !self.ended && taken == 0 && made == 0 {
                return Err(Kind::Zlib);
            }
        }
        Ok(self.filled)
    }

    fn held_bytes(&self) -> usize {
        let zlib = if self.zlib.is_some() { ZLIB_BYTES } else { 0 };
        self.scratch.capacity().saturating_add(zlib)
    }

    /// The next piece of `stream` as a whole.
    pub(crate) fn next(&mut self, stream: &[u8], limit: usize) -> Result<Option<&[u8]>, Kind> {
        let filled = self.fill(stream, limit)?;
        Ok(self.scratch.get(..filled).filter(|piece| !piece.is_empty()))
    }

    fn piece(&self) -> &[u8] {
        self.scratch.get(self.at..self.filled).unwrap_or_default()
    }
}

/// The whole inflated `stream`, up to `limit` bytes.
pub(crate) fn inflate_all(stream: &[u8], limit: usize) -> Result<Vec<u8>, Kind> {
    let mut inflate = Inflate::default();
    let mut all = Vec::new();
    while let Some(bytes) = inflate.next(stream, limit)? {
        all.extend_from_slice(bytes);
    }
    Ok(all)
}

/// The result of the first pass over an envelope.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Summary {
    /// Events.
    pub(crate) records: u32,
    pub(crate) first_sequence: u32,
    pub(crate) last_sequence: u32,
    /// Places where the sequence does not increase by one.
    pub(crate) gaps: u64,
    /// Bytes of the events with their headers.
    pub(crate) inflated: usize,
    /// Window frames.
    pub(crate) windows: u32,
    /// The size that its first frame announces, if that is a window frame.
    pub(crate) opening: Option<u32>,
    /// A window frame, or a frame of the other version: it must be applied frame by frame.
    pub(crate) in_turns: bool,
}

/// An envelope that is being processed.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) version: Version,
    /// The whole frame with its header.
    pub(crate) bytes: Bytes,
    pub(crate) summary: Summary,
    /// Events that were applied one by one and not yet given to the window being filled.
    pub(crate) applied: u32,
    /// Their frames, inflated, if windows share the envelope: each window gets its own frames in
    /// that form.
    pub(crate) plain: Option<BytesMut>,
    inflate: Inflate,
    walker: Walker,
    fault: Option<Kind>,
    has_asked: bool,
    second_pass: bool,
}

/// The progress of one step of the first pass.
pub(crate) enum Checked {
    /// So many bytes came out; continue.
    More(usize),
    /// The envelope is sound; so many bytes came out in this step.
    Sound(usize),
}

impl Envelope {
    pub(crate) fn new(version: Version, bytes: Bytes, mut inflate: Inflate) -> Self {
        inflate.restart();
        Self {
            version,
            bytes,
            summary: Summary::default(),
            applied: 0,
            plain: None,
            inflate,
            walker: Walker::new(From::Writer, true),
            fault: None,
            has_asked: false,
            second_pass: false,
        }
    }

    /// The scratch, for the next envelope.
    pub(crate) fn into_inflate(self) -> Inflate {
        self.inflate
    }

    /// Checks all of it by one call; `None` if it must be checked piece by piece, from the start.
    pub(crate) fn check_at_once(&mut self, tries: &mut Tries, limits: &Limits) -> Option<Checked> {
        let stream = self.bytes.get(HEADER..).unwrap_or_default();
        let version = self.version;
        let read = |frames: &[u8]| {
            let is_allowed = frames.len() <= limits.max_inflated_bytes;
            let summary = is_allowed.then(|| Summary::of(version, frames, limits))??;
            Some((summary, frames.len()))
        };
        let AtOnce::Sound(Some((summary, made))) = tries.at_once(stream, read) else {
            return None;
        };
        self.summary = summary;
        Some(Checked::Sound(made))
    }

    /// Bytes that it keeps from one call to the next.
    pub(crate) fn held_bytes(&self) -> usize {
        let plain = self.plain.as_ref().map_or(0, BytesMut::capacity);
        self.bytes
            .len()
            .saturating_add(self.inflate.held_bytes())
            .saturating_add(plain)
    }

    /// Bytes that the next call may add to that, and to the window that is being filled.
    pub(crate) fn step_bytes(&self) -> usize {
        let tools = TOOLS_BYTES.saturating_sub(self.inflate.held_bytes());
        let plain = self.plain.as_ref().map_or(0, |plain| {
            // A growing buffer exists twice for a moment.
            plain.capacity().saturating_add(SCRATCH.saturating_mul(2))
        });
        tools.saturating_add(plain)
    }

    /// Whether the driver must be asked for the memory to inflate it piece by piece: once.
    pub(crate) fn asks_for_tools(&mut self) -> bool {
        self.inflate.zlib.is_none() && !std::mem::replace(&mut self.has_asked, true)
    }

    /// Whether nothing of it has been checked.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.inflate.taken == 0
    }

    /// Checks the next piece. The first unsound frame is held until the zlib stream is known to be
    /// sound.
    pub(crate) fn check(&mut self, limits: &Limits) -> Result<Checked, Kind> {
        let stream = self.bytes.get(HEADER..).unwrap_or_default();
        let made = self.inflate.fill(stream, limits.max_inflated_bytes)?;
        if made == 0 {
            if let Some(kind) = self.fault.take() {
                return Err(kind);
            }
            if self.walker.between_frames() {
                return Ok(Checked::Sound(0));
            }
            return Err(Kind::TruncatedEnvelope);
        }
        let mut piece = self.inflate.piece();
        while self.fault.is_none() && !piece.is_empty() {
            match self.walker.step(&mut piece, limits) {
                Ok(Some(walked)) => self.summary.add(self.version, walked),
                Ok(None) => {}
                Err(kind) => self.fault = Some(kind),
            }
        }
        Ok(Checked::More(made))
    }

    /// Goes back to the first frame, for the second pass.
    pub(crate) fn rewind(&mut self) {
        self.inflate.restart();
        self.walker = Walker::new(From::Writer, true);
        self.second_pass = true;
    }

    /// Whether the envelope is being applied frame by frame.
    pub(crate) const fn in_second_pass(&self) -> bool {
        self.second_pass
    }

    /// The next frame of the second pass that lies in the inflated part.
    pub(crate) fn next_frame(&mut self, limits: &Limits) -> Result<Option<Walked>, Kind> {
        let mut piece = self.inflate.piece();
        let before = piece.len();
        let walked = self.walker.step(&mut piece, limits)?;
        let passed = before.saturating_sub(piece.len());
        if let Some(plain) = &mut self.plain {
            plain.extend_from_slice(self.inflate.piece().get(..passed).unwrap_or_default());
        }
        self.inflate.at = self.inflate.at.saturating_add(passed);
        Ok(walked)
    }

    /// Inflates the next piece of the second pass; 0 at the end.
    pub(crate) fn refill(&mut self, limits: &Limits) -> Result<usize, Kind> {
        let stream = self.bytes.get(HEADER..).unwrap_or_default();
        self.inflate.fill(stream, limits.max_inflated_bytes)
    }
}

impl Summary {
    /// The summary of all frames of an envelope; `None` unless every one is sound and whole.
    fn of(version: Version, mut frames: &[u8], limits: &Limits) -> Option<Self> {
        let mut summary = Self::default();
        let mut walker = Walker::new(From::Writer, true);
        while !frames.is_empty() {
            if let Some(walked) = walker.step(&mut frames, limits).ok()? {
                summary.add(version, walked);
            }
        }
        walker.between_frames().then_some(summary)
    }

    fn add(&mut self, version: Version, walked: Walked) {
        self.in_turns |= walked.version != version;
        let (Head::Json { sequence } | Head::Data { sequence, .. }) = walked.head else {
            self.in_turns = true;
            if let (Head::Window { size }, 0, 0) = (walked.head, self.windows, self.records) {
                self.opening = Some(size);
            }
            self.windows = self.windows.saturating_add(1);
            return;
        };
        if self.records == 0 {
            self.first_sequence = sequence;
        } else if is_gap(self.last_sequence, sequence) {
            self.gaps = self.gaps.saturating_add(1);
        }
        self.last_sequence = sequence;
        self.records = self.records.saturating_add(1);
        self.inflated = self.inflated.saturating_add(walked.len);
    }
}

/// Whether `next` does not follow `last`; 0 may be skipped, as v2 writers do.
pub(crate) const fn is_gap(last: u32, next: u32) -> bool {
    next != last.wrapping_add(1) && !(last == u32::MAX && next == 1)
}

/// Bytes inflated at a time: few calls, and they stay in the cache between inflating and walking.
const SCRATCH: usize = 128 * 1024;

/// Bytes of a streaming decoder: its 32 KiB of history and its tables.
const ZLIB_BYTES: usize = 48 * 1024;

/// Bytes of the tools that inflate an envelope piece by piece.
const TOOLS_BYTES: usize = SCRATCH + ZLIB_BYTES;
