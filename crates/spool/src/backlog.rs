//! Blocks that wait to become durable. Senders share the disk by the bytes that their blocks take
//! there, so that a sender with much to write does not delay all others; the blocks of one sender
//! stay in order.
//!
//! This is fair queueing by the end of the next block: each sender has a virtual time, which its
//! blocks advance by their bytes, and the sender whose next block would end first is next. So a small
//! block passes large ones that wait, and a large one waits until its sender's share has paid for it.
//! The common virtual time advances by the bytes taken, divided by the number of senders that wait; a
//! sender that comes, or comes back, begins there, so it goes before those that have just had their
//! turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::{Promise, Settle, segment::Placed, sender_of};

/// A block that waits to become durable.
pub(crate) struct Waiting {
    pub(crate) placed: Placed,
    /// The bytes that it takes on the disk.
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
    senders: HashMap<Arc<str>, Sender>,
    /// Senders with blocks by the virtual time at which their next one ends, then in order of
    /// arrival.
    turns: BTreeMap<(u64, u64), Arc<str>>,
    blocks: usize,
    /// The virtual time at which a sender begins.
    virtual_time: u64,
    /// Bytes taken for which that time has not advanced yet.
    spent: usize,
    next_turn: u64,
    /// The time of the last taken block, in microseconds since 1970.
    last_us: i64,
}

/// The blocks of one sender.
#[derive(Debug, Default)]
struct Sender {
    blocks: VecDeque<Waiting>,
    /// The virtual time at which its next block begins.
    next: u64,
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
        let name = sender_of(
            &block.origin.peer,
            pairs.map(|(name, value)| (&**name, &**value)),
        );
        self.blocks += 1;
        if let Some(sender) = self
            .senders
            .get_mut(name)
            .filter(|it| !it.blocks.is_empty())
        {
            sender.blocks.push_back(waiting);
            return;
        }
        let name: Arc<str> = Arc::from(name);
        let sender = self.senders.entry(Arc::clone(&name)).or_default();
        sender.next = sender.next.max(self.virtual_time);
        let end = sender.next.saturating_add(waiting.bytes as u64);
        sender.blocks.push_back(waiting);
        self.wait(end, name);
    }

    fn wait(&mut self, end: u64, name: Arc<str>) {
        self.turns.insert((end, self.next_turn), name);
        self.next_turn += 1;
    }

    /// Takes blocks of `most` bytes together, at least one if there is one.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Waiting> {
        let (mut group, mut bytes) = (Vec::new(), 0_usize);
        loop {
            let waiting_senders = self.turns.len();
            let Some(turn) = self.turns.first_entry() else {
                break;
            };
            let Some(sender) = self.senders.get_mut(turn.get()) else {
                turn.remove();
                continue;
            };
            let next = sender.blocks.front().map_or(0, |next| next.bytes);
            bytes = bytes.saturating_add(next);
            if !group.is_empty() && bytes > most {
                break;
            }
            let ((end, _), name) = turn.remove_entry();
            group.extend(sender.blocks.pop_front());
            sender.next = end;
            if let Some(following) = sender.blocks.front() {
                let end = end.saturating_add(following.bytes as u64);
                self.wait(end, name);
            }
            let (passed, left) = (
                (self.spent + next) / waiting_senders,
                (self.spent + next) % waiting_senders,
            );
            self.virtual_time = self.virtual_time.saturating_add(passed as u64);
            self.spent = left;
        }
        self.blocks -= group.len();
        self.forget();
        for waiting in &mut group {
            // Readers find a time by binary search, so it must never fall from one sender to the
            // next.
            self.last_us = self.last_us.max(waiting.placed.received_at_us);
            waiting.placed.received_at_us = self.last_us;
        }
        group
    }

    /// Forgets senders without blocks that would begin like new ones.
    fn forget(&mut self) {
        if self.turns.is_empty() {
            self.senders.clear();
            self.virtual_time = 0;
        } else if self.senders.len() > 2 * self.turns.len() + SENDERS {
            let now = self.virtual_time;
            self.senders
                .retain(|_, sender| !sender.blocks.is_empty() || sender.next > now);
        }
    }

    /// Takes all blocks, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        self.blocks = 0;
        self.turns.clear();
        std::mem::take(&mut self.senders)
            .into_values()
            .flat_map(|sender| sender.blocks)
    }
}

/// Senders that are remembered before those without blocks are forgotten.
const SENDERS: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Backlog, SENDERS, Waiting};
    use crate::{Block, Origin, Promise, Settle, SpoolError, segment::Placed};

    const KIB: usize = 1_024;

    struct Nobody;

    impl Settle for Nobody {
        fn settle(&self, _tokens: &[u64]) {}
        fn failed(&self, _error: &SpoolError) {}
    }

    fn waiting(host: u64, token: u64, bytes: usize) -> Waiting {
        let block = Block {
            origin: Origin {
                protocol: Arc::from("test"),
                peer: Arc::from(format!("10.0.0.{host}:{token}")),
                link: Arc::from(host.to_string()),
                stream: None,
            },
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
            backlog.push(waiting(1, token, KIB));
        }
        assert_eq!(tokens(&backlog.take(3 * KIB + 1)), [0, 1, 2]);
        assert_eq!(tokens(&backlog.take(1)), [3]);
        assert_eq!((backlog.len(), backlog.is_empty()), (6, false));
        assert_eq!(tokens(&backlog.take(usize::MAX)), [4, 5, 6, 7, 8, 9]);
        assert!(backlog.is_empty() && backlog.take(1).is_empty());
    }

    #[test]
    fn a_sender_with_few_bytes_precedes_those_with_many() {
        let mut backlog = Backlog::default();
        for token in 0..100 {
            backlog.push(waiting(1 + token % 4, token, KIB));
        }
        assert_eq!(tokens(&backlog.take(6 * KIB)), [0, 1, 2, 3, 4, 5]);
        for token in 100..103 {
            backlog.push(waiting(9, token, 10));
        }
        assert_eq!(tokens(&backlog.take(3 * KIB)), [100, 101, 102, 6, 7]);
        assert_eq!(tokens(&backlog.take(2 * KIB)), [8, 9]);
    }

    #[test]
    fn a_small_block_passes_all_large_ones_that_wait() {
        let mut backlog = Backlog::default();
        for host in 0..20 {
            backlog.push(waiting(host, host, 16 * KIB));
        }
        for token in 100..110 {
            assert_eq!(backlog.take(1).len(), 1);
            backlog.push(waiting(99, token, 10));
            assert_eq!(tokens(&backlog.take(1)), [token]);
        }
    }

    #[test]
    fn small_blocks_of_ever_new_senders_do_not_keep_a_large_one_waiting() {
        let mut backlog = Backlog::default();
        backlog.push(waiting(0, 0, 64 * KIB));
        let (mut before, mut host) = (0, 1);
        loop {
            for _ in 0..2 {
                backlog.push(waiting(host, host, KIB));
                host += 1;
            }
            let group = backlog.take(2 * KIB);
            if tokens(&group).contains(&0) {
                break;
            }
            before += group.len();
        }
        // Three senders wait at any time, so its share is a third.
        assert!(before <= 3 * 64, "{before}");
    }

    #[test]
    fn every_sender_has_as_many_bytes_as_the_others() {
        let mut backlog = Backlog::default();
        for token in 0..120 {
            let bytes = if token % 3 == 1 { KIB / 8 } else { KIB };
            backlog.push(waiting(token % 3, token, bytes));
        }
        let group = backlog.take(9 * KIB);
        let of = |host: u64| tokens(&group).iter().filter(|it| **it % 3 == host).count();
        assert_eq!((of(0), of(1), of(2)), (3, 24, 3));
    }

    #[test]
    fn a_sender_that_comes_again_and_again_has_no_more_than_its_share() {
        let mut backlog = Backlog::default();
        for token in 0..100 {
            backlog.push(waiting(1, token, KIB));
        }
        let (mut own, mut all) = (0, 0);
        for token in 100..140 {
            backlog.push(waiting(2, token, 4 * KIB));
            let group = backlog.take(1);
            own += group
                .iter()
                .filter(|it| it.token >= 100)
                .map(|it| it.bytes)
                .sum::<usize>();
            all += group.iter().map(|it| it.bytes).sum::<usize>();
        }
        assert!(own <= all / 2 + 4 * KIB, "{own} of {all}");
    }

    #[test]
    fn the_common_time_goes_on_however_many_senders_wait() {
        const HOSTS: u64 = 5_000;
        let mut backlog = Backlog::default();
        for token in 0..2 * HOSTS {
            backlog.push(waiting(token % HOSTS, token, 100));
        }
        for token in 0..HOSTS {
            assert_eq!(tokens(&backlog.take(1)), [token]);
        }
        assert_eq!(
            backlog.virtual_time, 100,
            "each has had its share of 100 bytes"
        );
        for token in 0..9 {
            backlog.push(waiting(HOSTS, 2 * HOSTS + token, 100));
        }
        // A new one has no more than the others.
        let next: Vec<u64> = (0..4).flat_map(|_| tokens(&backlog.take(1))).collect();
        assert!(
            next.iter().filter(|token| **token >= 2 * HOSTS).count() <= 1,
            "{next:?}"
        );
    }

    #[test]
    fn senders_without_blocks_are_forgotten() {
        let mut backlog = Backlog::default();
        for token in 0..4 * SENDERS as u64 {
            backlog.push(waiting(0, token, KIB));
            backlog.push(waiting(token + 1, token, 1));
            backlog.take(1);
            backlog.take(1);
            assert!(backlog.senders.len() <= SENDERS + 2);
        }
        backlog.take(usize::MAX);
        assert_eq!((backlog.senders.len(), backlog.virtual_time), (0, 0));
    }

    #[test]
    fn the_time_of_receipt_does_not_fall_when_a_later_block_is_taken_first() {
        let mut backlog = Backlog::default();
        for token in 0..4 {
            backlog.push(waiting(1, token, KIB));
        }
        let mut taken = backlog.take(KIB);
        backlog.push(waiting(2, 9, 1));
        while !backlog.is_empty() {
            taken.extend(backlog.take(KIB));
        }
        assert_eq!(tokens(&taken), [0, 9, 1, 2, 3]);
        let times: Vec<i64> = taken.iter().map(|it| it.placed.received_at_us).collect();
        assert_eq!(times, [0, 9, 9, 9, 9]);
    }

    #[test]
    fn a_drained_backlog_is_empty_and_usable() {
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
