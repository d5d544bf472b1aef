//! Memory for small payloads that arrive together: an allocation for several of one size.

use bytes::{Bytes, BytesMut};

/// An allocation that is not full.
#[derive(Debug, Default)]
pub struct Block {
    free: BytesMut,
    whole: usize,
    number: u32,
}

/// The allocation that a payload shares with others: as long as one of them is there, all of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Its number: payloads behind each other in the same allocation have the same one.
    pub number: u32,
    /// Its bytes.
    pub bytes: u32,
}

impl Block {
    /// Copies a small payload, of which up to `count` may come now.
    pub fn copy(&mut self, bytes: &[u8], count: usize) -> Bytes {
        let (copied, _) = self.copy_shared(bytes, count);
        copied
    }

    /// [`copy`](Self::copy), with the allocation; `None`: it has one of its own.
    pub fn copy_shared(&mut self, bytes: &[u8], count: usize) -> (Bytes, Option<Shared>) {
        let most = bytes.len().saturating_mul(TOGETHER);
        let fits = bytes.len() <= self.free.capacity();
        if bytes.is_empty() || (fits && self.whole > most) || (!fits && count < 2) {
            return (Bytes::copy_from_slice(bytes), None);
        }
        if !fits {
            self.whole = most.min(bytes.len().saturating_mul(count));
            self.free = BytesMut::with_capacity(self.whole);
            self.number = self.number.wrapping_add(1);
        }
        self.free.extend_from_slice(bytes);
        let shared = Shared {
            number: self.number,
            bytes: u32::try_from(self.whole).unwrap_or(u32::MAX),
        };
        (self.free.split().freeze(), Some(shared))
    }
}

/// Payloads in one allocation: one that is held alone holds no more than so many times its bytes.
pub const TOGETHER: usize = 16;

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
    fn a_payload_says_which_allocation_it_shares() {
        let mut block = Block::default();
        let (_, alone) = block.copy_shared(&[1; 100], 1);
        assert_eq!(alone, None);
        let of = |number| Some(Shared { number, bytes: 300 });
        for number in [1, 1, 1, 2, 2, 2] {
            let (_, shared) = block.copy_shared(&[1; 100], 3);
            assert_eq!(shared, of(number));
        }
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
