//! The input buffer of one connection: none while idle, never larger than granted. While data
//! flows, it comes from the pool if one is free ([`PoolHandle`]).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::buffer_pool::{PoolHandle, READ_BYTES};

/// Bytes that are read without allocating a buffer first: idle connections hold none.
pub(crate) const PROBE_BYTES: usize = 16 * 1024;

/// Bytes and the size of the allocation that they keep alive.
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    allocated: usize,
    pool: PoolHandle,
}

/// The result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) count: usize,
    /// The read filled all of the offered space: more bytes probably wait.
    pub(crate) whole: bool,
}

impl Input {
    pub(crate) fn new(bytes: BytesMut, pool: PoolHandle) -> Self {
        let allocated = bytes.capacity();
        Self {
            bytes,
            allocated,
            pool,
        }
    }

    /// Bytes of memory kept alive.
    pub(crate) fn allocated(&self) -> usize {
        self.allocated.max(self.bytes.capacity())
    }

    /// After frames were taken: moves a short remainder out of a large allocation, so that the
    /// allocation can be freed.
    pub(crate) fn compact(&mut self) {
        if self.bytes.is_empty() {
            self.replace(BytesMut::new());
        } else if self.bytes.len() < self.allocated / 2 {
            self.reallocate(self.bytes.len());
        }
    }

    /// Reads until `capacity` bytes are held at the most, no more than `bite` of them at once. 0 bytes is the peer's end.
    pub(crate) fn poll_fill<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
        capacity: usize,
        bite: usize,
    ) -> Poll<io::Result<Filled>> {
        let capacity_left = self.bytes.capacity().min(capacity);
        let most = capacity.min(self.bytes.len().saturating_add(bite));
        if capacity_left.saturating_sub(self.bytes.len()) >= PROBE_BYTES {
            return self.poll_direct(io, context, most);
        }
        // A longer remainder would be copied for little gain.
        let takes_pooled = self.bytes.len() <= READ_BYTES / 2 && capacity >= READ_BYTES;
        if takes_pooled
            && bite >= READ_BYTES
            && let Some(buffer) = self.pool.take()
        {
            return self.poll_pooled(io, context, capacity, buffer);
        }
        let filled = ready!(self.poll_probe(io, context, most))?;
        if !filled.whole || self.bytes.len() >= most {
            return Poll::Ready(Ok(filled));
        }
        self.grow(most);
        let more = match self.poll_direct(io, context, most) {
            Poll::Ready(more) => more?,
            Poll::Pending => Filled {
                count: 0,
                whole: false,
            },
        };
        // The next read sees an end after the probe again.
        Poll::Ready(Ok(Filled {
            count: filled.count + more.count,
            whole: more.whole,
        }))
    }

    /// Reads through the stack, so that nothing is allocated until bytes come.
    fn poll_probe<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
        capacity: usize,
    ) -> Poll<io::Result<Filled>> {
        let mut scratch = [MaybeUninit::<u8>::uninit(); PROBE_BYTES];
        let room = capacity.saturating_sub(self.bytes.len()).min(PROBE_BYTES);
        let mut probe = ReadBuf::uninit(&mut scratch[..room]);
        ready!(Pin::new(io).poll_read(context, &mut probe))?;
        let read = probe.filled();
        self.append(read, capacity);
        Poll::Ready(Ok(Filled {
            count: read.len(),
            whole: read.len() == room,
        }))
    }

    /// Reads into a pooled buffer, which is kept only if much comes.
    fn poll_pooled<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
        capacity: usize,
        mut buffer: BytesMut,
    ) -> Poll<io::Result<Filled>> {
        let len = self.bytes.len();
        buffer.extend_from_slice(&self.bytes);
        let room = READ_BYTES - len;
        let polled = poll_read_buf(Pin::new(io), context, &mut (&mut buffer).limit(room));
        let count = match polled {
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                self.pool.give(buffer);
                return Poll::Ready(Err(error));
            }
            Poll::Pending => {
                self.pool.give(buffer);
                return Poll::Pending;
            }
        };
        if count > PROBE_BYTES {
            self.replace(buffer);
        } else {
            self.append(buffer.get(len..).unwrap_or_default(), capacity);
            self.pool.give(buffer);
        }
        Poll::Ready(Ok(Filled {
            count,
            whole: count == room,
        }))
    }

    /// Appends few bytes: to an allocation of about that size.
    fn append(&mut self, read: &[u8], capacity: usize) {
        let wanted = self.bytes.len() + read.len();
        if wanted > self.bytes.capacity() {
            self.reallocate(wanted.max(capacity.min(2 * wanted)));
        }
        self.bytes.extend_from_slice(read);
    }

    fn poll_direct<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
        capacity: usize,
    ) -> Poll<io::Result<Filled>> {
        let len = self.bytes.len();
        let room = self.bytes.capacity().min(capacity).saturating_sub(len);
        let mut target = (&mut self.bytes).limit(room);
        let count = ready!(poll_read_buf(Pin::new(io), context, &mut target))?;
        Poll::Ready(Ok(Filled {
            count,
            whole: count == room,
        }))
    }

    /// Grows towards `capacity` as bytes come: a number from the wire alone allocates little.
    fn grow(&mut self, capacity: usize) {
        let step = (4 * self.bytes.len()).max(READ_BYTES);
        let target = step.min(capacity);
        if target > self.bytes.capacity() {
            self.reallocate(target);
        }
    }

    /// An exact allocation; `BytesMut::reserve` doubles, which the budget has not granted.
    fn reallocate(&mut self, capacity: usize) {
        let mut moved = BytesMut::with_capacity(capacity);
        moved.extend_from_slice(&self.bytes);
        self.replace(moved);
    }

    /// Replaces the buffer. One of a whole read returns to the pool, to be used again when the
    /// pieces taken from it are gone.
    fn replace(&mut self, bytes: BytesMut) {
        let allocated = std::mem::replace(&mut self.allocated, bytes.capacity());
        let old = std::mem::replace(&mut self.bytes, bytes);
        if allocated == READ_BYTES {
            self.pool.give(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::buffer_pool::BufferPool;

    /// An empty input with a pool of its own.
    fn empty() -> Input {
        let pool: &'static BufferPool = Box::leak(Box::new(BufferPool::new()));
        Input::new(BytesMut::new(), pool.join())
    }

    fn fill(input: &mut Input, mut wire: &[u8], capacity: usize) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let before = wire.len();
        while !wire.is_empty() && input.bytes.len() < capacity {
            let filled = input.poll_fill(&mut wire, &mut context, capacity, usize::MAX);
            assert!(filled.is_ready());
            assert!(input.allocated() <= capacity);
        }
        before - wire.len()
    }

    #[test]
    fn waiting_allocates_nothing() {
        let mut input = empty();
        let (mut silent, _peer) = tokio::io::duplex(64);
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            input
                .poll_fill(&mut silent, &mut context, 1 << 20, usize::MAX)
                .is_pending()
        );
        assert_eq!(input.allocated(), 0);
    }

    #[test]
    fn no_more_is_allocated_than_was_granted() {
        let wire: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
        for capacity in [1, 16_384, 16_385, 65_536, 300_001, 2_999_999] {
            let mut input = empty();
            assert_eq!(fill(&mut input, &wire, capacity), capacity);
            assert_eq!(input.bytes, &wire[..capacity]);
        }
    }

    #[test]
    fn an_announcement_alone_allocates_little() {
        let mut input = empty();
        fill(&mut input, &[7; 6], 32 << 20);
        assert!(input.allocated() <= 12);
    }

    #[test]
    fn a_short_rest_does_not_pin_a_large_allocation() {
        let mut input = empty();
        fill(&mut input, &vec![7; 200_000], 1 << 20);
        let taken = input.bytes.split_to(199_990);
        input.compact();
        assert_eq!(
            (taken.len(), input.bytes.len(), input.allocated()),
            (199_990, 10, 10)
        );
        input.bytes.clear();
        input.compact();
        assert_eq!(input.allocated(), 0);
    }

    #[test]
    fn where_data_flows_buffers_are_used_again() {
        let wire: Vec<u8> = (0..=250).cycle().take(READ_BYTES).collect();
        let mut input = empty();
        let mut places = Vec::new();
        for _ in 0..3 {
            fill(&mut input, &wire, READ_BYTES);
            assert_eq!(
                (&input.bytes[..], input.allocated()),
                (&wire[..], READ_BYTES)
            );
            places.push(input.bytes.as_ptr());
            // The first half is held meanwhile, and so is its allocation.
            let taken = input.bytes.split_to(READ_BYTES / 2).freeze();
            input.compact();
            let rest = input.bytes.split_to(READ_BYTES / 2);
            input.compact();
            assert_eq!([&taken[..], &rest[..]].concat(), wire);
        }
        assert_eq!((places[0], places[1]), (places[1], places[2]));
    }

    #[test]
    fn a_piece_that_is_held_is_never_written_over() {
        let mut input = empty();
        let mut held = Vec::new();
        for byte in 0..20 {
            fill(&mut input, &vec![byte; READ_BYTES], READ_BYTES);
            held.push((byte, input.bytes.split_to(READ_BYTES - 5).freeze()));
            input.compact();
            assert_eq!(input.bytes.split_to(5)[..], [byte; 5]);
            input.compact();
            held.retain(|(byte, _)| byte % 3 == 0);
        }
        assert!(
            held.iter()
                .all(|(byte, held)| held.iter().all(|each| each == byte))
        );
    }

    #[test]
    fn a_pooled_buffer_is_not_kept_while_waiting_or_for_little() {
        let mut input = empty();
        fill(&mut input, &vec![7; READ_BYTES], READ_BYTES);
        input.bytes.clear();
        input.compact();
        let (mut silent, _peer) = tokio::io::duplex(64);
        let mut context = Context::from_waker(Waker::noop());
        let waited = input.poll_fill(&mut silent, &mut context, READ_BYTES, usize::MAX);
        assert!(waited.is_pending());
        assert_eq!(input.allocated(), 0);
        fill(&mut input, &[8; 100], READ_BYTES);
        assert_eq!((&input.bytes[..], input.allocated()), (&[8; 100][..], 200));
        assert!(input.pool.take().is_some());
    }

    #[test]
    fn a_buffer_filled_behind_a_rest_is_a_whole_read() {
        let mut input = empty();
        input.pool.give(BytesMut::with_capacity(READ_BYTES));
        input.append(&[1; 5], 5);
        let mut context = Context::from_waker(Waker::noop());
        let mut wire = &vec![2; READ_BYTES][..];
        let Poll::Ready(Ok(filled)) =
            input.poll_fill(&mut wire, &mut context, 2 * READ_BYTES, usize::MAX)
        else {
            panic!("bytes are there");
        };
        assert_eq!((filled.count, filled.whole), (READ_BYTES - 5, true));
        assert_eq!(input.allocated(), READ_BYTES);
    }
}
