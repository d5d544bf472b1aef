//! From the parts of a decoded packet to an owned message.

use ackline_core::Payload;
use bytes::{Bytes, BytesMut};

use crate::frame::Parts;

/// A received message of up to this many bytes is copied out of the input; a larger one is a slice of it.
/// Below it a copy costs less than holding the whole input for it; small ones that arrive together are copied
/// into one allocation, of 16 times the bytes of each at the most.
pub const COPIED_BYTES: usize = 1_024;

/// A copy of received parts: one piece of memory for all of them.
pub fn copied(parts: &Parts<'_>) -> Payload {
    if parts.len() == 1 {
        return Payload::from(Bytes::copy_from_slice(
            parts.iter().next().unwrap_or_default(),
        ));
    }
    let mut all = BytesMut::with_capacity(parts.bytes());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    let mut all = all.freeze();
    parts.iter().map(|part| all.split_to(part.len())).collect()
}

/// The received parts as slices of `packet`, the very bytes that `parts` was decoded from: `packet`
/// lives as long as any of them.
pub fn sliced(parts: &Parts<'_>, packet: &Bytes) -> Payload {
    parts.ranges().map(|range| packet.slice(range)).collect()
}

/// Memory for small messages that arrive together: an allocation for several of one size.
#[derive(Debug, Default)]
pub(crate) struct Block {
    free: BytesMut,
    whole: usize,
}

impl Block {
    /// A copy of a received message's parts, of which up to `count` may come now.
    pub(crate) fn copy(&mut self, parts: &Parts<'_>, count: usize) -> Payload {
        let bytes = parts.bytes();
        let most = bytes.saturating_mul(TOGETHER);
        let fits = bytes <= self.free.capacity();
        if parts.len() != 1 || bytes == 0 || (fits && self.whole > most) || (!fits && count < 2) {
            return copied(parts);
        }
        if !fits {
            self.whole = most.min(bytes.saturating_mul(count));
            self.free = BytesMut::with_capacity(self.whole);
        }
        parts
            .iter()
            .for_each(|part| self.free.extend_from_slice(part));
        Payload::from(self.free.split().freeze())
    }
}

/// Messages in one allocation: one that is held alone holds no more than so many times its bytes.
const TOGETHER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Body, Context, Decoded, Packet, Role, decode, encode_message};
    use crate::{ChannelId, Limits};

    /// Copies a received message of so many bytes in one part, of which so many may come.
    fn copy(block: &mut Block, bytes: &[u8], count: usize) -> Payload {
        let payload = Payload::from(bytes.to_vec());
        let mut packet = Vec::new();
        encode_message(&[ChannelId::IMPLICIT], &payload, &mut packet);
        let context = Context {
            from: Role::Connector,
            connector_channel_id_size: 0,
            listener_channel_id_size: 0,
        };
        let Ok(Decoded::Whole {
            packet:
                Packet::Channel {
                    body: Body::Message(parts),
                    ..
                },
            ..
        }) = decode(&context, &Limits::default(), &packet)
        else {
            panic!("it is a message");
        };
        let copied = block.copy(&parts, count);
        assert_eq!(copied, payload);
        copied
    }

    fn place(payload: &Payload) -> usize {
        payload.as_slice()[0].as_ptr().addr()
    }

    #[test]
    fn messages_that_come_together_stand_in_one_allocation() {
        let mut block = Block::default();
        let bytes: Vec<u8> = (0..100).collect();
        let copies: Vec<_> = (0..=TOGETHER)
            .map(|left| copy(&mut block, &bytes, 40 - left))
            .collect();
        let first = place(&copies[0]);
        for (at, copied) in copies[..TOGETHER].iter().enumerate() {
            assert_eq!(place(copied), first + 100 * at);
        }
        assert_eq!((block.whole, block.free.capacity()), (1_600, 1_500));
        assert!(copies.iter().all(|copied| copied.as_slice()[0] == bytes));
    }

    #[test]
    fn no_message_holds_more_than_sixteen_times_its_bytes() {
        let mut block = Block::default();
        for (at, len) in [1, 1_000, 16, 63, 62, 1_000, 0, 1_024, 1]
            .into_iter()
            .enumerate()
        {
            let before = block.free.capacity();
            let copied = copy(&mut block, &vec![7; len], 20);
            let is_in_it = block.free.capacity() != before;
            assert!(!is_in_it || block.whole <= 16 * len, "message {at}");
            assert_eq!(copied.bytes(), len);
        }
    }

    #[test]
    fn one_that_comes_alone_has_its_own_memory_and_few_take_no_more_than_they_need() {
        let mut block = Block::default();
        copy(&mut block, &[1; 500], 1);
        assert_eq!((block.whole, block.free.capacity()), (0, 0));
        copy(&mut block, &[1; 500], 3);
        assert_eq!((block.whole, block.free.capacity()), (1_500, 1_000));
    }
}
