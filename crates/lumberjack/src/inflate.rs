//! A complete zlib stream, inflated by one call into a buffer of its thread.
//!
//! libdeflate takes three quarters of the time of a streaming decoder and reports less: not how
//! many bytes it took, and nothing about a stream that it cannot read. So its result counts only if
//! it is certain; everything else is left to the streaming decoder, which also finds the error's
//! name.

use std::cell::Cell;

use ackline_core::INFLATED_PER_STEP;
use libdeflater::{DecompressionError, Decompressor};

/// The result of inflating a stream at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AtOnce<R> {
    /// It is sound and ends where its bytes end.
    Sound(R),
    /// It does not fit into the buffer.
    TooLarge,
    /// It may be unsound.
    Unsure,
}

/// Inflates `stream` and calls `read` with the result.
pub(crate) fn at_once<R>(stream: &[u8], read: impl FnOnce(&[u8]) -> R) -> AtOnce<R> {
    // Taken out meanwhile: `read` may call this again.
    let mut tools = TOOLS.take().unwrap_or_else(Tools::new);
    let inflated = match tools.zlib.zlib_decompress(stream, &mut tools.room) {
        Ok(made) => tools.room.get(..made).filter(|out| is_all(stream, out)),
        Err(DecompressionError::BadData) => None,
        Err(DecompressionError::InsufficientSpace) => {
            TOOLS.set(Some(tools));
            return AtOnce::TooLarge;
        }
    };
    let answer = inflated.map_or(AtOnce::Unsure, |inflated| AtOnce::Sound(read(inflated)));
    TOOLS.set(Some(tools));
    answer
}

/// Whether the stream that gave `out` ends with the last of its bytes. The checksum of `out`
/// follows its last block: if these four bytes are found at the end and nowhere before, the stream
/// ends there.
fn is_all(stream: &[u8], out: &[u8]) -> bool {
    let checksum = libdeflater::adler32(out).to_be_bytes();
    let first = memchr::memmem::find(stream, &checksum);
    first.is_some() && first == stream.len().checked_sub(checksum.len())
}

/// The streams of a connection that are worth a try: those shorter than any that did not fit
/// before.
#[derive(Debug)]
pub(crate) struct Tries {
    below: usize,
}

impl Default for Tries {
    fn default() -> Self {
        Self { below: usize::MAX }
    }
}

impl Tries {
    /// [`at_once`], unless a stream of this length does not fit.
    pub(crate) fn at_once<R>(&mut self, stream: &[u8], read: impl FnOnce(&[u8]) -> R) -> AtOnce<R> {
        if stream.len() >= self.below {
            return AtOnce::TooLarge;
        }
        let answer = at_once(stream, read);
        if matches!(answer, AtOnce::TooLarge) {
            self.below = stream.len();
        }
        answer
    }
}

/// The state that a thread keeps between streams: a decoder's tables cost more than a small stream.
struct Tools {
    zlib: Decompressor,
    room: Vec<u8>,
}

impl Tools {
    fn new() -> Self {
        Self {
            zlib: Decompressor::new(),
            // Zeroed pages: memory is taken when a stream needs it.
            room: vec![0; ROOM],
        }
    }
}

thread_local! {
    static TOOLS: Cell<Option<Tools>> = const { Cell::new(None) };
}

/// The most bytes inflated at once: a full window of Beats with events of 1,000 bytes. It bounds
/// the time of one call, and stays in a core's second cache.
pub(crate) const ROOM: usize = INFLATED_PER_STEP;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may panic

    use std::io::Write as _;

    use flate2::write::ZlibEncoder;
    use flate2::{Compression, Decompress, FlushDecompress, Status};

    use super::*;

    fn deflated(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(3));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inflated(stream: &[u8]) -> AtOnce<Vec<u8>> {
        at_once(stream, <[u8]>::to_vec)
    }

    /// The result of the streaming decoder, if the stream ends with its bytes.
    fn streamed(stream: &[u8]) -> Option<Vec<u8>> {
        let (mut zlib, mut out) = (Decompress::new(true), Vec::with_capacity(1_000));
        let status = zlib.decompress_vec(stream, &mut out, FlushDecompress::Finish);
        let is_all = usize::try_from(zlib.total_in()) == Ok(stream.len());
        (matches!(status, Ok(Status::StreamEnd)) && is_all).then_some(out)
    }

    #[test]
    fn a_sound_stream_comes_out_as_a_whole() {
        for len in [0, 1, 1_000, 300_000, ROOM] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            assert_eq!(inflated(&deflated(&bytes)), AtOnce::Sound(bytes));
        }
    }

    #[test]
    fn a_byte_more_than_the_room_does_not_fit() {
        let stream = deflated(&vec![7; ROOM + 1]);
        assert_eq!(inflated(&stream), AtOnce::TooLarge);
        let mut tries = Tries::default();
        assert_eq!(tries.at_once(&stream, |_| ()), AtOnce::TooLarge);
        let mut longer = deflated(b"sound");
        longer.resize(stream.len(), 0);
        assert_eq!(tries.at_once(&longer, |_| ()), AtOnce::TooLarge);
        assert_eq!(
            tries.at_once(&deflated(b"sound"), |_| ()),
            AtOnce::Sound(())
        );
    }

    #[test]
    fn every_cut_and_every_flipped_bit_of_a_stream_is_unsure() {
        let stream = deflated(b"an event, an event, and an event that differs");
        for end in 0..stream.len() {
            assert_eq!(inflated(&stream[..end]), AtOnce::Unsure);
        }
        for at in 0..stream.len() * 8 {
            let mut broken = stream.clone();
            broken[at / 8] ^= 1 << (at % 8);
            // Bits without meaning: the level in the header, the padding of the last byte.
            if let AtOnce::Sound(out) = inflated(&broken) {
                assert_eq!(streamed(&broken), Some(out));
            }
        }
    }

    #[test]
    fn bytes_behind_the_stream_are_unsure_whatever_they_are() {
        let stream = deflated(b"an event");
        let checksum = &stream[stream.len() - 4..];
        for behind in [&b"\0"[..], b"\0\0\0\0", checksum, &stream, &checksum[3..]] {
            assert_eq!(inflated(&[&stream, behind].concat()), AtOnce::Unsure);
        }
        // A checksum in the middle of the stream only looks like its end.
        let stored = [1, 4, 0, 0xfb, 0xff];
        let adler = libdeflater::adler32(&[0; 4]).to_be_bytes();
        let twice = [&[0x78, 1][..], &stored, &[0; 4], &adler, &adler].concat();
        assert_eq!(inflated(&twice), AtOnce::Unsure);
        assert_eq!(inflated(&twice[..15]), AtOnce::Sound(vec![0; 4]));
    }

    #[test]
    fn the_callback_may_inflate_another_stream() {
        let (outer, inner) = (deflated(b"outer"), deflated(b"inner"));
        let both = at_once(&outer, |out| (out.to_vec(), inflated(&inner)));
        let inner = AtOnce::Sound(b"inner".to_vec());
        assert_eq!(both, AtOnce::Sound((b"outer".to_vec(), inner)));
    }
}
