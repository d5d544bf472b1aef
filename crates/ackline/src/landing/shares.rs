//! How much of the spool the blocks of each sender take, so that one of them does not fill it while others are there.
//!
//! What a sender has is known of the blocks that came since the receiver was started. Where there is one sender only,
//! it may have everything.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The senders of a receiver and what they have of its spool.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes that one sender may have.
    most: u64,
    /// Bytes that one sender may have in the writer's queue.
    most_queued: u64,
    /// Something left the queue.
    moved: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Those that have a link, or something in the spool that counts.
    senders: HashMap<Arc<str>, Sender>,
    /// Links that wait for their sender's share.
    waiting: usize,
    /// Senders above which those that are gone are looked through.
    sweep_above: usize,
}

#[derive(Debug, Default)]
struct Sender {
    links: usize,
    /// Bytes of blocks that are not written yet.
    queued: u64,
    /// Bytes that are written.
    stored: u64,
    /// The same by where they end in the spool, the oldest first; neighbours are counted together.
    parts: VecDeque<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    end: u64,
    bytes: u64,
}

/// What becomes of blocks for the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// They go there.
    Whole,
    /// Enough of their sender's waits to be written: what others bring goes first.
    InTurn,
    /// Their sender has its share of the spool.
    NoShare,
}

/// One link's part in its sender's share; dropped at the link's end.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    sender: Arc<str>,
}

impl Shares {
    /// Of a spool that may take `budget` bytes, this part for each sender.
    pub(super) fn new(budget: u64, part: f64) -> Arc<Self> {
        let state = State {
            senders: HashMap::new(),
            waiting: 0,
            sweep_above: FIRST_SWEEP,
        };
        Arc::new(Self {
            most: ackline_link::part_of(budget, part),
            most_queued: MOST_QUEUED,
            moved: Notify::new(),
            state: Mutex::new(state),
        })
    }

    /// A link of this sender begins.
    pub(super) fn join(self: &Arc<Self>, sender: &Arc<str>, first_kept: impl Fn() -> u64) -> Share {
        let mut state = self.lock();
        state.senders.entry(Arc::clone(sender)).or_default().links += 1;
        if state.senders.len() > state.sweep_above {
            self.sweep(&mut state, first_kept());
        }
        drop(state);
        Share {
            shares: Arc::clone(self),
            sender: Arc::clone(sender),
        }
    }

    /// Links that wait until their sender's blocks are fewer.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Forgets who is gone and has next to nothing.
    fn sweep(&self, state: &mut State, first_kept: u64) {
        let counts = self.most / COUNTS_PART;
        state.senders.retain(|_, sender| {
            sender.prune(first_kept);
            sender.links > 0 || sender.queued > 0 || sender.stored > counts
        });
        state.sweep_above = state.senders.len().saturating_mul(2).max(FIRST_SWEEP);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Whether so many bytes more of this sender go to the spool now; they count from then on.
    pub(super) fn take(&self, bytes: u64, first_kept: impl FnOnce() -> u64) -> Taken {
        let mut state = self.shares.lock();
        let is_alone = state.senders.len() <= 1;
        let Some(sender) = state.senders.get_mut(&self.sender) else {
            return Taken::Whole;
        };
        let most = self.shares.most;
        if !sender.has_room(bytes, most) && !is_alone {
            sender.prune(first_kept());
            if !sender.has_room(bytes, most) {
                return Taken::NoShare;
            }
        }
        let queued = sender.queued.saturating_add(bytes);
        if sender.queued > 0 && queued > self.shares.most_queued && !is_alone {
            return Taken::InTurn;
        }
        sender.queued = queued;
        Taken::Whole
    }

    /// So many of them were written, up to this position.
    pub(super) fn stored(&self, bytes: u64, end: u64) {
        self.shares.moved.notify_waiters();
        let mut state = self.shares.lock();
        let Some(sender) = state.senders.get_mut(&self.sender) else {
            return;
        };
        sender.queued = sender.queued.saturating_sub(bytes);
        sender.stored = sender.stored.saturating_add(bytes);
        let together = self.shares.most / PARTS;
        match sender.parts.back_mut() {
            Some(part) if part.bytes < together => {
                part.bytes = part.bytes.saturating_add(bytes);
                part.end = part.end.max(end);
            }
            _ => sender.parts.push_back(Part { end, bytes }),
        }
    }

    /// So many of them will not be written.
    pub(super) fn give_back(&self, bytes: u64) {
        if let Some(sender) = self.shares.lock().senders.get_mut(&self.sender) {
            sender.queued = sender.queued.saturating_sub(bytes);
        }
    }

    /// Counts the link as waiting until the answer is dropped.
    pub(super) fn wait(&self) -> Waits<'_> {
        self.shares.lock().waiting += 1;
        Waits(&self.shares)
    }

    /// Ready once something has left the queue.
    pub(super) fn moved(&self) -> Notified<'_> {
        self.shares.moved.notified()
    }

    pub(super) fn most(&self) -> u64 {
        self.shares.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shares.lock();
        let Some(sender) = state.senders.get_mut(&self.sender) else {
            return;
        };
        sender.links = sender.links.saturating_sub(1);
        if sender.links == 0 && sender.queued == 0 && sender.stored == 0 {
            state.senders.remove(&self.sender);
        }
    }
}

/// A link that waits.
pub(super) struct Waits<'a>(&'a Shares);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Sender {
    /// An empty one has room for anything.
    fn has_room(&self, bytes: u64, most: u64) -> bool {
        let used = self.queued.saturating_add(self.stored);
        used == 0 || used.saturating_add(bytes) <= most
    }

    /// What ends at or before `first_kept` is gone.
    fn prune(&mut self, first_kept: u64) {
        while let Some(part) = self.parts.front().copied()
            && part.end <= first_kept
        {
            self.stored = self.stored.saturating_sub(part.bytes);
            self.parts.pop_front();
        }
    }
}

/// Parts that a sender's blocks are counted in, about.
const PARTS: u64 = 64;

/// Of a sender that is gone, less than this part of a share does not count.
const COUNTS_PART: u64 = 1_024;

/// Bytes of one sender that wait to be written, where there are others: what one of them brings waits for no more
/// than so much of each.
const MOST_QUEUED: u64 = 4 << 20;

/// Senders that are kept without looking for those that are gone.
const FIRST_SWEEP: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn one_sender_alone_may_have_all_and_beside_others_its_share() {
        let shares = Shares::new(1_000, 0.5);
        let greedy = shares.join(&sender("greedy"), || 0);
        assert_eq!(greedy.take(700, || 0), Taken::Whole);
        greedy.stored(700, 70);
        let good = shares.join(&sender("good"), || 0);
        assert_eq!(greedy.take(1, || 69), Taken::NoShare);
        assert_eq!(good.take(500, || 0), Taken::Whole);
        assert_eq!(good.take(1, || 0), Taken::NoShare);
        good.give_back(500);
        assert_eq!(
            good.take(501, || 0),
            Taken::Whole,
            "an empty one takes anything"
        );
        assert_eq!(greedy.take(1, || 70), Taken::Whole, "what it had is gone");
        drop(good);
        greedy.give_back(1);
        drop(greedy);
        assert_eq!(shares.lock().senders.len(), 1, "something is queued");
    }

    #[test]
    fn where_there_are_others_a_sender_queues_no_more_than_its_turn() {
        let shares = Shares::new(1 << 40, 0.5);
        let one = shares.join(&sender("one"), || 0);
        for _ in 0..3 {
            assert_eq!(one.take(MOST_QUEUED, || 0), Taken::Whole, "it is alone");
        }
        let other = shares.join(&sender("other"), || 0);
        assert_eq!(one.take(1, || 0), Taken::InTurn);
        assert_eq!(other.take(MOST_QUEUED + 1, || 0), Taken::Whole);
        assert_eq!(other.take(1, || 0), Taken::InTurn);
        one.stored(3 * MOST_QUEUED - 1, 1);
        assert_eq!(one.take(MOST_QUEUED - 1, || 0), Taken::Whole);
        assert_eq!(one.take(1, || 0), Taken::InTurn);
    }

    #[test]
    fn what_goes_piece_by_piece_is_given_back_piece_by_piece() {
        let shares = Shares::new(128_000, 0.5);
        let one = shares.join(&sender("one"), || 0);
        let _two = shares.join(&sender("two"), || 0);
        for block in 0..640 {
            assert_eq!(one.take(100, || 0), Taken::Whole);
            one.stored(100, (block + 1) * 10);
        }
        let parts = shares.lock().senders[&sender("one")].parts.len();
        assert!(parts <= 64, "{parts}");
        assert_eq!(one.take(100, || 0), Taken::NoShare);
        assert_eq!(one.take(100, || 3_200), Taken::Whole, "half of it is gone");
        let stored = shares.lock().senders[&sender("one")].stored;
        assert!((32_000..34_000).contains(&stored), "{stored}");
    }

    #[test]
    fn who_is_gone_with_next_to_nothing_is_forgotten() {
        let shares = Shares::new(1 << 30, 0.5);
        for number in 0..20_000 {
            let name = sender(&number.to_string());
            let share = shares.join(&name, || 0);
            assert_eq!(share.take(600, || 0), Taken::Whole);
            share.stored(600, number);
        }
        let large = shares.join(&sender("large"), || 0);
        assert_eq!(large.take(1 << 20, || 0), Taken::Whole);
        large.stored(1 << 20, 1);
        drop(large);
        for number in 0..5_000 {
            drop(shares.join(&sender(&format!("late {number}")), || 0));
        }
        let state = shares.lock();
        assert!(state.senders.len() <= FIRST_SWEEP + 1);
        assert!(state.senders.contains_key(&sender("large")));
    }

    #[test]
    fn who_waits_is_counted_until_it_waits_no_longer() {
        let shares = Shares::new(1_000, 0.5);
        let one = shares.join(&sender("one"), || 0);
        let waits = one.wait();
        assert_eq!(shares.waiting(), 1);
        drop(waits);
        assert_eq!((shares.waiting(), one.most()), (0, 500));
    }
}
