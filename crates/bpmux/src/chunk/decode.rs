//! From bytes to heads. A tag is judged alone, before the numbers that it announces are there: one
//! without a meaning is invalid, with any bytes after it (R-BPM-6).

use ackline_core::Reader;

use super::{Head, PayloadRole, SPECIAL, nibble};
use crate::{EntityKind, Kind, Target};

/// The head at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// A whole head; its payload, if it has one, comes behind it.
    Whole {
        /// The head.
        head: Head,
        /// The number of its bytes.
        len: usize,
    },
    /// The beginning of a head.
    Partial {
        /// The least number of bytes that the head has: more than there are.
        at_least: usize,
    },
}

/// Decodes the head at the front of `input`.
///
/// # Errors
/// [`Kind::InvalidChunk`]: no head begins with this tag. Nothing else is judged: the length of a payload,
/// a total and credit may have any size here.
pub fn decode(input: &[u8]) -> Result<Decoded, Kind> {
    let Some((tag, rest)) = input.split_first() else {
        return Ok(Decoded::Partial { at_least: 1 });
    };
    let form = Form::of(*tag)?;
    let len = form.len();
    let Some(numbers) = rest.get(..len.saturating_sub(1)) else {
        return Ok(Decoded::Partial { at_least: len });
    };
    let (first, second) = numbers.split_at_checked(form.id_width).unwrap_or_default();
    let id = u32::try_from(number(first)).unwrap_or(u32::MAX);
    Ok(Decoded::Whole {
        head: form.head(id, number(second)),
        len,
    })
}

/// The parts of a tag: the type, and the widths of the numbers behind it.
#[derive(Debug, Clone, Copy)]
struct Form {
    nibble: u8,
    /// The first width code, or the flags of a heartbeat.
    first: u8,
    id_width: usize,
    number_width: usize,
}

impl Form {
    fn of(tag: u8) -> Result<Self, Kind> {
        let (nibble, first, second) = (tag >> 4, (tag >> 2) & 3, tag & 3);
        let invalid = Err(Kind::InvalidChunk { tag });
        if nibble == nibble::HEARTBEAT {
            // The top-level is not among the peer's entities.
            if second == SPECIAL && first & 1 == 1 {
                return invalid;
            }
            let id_width = if second == SPECIAL { 0 } else { width(second) };
            return Ok(Self {
                nibble,
                first,
                id_width,
                number_width: 0,
            });
        }
        if first != SPECIAL {
            return Ok(Self {
                nibble,
                first,
                id_width: width(first),
                number_width: width(second),
            });
        }
        let (id_width, number_width) = match nibble {
            nibble::REQ | nibble::RES => return invalid,
            // The top-level's form has a number and no id.
            nibble::CANCEL_STREAM
            | nibble::CLOSE_SINK
            | nibble::MSG
            | nibble::CREDIT
            | nibble::CREDIT_PEER => (0, width(second)),
            // These have an id and no number.
            _ if second == SPECIAL => return invalid,
            _ => (width(second), 0),
        };
        Ok(Self {
            nibble,
            first,
            id_width,
            number_width,
        })
    }

    const fn len(self) -> usize {
        self.id_width
            .saturating_add(self.number_width)
            .saturating_add(1)
    }

    fn head(self, id: u32, number: u64) -> Head {
        if self.nibble == nibble::HEARTBEAT {
            let target = match (self.id_width, self.first & 1) {
                (0, _) => Target::Top,
                (_, 0) => Target::Own(id),
                _ => Target::Peer(id),
            };
            let pong = self.first & 2 != 0;
            return Head::Heartbeat { pong, target };
        }
        if self.first == SPECIAL {
            return special(self.nibble, id, number);
        }
        let role = match self.nibble {
            nibble::CANCEL_REQ => PayloadRole::CancelRequest(id),
            nibble::CLOSE_RES => PayloadRole::CloseResponse(id),
            nibble::CANCEL_STREAM => PayloadRole::Cancel(Target::Own(id)),
            nibble::CANCEL_STREAM_PEER => PayloadRole::Cancel(Target::Peer(id)),
            nibble::CLOSE_SINK => PayloadRole::Close(Target::Own(id)),
            nibble::CLOSE_SINK_PEER => PayloadRole::Close(Target::Peer(id)),
            nibble::MSG => PayloadRole::Message(Target::Own(id)),
            nibble::MSG_PEER => PayloadRole::Message(Target::Peer(id)),
            nibble::REQ => PayloadRole::Request(id),
            nibble::RES => PayloadRole::Response(id),
            nibble::SINK => PayloadRole::Open(EntityKind::Sink, id),
            nibble::STREAM => PayloadRole::Open(EntityKind::Stream, id),
            nibble::DUPLEX => PayloadRole::Open(EntityKind::Duplex, id),
            nibble::CREDIT => {
                let (target, amount) = (Target::Own(id), number);
                return Head::Credit { target, amount };
            }
            _ => {
                let (target, amount) = (Target::Peer(id), number);
                return Head::Credit { target, amount };
            }
        };
        Head::Payload {
            role,
            length: number,
        }
    }
}

/// Returns the head of a special form, whose first width code is 3.
const fn special(nibble: u8, id: u32, number: u64) -> Head {
    let role = match nibble {
        nibble::CANCEL_REQ => return Head::AckCancelRequest(id),
        nibble::CLOSE_RES => return Head::AckCloseResponse(id),
        nibble::CANCEL_STREAM_PEER => return Head::AckClose(Target::Own(id)),
        nibble::CLOSE_SINK_PEER => return Head::AckCancel(Target::Own(id)),
        nibble::MSG_PEER => return Head::PongRequest(id),
        nibble::SINK => return Head::AckCancel(Target::Peer(id)),
        nibble::STREAM => return Head::AckClose(Target::Peer(id)),
        nibble::DUPLEX => return Head::PingRequest(id),
        nibble::CREDIT => {
            let (target, amount) = (Target::Top, number);
            return Head::Credit { target, amount };
        }
        nibble::CREDIT_PEER => return Head::Partial { total: number },
        nibble::CANCEL_STREAM => PayloadRole::Cancel(Target::Top),
        nibble::CLOSE_SINK => PayloadRole::Close(Target::Top),
        _ => PayloadRole::Message(Target::Top),
    };
    Head::Payload {
        role,
        length: number,
    }
}

/// Returns the bytes of a number with this width code.
const fn width(code: u8) -> usize {
    match code {
        0 => 1,
        1 => 2,
        2 => 4,
        _ => 8,
    }
}

/// Reads a big-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut reader = Reader::new(bytes);
    match bytes.len() {
        8 => reader.u64().unwrap_or_default(),
        4 => reader.u32().map_or(0, u64::from),
        _ => bytes
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
    }
}
