//! Read buffers that are used again: memory that the system has just been given back must be faulted in anew,
//! page by page, which took a third of the time of receiving.
//!
//! A buffer is shared with the pieces that a connection has cut from it. What is kept here is one more share,
//! which covers no byte; when all the others are gone, the whole buffer can be taken again. The process keeps
//! [`MOST`] of them at the most, fewer while a budget has no room for them, and none while no link is
//! driven. Who holds how much is not decided here: pieces are charged to their connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

/// Bytes read at a time where data flows.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Buffers of [`READ_BYTES`], in use or not.
#[derive(Debug)]
pub(crate) struct Spares {
    /// The one that was used last is last: it is still in the caches.
    kept: Mutex<Vec<BytesMut>>,
    /// How many, for who need not look.
    count: AtomicUsize,
    drives: AtomicUsize,
}

/// A drive's part in them; when the last one goes, so do they.
#[derive(Debug)]
pub(crate) struct Spare {
    of: &'static Spares,
}

impl Spares {
    pub(crate) const fn new() -> Self {
        Self {
            kept: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            drives: AtomicUsize::new(0),
        }
    }

    pub(crate) fn join(&'static self) -> Spare {
        self.drives.fetch_add(1, Ordering::Relaxed);
        Spare { of: self }
    }

    /// Lets go of all; what is still in use is freed by who uses it.
    pub(crate) fn clear(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut kept = self.kept();
            let gone = std::mem::take(&mut *kept);
            self.count.store(0, Ordering::Relaxed);
            drop(kept);
            drop(gone);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    /// An empty buffer of which nobody holds a piece.
    pub(crate) fn take(&self) -> Option<BytesMut> {
        if self.of.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.of.kept();
        let at = kept
            .iter_mut()
            .rposition(|buffer| buffer.try_reclaim(READ_BYTES))?;
        let taken = kept.remove(at);
        self.of.count.store(kept.len(), Ordering::Relaxed);
        Some(taken)
    }

    /// Keeps a buffer of [`READ_BYTES`], whoever holds pieces of it.
    pub(crate) fn give(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut kept = self.of.kept();
        if kept.len() < MOST {
            kept.push(buffer);
            self.of.count.store(kept.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.of.drives.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.of.clear();
        }
    }
}

/// Those of the process.
pub(crate) static SPARES: Spares = Spares::new();

/// Buffers kept: 8 MiB, four full windows of Beats as they come without compression.
pub(crate) const MOST: usize = 32;

/// The memory of so many.
pub(crate) const MOST_BYTES: usize = MOST * READ_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> BytesMut {
        BytesMut::from(vec![7; READ_BYTES].as_slice())
    }

    #[test]
    fn a_buffer_is_taken_again_when_no_piece_of_it_is_held() {
        static SPARES: Spares = Spares::new();
        let spare = SPARES.join();
        let mut buffer = full();
        let place = buffer.as_ptr();
        let (first, second) = (buffer.split_to(20_000).freeze(), buffer.split_to(30_000));
        spare.give(buffer);
        assert!(spare.take().is_none());
        drop(first);
        assert!(spare.take().is_none());
        assert!(second.iter().all(|byte| *byte == 7));
        drop(second);
        let again = spare.take().map(|buffer| (buffer.as_ptr(), buffer.len()));
        assert_eq!(again, Some((place, 0)));
        assert!(spare.take().is_none());
    }

    #[test]
    fn the_one_that_was_used_last_is_taken_first() {
        static SPARES: Spares = Spares::new();
        let spare = SPARES.join();
        let (old, new) = (full(), full());
        let place = new.as_ptr();
        spare.give(old);
        spare.give(new);
        assert_eq!(spare.take().map(|buffer| buffer.as_ptr()), Some(place));
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        static SPARES: Spares = Spares::new();
        let spare = SPARES.join();
        for _ in 0..=MOST {
            spare.give(full());
        }
        assert_eq!(SPARES.kept().len(), MOST);
    }

    #[test]
    fn none_is_kept_without_a_drive() {
        static SPARES: Spares = Spares::new();
        let (first, second) = (SPARES.join(), SPARES.join());
        first.give(full());
        drop(first);
        assert_eq!(SPARES.kept().len(), 1);
        drop(second);
        assert_eq!(SPARES.kept().len(), 0);
    }
}
