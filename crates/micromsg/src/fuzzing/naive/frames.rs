//! Frames and handshakes, field by field (REQ-MM-13, REQ-MM-19 to REQ-MM-26, R-MM-4, R-MM-5, R-MM-15, R-MM-16).

use crate::Limits;

/// The reason that nothing can be read on.
pub(super) enum Stop {
    /// The input ends.
    End,
    /// The bytes break a rule: the code of the violation.
    Wrong(&'static str),
}

impl From<&'static str> for Stop {
    fn from(code: &'static str) -> Self {
        Self::Wrong(code)
    }
}

/// A place in the input.
pub(super) struct Cursor<'a> {
    pub(super) input: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let taken = self.input.get(self.at..self.at + len).ok_or(Stop::End)?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn number(&mut self, len: usize) -> Result<usize, Stop> {
        let bytes = self.take(len)?.iter();
        Ok(bytes.fold(0, |number, byte| number * 256 + usize::from(*byte)))
    }

    /// ASCII behind its length.
    fn text(&mut self, length: usize) -> Result<String, Stop> {
        let len = self.number(length)?;
        Ok(ascii(self.take(len)?)?)
    }

    fn payload(&mut self, flags: usize, limits: &Limits) -> Result<&'a [u8], Stop> {
        let len = self.number(if flags & 8 == 0 { 1 } else { 4 })?;
        check_limit(len, limits.max_payload_bytes)?;
        self.take(len)
    }
}

/// ASCII as a text.
pub(super) fn ascii(bytes: &[u8]) -> Result<String, &'static str> {
    let text = String::from_utf8(bytes.to_vec()).ok();
    text.filter(|text| text.is_ascii()).ok_or("not_ascii")
}

pub(super) fn check_limit(value: usize, limit: u64) -> Result<(), &'static str> {
    if u64::try_from(value).is_ok_and(|value| value <= limit) {
        return Ok(());
    }
    Err("limit_exceeded")
}

/// A whole frame.
pub(super) enum Frame<'a> {
    Handshake([u8; 2], String, [String; 2]),
    Message(Head, &'a [u8], bool),
    Command(String),
    Extension(u8, &'a [u8]),
    Error(&'a [u8]),
}

/// The fields that all fragments of a message repeat.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Head {
    pub(in super::super) number: u16,
    pub(in super::super) destination: String,
    pub(in super::super) properties: String,
}

/// Whether an ERROR frame comes in place of a handshake.
pub(super) fn is_error(input: &[u8]) -> bool {
    matches!(input, [4 | 12, ..])
}

/// Reads a handshake whose version `speaks` accepts.
pub(super) fn handshake<'a>(
    cursor: &mut Cursor<'a>,
    speaks: impl Fn([u8; 2]) -> bool,
) -> Result<Frame<'a>, Stop> {
    let version = cursor.take(2)?;
    let version = [version[0], version[1]];
    if !speaks(version) {
        return Err(Stop::Wrong("unsupported_version"));
    }
    cursor.take(1)?;
    let identity = cursor.text(1)?;
    let lists = [cursor.text(2)?, cursor.text(2)?];
    Ok(Frame::Handshake(version, identity, lists))
}

/// Reads a frame.
pub(super) fn frame<'a>(cursor: &mut Cursor<'a>, limits: &Limits) -> Result<Frame<'a>, Stop> {
    let flags = cursor.number(1)?;
    if flags >= 32 {
        return Err(Stop::Wrong("reserved_flags"));
    }
    let [kind, is_continued] = [flags & 7, flags & 16];
    if ![0, 1, 2, 4].contains(&kind) {
        return Err(Stop::Wrong("conflicting_frame_types"));
    }
    if kind != 0 && is_continued != 0 {
        return Err(Stop::Wrong("continued_not_message"));
    }
    Ok(match kind {
        0 => {
            let number = u16::try_from(cursor.number(2)?).expect("it has two bytes");
            if number == 0 {
                return Err(Stop::Wrong("invalid_sequence_number"));
            }
            let head = Head {
                number,
                destination: cursor.text(1)?,
                properties: cursor.text(2)?,
            };
            Frame::Message(head, cursor.payload(flags, limits)?, is_continued != 0)
        }
        1 => Frame::Command(ascii(cursor.payload(flags, limits)?)?),
        2 => Frame::Extension(cursor.take(1)?[0], cursor.payload(flags, limits)?),
        _ => Frame::Error(cursor.payload(flags, limits)?),
    })
}
