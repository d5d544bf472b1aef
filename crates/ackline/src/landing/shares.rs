//! How much of the spool the blocks of each sender take, so that one of them does not fill it while others are there.
//!
//! Blocks count that came since the receiver was started. Where there is one sender only,
//! it may have everything.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use ackline_core::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The senders of a receiver and their shares of its spool.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes that one sender may have.
    most: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Those that have a link, or something in the spool that counts.
    senders: HashMap<Arc<str>, Sender>,
    /// Links that wait for their sender's share.
    waiting: usize,
    /// Number of senders above which departed ones are forgotten.
    sweep_above: usize,
}

#[derive(Debug)]
struct Sender {
    links: usize,
    /// Places in the writer's queue that it has left.
    queue: Arc<Semaphore>,
    /// Bytes of blocks that are not written yet.
    queued: u64,
    /// Bytes that are written.
    stored: u64,
    /// Runs of the written blocks, oldest first: the end position and bytes of each.
    parts: VecDeque<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    end: u64,
    bytes: u64,
}

/// A place in the writer's queue, given back when it is dropped.
pub(super) type Turn = Arc<OwnedSemaphorePermit>;

/// One link's part in its sender's share; dropped at the link's end.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    sender: Arc<str>,
}

impl Shares {
    /// Where each sender may have `most` bytes of the spool.
    pub(super) fn new(most: u64) -> Arc<Self> {
        let state = State {
            senders: HashMap::new(),
            waiting: 0,
            sweep_above: FIRST_SWEEP,
        };
        Arc::new(Self {
            most,
            state: Mutex::new(state),
        })
    }

    /// A link of this sender begins.
    pub(super) fn join(self: &Arc<Self>, sender: &Arc<str>, first_kept: impl Fn() -> u64) -> Share {
        let mut state = locked(&self.state);
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
        locked(&self.state).waiting
    }

    /// Forgets senders that are gone and have next to nothing.
    fn sweep(&self, state: &mut State, first_kept: u64) {
        let counts = self.most / COUNTS_PART;
        state.senders.retain(|_, sender| {
            sender.prune(first_kept);
            sender.links > 0 || sender.queued > 0 || sender.stored > counts
        });
        state.sweep_above = state.senders.len().saturating_mul(2).max(FIRST_SWEEP);
    }
}

impl Share {
    /// Whether so many bytes more of this sender go to the spool now; they count from then on.
    pub(super) fn take(&self, bytes: u64, first_kept: impl FnOnce() -> u64) -> bool {
        let mut state = locked(&self.shares.state);
        let is_alone = state.senders.len() <= 1;
        let Some(sender) = state.senders.get_mut(&self.sender) else {
            return true;
        };
        let most = self.shares.most;
        if !sender.has_room(bytes, most) && !is_alone {
            sender.prune(first_kept());
            if !sender.has_room(bytes, most) {
                return false;
            }
        }
        sender.queued = sender.queued.saturating_add(bytes);
        true
    }

    /// Waits, in order of arrival, for free places in this sender's queue, so that other senders' blocks go before.
    /// `None` if there is no other sender.
    pub(super) async fn turn(&self, bytes: u64) -> Option<Turn> {
        let queue = {
            let state = locked(&self.shares.state);
            let is_alone = state.senders.len() <= 1;
            let sender = state.senders.get(&self.sender).filter(|_| !is_alone)?;
            Arc::clone(&sender.queue)
        };
        let places = bytes.div_ceil(PLACE_BYTES).clamp(1, PLACES.into());
        let places = u32::try_from(places).unwrap_or(PLACES);
        queue.acquire_many_owned(places).await.ok().map(Arc::new)
    }

    /// So many of them were written, up to this position.
    pub(super) fn stored(&self, bytes: u64, end: u64) {
        let mut state = locked(&self.shares.state);
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
        if let Some(sender) = locked(&self.shares.state).senders.get_mut(&self.sender) {
            sender.queued = sender.queued.saturating_sub(bytes);
        }
    }

    /// Counts the link as waiting until the answer is dropped.
    pub(super) fn wait(&self) -> Waits<'_> {
        locked(&self.shares.state).waiting += 1;
        Waits(&self.shares)
    }

    pub(super) fn most(&self) -> u64 {
        self.shares.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = locked(&self.shares.state);
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
        locked(&self.0.state).waiting -= 1;
    }
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            links: 0,
            queue: Arc::new(Semaphore::new(PLACES as usize)),
            queued: 0,
            stored: 0,
            parts: VecDeque::new(),
        }
    }
}

impl Sender {
    /// An empty one has room for anything.
    fn has_room(&self, bytes: u64, most: u64) -> bool {
        let used = self.queued.saturating_add(self.stored);
        used == 0 || used.saturating_add(bytes) <= most
    }

    /// Blocks that end at or before `first_kept` are gone.
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

/// Places of a sender in the writer's queue beside other senders: 4 MiB, the most that another's block waits
/// for.
const PLACES: u32 = 1_024;
const PLACE_BYTES: u64 = 4_096;

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
        let shares = Shares::new(500);
        let greedy = shares.join(&sender("greedy"), || 0);
        assert!(greedy.take(700, || 0));
        greedy.stored(700, 70);
        let good = shares.join(&sender("good"), || 0);
        assert!(!greedy.take(1, || 69));
        assert!(good.take(500, || 0));
        assert!(!good.take(1, || 0));
        good.give_back(500);
        assert!(good.take(501, || 0), "an empty one takes anything");
        assert!(greedy.take(1, || 70), "what it had is gone");
        drop(good);
        greedy.give_back(1);
        drop(greedy);
        assert_eq!(
            locked(&shares.state).senders.len(),
            1,
            "something is queued"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_others_a_sender_queues_no_more_than_its_turn() {
        let now = |turn| tokio::time::timeout(std::time::Duration::from_secs(1), turn);
        let shares = Shares::new(1 << 39);
        let one = shares.join(&sender("one"), || 0);
        assert!(one.turn(1 << 30).await.is_none(), "it is alone");
        let other = shares.join(&sender("other"), || 0);
        let first = one.turn(1 << 30).await;
        assert!(first.is_some());
        assert!(now(one.turn(1)).await.is_err());
        assert!(other.turn(4 << 20).await.is_some());
        drop(first);
        assert!(one.turn(1).await.is_some());
    }

    #[test]
    fn what_goes_piece_by_piece_is_given_back_piece_by_piece() {
        let shares = Shares::new(64_000);
        let one = shares.join(&sender("one"), || 0);
        let _two = shares.join(&sender("two"), || 0);
        for block in 0..640 {
            assert!(one.take(100, || 0));
            one.stored(100, (block + 1) * 10);
        }
        let parts = locked(&shares.state).senders[&sender("one")].parts.len();
        assert!(parts <= 64, "{parts}");
        assert!(!one.take(100, || 0));
        assert!(one.take(100, || 3_200), "half of it is gone");
        let stored = locked(&shares.state).senders[&sender("one")].stored;
        assert!((32_000..34_000).contains(&stored), "{stored}");
    }

    #[test]
    fn who_is_gone_with_next_to_nothing_is_forgotten() {
        let shares = Shares::new(1 << 29);
        for number in 0..20_000 {
            let name = sender(&number.to_string());
            let share = shares.join(&name, || 0);
            assert!(share.take(600, || 0));
            share.stored(600, number);
        }
        let large = shares.join(&sender("large"), || 0);
        assert!(large.take(1 << 20, || 0));
        large.stored(1 << 20, 1);
        drop(large);
        for number in 0..5_000 {
            drop(shares.join(&sender(&format!("late {number}")), || 0));
        }
        let state = locked(&shares.state);
        assert!(state.senders.len() <= FIRST_SWEEP + 1);
        assert!(state.senders.contains_key(&sender("large")));
    }

    #[test]
    fn who_waits_is_counted_until_it_waits_no_longer() {
        let shares = Shares::new(500);
        let one = shares.join(&sender("one"), || 0);
        let waits = one.wait();
        assert_eq!(shares.waiting(), 1);
        drop(waits);
        assert_eq!((shares.waiting(), one.most()), (0, 500));
    }
}
