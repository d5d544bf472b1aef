//! Memory for small payloads that arrive together: an allocation for several of one size.

use bytes::{Bytes, BytesMut};

/// An allocation that is not full.
#[derive(Debug, Default)]
pub struct Block {
    free: BytesMut,
    whole: usize,
}

impl Block {
    /// Copies a small payload, of which up to `count` may come now.
    pub fn copy(&mut self, bytes: &[u8], count: usize) -> Bytes {
        let most = bytes.len().saturating_mul(TOGETHER);
        let fits = bytes.len() <= self.free.capacity();
        if bytes.is_empty() || (fits && self.whole > most) || (!fits && count < 2) {
            return Bytes::copy_from_slice(bytes);
        }
        if !fits {
            self.whole = most.min(bytes.len().saturating_mul(count));
            self.free = BytesMut::with_capacity(self.whole);
        }
        self.free.extend_from_slice(bytes);
        self.free.split().freeze()
    }
}

/// Payloads in one allocation: one that is held alone holds no more than so many times its bytes.
const TOGETHER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_that_come_together_share_one_allocation() {
        let mut block = Block::default();
        let bytes: Vec<u8> = (0..100).collect();
        let copies: Vec<_> = (0..=TOGETHER)
            .map(|left| block.copy(&bytes, 40 - left))
            .collect();
        let first = copies[0].as_ptr().addr();
        for (at, copied) in copies[..TOGETHER].iter().enumerate() {
            assert_eq!(copied.as_ptr().addr(), first + 100 * at);
        }
        assert_eq!((block.whole, block.free.capacity()), (1_600, 1_500));
        assert!(copies.iter().all(|copied| *copied == bytes));
    }

    #[test]
    fn nothing_holds_more_than_sixteen_times_its_bytes() {
        let mut block = Block::default();
        for (at, len) in [1, 1_000, 16, 63, 62, 1_000, 0, 1_024, 1]
            .into_iter()
            .enumerate()
        {
            let before = block.free.capacity();
            let copied = block.copy(&vec![7; len], 20);
            let is_in_it = block.free.capacity() != before;
            assert!(!is_in_it || block.whole <= 16 * len, "payload {at}");
            assert_eq!(copied.len(), len);
        }
    }

    #[test]
    fn one_that_comes_alone_has_its_own_memory_and_few_take_no_more_than_they_need() {
        let mut block = Block::default();
        block.copy(&[1; 500], 1);
        assert_eq!((block.whole, block.free.capacity()), (0, 0));
        block.copy(&[1; 500], 3);
        assert_eq!((block.whole, block.free.capacity()), (1_500, 1_000));
    }
}
