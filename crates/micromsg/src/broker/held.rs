//! The memory of the messages on their way through a broker: each counts once, however many subscribers it waits for, until
//! the last of them has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::Routed;
use crate::Message;

/// Bytes of all messages of a broker.
pub struct Held {
    bytes: AtomicU64,
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

    /// Whether publishers to queues wait: the other half is for topics, whose publishers do not.
    pub fn is_half_full(&self) -> bool {
        self.bytes() > self.limit / 2
    }

    /// Bytes that there may be.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// A message to be handed on.
    pub fn routed(self: &Arc<Self>, message: &Message) -> Arc<Routed> {
        self.counted(Routed::of(message))
    }

    /// The same message, counted until the last copy of its payload is dropped.
    pub fn counted(self: &Arc<Self>, message: Routed) -> Arc<Routed> {
        let bytes = u64::try_from(message.bytes()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(message.counted(Counted {
            bytes,
            held: Arc::clone(self),
        }))
    }
}

/// Bytes that are counted.
#[derive(Debug)]
pub(super) struct Counted {
    bytes: u64,
    held: Arc<Held>,
}

impl Counted {
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
    _counted: Counted,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
        let large = held.counted(message(vec![1; 5_000]));
        let bytes = u64::try_from(large.bytes()).unwrap();
        assert_eq!((held.bytes(), &*large.payload()), (bytes, &[1; 5_000][..]));
        let second = Arc::clone(&large);
        let part = large.payload().slice(3..5);
        assert!(held.is_half_full() && held.is_over());
        drop((large, second));
        assert_eq!(held.bytes(), bytes, "a part of it is still to be sent");
        drop(part);
        assert_eq!(held.bytes(), 0);
        let small = held.counted(message(vec![1; 500]));
        let second = Arc::clone(&small);
        drop(small);
        assert!(held.bytes() > 500);
        drop(second);
        assert_eq!(held.bytes(), 0);
        let empty = held.counted(message(Vec::new()));
        assert!(held.bytes() > 100, "an empty message takes memory too");
        drop(empty);
        assert_eq!(held.bytes(), 0);
    }
}
