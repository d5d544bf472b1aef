//! Decoding of bytes to views. Every number is checked as soon as it is there, before the bytes that it announces.
//! Nothing is allocated.
//!
//! Its rules: REQ-RELINK-36, REQ-RELINK-42, REQ-RELINK-44 to REQ-RELINK-51.

use ackline_core::{LimitHit, Sequence};

use super::parts::{size_bytes, sizes};
use super::{
    ALIGNMENT, Acknowledgement, Body, CHANNEL, Context, DATA_SHIFT, FORMAT_SHIFT, HEADER_BYTES,
    LARGE, LONG, MULTICAST, MULTICAST_IDS_AT, Operation, Packet, Parts, THREE_BITS, Targets,
    format,
};
use crate::error::COPIES;
use crate::limits::TARGET_BYTES;
use crate::{Kind, Limits};

/// The packet at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole packet.
    Whole {
        /// The packet.
        packet: Packet<'a>,
        /// Its bytes, with its padding.
        len: usize,
    },
    /// The beginning of a packet.
    Partial {
        /// The length of the packet as far as it is known: more bytes than there are.
        at_least: usize,
    },
}

/// Returns the packet at the front of `input`.
///
/// # Errors
/// No continuation of these bytes is a sound packet ([`Kind::UnusedEnumeration`]) within the limits
/// ([`Kind::Limit`]).
pub fn decode<'a>(
    context: &Context,
    limits: &Limits,
    input: &'a [u8],
) -> Result<Decoded<'a>, Kind> {
    match whole(*context, limits, input) {
        Ok((packet, len)) => Ok(Decoded::Whole { packet, len }),
        Err(Stop::Short(needed)) => {
            let needed = needed.max(ALIGNMENT);
            let at_least = needed.checked_next_multiple_of(ALIGNMENT);
            Ok(Decoded::Partial {
                at_least: at_least.unwrap_or(usize::MAX),
            })
        }
        Err(Stop::Refused(kind)) => Err(kind),
    }
}

/// The reason why there is no packet.
enum Stop {
    /// So many bytes are needed to go on.
    Short(usize),
    Refused(Kind),
}

impl From<Kind> for Stop {
    fn from(kind: Kind) -> Self {
        Self::Refused(kind)
    }
}

fn whole<'a>(
    context: Context,
    limits: &Limits,
    input: &'a [u8],
) -> Result<(Packet<'a>, usize), Stop> {
    let first = *input.first().ok_or(Stop::Short(ALIGNMENT))?;
    let data = first >> DATA_SHIFT;
    let mut walk = Walk {
        input,
        at: HEADER_BYTES,
    };
    if first & CHANNEL == 0 {
        let packet = general(data)?;
        return Ok((packet, walk.end()?));
    }
    let format = (first >> FORMAT_SHIFT) & THREE_BITS;
    let head = head(format, data)?;
    if let Head::Message(Form { is_long: false, .. }) = head {
        judge_length(walk.short_length()?.into(), limits)?;
    }
    let id_size = context.id_size_of(format);
    let targets = if first & MULTICAST == 0 {
        walk.unicast(id_size)?
    } else {
        walk.multicast(id_size, limits)?
    };
    let body = match head {
        Head::Operation(operation) => Body::Operation(operation),
        Head::Acknowledgement(acknowledgement) => Body::Acknowledgement(acknowledgement),
        Head::SequenceOperation(operation) => Body::SequenceOperation(operation, walk.sequence()?),
        Head::SequenceAcknowledgement(acknowledgement) => {
            Body::SequenceAcknowledgement(acknowledgement, walk.sequence()?)
        }
        Head::Message(form) => {
            let count = targets.count();
            if id_size == 0 {
                judge(count.into(), limits.copies.into(), COPIES)?;
            }
            if count > 1 {
                judge_multicast(0, count, limits)?;
            }
            Body::Message(walk.message(form, count, limits)?)
        }
    };
    let len = walk.end()?;
    Ok((Packet::Channel { targets, body }, len))
}

fn general(data: u8) -> Result<Packet<'static>, Kind> {
    Ok(match data {
        0 => Packet::Nop,
        1 => Packet::Ping,
        2 => Packet::Pong,
        3 => Packet::Resume,
        4 => Packet::Shutdown,
        value => return Err(unused("general packet type", value)),
    })
}

/// A channel packet's header byte.
#[derive(Clone, Copy)]
enum Head {
    Operation(Operation),
    Acknowledgement(Acknowledgement),
    SequenceOperation(Operation),
    SequenceAcknowledgement(Acknowledgement),
    Message(Form),
}

/// The form of a message.
#[derive(Clone, Copy)]
struct Form {
    /// The number of parts has 32 bits.
    is_long: bool,
    /// The sizes have 64 bits.
    is_large: bool,
}

fn head(format: u8, data: u8) -> Result<Head, Kind> {
    let operation = Operation::of(data);
    let acknowledgement = Acknowledgement::of(data);
    match format {
        format::CHANNEL_OPERATION => operation
            .map(Head::Operation)
            .ok_or(unused("channel operation", data)),
        format::CHANNEL_ACKNOWLEDGEMENT => acknowledgement
            .map(Head::Acknowledgement)
            .ok_or(unused("channel acknowledgement", data)),
        format::SEQUENCE_OPERATION => operation
            .filter(|operation| *operation != Operation::Close)
            .map(Head::SequenceOperation)
            .ok_or(unused("sequence operation", data)),
        format::SEQUENCE_ACKNOWLEDGEMENT => acknowledgement
            .filter(|acknowledgement| *acknowledgement != Acknowledgement::Closed)
            .map(Head::SequenceAcknowledgement)
            .ok_or(unused("sequence acknowledgement", data)),
        format::MESSAGE => Ok(Head::Message(Form {
            is_long: data & LONG != 0,
            is_large: data & LARGE != 0,
        })),
        value => Err(unused("channel packet format", value)),
    }
}

const fn unused(field: &'static str, value: u8) -> Kind {
    Kind::UnusedEnumeration { field, value }
}

fn judge_length(length: u32, limits: &Limits) -> Result<(), Kind> {
    judge(
        length.into(),
        limits.max_message_parts.into(),
        "--max-message-parts",
    )
}

fn judge(value: u64, limit: u64, option: &'static str) -> Result<(), Kind> {
    if value > limit {
        return Err(over(value, limit, option));
    }
    Ok(())
}

const fn over(value: u64, limit: u64, option: &'static str) -> Kind {
    Kind::Limit(LimitHit {
        value,
        limit,
        option,
    })
}

/// A cursor over the bytes of a packet. Its errors say how many bytes are missing.
struct Walk<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.saturating_add(len);
        let taken = self.input.get(self.at..end).ok_or(Stop::Short(end))?;
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        let mut number = [0; 4];
        number.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(number))
    }

    fn align(&mut self, to: usize) {
        // The bytes taken lie in memory, so the sum with the padding does not overflow.
        self.at = self.at.checked_next_multiple_of(to).unwrap_or(usize::MAX);
    }

    /// Returns the packet's length with its padding, if all of it is there.
    fn end(&mut self) -> Result<usize, Stop> {
        self.align(ALIGNMENT);
        self.take(0)?;
        Ok(self.at)
    }

    fn short_length(&self) -> Result<u8, Stop> {
        self.input.get(1).copied().ok_or(Stop::Short(HEADER_BYTES))
    }

    fn unicast(&mut self, id_size: u8) -> Result<Targets<'a>, Stop> {
        Ok(Targets::unicast(self.take(id_size.into())?))
    }

    fn multicast(&mut self, id_size: u8, limits: &Limits) -> Result<Targets<'a>, Stop> {
        self.at = self.at.next_multiple_of(4);
        let count = self.u32()?;
        debug_assert_eq!(self.at, MULTICAST_IDS_AT);
        judge(
            count.into(),
            limits.max_channel_ids.into(),
            "--max-channel-ids",
        )?;
        let len = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(id_size.into());
        Ok(Targets::multicast(self.take(len)?, id_size, count))
    }

    fn sequence(&mut self) -> Result<Sequence, Stop> {
        self.align(4);
        self.u32().map(Sequence)
    }

    fn message(
        &mut self,
        Form { is_long, is_large }: Form,
        channels: u32,
        limits: &Limits,
    ) -> Result<Parts<'a>, Stop> {
        self.align(2);
        let length = if is_long {
            let length = self.u32()?;
            judge_length(length, limits)?;
            length
        } else {
            self.short_length()?.into()
        };
        if is_large {
            self.align(ALIGNMENT);
        }
        let vector_len = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .saturating_mul(size_bytes(is_large));
        let there = self.input.get(self.at..).unwrap_or_default();
        let there = there.get(..vector_len).unwrap_or(there);
        let (bytes, padded) = judge_sizes(sizes(there, is_large), channels, limits)?;
        let vector = self.take(vector_len)?;
        self.align(ALIGNMENT);
        let data_at = self.at;
        self.take(padded)?;
        let packet = self.input.get(..self.at).unwrap_or_default();
        Ok(Parts::new(packet, vector, is_large, data_at, bytes))
    }
}

/// Checks the limit on multicast. Every target is charged, also for a message without a byte.
fn judge_multicast(bytes: u64, channels: u32, limits: &Limits) -> Result<(), Kind> {
    let each = bytes.saturating_add(TARGET_BYTES);
    let all = each.saturating_mul(channels.into());
    judge(all, limits.max_multicast_bytes, "--max-multicast-bytes")
}

/// Checks the sizes of the parts and adds them up.
fn judge_sizes(
    sizes: impl Iterator<Item = u64>,
    channels: u32,
    limits: &Limits,
) -> Result<(usize, usize), Kind> {
    let (mut bytes, mut padded) = (0_u64, 0_u64);
    for size in sizes {
        judge(size, limits.max_part_bytes, "--max-part-bytes")?;
        bytes = bytes.saturating_add(size);
        judge(bytes, limits.max_message_bytes, "--max-message-bytes")?;
        if channels > 1 {
            judge_multicast(bytes, channels, limits)?;
        }
        padded = padded.saturating_add(size).saturating_add(7) & !7;
    }
    // If the limits are above the address space, the sum may not fit.
    let sum = |sum: u64| {
        let fits = usize::try_from(sum)
            .ok()
            .filter(|sum| isize::try_from(*sum).is_ok());
        fits.ok_or(over(sum, limits.max_message_bytes, "--max-message-bytes"))
    };
    Ok((sum(bytes)?, sum(padded)?))
}
