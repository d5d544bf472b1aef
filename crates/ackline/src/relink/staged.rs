//! Messages that their sender has not decided on: what of them is kept, and what finds no room.
//!
//! ```text
//! one channel:   kept kept kept kept │ refused refused refused
//!                └── transaction ──┘ └─ transaction ─┘
//!                     committed           uncommitted
//! ```
//!
//! Decided here: a message above the limit is not kept, nor is any behind it on its channel before they are
//! decided; the transaction that it belongs to cannot be committed any more, and others can. Its sender
//! is told so by the answer to its commit. Not here: what is consumed, and when.

use std::collections::{HashMap, VecDeque};

use ackline_core::Sequence;
use ackline_relink::{ChannelId, Payload};

/// Undecided messages of one channel, in order: those that are kept, then those that are not.
#[derive(Debug, Default)]
struct Channel {
    kept: VecDeque<(Sequence, Payload)>,
    /// The last message, while one is refused.
    last: Option<Sequence>,
    /// Payload bytes of those that are refused.
    refused: VecDeque<usize>,
}

/// What a decision was taken on.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The first kept message.
    pub(super) first: Option<Sequence>,
    /// The kept messages.
    pub(super) payloads: Vec<Payload>,
    /// Their payload bytes.
    pub(super) bytes: usize,
    /// Messages that were not kept, and their payload bytes.
    pub(super) refused: (usize, usize),
}

/// Undecided messages of one link.
#[derive(Debug)]
pub(super) struct Staged {
    channels: HashMap<ChannelId, Channel>,
    kept: usize,
    kept_bytes: usize,
    refused: usize,
    most: usize,
}

impl Staged {
    /// None yet; kept messages may take up to `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            channels: HashMap::new(),
            kept: 0,
            kept_bytes: 0,
            refused: 0,
            most,
        }
    }

    /// Bytes that kept messages may take, with what each costs beside its payload.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// What all of it costs beside the payloads.
    pub(super) const fn extra(&self) -> usize {
        let kept = self.kept.saturating_mul(MESSAGE_BYTES);
        kept.saturating_add(self.refused_bytes())
    }

    /// What all of it costs.
    pub(super) const fn bytes(&self) -> usize {
        self.kept_bytes.saturating_add(self.extra())
    }

    /// What it costs to know of the messages that are refused.
    pub(super) const fn refused_bytes(&self) -> usize {
        self.refused.saturating_mul(REFUSED_BYTES)
    }

    /// A message arrives; answers whether it is kept.
    pub(super) fn push(
        &mut self,
        channel: ChannelId,
        sequence: Sequence,
        payload: Payload,
    ) -> bool {
        let bytes = payload.bytes();
        let cost = bytes.saturating_add(MESSAGE_BYTES);
        let fits = self.bytes().saturating_add(cost) <= self.most;
        let channel = self.channels.entry(channel).or_default();
        if channel.last.is_some() || !fits {
            channel.last = Some(sequence);
            channel.refused.push_back(bytes);
            self.refused += 1;
            return false;
        }
        channel.kept.push_back((sequence, payload));
        self.kept += 1;
        self.kept_bytes += bytes;
        true
    }

    /// The messages of a channel up to `through` are decided.
    pub(super) fn take(&mut self, id: &ChannelId, through: Sequence) -> Taken {
        let mut taken = Taken::default();
        let Some(channel) = self.channels.get_mut(id) else {
            return taken;
        };
        let count = channel
            .kept
            .partition_point(|(at, _)| !at.is_after(through));
        for (sequence, payload) in channel.kept.drain(..count) {
            taken.first.get_or_insert(sequence);
            taken.bytes += payload.bytes();
            taken.payloads.push(payload);
        }
        if let Some(last) = channel.last {
            // What stays of them stands behind `through`.
            let stays = if last.is_after(through) {
                usize::try_from(last.since(through)).unwrap_or(usize::MAX)
            } else {
                0
            };
            let count = channel.refused.len().saturating_sub(stays);
            taken.refused = (count, channel.refused.drain(..count).sum());
            if channel.refused.is_empty() {
                channel.last = None;
            }
        }
        if channel.kept.is_empty() && channel.refused.is_empty() {
            self.channels.remove(id);
        }
        self.kept -= taken.payloads.len();
        self.kept_bytes -= taken.bytes;
        self.refused -= taken.refused.0;
        taken
    }

    /// The link is over.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

/// Of `--memory`, what the undecided messages of a link may take, in words.
pub(super) const PART: &str = "an eighth";
/// What a kept message costs beside its payload, about: its handle, and its packet's head in the block.
pub(super) const MESSAGE_BYTES: usize = 64;
/// What it costs to know of one that is refused, here and in the link.
const REFUSED_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u32) -> Sequence {
        // Across the wrap.
        Sequence(u32::MAX - 2).plus(number)
    }

    fn push(staged: &mut Staged, channel: u8, number: u32, bytes: usize) -> bool {
        let payload = Payload::from(bytes::Bytes::from(vec![0; bytes]));
        staged.push(ChannelId::from(channel), at(number), payload)
    }

    fn take(staged: &mut Staged, channel: u8, through: u32) -> (usize, (usize, usize)) {
        let taken = staged.take(&ChannelId::from(channel), at(through));
        (taken.payloads.len(), taken.refused)
    }

    #[test]
    fn what_finds_no_room_takes_only_its_own_transaction_with_it() {
        let mut staged = Staged::new(1_000);
        let kept: Vec<bool> = (0..6)
            .map(|number| push(&mut staged, 1, number, 200))
            .collect();
        assert_eq!(kept, [true, true, true, false, false, false]);
        assert_eq!(staged.bytes(), 3 * 264 + 3 * 32);
        assert!(
            !push(&mut staged, 1, 6, 0),
            "there is no gap in what is kept"
        );
        assert!(push(&mut staged, 2, 0, 0), "another channel has room");
        assert_eq!(take(&mut staged, 1, 1), (2, (0, 0)));
        // The next transaction has lost two of its messages.
        assert_eq!(take(&mut staged, 1, 4), (1, (2, 400)));
        assert_eq!(take(&mut staged, 1, 6), (0, (2, 200)));
        assert_eq!(take(&mut staged, 2, 0), (1, (0, 0)));
        assert_eq!((staged.bytes(), staged.extra()), (0, 0));
        assert!(push(&mut staged, 1, 7, 900), "there is room again");
        assert_eq!(take(&mut staged, 3, 7), (0, (0, 0)));
        staged.clear();
        assert_eq!((staged.bytes(), staged.most()), (0, 1_000));
    }
}
