//! Frames and handshakes: how each is read from the front of the input, and how each is written.
//!
//! Numbers are big-endian (REQ-MM-8, R-MM-1); a length counts the bytes of its field (R-MM-3). A frame begins with its flags (REQ-MM-19, R-MM-2); they are judged before
//! anything else, and a length before its bytes are there. In place of a handshake an ERROR frame may come (R-MM-5).

use std::ops::{Deref, Range};

use ackline_core::{LimitHit, SendQueue};
use bytes::Bytes;

use crate::parts::Parts;
use crate::{Kind, Limits};

mod inspect;

pub(crate) use inspect::pairs_of;
pub use inspect::{Inspector, Unit};

/// Payloads up to this many bytes are copied beside their head; a larger one is shared.
pub(crate) const COPIED_BYTES: usize = 2_048;

/// The bits of a frame's flags.
pub mod flags {
    /// A COMMAND frame.
    pub const COMMAND: u8 = 1;
    /// An EXTENSION frame.
    pub const EXTENSION: u8 = 2;
    /// An ERROR frame.
    pub const ERROR: u8 = 4;
    /// The length of the payload has four bytes.
    pub const LARGE: u8 = 8;
    /// More frames of the same message follow.
    pub const CONTINUED: u8 = 16;
}

/// A frame. Its parts stand where they lie in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message, or a fragment of one (REQ-MM-20).
    Message(Message),
    /// A command (REQ-MM-24).
    Command {
        /// The command.
        payload: Range<usize>,
    },
    /// Bytes of an extension (REQ-MM-25).
    Extension {
        /// The number of the extension.
        id: u8,
        /// The bytes.
        payload: Range<usize>,
    },
    /// The reason of the end of the connection (REQ-MM-26, R-MM-4).
    Error {
        /// The reason.
        message: Range<usize>,
    },
}

/// A MESSAGE frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sequence number, at least 1.
    pub sequence_number: u16,
    /// The destination.
    pub destination: Range<usize>,
    /// The properties.
    pub properties: Range<usize>,
    /// The payload, or a fragment of it.
    pub payload: Range<usize>,
    /// Whether more fragments follow.
    pub is_continued: bool,
}

impl Message {
    /// Whether the length before the payload has no more bytes than it needs.
    pub(crate) fn has_shortest_length(&self) -> bool {
        let length = self.payload.start.saturating_sub(self.properties.end);
        length == 1 || large(self.payload.len()) != 0
    }
}

/// A handshake (REQ-MM-13). The flags are ignored (R-MM-34).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// The version.
    pub version: Version,
    /// The name that its sender gives itself.
    pub identity: Range<usize>,
    /// The required extensions.
    pub required: Range<usize>,
    /// The optional extensions.
    pub optional: Range<usize>,
}

/// A version of the protocol: first the major one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version.
    pub major: u8,
    /// The minor version.
    pub minor: u8,
}

impl Version {
    /// Whether we speak it, or the lower version that both ends then have (R-MM-18).
    pub(crate) fn is_spoken(self) -> bool {
        self.min(VERSION).major == VERSION.major
    }
}

impl From<Version> for Kind {
    fn from(Version { major, minor }: Version) -> Self {
        Self::UnsupportedVersion { major, minor }
    }
}

/// The version that this end speaks: ends with one major version understand each other (REQ-MM-2, R-MM-18).
pub const VERSION: Version = Version { major: 1, minor: 0 };

/// The reason that a frame cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The input must hold so many bytes first.
    More(usize),
    /// The frame is invalid, with any further bytes.
    Wrong(Kind),
}

impl From<Kind> for Stop {
    fn from(kind: Kind) -> Self {
        Self::Wrong(kind)
    }
}

/// Reads the fields of a frame from the front of the input.
struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    const fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    fn take(&mut self, len: usize) -> Result<Range<usize>, Stop> {
        let end = self.at.saturating_add(len);
        if end > self.input.len() {
            return Err(Stop::More(end));
        }
        let begin = std::mem::replace(&mut self.at, end);
        Ok(begin..end)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let range = self.take(N)?;
        let bytes = self
            .input
            .get(range)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(Stop::More(self.at))
    }

    fn u8(&mut self) -> Result<u8, Stop> {
        self.number::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Stop> {
        self.number().map(u16::from_be_bytes)
    }

    /// Text behind its length, which must be ASCII.
    fn text(&mut self, len: usize, field: &'static str) -> Result<Range<usize>, Stop> {
        let range = self.take(len)?;
        let text = self.input.get(range.clone()).unwrap_or_default();
        if text.is_ascii() {
            return Ok(range);
        }
        Err(Kind::NotAscii { field }.into())
    }

    /// Bytes behind their length, which has one byte or four.
    fn payload(&mut self, is_large: bool, limits: &Limits) -> Result<Range<usize>, Stop> {
        let len = if is_large {
            u32::from_be_bytes(self.number()?)
        } else {
            u32::from(self.u8()?)
        };
        let len = limits.payload(u64::from(len))?;
        self.take(len)
    }
}

/// Reads the frame in front of the input: the frame, and the number of its bytes.
pub(crate) fn decode(input: &[u8], limits: &Limits) -> Result<(Frame, usize), Stop> {
    let mut cursor = Cursor::new(input);
    let flags = cursor.u8()?;
    check(flags)?;
    let is_large = flags & flags::LARGE != 0;
    let frame = if flags & flags::COMMAND != 0 {
        let payload = cursor.payload(is_large, limits)?;
        if !input.get(payload.clone()).unwrap_or_default().is_ascii() {
            return Err(Kind::NotAscii { field: "a command" }.into());
        }
        Frame::Command { payload }
    } else if flags & flags::EXTENSION != 0 {
        let id = cursor.u8()?;
        let payload = cursor.payload(is_large, limits)?;
        Frame::Extension { id, payload }
    } else if flags & flags::ERROR != 0 {
        let message = cursor.payload(is_large, limits)?;
        Frame::Error { message }
    } else {
        Frame::Message(message(&mut cursor, flags, limits)?)
    };
    Ok((frame, cursor.at))
}

/// Flags that name no kind of frame, or two (R-MM-15, R-MM-16).
fn check(flags: u8) -> Result<(), Kind> {
    let types = flags & (flags::COMMAND | flags::EXTENSION | flags::ERROR);
    if flags >= flags::CONTINUED << 1 {
        return Err(Kind::ReservedFlags { flags });
    }
    if types.count_ones() > 1 {
        return Err(Kind::ConflictingFrameTypes { flags });
    }
    if types != 0 && flags & flags::CONTINUED != 0 {
        return Err(Kind::ContinuedNotMessage { flags });
    }
    Ok(())
}

fn message(cursor: &mut Cursor<'_>, flags: u8, limits: &Limits) -> Result<Message, Stop> {
    let sequence_number = cursor.u16()?;
    if sequence_number == 0 {
        return Err(Kind::InvalidSequenceNumber.into());
    }
    let len = cursor.u8()?;
    let destination = cursor.text(usize::from(len), "a destination")?;
    let len = cursor.u16()?;
    let properties = cursor.text(usize::from(len), "the properties of a message")?;
    let payload = cursor.payload(flags & flags::LARGE != 0, limits)?;
    Ok(Message {
        sequence_number,
        destination,
        properties,
        payload,
        is_continued: flags & flags::CONTINUED != 0,
    })
}

/// Whether an ERROR frame stands where a handshake is due (R-MM-5).
pub(crate) fn is_error(first: u8) -> bool {
    first & !flags::LARGE == flags::ERROR
}

/// Reads the version of a handshake.
pub(crate) fn decode_version(input: &[u8]) -> Result<Version, Stop> {
    let mut cursor = Cursor::new(input);
    let (major, minor) = (cursor.u8()?, cursor.u8()?);
    Ok(Version { major, minor })
}

/// Reads the handshake in front of the input: the handshake, and the number of its bytes.
pub(crate) fn decode_handshake(input: &[u8]) -> Result<(Handshake, usize), Stop> {
    let mut cursor = Cursor::new(input);
    let (major, minor) = (cursor.u8()?, cursor.u8()?);
    let _reserved = cursor.u8()?;
    let len = cursor.u8()?;
    let identity = cursor.text(usize::from(len), "the identity of a handshake")?;
    let len = cursor.u16()?;
    let required = cursor.text(usize::from(len), "a list of extensions")?;
    let len = cursor.u16()?;
    let optional = cursor.text(usize::from(len), "a list of extensions")?;
    let handshake = Handshake {
        version: Version { major, minor },
        identity,
        required,
        optional,
    };
    Ok((handshake, cursor.at))
}

/// An ERROR frame (R-MM-4).
pub(crate) fn error(message: &str) -> Bytes {
    let mut frame = Vec::new();
    put_head(&mut frame, flags::ERROR, message.len());
    frame.extend_from_slice(message.as_bytes());
    frame.into()
}

/// Appends a handshake. The caller has checked the lengths.
pub(crate) fn put_handshake(out: &mut Vec<u8>, version: Version, identity: &str, lists: [&str; 2]) {
    out.extend_from_slice(&[version.major, version.minor, 0]);
    out.push(u8::try_from(identity.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(identity.as_bytes());
    for list in lists {
        let len = u16::try_from(list.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(list.as_bytes());
    }
}

/// The head of a COMMAND or ERROR frame of so many bytes.
pub(crate) fn put_head(out: &mut Vec<u8>, flags: u8, len: usize) {
    out.push(flags | large(len));
    put_length(out, len);
}

/// The head of an EXTENSION frame of so many bytes.
pub(crate) fn put_extension(out: &mut Vec<u8>, id: u8, len: usize) {
    out.push(flags::EXTENSION | large(len));
    out.push(id);
    put_length(out, len);
}

/// The fields of a message before its payload, the same in each of its fragments; `T` is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head<T> {
    pub(crate) sequence_number: u16,
    pub(crate) destination: T,
    pub(crate) properties: T,
}

impl Head<&str> {
    /// The same with texts of its own.
    pub(crate) fn to_owned(&self) -> Head<Box<str>> {
        Head {
            sequence_number: self.sequence_number,
            destination: self.destination.into(),
            properties: self.properties.into(),
        }
    }
}

impl<T: Deref<Target = str>> Head<T> {
    /// Appends everything of a frame before its payload of `len` bytes.
    pub(crate) fn put(&self, out: &mut SendQueue, len: usize, is_continued: bool) {
        let continued = if is_continued { flags::CONTINUED } else { 0 };
        let beside = self.destination.len().saturating_add(self.properties.len());
        let mut head = Vec::with_capacity(beside.saturating_add(16));
        self.put_to(&mut head, continued | large(len));
        put_length(&mut head, len);
        out.put_slice(&head);
    }

    /// The parts of a message with this payload; a large one stays apart.
    pub(crate) fn parts(&self, payload: Bytes) -> Parts {
        let mut frame = Vec::new();
        self.put_texts(&mut frame);
        let destination = u8::try_from(self.destination.len()).unwrap_or(u8::MAX);
        if payload.len() > COPIED_BYTES {
            return Parts::apart(frame.into(), destination, payload.into());
        }
        put_length(&mut frame, payload.len());
        frame.extend_from_slice(&payload);
        let properties = u16::try_from(self.properties.len()).unwrap_or(u16::MAX);
        Parts::whole((frame.into(), None), destination, properties)
    }

    /// Appends a whole frame.
    pub(crate) fn put_frame(&self, out: &mut Vec<u8>, payload: &[u8], is_continued: bool) {
        let continued = if is_continued { flags::CONTINUED } else { 0 };
        self.put_to(out, continued | large(payload.len()));
        put_length(out, payload.len());
        out.extend_from_slice(payload);
    }

    fn put_to(&self, out: &mut Vec<u8>, flags: u8) {
        out.push(flags);
        out.extend_from_slice(&self.sequence_number.to_be_bytes());
        out.push(u8::try_from(self.destination.len()).unwrap_or(u8::MAX));
        self.put_texts(out);
    }

    fn put_texts(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.destination.as_bytes());
        let len = u16::try_from(self.properties.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(self.properties.as_bytes());
    }
}

/// Appends a frame of a message that has come in one, or was written so.
pub(crate) fn put_parts(out: &mut Vec<u8>, sequence_number: u16, parts: &Parts, frame: &[u8]) {
    out.push(large(parts.payload_bytes()));
    out.extend_from_slice(&sequence_number.to_be_bytes());
    out.push(parts.destination_bytes());
    out.extend_from_slice(frame);
}

const fn large(len: usize) -> u8 {
    if len > 255 { flags::LARGE } else { 0 }
}

fn put_length(out: &mut Vec<u8>, len: usize) {
    match u8::try_from(len) {
        Ok(len) => out.push(len),
        Err(_) => out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()),
    }
}

impl Limits {
    /// A length within a limit.
    pub(crate) fn length(value: u64, limit: u64, option: &'static str) -> Result<usize, Kind> {
        let hit = LimitHit {
            value,
            limit,
            option,
        };
        if value > limit {
            return Err(Kind::Limit(hit));
        }
        usize::try_from(value).map_err(|_| Kind::Limit(hit))
    }

    fn payload(&self, len: u64) -> Result<usize, Kind> {
        Self::length(len, self.max_payload_bytes, "--max-payload-bytes")
    }
}
