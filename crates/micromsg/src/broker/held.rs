//! The memory of the messages on their way through a broker: each counts once, however many subscribers it waits for, until
//! the last of them has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackline_core::{Shared, TOGETHER};
use bytes::Bytes;

use super::Routed;
use super::routed::ROUTED_BYTES;
use crate::Message;

/// Bytes of all messages of a broker.
pub struct Held {
    bytes: AtomicU64,
    /// Of these the bytes of messages in queues.
    queued: AtomicU64,
    limit: u64,
    /// Tells that messages were freed that publishers wait for.
    freed: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, limit) = (self.bytes(), self.limit);
        f.debug_struct("Held")
            .field("bytes", &bytes)
            .field("limit", &limit)
            .finish_non_exhaustive()
    }
}

impl Held {
    /// No message yet. `freed` is called when publishers need no longer wait.
    pub fn new(limit: u64, freed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            limit,
            freed: Box::new(freed),
        })
    }

    /// Bytes of all messages now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there are more than there may be.
    pub fn is_over(&self) -> bool {
        self.bytes() > self.limit
    }

    /// Whether the messages in queues have room: half is theirs, whatever waits for subscribers of topics, and half is for
    /// topics, whose publishers do not wait.
    pub fn has_room_for_queues(&self) -> bool {
        self.queued.load(Ordering::Relaxed) <= self.limit / 2
    }

    /// Bytes that there may be.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// A message that has come, to be handed on in a queue.
    pub fn queued(self: &Arc<Self>, message: &Message) -> Arc<Routed> {
        self.read_back(Routed::of(message))
    }

    /// A message of a queue that was read back.
    pub fn read_back(self: &Arc<Self>, message: Routed) -> Arc<Routed> {
        Arc::new(self.counted(message, true))
    }

    /// Other memory of so many bytes has so many now.
    pub(crate) fn replace(&self, before: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// The same message in memory of its own, counted until the last copy of its payload is dropped.
    pub(super) fn counted(self: &Arc<Self>, message: Routed, is_queued: bool) -> Routed {
        let message = message.unshared();
        let count = self.count(message.bytes(), is_queued);
        message.counted(count)
    }

    /// Counts so many bytes until this is dropped.
    pub(super) fn count(self: &Arc<Self>, bytes: usize, is_queued: bool) -> Count {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if is_queued {
            self.queued.fetch_add(bytes, Ordering::Relaxed);
        }
        Count {
            bytes,
            is_queued,
            held: Arc::clone(self),
        }
    }
}

/// Bytes of messages that share their memory, as if there were as many as there may be.
pub(super) fn block_bytes(shared: Shared) -> usize {
    let beside = TOGETHER.saturating_mul(ROUTED_BYTES);
    beside.saturating_add(usize::try_from(shared.bytes).unwrap_or(usize::MAX))
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(super) struct Count {
    bytes: u64,
    is_queued: bool,
    held: Arc<Held>,
}

impl Count {
    /// Memory that is counted until its last copy is gone.
    pub(super) fn own(self, memory: Bytes) -> Bytes {
        Bytes::from_owner(Owned {
            memory,
            _counted: self,
        })
    }
}

struct Owned {
    memory: Bytes,
    _counted: Count,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.is_queued {
            return;
        }
        let before = self.held.queued.fetch_sub(self.bytes, Ordering::Relaxed);
        let half = self.held.limit / 2;
        if before > half && before.saturating_sub(self.bytes) <= half {
            (self.held.freed)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_once_until_the_last_copy_of_its_payload_is_gone() {
        let held = Held::new(5_100, || ());
        let message = |payload: Vec<u8>| Routed::new("t", "", payload.into(), None).unwrap();
        let large = held.read_back(message(vec![1; 5_000]));
        let bytes = u64::try_from(large.bytes()).unwrap();
        assert_eq!((held.bytes(), &*large.payload()), (bytes, &[1; 5_000][..]));
        let second = Arc::clone(&large);
        let part = large.payload().slice(3..5);
        assert!(!held.has_room_for_queues() && held.is_over());
        drop((large, second));
        assert_eq!(held.bytes(), bytes, "a part of it is still to be sent");
        drop(part);
        assert_eq!(held.bytes(), 0);
        assert!(held.has_room_for_queues());
        let small = Arc::new(held.counted(message(vec![1; 500]), false));
        let second = Arc::clone(&small);
        drop(small);
        assert!(held.bytes() > 500);
        drop(second);
        assert_eq!(held.bytes(), 0);
        let empty = held.read_back(message(Vec::new()));
        assert!(held.bytes() > 100, "an empty message takes memory too");
        drop(empty);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn messages_of_topics_leave_queues_their_half() {
        let freed = Arc::new(AtomicU64::new(0));
        let held = Held::new(10_000, {
            let freed = Arc::clone(&freed);
            move || {
                freed.fetch_add(1, Ordering::Relaxed);
            }
        });
        let message = |length| Routed::new("t", "", vec![1; length].into(), None).unwrap();
        let topic = held.counted(message(9_000), false);
        assert!(held.has_room_for_queues());
        let [one, two] = [
            held.read_back(message(4_000)),
            held.read_back(message(4_000)),
        ];
        assert!(held.is_over() && !held.has_room_for_queues());
        drop(topic);
        assert!(!held.has_room_for_queues());
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(one);
        assert!(held.has_room_for_queues());
        drop(two);
        assert_eq!(freed.load(Ordering::Relaxed), 1, "when there is room again");
    }
}
