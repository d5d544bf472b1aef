//! Single events, read in place, in bytes that the reader has already checked.

use std::ops::ControlFlow;

use ackline_core::Reader as Cursor;
use flate2::{Decompress, FlushDecompress, Status};

use crate::Kind;
use crate::inflate::{AtOnce, ROOM, at_once};
use crate::wire::{COMPRESSED, DATA, HEADER, JSON, Version, WINDOW};
use ackline_core::LimitHit;

/// One event.
#[derive(Debug, Clone)]
pub enum Record<'a> {
    /// JSON text, as received.
    Json {
        /// The event's number.
        sequence: u32,
        /// The text.
        payload: &'a [u8],
    },
    /// Key-value pairs.
    Data {
        /// The event's number.
        sequence: u32,
        /// Keys and values, in order.
        pairs: Pairs<'a>,
    },
}

/// The keys and values of a data frame, in order; keys may repeat.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    fields: Cursor<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((field(&mut self.fields)?, field(&mut self.fields)?))
    }
}

/// Walks the events of checked frames, inflating envelopes through one buffer that it keeps.
#[derive(Debug)]
pub struct Expander {
    inflate: Option<Decompress>,
    buffer: Vec<u8>,
    /// The most bytes of the buffer.
    most_bytes: usize,
}

impl Default for Expander {
    fn default() -> Self {
        Self {
            inflate: None,
            buffer: Vec::new(),
            most_bytes: usize::MAX,
        }
    }
}

impl Expander {
    /// An expander without a buffer yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, for frames of at most so many bytes with their headers (at least 2 MiB) if they
    /// are inflated: it holds no more than that at once.
    #[must_use]
    pub fn with_limit(self, most_bytes: usize) -> Self {
        let most_bytes = most_bytes.max(ROOM);
        Self { most_bytes, ..self }
    }

    /// Calls `f` for each event in `checked`, whole frames that a reader has handed on, until it
    /// breaks. Window frames are skipped.
    ///
    /// # Errors
    /// The bytes are not sound frames after all; [`Kind::FrameTooLarge`] of an inflated one above the limit.
    pub fn expand(
        &mut self,
        checked: &[u8],
        f: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), Kind> {
        let mut rest = checked;
        while let Some((kind, number)) = header(rest) {
            if kind != COMPRESSED {
                match walk(&mut rest, f)? {
                    Walk::Missing => return Err(Kind::TruncatedEnvelope),
                    Walk::Done => continue,
                    Walk::Break => return Ok(()),
                }
            }
            let len = usize::try_from(number).map_err(|_| Kind::TruncatedEnvelope)?;
            let (frame, behind) = rest
                .split_at_checked(len.saturating_add(HEADER))
                .ok_or(Kind::TruncatedEnvelope)?;
            let flow = self.envelope(frame.get(HEADER..).unwrap_or_default(), f)?;
            if flow.is_break() {
                return Ok(());
            }
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(Kind::TruncatedEnvelope)
    }

    /// Uses the decoder that accepted it: the other one may not read it.
    fn envelope(
        &mut self,
        stream: &[u8],
        f: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Kind> {
        match at_once(stream, |frames| walk_all(frames, f)) {
            AtOnce::Sound(walked) => walked,
            AtOnce::TooLarge | AtOnce::Unsure => self.streamed(stream, f),
        }
    }

    fn streamed(
        &mut self,
        stream: &[u8],
        f: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Kind> {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(true));
        inflate.reset(true);
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER, 0);
        }
        let mut input = stream;
        let mut filled: usize = 0;
        loop {
            if filled == self.buffer.len() {
                // One frame fills the buffer: it grows with the bytes that have really come out.
                let wanted = filled.saturating_mul(2).min(self.most_bytes);
                if wanted <= filled {
                    return Err(Kind::FrameTooLarge(self.over(filled)));
                }
                self.buffer.resize(wanted, 0);
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let (status, taken, made) = inflate_step(inflate, input, room)?;
            input = input.get(taken..).unwrap_or_default();
            filled = filled.saturating_add(made);
            let mut rest = self.buffer.get(..filled).unwrap_or_default();
            loop {
                match walk(&mut rest, f)? {
                    Walk::Missing => break,
                    Walk::Done => {}
                    Walk::Break => return Ok(ControlFlow::Break(())),
                }
            }
            let left = rest.len();
            if status == Status::StreamEnd {
                return match left {
                    0 => Ok(ControlFlow::Continue(())),
                    _ => Err(Kind::TruncatedEnvelope),
                };
            }
            if taken == 0 && made == 0 {
                return Err(Kind::Zlib);
            }
            self.buffer
                .copy_within(filled.saturating_sub(left)..filled, 0);
            filled = left;
        }
    }
}

impl Expander {
    /// A frame that exceeds the bytes that may be held of it.
    fn over(&self, filled: usize) -> LimitHit {
        let number = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        LimitHit {
            value: number(filled).saturating_add(1),
            limit: number(self.most_bytes),
            option: "--memory",
        }
    }
}

/// Inflates once. Returns the status and the numbers of bytes taken and made.
pub(crate) fn inflate_step(
    inflate: &mut Decompress,
    input: &[u8],
    room: &mut [u8],
) -> Result<(Status, usize, usize), Kind> {
    let (taken, made) = (inflate.total_in(), inflate.total_out());
    let status = inflate
        .decompress(input, room, FlushDecompress::None)
        .map_err(|_| Kind::Zlib)?;
    let since = |now: u64, before: u64| usize::try_from(now.saturating_sub(before));
    let taken = since(inflate.total_in(), taken).map_err(|_| Kind::Zlib)?;
    let made = since(inflate.total_out(), made).map_err(|_| Kind::Zlib)?;
    Ok((status, taken, made))
}

/// The event at the front of `bytes` and the bytes after it.
pub(crate) fn parse_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let mut cursor = Cursor::new(bytes);
    cursor.u8()?;
    let kind = cursor.u8()?;
    let sequence = cursor.u32()?;
    match kind {
        JSON => {
            let payload = field(&mut cursor)?;
            Some((Record::Json { sequence, payload }, cursor.rest()))
        }
        DATA => {
            let pairs = cursor.u32()?;
            let fields = cursor.rest();
            for _ in 0..pairs {
                field(&mut cursor)?;
                field(&mut cursor)?;
            }
            let len = fields.len().saturating_sub(cursor.remaining());
            let fields = Cursor::new(fields.get(..len)?);
            let pairs = Pairs { fields };
            Some((Record::Data { sequence, pairs }, cursor.rest()))
        }
        _ => None,
    }
}

enum Walk {
    /// Bytes are missing.
    Missing,
    /// One frame has been passed.
    Done,
    /// The callback asked for the end.
    Break,
}

/// Passes all frames of an envelope.
fn walk_all(
    mut frames: &[u8],
    f: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Kind> {
    while !frames.is_empty() {
        match walk(&mut frames, f)? {
            Walk::Missing => return Err(Kind::TruncatedEnvelope),
            Walk::Done => {}
            Walk::Break => return Ok(ControlFlow::Break(())),
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Passes one window, JSON or data frame.
fn walk(rest: &mut &[u8], f: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>) -> Result<Walk, Kind> {
    let Some((record, behind)) = parse_record(rest) else {
        return match header(rest) {
            Some((WINDOW, _)) => {
                *rest = rest.get(HEADER..).unwrap_or_default();
                Ok(Walk::Done)
            }
            Some((JSON | DATA, _)) | None => Ok(Walk::Missing),
            Some((kind, _)) => Err(Kind::UnknownFrameType(kind)),
        };
    };
    *rest = behind;
    Ok(match f(record) {
        ControlFlow::Continue(()) => Walk::Done,
        ControlFlow::Break(()) => Walk::Break,
    })
}

fn header(bytes: &[u8]) -> Option<(u8, u32)> {
    let mut cursor = Cursor::new(bytes);
    Version::from_byte(cursor.u8()?)?;
    Some((cursor.u8()?, cursor.u32()?))
}

fn field<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let mut ahead = *cursor;
    let len = usize::try_from(ahead.u32()?).ok()?;
    let field = ahead.take(len)?;
    *cursor = ahead;
    Some(field)
}

/// Inflated at a time: large enough that few frames straddle its end, small enough for the cache.
const BUFFER: usize = 256 * 1024;
