//! Outgoing bytes: small pieces packed into one buffer, large payloads chained without a copy.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::SEND_QUEUE_BYTES;

/// Payloads above this are chained: below it a copy costs less than two more pieces of a vectored write, which
/// takes 64 of them at the most.
const CHAIN_ABOVE: usize = 2_048;

/// Bytes on their way to the transport, in order. Scratch: nothing here is kept for a resend.
#[derive(Debug, Default)]
pub struct SendQueue {
    chain: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl SendQueue {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes that may still be put before a machine must stop. One `put` may go over it.
    pub fn room(&self) -> usize {
        SEND_QUEUE_BYTES.saturating_sub(self.len)
    }

    /// Returns the bytes that are queued.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies a small piece, such as a frame header.
    pub fn put_slice(&mut self, piece: &[u8]) {
        self.tail.extend_from_slice(piece);
        self.len = self.len.saturating_add(piece.len());
    }

    /// Takes a payload: copied up to 2,048 bytes, chained above.
    pub fn put(&mut self, payload: Bytes) {
        if payload.len() <= CHAIN_ABOVE {
            self.put_slice(&payload);
            return;
        }
        self.len = self.len.saturating_add(payload.len());
        self.close_tail();
        self.chain.push_back(payload);
    }

    /// [`put`](Self::put) of a payload that somebody keeps: shared only if it is chained.
    pub fn put_shared(&mut self, payload: &Bytes) {
        if payload.len() <= CHAIN_ABOVE {
            self.put_slice(payload);
        } else {
            self.put(payload.clone());
        }
    }

    /// Appends everything that another queue holds.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            *self = std::mem::take(other);
            return;
        }
        if other.chain.is_empty() {
            self.put_slice(&other.tail);
        } else {
            self.close_tail();
            self.chain.append(&mut other.chain);
            self.len = self.len.saturating_add(other.len);
            self.tail = std::mem::take(&mut other.tail);
        }
        other.clear();
    }

    /// Frees an empty buffer, as there is nothing to send for now: an idle connection holds no buffer.
    pub fn rest(&mut self) {
        if self.len == 0 && self.tail.capacity() > 0 {
            self.tail = BytesMut::new();
        }
    }

    /// Drops everything, for a transport that is gone.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chain.push_back(self.tail.split().freeze());
        }
    }
}

impl Buf for SendQueue {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.chain
            .front()
            .map_or_else(|| self.tail.as_ref(), AsRef::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.chain.iter().map(AsRef::as_ref);
        let tail = Some(self.tail.as_ref()).filter(|tail| !tail.is_empty());
        let mut filled: usize = 0;
        for (slot, piece) in dst.iter_mut().zip(pieces.chain(tail)) {
            *slot = IoSlice::new(piece);
            filled = filled.saturating_add(1);
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advance past the end of the send queue");
        self.len = self.len.saturating_sub(count);
        while let Some(front) = self.chain.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count = count.saturating_sub(front.len());
            self.chain.pop_front();
        }
        self.tail.advance(count);
        if self.len == 0 {
            // Its memory is used again, while there is more to send.
            self.tail.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_leave_in_the_order_they_came(
            sizes in proptest::collection::vec((0_usize..4_000, any::<bool>()), 0..10),
            step in 20_usize..2_000,
        ) {
            let mut queue = SendQueue::new();
            let mut model = Vec::new();
            for (i, (size, chained)) in sizes.into_iter().enumerate() {
                let piece = vec![u8::try_from(i).unwrap(); size];
                model.extend_from_slice(&piece);
                match (chained, i % 2) {
                    (true, 0) => queue.put(piece.into()),
                    (true, _) => queue.put_shared(&piece.into()),
                    (false, _) => queue.put_slice(&piece),
                }
                prop_assert_eq!(queue.remaining(), model.len());
            }
            let mut sent = Vec::new();
            while queue.has_remaining() {
                prop_assert!(!queue.chunk().is_empty());
                let mut slices = [IoSlice::new(&[]); 64];
                let filled = queue.chunks_vectored(&mut slices);
                let seen: Vec<u8> =
                    slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
                prop_assert!(!seen.is_empty());
                let take = step.min(seen.len());
                sent.extend_from_slice(&seen[..take]);
                queue.advance(take);
            }
            prop_assert_eq!(sent, model);
        }
    }

    #[test]
    fn large_payloads_are_chained_and_small_ones_packed() {
        let mut queue = SendQueue::new();
        queue.put_slice(b"head");
        queue.put(Bytes::from_static(b"small"));
        queue.put(vec![0; 2_048].into());
        queue.put_shared(&vec![0; 2_049].into());
        queue.put_slice(b"tail");
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(queue.chunks_vectored(&mut slices), 3);
        let lens: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
        assert_eq!(lens[..4], [2_057, 2_049, 4, 0]);
    }

    #[test]
    fn a_write_that_ends_between_two_pieces_leaves_the_second_as_it_was() {
        let mut queue = SendQueue::new();
        queue.put(vec![1; 2_600].into());
        queue.put(vec![2; 2_700].into());
        queue.put_slice(b"tail");
        queue.advance(2_600);
        assert_eq!((queue.len(), queue.chunk()), (2_704, &[2; 2_700][..]));
        queue.advance(2_700);
        assert_eq!((queue.len(), queue.chunk()), (4, &b"tail"[..]));
    }

    #[test]
    fn room_is_the_difference_to_the_limit() {
        let mut queue = SendQueue::new();
        assert_eq!(queue.room(), SEND_QUEUE_BYTES);
        queue.put(vec![0; SEND_QUEUE_BYTES - 1].into());
        assert_eq!(queue.room(), 1);
        queue.put_slice(b"over");
        assert_eq!(queue.room(), 0);
        queue.clear();
        assert_eq!((queue.len(), queue.room()), (0, SEND_QUEUE_BYTES));
        assert!(queue.chunk().is_empty());
    }

    #[test]
    fn a_buffer_is_used_again_until_the_queue_rests() {
        let mut queue = SendQueue::new();
        let mut places = Vec::new();
        for _ in 0..3 {
            for _ in 0..60 {
                queue.put_slice(&[0; 1_000]);
            }
            places.push(queue.tail.as_ptr());
            queue.rest();
            assert_eq!(queue.chunk().len(), 60_000, "what is to be sent stays");
            queue.advance(10_000);
            queue.advance(50_000);
        }
        assert_eq!((places[0], places[1]), (places[1], places[2]));
        queue.rest();
        assert_eq!(queue.tail.capacity(), 0);
    }
}
