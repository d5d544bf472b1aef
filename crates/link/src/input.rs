//! The input buffer of one connection: none while idle, never larger than was granted.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Bytes that come in without a buffer being allocated first: idle connections hold none.
pub(crate) const PROBE_BYTES: usize = 16 * 1024;

/// Bytes and the size of the allocation that they keep alive.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    allocated: usize,
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) count: usize,
    /// Everything offered was filled: more is probably waiting.
    pub(crate) whole: bool,
}

impl Input {
    pub(crate) fn new(bytes: BytesMut) -> Self {
        let allocated = bytes.capacity();
        Self { bytes, allocated }
    }

    /// Bytes of memory kept alive.
    pub(crate) fn allocated(&self) -> usize {
        self.allocated.max(self.bytes.capacity())
    }

    /// After frames were taken: a short rest moves out of the large allocation that it would pin.
    pub(crate) fn compact(&mut self) {
        if self.bytes.is_empty() {
            *self = Self::default();
        } else if self.bytes.len() < self.allocated / 2 {
            self.reallocate(self.bytes.len());
        }
    }

    /// Reads until `capacity` bytes are held at the most, `bite` of them at once (more than a probe, or one
    /// probe). 0 bytes is the peer's end.
    pub(crate) fn poll_fill<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
        capacity: usize,
        bite: usize,
    ) -> Poll<io::Result<Filled>> {
        let spare = self.bytes.capacity().min(capacity);
        if spare.saturating_sub(self.bytes.len()) >= PROBE_BYTES {
            return self.poll_direct(
                io,
                context,
                capacity.min(self.bytes.len().saturating_add(bite)),
            );
        }
        let filled = ready!(self.poll_probe(io, context, capacity))?;
        if !filled.whole || self.bytes.len() >= capacity || bite <= PROBE_BYTES {
            return Poll::Ready(Ok(filled));
        }
        self.grow(capacity);
        let more = match self.poll_direct(io, context, capacity) {
            Poll::Ready(more) => more?,
            Poll::Pending => Filled {
                count: 0,
                whole: false,
            },
        };
        // An end after the probe is seen again by the next read.
        Poll::Ready(Ok(Filled {
            count: filled.count + more.count,
            whole: more.whole,
        }))
    }

    /// Through the stack, so that nothing is allocated until bytes are there.
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
        let wanted = self.bytes.len() + read.len();
        if wanted > self.bytes.capacity() {
            self.reallocate(wanted.max(capacity.min(2 * wanted)));
        }
        self.bytes.extend_from_slice(read);
        Poll::Ready(Ok(Filled {
            count: read.len(),
            whole: read.len() == room,
        }))
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

    /// Towards `capacity` as bytes come: a number from the wire alone allocates little.
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
        *self = Self::new(moved);
    }
}

/// Bytes read at a time where data flows.
pub(crate) const READ_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

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
        let mut input = Input::default();
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
            let mut input = Input::default();
            assert_eq!(fill(&mut input, &wire, capacity), capacity);
            assert_eq!(input.bytes, &wire[..capacity]);
        }
    }

    #[test]
    fn an_announcement_alone_allocates_little() {
        let mut input = Input::default();
        fill(&mut input, &[7; 6], 32 << 20);
        assert!(input.allocated() <= 12);
    }

    #[test]
    fn a_short_rest_does_not_pin_a_large_allocation() {
        let mut input = Input::default();
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
}
