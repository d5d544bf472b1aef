//! A pool of read buffers. Memory that was just returned to the system must be faulted in anew,
//! page by page, which took a third of the time of receiving.
//!
//! A buffer is shared with the pieces that a connection has cut from it. The pool keeps one more
//! share, which covers no byte; when all other shares are gone, the whole buffer can be taken
//! again. The process keeps [`MOST`] of them at the most, fewer while a budget has no space for
//! them, and none while no link is driven. The pool does not limit a connection: pieces are charged
//! to their connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

/// Bytes read at a time where data flows.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Buffers of [`READ_BYTES`], in use or not.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// The last used buffer is last: it is still in the caches.
    kept: Mutex<Vec<BytesMut>>,
    /// The number of buffers, read without the lock.
    count: AtomicUsize,
    drives: AtomicUsize,
}

/// A drive's handle on the pool; dropping the last one clears the pool.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    pool: &'static BufferPool,
}

impl BufferPool {
    pub(crate) const fn new() -> Self {
        Self {
            kept: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            drives: AtomicUsize::new(0),
        }
    }

    pub(crate) fn join(&'static self) -> PoolHandle {
        self.drives.fetch_add(1, Ordering::Relaxed);
        PoolHandle { pool: self }
    }

    /// Drops all buffers; those in use are freed by their users.
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

impl PoolHandle {
    /// An empty buffer without shared pieces, if there is one.
    pub(crate) fn take(&self) -> Option<BytesMut> {
        if self.pool.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.pool.kept();
        let at = kept
            .iter_mut()
            .rposition(|buffer| buffer.try_reclaim(READ_BYTES))?;
        let taken = kept.remove(at);
        self.pool.count.store(kept.len(), Ordering::Relaxed);
        Some(taken)
    }

    /// Keeps a buffer of [`READ_BYTES`], which may still have shared pieces.
    pub(crate) fn give(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut kept = self.pool.kept();
        if kept.len() < MOST {
            kept.push(buffer);
            self.pool.count.store(kept.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if self.pool.drives.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.pool.clear();
        }
    }
}

/// The process's pool.
pub(crate) static POOL: BufferPool = BufferPool::new();

/// Buffers kept: 8 MiB, four full windows of Beats as they come without compression.
pub(crate) const MOST: usize = 32;

/// The memory of [`MOST`] buffers.
pub(crate) const MOST_BYTES: usize = MOST * READ_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> BytesMut {
        BytesMut::from(vec![7; READ_BYTES].as_slice())
    }

    #[test]
    fn a_buffer_is_taken_again_when_no_piece_of_it_is_held() {
        static POOL: BufferPool = BufferPool::new();
        let pool = POOL.join();
        let mut buffer = full();
        let place = buffer.as_ptr();
        let (first, second) = (buffer.split_to(20_000).freeze(), buffer.split_to(30_000));
        pool.give(buffer);
        assert!(pool.take().is_none());
        drop(first);
        assert!(pool.take().is_none());
        assert!(second.iter().all(|byte| *byte == 7));
        drop(second);
        let again = pool.take().map(|buffer| (buffer.as_ptr(), buffer.len()));
        assert_eq!(again, Some((place, 0)));
        assert!(pool.take().is_none());
    }

    #[test]
    fn the_one_that_was_used_last_is_taken_first() {
        static POOL: BufferPool = BufferPool::new();
        let pool = POOL.join();
        let (old, new) = (full(), full());
        let place = new.as_ptr();
        pool.give(old);
        pool.give(new);
        assert_eq!(pool.take().map(|buffer| buffer.as_ptr()), Some(place));
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        static POOL: BufferPool = BufferPool::new();
        let pool = POOL.join();
        for _ in 0..=MOST {
            pool.give(full());
        }
        assert_eq!(POOL.kept().len(), MOST);
    }

    #[test]
    fn none_is_kept_without_a_drive() {
        static POOL: BufferPool = BufferPool::new();
        let (first, second) = (POOL.join(), POOL.join());
        first.give(full());
        drop(first);
        assert_eq!(POOL.kept().len(), 1);
        drop(second);
        assert_eq!(POOL.kept().len(), 0);
    }
}
