//! The five frames on the wire. All numbers are unsigned, 32 bits, big-endian.
//!
//! This is the stateless view of single frames, for tools and tests; [`Reader`](crate::Reader) and
//! [`Writer`](crate::Writer) walk streams of them without building these values.

use bytes::Bytes;

use crate::deflate::Deflate;
use crate::envelope::inflate_all;
use crate::record::{Pairs, Record, parse_record};
use crate::walker::{Head, Walked, Walker};
use crate::wire::{ACK, COMPRESSED, DATA, HEADER, JSON, WINDOW};
pub use crate::wire::{From, Version};
use crate::{Kind, Limits};

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The number of following events.
    Window {
        /// Version byte.
        version: Version,
        /// Number of events.
        window_size: u32,
    },
    /// An event as key-value pairs.
    Data {
        /// Version byte.
        version: Version,
        /// The event's number.
        sequence_number: u32,
        /// Keys and values, in order; keys may repeat.
        pairs: Vec<(Bytes, Bytes)>,
    },
    /// An event as JSON text.
    Json {
        /// Version byte.
        version: Version,
        /// The event's number.
        sequence_number: u32,
        /// The text, never empty, not checked.
        payload: Bytes,
    },
    /// Frames in a zlib stream.
    Compressed {
        /// Version byte.
        version: Version,
        /// The inflated frames.
        frames: Vec<Self>,
    },
    /// Acknowledges every event up to a number; 0 says "still working".
    Ack {
        /// Version byte.
        version: Version,
        /// The last acknowledged event's number.
        sequence_number: u32,
    },
}

/// The frame at the front of `input` and its length, or `None` if bytes are missing.
///
/// # Errors
/// No continuation of these bytes is a sound frame of that side.
pub fn decode(input: &[u8], limits: &Limits, from: From) -> Result<Option<(Frame, usize)>, Kind> {
    decode_at(input, limits, from, false)
}

fn decode_at(
    input: &[u8],
    limits: &Limits,
    from: From,
    inside: bool,
) -> Result<Option<(Frame, usize)>, Kind> {
    let mut rest = input;
    let Some(walked) = Walker::new(from, inside).step(&mut rest, limits)? else {
        return Ok(None);
    };
    let bytes = input.get(..walked.len).unwrap_or_default();
    Ok(Some((build(bytes, walked, limits)?, walked.len)))
}

fn build(bytes: &[u8], walked: Walked, limits: &Limits) -> Result<Frame, Kind> {
    let version = walked.version;
    Ok(match walked.head {
        Head::Window { size } => Frame::Window {
            version,
            window_size: size,
        },
        Head::Ack { sequence } => Frame::Ack {
            version,
            sequence_number: sequence,
        },
        Head::Compressed => Frame::Compressed {
            version,
            frames: inflate(bytes.get(HEADER..).unwrap_or_default(), limits)?,
        },
        Head::Json { .. } | Head::Data { .. } => {
            let (record, _) = parse_record(bytes).ok_or(Kind::TruncatedEnvelope)?;
            own(version, record)
        }
    })
}

fn own(version: Version, record: Record<'_>) -> Frame {
    match record {
        Record::Json { sequence, payload } => Frame::Json {
            version,
            sequence_number: sequence,
            payload: Bytes::copy_from_slice(payload),
        },
        Record::Data { sequence, pairs } => Frame::Data {
            version,
            sequence_number: sequence,
            pairs: own_pairs(pairs),
        },
    }
}

fn own_pairs(pairs: Pairs<'_>) -> Vec<(Bytes, Bytes)> {
    let own = Bytes::copy_from_slice;
    pairs.map(|(key, value)| (own(key), own(value))).collect()
}

/// All frames of an envelope; the zlib stream is checked before them.
fn inflate(stream: &[u8], limits: &Limits) -> Result<Vec<Frame>, Kind> {
    let all = inflate_all(stream, limits.max_inflated_bytes)?;
    let mut rest = all.as_slice();
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (frame, len) =
            decode_at(rest, limits, From::Writer, true)?.ok_or(Kind::TruncatedEnvelope)?;
        frames.push(frame);
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(frames)
}

/// Appends the bytes of `frame`. `level` is the zlib level of envelopes.
///
/// A length above 2^32-1 cannot be written; the caller must keep within its limits.
pub fn encode(frame: &Frame, level: u32, out: &mut Vec<u8>) {
    match frame {
        Frame::Window {
            version,
            window_size,
        } => put_header(out, *version, WINDOW, *window_size),
        Frame::Ack {
            version,
            sequence_number,
        } => put_header(out, *version, ACK, *sequence_number),
        Frame::Json {
            version,
            sequence_number,
            payload,
        } => put_json(out, *version, *sequence_number, payload),
        Frame::Data {
            version,
            sequence_number,
            pairs,
        } => put_data(out, *version, *sequence_number, pairs),
        Frame::Compressed { version, frames } => {
            let mut inner = Vec::new();
            for frame in frames {
                encode(frame, level, &mut inner);
            }
            put_compressed(out, *version, &mut Deflate::new(level), &inner);
        }
    }
}

pub(crate) fn put_header(out: &mut Vec<u8>, version: Version, kind: u8, number: u32) {
    out.extend_from_slice(&[version.byte(), kind]);
    out.extend_from_slice(&number.to_be_bytes());
}

pub(crate) fn put_json(out: &mut Vec<u8>, version: Version, sequence: u32, payload: &[u8]) {
    put_header(out, version, JSON, sequence);
    put_field(out, payload);
}

pub(crate) fn put_data(
    out: &mut Vec<u8>,
    version: Version,
    sequence: u32,
    pairs: &[(Bytes, Bytes)],
) {
    put_header(out, version, DATA, sequence);
    out.extend_from_slice(&wire_len(pairs.len()).to_be_bytes());
    for (key, value) in pairs {
        put_field(out, key);
        put_field(out, value);
    }
}

/// The envelope of `inner`: its length is written when the stream is complete.
pub(crate) fn put_compressed(
    out: &mut Vec<u8>,
    version: Version,
    deflate: &mut Deflate,
    inner: &[u8],
) {
    let start = out.len();
    put_header(out, version, COMPRESSED, 0);
    let len = wire_len(deflate.append(inner, out)).to_be_bytes();
    if let Some(number) = out.get_mut(start.saturating_add(2)..start.saturating_add(HEADER)) {
        number.copy_from_slice(&len);
    }
}

fn put_field(out: &mut Vec<u8>, field: &[u8]) {
    out.extend_from_slice(&wire_len(field.len()).to_be_bytes());
    out.extend_from_slice(field);
}

fn wire_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
