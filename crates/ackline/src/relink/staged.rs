//! Messages that their sender has not decided on: those that are kept, and those that find no room.
//!
//! ```text
//! one channel:   kept kept kept kept │ refused refused refused
//!                └── transaction ──┘ └─ transaction ─┘
//!                     committed           uncommitted
//! ```
//!
//! It keeps no message above the limit of its link or of all links, and none behind it on its channel until
//! they are decided. The transaction of such a message cannot be committed; others can. Its sender is told so
//! by the answer to its commit, and at once if it asked for hints. It does not decide which messages are
//! consumed, and when.

use std::collections::{HashMap, VecDeque};

use ackline_core::Sequence;
use ackline_link::Undecided;
use ackline_relink::frame;
use ackline_relink::{ChannelId, Payload, Reason};

/// Undecided messages of one channel, in order: those that are kept, then those that are not.
#[derive(Debug, Default)]
struct Channel {
    kept: VecDeque<(Sequence, Payload)>,
    /// The last message and the limit that it met, while one is refused.
    last: Option<(Sequence, Reason)>,
    /// Payload bytes of those that are refused.
    refused: VecDeque<usize>,
}

/// The messages that a decision was taken on.
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
    /// The limit that they met.
    pub(super) over: Option<Reason>,
}

/// Undecided messages of one link.
#[derive(Debug)]
pub(super) struct Staged {
    channels: HashMap<ChannelId, Channel>,
    kept: usize,
    kept_bytes: usize,
    refused: usize,
    most: usize,
    /// Kept messages, as all links share it.
    charge: Undecided,
}

impl Staged {
    /// None yet; kept messages may take up to `most` bytes, and no more than `charge` allows.
    pub(super) fn new(most: usize, charge: Undecided) -> Self {
        Self {
            channels: HashMap::new(),
            kept: 0,
            kept_bytes: 0,
            refused: 0,
            most,
            charge,
        }
    }

    /// Bytes that kept messages may take, with the cost of each beside its payload.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Payload bytes of the messages that are kept.
    pub(super) const fn payload_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The cost of the messages that are kept.
    const fn kept_cost(&self) -> usize {
        let beside = self.kept.saturating_mul(MESSAGE_BYTES);
        self.kept_bytes.saturating_add(beside)
    }

    /// Bytes that the records of the refused messages take.
    pub(super) const fn refused_bytes(&self) -> usize {
        self.refused.saturating_mul(REFUSED_BYTES)
    }

    /// A message arrives.
    ///
    /// # Errors
    /// It is not kept; with the limit, if it is the first on its channel.
    pub(super) fn push(
        &mut self,
        channel: ChannelId,
        sequence: Sequence,
        payload: Payload,
    ) -> Result<(), Option<Reason>> {
        let bytes = payload.held_bytes();
        let cost = bytes.saturating_add(MESSAGE_BYTES);
        let after = self.kept_cost().saturating_add(cost);
        let channel = self.channels.entry(channel).or_default();
        let before = channel.last.map(|(_, over)| over);
        let over = before.or_else(|| {
            let known = self.refused.saturating_mul(REFUSED_BYTES);
            if after.saturating_add(known) > self.most {
                return Some(Reason::OverLink(to_u64(self.most)));
            }
            self.charge.set(to_u64(after)).err().map(Reason::OverAll)
        });
        if let Some(over) = over {
            channel.last = Some((sequence, over));
            channel.refused.push_back(bytes);
            self.refused += 1;
            return Err(before.is_none().then_some(over));
        }
        channel.kept.push_back((sequence, payload));
        self.kept += 1;
        self.kept_bytes += bytes;
        Ok(())
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
            taken.bytes += payload.held_bytes();
            taken.payloads.push(payload);
        }
        if let Some((last, over)) = channel.last {
            // The refused messages that stay stand behind `through`.
            let stays = if last.is_after(through) {
                usize::try_from(last.since(through)).unwrap_or(usize::MAX)
            } else {
                0
            };
            let count = channel.refused.len().saturating_sub(stays);
            taken.refused = (count, channel.refused.drain(..count).sum());
            taken.over = (count > 0).then_some(over);
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
        self.charge_less();
        taken
    }

    /// The link is over.
    pub(super) fn clear(&mut self) {
        self.channels.clear();
        (self.kept, self.kept_bytes, self.refused) = (0, 0, 0);
        self.charge_less();
    }

    /// Fewer messages are kept than before.
    fn charge_less(&mut self) {
        // Fewer bytes are never refused.
        let _ = self.charge.set(to_u64(self.kept_cost()));
    }
}

/// The part of `--memory` that the undecided messages of a link may take, in words.
pub(super) const PART: &str = "an eighth";
/// The same of all links.
pub(super) const PART_OF_ALL: &str = "half";
/// Bytes that a kept message costs beside its payload, about: its handle, and its packet's head in the block.
pub(super) const MESSAGE_BYTES: usize = frame::MESSAGE_BYTES;
/// Bytes that the record of one refused message takes, here and in the link.
const REFUSED_BYTES: usize = 32;

pub(super) fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use ackline_link::Budget;

    use super::*;

    fn at(number: u32) -> Sequence {
        // Across the wrap.
        Sequence(u32::MAX - 2).plus(number)
    }

    fn push(
        staged: &mut Staged,
        channel: u8,
        number: u32,
        bytes: usize,
    ) -> Result<(), Option<Reason>> {
        let payload = Payload::from(bytes::Bytes::from(vec![0; bytes]));
        staged.push(ChannelId::from(channel), at(number), payload)
    }

    fn take(staged: &mut Staged, channel: u8, through: u32) -> (usize, (usize, usize)) {
        let taken = staged.take(&ChannelId::from(channel), at(through));
        (taken.payloads.len(), taken.refused)
    }

    #[test]
    fn what_finds_no_room_takes_only_its_own_transaction_with_it() {
        let budget = Budget::new(1 << 20);
        let mut staged = Staged::new(1_000, budget.undecided());
        let kept: Vec<_> = (0..6)
            .map(|number| push(&mut staged, 1, number, 200))
            .collect();
        let over = Reason::OverLink(1_000);
        let expected = [
            Ok(()),
            Ok(()),
            Ok(()),
            Err(Some(over)),
            Err(None),
            Err(None),
        ];
        assert_eq!(kept, expected);
        assert_eq!(
            (staged.kept_cost(), staged.refused_bytes()),
            (3 * 264, 3 * 32)
        );
        // The kept messages have no gap.
        assert_eq!(push(&mut staged, 1, 6, 0), Err(None));
        assert_eq!(
            push(&mut staged, 2, 0, 0),
            Ok(()),
            "another channel has room"
        );
        assert_eq!(budget.used(), 4_096);
        assert_eq!(take(&mut staged, 1, 1), (2, (0, 0)));
        // The next transaction has lost two of its messages.
        assert_eq!(take(&mut staged, 1, 4), (1, (2, 400)));
        assert_eq!(take(&mut staged, 1, 6), (0, (2, 200)));
        assert_eq!(take(&mut staged, 2, 0), (1, (0, 0)));
        assert_eq!((staged.kept_cost(), staged.refused_bytes()), (0, 0));
        assert_eq!(budget.used(), 0);
        assert_eq!(push(&mut staged, 1, 7, 900), Ok(()), "there is room again");
        assert_eq!(take(&mut staged, 3, 7), (0, (0, 0)));
        staged.clear();
        assert_eq!((staged.kept_cost(), staged.most()), (0, 1_000));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn of_all_links_each_has_half_of_what_the_others_leave() {
        // 64 KiB undecided, in steps of 4.
        let budget = Budget::new(128 << 10);
        let [mut one, mut two] = std::array::from_fn(|_| Staged::new(1 << 20, budget.undecided()));
        assert_eq!(push(&mut one, 1, 0, 32_000), Ok(()));
        let half = Err(Some(Reason::OverAll(16 << 10)));
        assert_eq!(push(&mut two, 1, 0, 17_000), half);
        assert_eq!(take(&mut two, 1, 0), (0, (1, 17_000)));
        assert_eq!(push(&mut two, 1, 1, 16_000), Ok(()));
        assert_eq!(take(&mut one, 1, 0), (1, (0, 0)));
        assert_eq!(
            push(&mut two, 1, 2, 16_000),
            Ok(()),
            "what is decided leaves more"
        );
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
