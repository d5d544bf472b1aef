//! Finds frames in a stream of bytes that comes in chunks of any size, and checks their headers.
//!
//! The walker keeps its position inside a frame, so that no byte is read twice. It keeps no
//! payload: the caller has the bytes.

use crate::wire::{ACK, COMPRESSED, DATA, From, HEADER, JSON, RECORD_HEADER, Version, WINDOW};
use crate::{Kind, Limits};
use ackline_core::LimitHit;

/// The fields of a frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Window { size: u32 },
    Json { sequence: u32 },
    Data { sequence: u32, pairs: u32 },
    Compressed,
    Ack { sequence: u32 },
}

/// A whole frame that has been walked over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) version: Version,
    pub(crate) head: Head,
    /// Its bytes with the header.
    pub(crate) len: usize,
}

/// A position inside a stream of frames.
#[derive(Debug, Clone)]
pub(crate) struct Walker {
    from: From,
    inside_envelope: bool,
    /// Header bytes of the frame, or bytes of a field's length.
    held: [u8; RECORD_HEADER],
    have: usize,
    /// Bytes of the frame walked over.
    done: usize,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Header,
    /// `rest` bytes of payload are left, then the frame is whole.
    Payload {
        version: Version,
        head: Head,
        rest: usize,
    },
    Fields(DataFrame),
}

/// The position in a data frame: `rest` bytes of a field, then `fields` more.
#[derive(Debug, Clone, Copy)]
struct DataFrame {
    version: Version,
    head: Head,
    fields: u32,
    rest: usize,
}

impl Walker {
    pub(crate) const fn new(from: From, inside_envelope: bool) -> Self {
        Self {
            from,
            inside_envelope,
            held: [0; RECORD_HEADER],
            have: 0,
            done: 0,
            at: At::Header,
        }
    }

    /// Whether the next byte is the first of a frame.
    pub(crate) const fn between_frames(&self) -> bool {
        self.done == 0
    }

    /// Bytes the frame needs from its first one on, as far as they are known.
    pub(crate) fn needed(&self) -> usize {
        match self.at {
            At::Header => header_len(self.held.get(1).copied().filter(|_| self.have > 1)),
            At::Payload { rest, .. } => self.done.saturating_add(rest),
            At::Fields(DataFrame { fields, rest, .. }) => {
                let lengths = usize::try_from(fields)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(4)
                    .saturating_sub(self.have);
                self.done.saturating_add(rest).saturating_add(lengths)
            }
        }
    }

    /// Walks over `chunk` to the end of the next frame. `chunk` is the rest after it, or empty.
    pub(crate) fn step(
        &mut self,
        chunk: &mut &[u8],
        limits: &Limits,
    ) -> Result<Option<Walked>, Kind> {
        if self.done == 0
            && let Some(walked) = self.whole_json(chunk, limits)?
        {
            return Ok(Some(walked));
        }
        while !chunk.is_empty() {
            let walked = match self.at {
                At::Header => self.header(chunk, limits)?,
                At::Payload {
                    version,
                    head,
                    rest,
                } => {
                    let rest = self.skip(chunk, rest);
                    self.enter(version, head, rest)
                }
                At::Fields(at) => self.fields(chunk, limits, at)?,
            };
            if walked.is_some() {
                return Ok(walked);
            }
        }
        Ok(None)
    }

    /// The common case: a JSON frame that lies in the chunk as a whole.
    #[inline]
    fn whole_json(&self, chunk: &mut &[u8], limits: &Limits) -> Result<Option<Walked>, Kind> {
        let Some((&[v, JSON, s0, s1, s2, s3, l0, l1, l2, l3], payload)) =
            chunk.split_first_chunk::<RECORD_HEADER>()
        else {
            return Ok(None);
        };
        let Some(version) = Version::from_byte(v).filter(|_| self.from == From::Writer) else {
            return Ok(None);
        };
        let len = json_len(u32::from_be_bytes([l0, l1, l2, l3]), limits)?;
        let Some(rest) = payload.get(len..) else {
            return Ok(None);
        };
        *chunk = rest;
        Ok(Some(Walked {
            version,
            head: Head::Json {
                sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            },
            len: len.saturating_add(RECORD_HEADER),
        }))
    }

    fn header(&mut self, chunk: &mut &[u8], limits: &Limits) -> Result<Option<Walked>, Kind> {
        let wanted = header_len(self.held.get(1).copied().filter(|_| self.have > 1));
        // Version and type are checked alone, so that a foreign protocol is refused at its first
        // byte.
        let stop = if self.have < 2 {
            self.have.saturating_add(1)
        } else {
            wanted
        };
        self.hold(chunk, stop);
        if self.have < stop {
            return Ok(None);
        }
        let [v, kind, a @ ..] = self.held;
        let version = Version::from_byte(v).ok_or(Kind::UnknownVersion(v))?;
        if self.have < 2 {
            return Ok(None);
        }
        if self.have == 2 {
            self.judge_type(kind)?;
            return Ok(None);
        }
        self.have = 0;
        let [n0, n1, n2, n3, m0, m1, m2, m3] = a;
        let number = u32::from_be_bytes([n0, n1, n2, n3]);
        let second = u32::from_be_bytes([m0, m1, m2, m3]);
        match kind {
            WINDOW => {
                check(
                    number.into(),
                    limits.max_window_events.into(),
                    "--max-window-events",
                )
                .map_err(Kind::WindowTooLarge)?;
                Ok(self.enter(version, Head::Window { size: number }, 0))
            }
            ACK => Ok(self.enter(version, Head::Ack { sequence: number }, 0)),
            COMPRESSED => {
                let len = length(
                    number,
                    limits.max_compressed_bytes,
                    "--max-compressed-bytes",
                )
                .map_err(Kind::FrameTooLarge)?;
                Ok(self.enter(version, Head::Compressed, len))
            }
            JSON => {
                let len = json_len(second, limits)?;
                Ok(self.enter(version, Head::Json { sequence: number }, len))
            }
            _ => self.data(version, number, second, limits),
        }
    }

    fn judge_type(&self, kind: u8) -> Result<(), Kind> {
        let side = match kind {
            WINDOW | JSON | DATA | COMPRESSED => From::Writer,
            ACK => From::Reader,
            _ => return Err(Kind::UnknownFrameType(kind)),
        };
        if side != self.from {
            return Err(Kind::WrongDirection(kind));
        }
        if self.inside_envelope && kind == COMPRESSED {
            return Err(Kind::NestedEnvelope);
        }
        Ok(())
    }

    fn data(
        &mut self,
        version: Version,
        sequence: u32,
        pairs: u32,
        limits: &Limits,
    ) -> Result<Option<Walked>, Kind> {
        check(pairs.into(), limits.max_pairs.into(), "--max-pairs").map_err(Kind::TooManyPairs)?;
        self.data_room(0, limits)?;
        let head = Head::Data { sequence, pairs };
        let fields = pairs.saturating_mul(2);
        if fields == 0 {
            return Ok(self.enter(version, head, 0));
        }
        self.at = At::Fields(DataFrame {
            version,
            head,
            fields,
            rest: 0,
        });
        Ok(None)
    }

    fn fields(
        &mut self,
        chunk: &mut &[u8],
        limits: &Limits,
        at: DataFrame,
    ) -> Result<Option<Walked>, Kind> {
        let DataFrame {
            version,
            head,
            mut fields,
            mut rest,
        } = at;
        loop {
            rest = self.skip(chunk, rest);
            if rest == 0 && fields == 0 {
                return Ok(self.enter(version, head, 0));
            }
            if rest == 0 {
                self.hold(chunk, 4);
            }
            if rest > 0 || self.have < 4 {
                self.at = At::Fields(DataFrame {
                    version,
                    head,
                    fields,
                    rest,
                });
                return Ok(None);
            }
            self.have = 0;
            let [l0, l1, l2, l3, ..] = self.held;
            let number = u32::from_be_bytes([l0, l1, l2, l3]);
            rest = length(number, limits.max_field_bytes, "--max-field-bytes")
                .map_err(Kind::FieldTooLarge)?;
            self.data_room(rest, limits)?;
            fields = fields.saturating_sub(1);
        }
    }

    /// Checks that a data frame may have `more` bytes.
    fn data_room(&self, more: usize, limits: &Limits) -> Result<(), Kind> {
        let len = self.done.saturating_add(more);
        check(wide(len), wide(limits.max_data_bytes), "--max-data-bytes")
            .map_err(Kind::FrameTooLarge)
    }

    /// Continues with `rest` bytes of payload; with none left the frame is whole.
    fn enter(&mut self, version: Version, head: Head, rest: usize) -> Option<Walked> {
        if rest > 0 {
            self.at = At::Payload {
                version,
                head,
                rest,
            };
            return None;
        }
        let len = std::mem::take(&mut self.done);
        self.at = At::Header;
        self.have = 0;
        Some(Walked { version, head, len })
    }

    /// Holds bytes of the chunk until `stop` of them are held.
    fn hold(&mut self, chunk: &mut &[u8], stop: usize) {
        while self.have < stop {
            let (Some((byte, rest)), Some(slot)) =
                (chunk.split_first(), self.held.get_mut(self.have))
            else {
                return;
            };
            *slot = *byte;
            *chunk = rest;
            self.have = self.have.saturating_add(1);
            self.done = self.done.saturating_add(1);
        }
    }

    /// Skips up to `rest` bytes of the chunk. Returns how many are still to come.
    fn skip(&mut self, chunk: &mut &[u8], rest: usize) -> usize {
        let count = rest.min(chunk.len());
        *chunk = chunk.get(count..).unwrap_or_default();
        self.done = self.done.saturating_add(count);
        rest.saturating_sub(count)
    }
}

const fn header_len(kind: Option<u8>) -> usize {
    match kind {
        Some(JSON | DATA) => RECORD_HEADER,
        _ => HEADER,
    }
}

fn json_len(number: u32, limits: &Limits) -> Result<usize, Kind> {
    if number == 0 {
        return Err(Kind::EmptyJson);
    }
    length(number, limits.max_json_bytes, "--max-json-bytes").map_err(Kind::FrameTooLarge)
}

fn length(number: u32, limit: usize, option: &'static str) -> Result<usize, LimitHit> {
    check(number.into(), wide(limit), option)?;
    // A length that does not fit into memory is above any limit.
    usize::try_from(number).map_err(|_| LimitHit {
        value: number.into(),
        limit: wide(limit),
        option,
    })
}

pub(crate) const fn check(value: u64, limit: u64, option: &'static str) -> Result<(), LimitHit> {
    if value > limit {
        return Err(LimitHit {
            value,
            limit,
            option,
        });
    }
    Ok(())
}

/// A length as the 64-bit number that an error carries.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
