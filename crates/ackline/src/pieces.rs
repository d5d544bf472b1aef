//! The body of a block: small pieces together, large ones as they are.

use bytes::{Bytes, BytesMut};

/// The bytes of a block so far.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    whole: Vec<Bytes>,
    small: BytesMut,
    bytes: u64,
}

impl Pieces {
    /// Appends a copy.
    pub(crate) fn copy(&mut self, piece: &[u8]) {
        self.small.extend_from_slice(piece);
        self.bytes += piece.len() as u64;
    }

    /// Appends bytes, without a copy where that pays.
    pub(crate) fn put(&mut self, piece: &Bytes) {
        if piece.len() <= CHAINED_FROM {
            return self.copy(piece);
        }
        self.cut();
        self.bytes += piece.len() as u64;
        self.whole.push(piece.clone());
    }

    /// The pieces, and the bytes in them.
    pub(crate) fn finish(mut self) -> (Vec<Bytes>, u64) {
        self.cut();
        (self.whole, self.bytes)
    }

    fn cut(&mut self) {
        if !self.small.is_empty() {
            self.whole.push(self.small.split().freeze());
        }
    }
}

/// Above this many bytes a piece is one of its own; below it a copy costs less.
const CHAINED_FROM: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_piece_is_shared_and_small_ones_are_together() {
        let large = Bytes::from(vec![7; CHAINED_FROM + 1]);
        let mut pieces = Pieces::default();
        pieces.copy(b"a");
        pieces.put(&Bytes::from_static(b"b"));
        pieces.put(&large);
        pieces.copy(b"c");
        let (body, bytes) = pieces.finish();
        assert_eq!(bytes, 3 + large.len() as u64);
        assert_eq!(
            (&*body[0], &*body[2], body.len()),
            (&b"ab"[..], &b"c"[..], 3)
        );
        assert_eq!(body[1].as_ptr(), large.as_ptr(), "not copied");
    }
}
