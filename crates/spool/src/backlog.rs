//! Blocks that wait to become durable. Senders take turns, so that a sender with much to write does not stand in front
//! of all others; the blocks of one sender stay in their order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::{Promise, Settle, segment::Placed, sender_of};

/// A block that waits to become durable.
pub(crate) struct Waiting {
    pub(crate) placed: Placed,
    pub(crate) bytes: usize,
    pub(crate) settle: Arc<dyn Settle>,
    pub(crate) token: u64,
    pub(crate) promise: Promise,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// The blocks of all senders.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    senders: HashMap<Arc<str>, VecDeque<Waiting>>,
    /// Senders with blocks, the one whose turn is next first.
    turns: VecDeque<Arc<str>>,
    blocks: usize,
    /// The time of the block that was taken last, in microseconds since 1970.
    last_us: i64,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        let block = &waiting.placed.block;
        let pairs = block.attributes.iter();
        let sender = sender_of(&block.peer, pairs.map(|(name, value)| (&**name, &**value)));
        self.blocks += 1;
        if let Some(blocks) = self.senders.get_mut(sender) {
            blocks.push_back(waiting);
            return;
        }
        let sender: Arc<str> = Arc::from(sender);
        self.turns.push_back(Arc::clone(&sender));
        self.senders.insert(sender, VecDeque::from([waiting]));
    }

    /// Takes blocks of `most` bytes together, at least one if there is one.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Waiting> {
        let mut group = Group {
            blocks: Vec::new(),
            bytes: 0,
            most,
        };
        while let Some(sender) = self.turns.pop_front() {
            let Some(blocks) = self.senders.get_mut(&sender) else {
                continue;
            };
            let is_full = group.take_turn(blocks);
            if blocks.is_empty() {
                self.senders.remove(&sender);
            } else if is_full {
                self.turns.push_front(sender);
                break;
            } else {
                self.turns.push_back(sender);
            }
        }
        self.blocks -= group.blocks.len();
        for waiting in &mut group.blocks {
            // Readers find a time by halves: it never falls, whoever goes first.
            self.last_us = self.last_us.max(waiting.placed.received_at_us);
            waiting.placed.received_at_us = self.last_us;
        }
        group.blocks
    }

    /// Takes all blocks, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        self.blocks = 0;
        self.turns.clear();
        std::mem::take(&mut self.senders).into_values().flatten()
    }
}

/// Blocks that become durable together.
struct Group {
    blocks: Vec<Waiting>,
    bytes: usize,
    most: usize,
}

impl Group {
    /// Takes the blocks of one sender's turn. Returns whether the next one has no room.
    fn take_turn(&mut self, from: &mut VecDeque<Waiting>) -> bool {
        let begin = self.bytes;
        while let Some(next) = from.front()
            && self.bytes - begin < TURN_BYTES
        {
            if !self.blocks.is_empty() && self.bytes.saturating_add(next.bytes) > self.most {
                return true;
            }
            self.bytes = self.bytes.saturating_add(next.bytes);
            self.blocks.extend(from.pop_front());
        }
        false
    }
}

/// Bytes after which the next sender has its turn; one block may be larger.
const TURN_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Backlog, TURN_BYTES, Waiting};
    use crate::{Block, Promise, Settle, SpoolError, segment::Placed};

    struct Nobody;

    impl Settle for Nobody {
        fn settle(&self, _tokens: &[u64]) {}
        fn failed(&self, _error: &SpoolError) {}
    }

    fn waiting(host: u64, token: u64, bytes: usize) -> Waiting {
        let block = Block {
            protocol: Arc::from("test"),
            peer: Arc::from(format!("10.0.0.{host}:{token}")),
            link: Arc::from(host.to_string()),
            stream: None,
            layout: "test/1",
            codec: "frames",
            first_sequence: 0,
            count: 1,
            windows: 1,
            inflated_bytes: 0,
            repeats: None,
            attributes: Vec::new(),
            body: vec![Bytes::from(vec![0; bytes])],
        };
        Waiting {
            placed: Placed {
                block,
                received_at_us: i64::try_from(token).unwrap_or_default(),
            },
            bytes,
            settle: Arc::new(Nobody),
            token,
            promise: Promise::Durable,
        }
    }

    fn tokens(group: &[Waiting]) -> Vec<u64> {
        group.iter().map(|waiting| waiting.token).collect()
    }

    #[test]
    fn one_sender_is_served_in_order_up_to_the_bytes_of_a_group() {
        let mut backlog = Backlog::default();
        for token in 0..10 {
            backlog.push(waiting(1, token, TURN_BYTES));
        }
        assert_eq!(tokens(&backlog.take(3 * TURN_BYTES + 1)), [0, 1, 2]);
        assert_eq!(tokens(&backlog.take(1)), [3]);
        assert_eq!((backlog.len(), backlog.is_empty()), (6, false));
        assert_eq!(tokens(&backlog.take(usize::MAX)), [4, 5, 6, 7, 8, 9]);
        assert!(backlog.is_empty() && backlog.take(1).is_empty());
    }

    #[test]
    fn a_sender_with_little_does_not_wait_for_all_of_one_with_much() {
        let mut backlog = Backlog::default();
        for token in 0..100 {
            backlog.push(waiting(1, token, TURN_BYTES));
        }
        assert_eq!(tokens(&backlog.take(2 * TURN_BYTES)), [0, 1]);
        backlog.push(waiting(2, 100, 10));
        // The sender whose turn it is keeps it, then the other one is served.
        assert_eq!(tokens(&backlog.take(2 * TURN_BYTES)), [2, 100]);
        assert_eq!(tokens(&backlog.take(2 * TURN_BYTES)), [3, 4]);
    }

    #[test]
    fn every_sender_has_as_many_bytes_as_the_others() {
        let mut backlog = Backlog::default();
        for token in 0..90 {
            // The second one has blocks of an eighth.
            let bytes = [TURN_BYTES, TURN_BYTES / 8, TURN_BYTES][token % 3];
            backlog.push(waiting(token as u64 % 3, token as u64, bytes));
        }
        let group = backlog.take(6 * TURN_BYTES);
        let of = |host: u64| {
            tokens(&group)
                .iter()
                .filter(|token| **token % 3 == host)
                .count()
        };
        assert_eq!((of(0), of(1), of(2)), (2, 16, 2));
    }

    #[test]
    fn the_time_of_receipt_does_not_fall_when_a_later_block_goes_first() {
        let mut backlog = Backlog::default();
        for token in 0..4 {
            backlog.push(waiting(1, token, TURN_BYTES));
        }
        backlog.push(waiting(2, 9, 1));
        let mut taken = Vec::new();
        while !backlog.is_empty() {
            taken.extend(backlog.take(TURN_BYTES));
        }
        assert_eq!(tokens(&taken), [0, 9, 1, 2, 3]);
        let times: Vec<i64> = taken.iter().map(|it| it.placed.received_at_us).collect();
        assert_eq!(times, [0, 9, 9, 9, 9]);
    }

    #[test]
    fn a_drained_backlog_is_empty_and_goes_on() {
        let mut backlog = Backlog::default();
        for token in 0..4 {
            backlog.push(waiting(token % 2, token, 1));
        }
        assert_eq!(backlog.drain().count(), 4);
        assert!(backlog.is_empty() && backlog.take(10).is_empty());
        backlog.push(waiting(1, 7, 1));
        assert_eq!(tokens(&backlog.take(10)), [7]);
    }
}
