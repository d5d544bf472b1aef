//! The memory of the messages on their way through a broker: each counts once, however many subscribers it waits for, until
//! the last of them has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::Message;
use crate::session::Routed;

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
        self.counted(Routed {
            destination: message.destination().into(),
            properties: message.raw_properties().into(),
            payload: message.payload.to_bytes(),
            dotnet_type: message.dotnet_type.clone(),
        })
    }

    /// The same message, counted until its payload is dropped.
    pub fn counted(self: &Arc<Self>, mut message: Routed) -> Arc<Routed> {
        let bytes = u64::try_from(message.bytes()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        message.payload = Bytes::from_owner(Counted {
            payload: message.payload,
            bytes,
            held: Arc::clone(self),
        });
        Arc::new(message)
    }
}

/// A payload that is counted.
struct Counted {
    payload: Bytes,
    bytes: u64,
    held: Arc<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
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
        let held = Held::new(600, || ());
        let message = |payload: Vec<u8>| Routed {
            destination: "t".into(),
            properties: "".into(),
            payload: payload.into(),
            dotnet_type: None,
        };
        let large = held.counted(message(vec![1; 500]));
        let bytes = u64::try_from(large.bytes()).unwrap();
        assert_eq!((held.bytes(), &*large.payload), (bytes, &[1; 500][..]));
        let second = Arc::clone(&large);
        let part = large.payload.slice(3..5);
        assert!(held.is_half_full() && held.is_over());
        drop((large, second));
        assert_eq!(held.bytes(), bytes, "a part of it is still to be sent");
        drop(part);
        assert_eq!(held.bytes(), 0);
        let empty = held.counted(message(Vec::new()));
        assert!(held.bytes() > 100, "an empty message takes memory too");
        drop(empty);
        assert_eq!(held.bytes(), 0);
    }
}
