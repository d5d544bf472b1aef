//! The room of a spool for payloads that were asked for and have not come, shared by all connections of a receiver.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that a spool has room for, less those that are promised to payloads on their way. Clones share it.
#[derive(Clone)]
pub struct Room(Arc<Shared>);

struct Shared {
    /// Bytes that the spool takes when it is empty.
    capacity: u64,
    /// Returns the bytes that it takes now.
    free: Box<dyn Fn() -> u64 + Send + Sync>,
    promised: AtomicU64,
    /// Streams that wait for room.
    waiting: AtomicUsize,
}

/// The part of a [`Room`] that one stream of payloads is promised. Dropping it gives the bytes back.
#[derive(Debug)]
pub struct Promised {
    room: Room,
    bytes: u64,
    is_waiting: bool,
}

impl Room {
    /// The room of a spool that takes `capacity` bytes, of which `free` returns those that it takes now.
    pub fn new(capacity: u64, free: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            capacity,
            free: Box::new(free),
            promised: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Room for everything, where nothing is kept.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, || u64::MAX)
    }

    /// Bytes that the spool takes when it is empty.
    pub fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// Streams that wait for room.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// A stream of payloads, to which nothing is promised yet.
    pub fn join(&self) -> Promised {
        Promised {
            room: self.clone(),
            bytes: 0,
            is_waiting: false,
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("capacity", &self.0.capacity)
            .field("promised", &self.0.promised)
            .finish_non_exhaustive()
    }
}

impl Promised {
    /// The room that it is a part of.
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// Bytes that are promised to this stream.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free and promised to nobody.
    pub fn left(&self) -> u64 {
        let shared = &self.room.0;
        (shared.free)().saturating_sub(shared.promised.load(Ordering::Relaxed))
    }

    /// Promises so many bytes to this stream, in place of those before.
    pub fn set(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let changed = |all: u64| Some(all.saturating_sub(before).saturating_add(bytes));
        let order = Ordering::Relaxed;
        let _ = self.room.0.promised.fetch_update(order, order, changed);
    }

    /// Whether the stream waits for room.
    pub const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Counts the stream as waiting for room, or not any more.
    pub fn wait(&mut self, is_waiting: bool) {
        if std::mem::replace(&mut self.is_waiting, is_waiting) == is_waiting {
            return;
        }
        let waiting = &self.room.0.waiting;
        if is_waiting {
            waiting.fetch_add(1, Ordering::Relaxed);
        } else {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        self.set(0);
        self.wait(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_one_stream_is_promised_are_missing_for_the_others_until_it_ends() {
        let room = Room::new(100, || 80);
        let (mut one, mut other) = (room.join(), room.join());
        one.set(30);
        other.set(10);
        assert_eq!((one.left(), other.left()), (40, 40));
        one.set(5);
        assert_eq!((one.bytes(), other.left()), (5, 65));
        one.set(90);
        assert_eq!(other.left(), 0, "more than there is may be promised");
        drop(one);
        assert_eq!(other.left(), 70);
    }

    #[test]
    fn streams_that_wait_are_counted_once() {
        let room = Room::unlimited();
        let (mut one, mut other) = (room.join(), room.join());
        one.wait(true);
        one.wait(true);
        other.wait(true);
        assert_eq!(room.waiting(), 2);
        one.wait(false);
        drop(other);
        assert_eq!(room.waiting(), 0);
    }
}
