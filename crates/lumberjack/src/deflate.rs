//! Compression of envelopes: one reused compressor, and the codec of each level.
//!
//! The output is a plain zlib stream (RFC 1950) for any inflater. The codecs are chosen by their
//! results for windows of log events, measured in `docs/performance.md`: libdeflate at its fastest
//! makes smaller streams than zlib's level 3, in less time; zlib-rs has a level that is faster
//! still, and one between two of libdeflate's.

use std::fmt;

use flate2::{Compress, Compression, FlushCompress, Status};
use libdeflater::{CompressionLvl, Compressor};

/// A compressor for envelopes, with its memory: made once for a connection.
pub(crate) struct Deflate {
    level: u32,
    codec: Codec,
    /// Kept between windows, so that it is not zeroed for each.
    scratch: Vec<u8>,
}

enum Codec {
    Zlib(Box<Compress>),
    Libdeflate(Compressor),
}

impl fmt::Debug for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflate")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Deflate {
    /// A compressor of zlib level 0 to 9; a higher level counts as 9.
    pub(crate) fn new(level: u32) -> Self {
        let codec = match level {
            1 | 5 => Codec::Zlib(Box::new(Compress::new(Compression::new(level), true))),
            _ => Codec::Libdeflate(Compressor::new(libdeflate_level(level))),
        };
        Self {
            level,
            codec,
            scratch: Vec::new(),
        }
    }

    /// Appends the zlib stream of `plain` to `out`. Returns its length.
    pub(crate) fn append(&mut self, plain: &[u8], out: &mut Vec<u8>) -> usize {
        let made = self.fill(plain);
        out.extend_from_slice(self.scratch.get(..made).unwrap_or_default());
        if self.scratch.len() > KEPT {
            self.scratch = Vec::new();
        }
        made
    }

    /// Fills the front of the scratch. Returns the filled length.
    fn fill(&mut self, plain: &[u8]) -> usize {
        match &mut self.codec {
            Codec::Zlib(zlib) => {
                zlib.reset();
                grow(&mut self.scratch, zlib_estimate(plain.len()));
                run(zlib, plain, &mut self.scratch)
            }
            Codec::Libdeflate(zlib) => {
                grow(&mut self.scratch, zlib.zlib_compress_bound(plain.len()));
                zlib.zlib_compress(plain, &mut self.scratch)
                    .expect("its own bound is enough")
            }
        }
    }
}

/// One stream in as many steps as the scratch needs, which grows until it is enough.
fn run(zlib: &mut Compress, plain: &[u8], scratch: &mut Vec<u8>) -> usize {
    loop {
        let [taken, made] = [zlib.total_in(), zlib.total_out()].map(in_memory);
        let input = plain.get(taken..).unwrap_or_default();
        let output = scratch.get_mut(made..).unwrap_or_default();
        let status = zlib
            .compress(input, output, FlushCompress::Finish)
            .expect("a compressor that was reset takes any input");
        if status == Status::StreamEnd {
            return in_memory(zlib.total_out());
        }
        let longer = scratch.len().saturating_mul(2).max(64);
        grow(scratch, longer);
    }
}

fn grow(scratch: &mut Vec<u8>, len: usize) {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
}

fn in_memory(len: u64) -> usize {
    usize::try_from(len).expect("it is the length of a slice")
}

/// Its level that makes windows of events no larger than zlib's `level` does.
fn libdeflate_level(level: u32) -> CompressionLvl {
    let level = match level {
        0 => 0,
        1..=4 => 1,
        5 | 6 => 5,
        7 => 6,
        8 => 7,
        _ => 8,
    };
    CompressionLvl::new(level).unwrap_or_default()
}

/// Level 1 has fixed codes: nine bits for a byte at worst.
const fn zlib_estimate(len: usize) -> usize {
    len.saturating_add(len / 8).saturating_add(64)
}

/// The most bytes that a buffer keeps between windows: the largest usual window.
pub(crate) const KEPT: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_that_is_too_small_grows_until_the_stream_is_whole() {
        let plain: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
            .collect();
        for len in [0, 1, 1_000] {
            let mut zlib = Compress::new(Compression::new(1), true);
            let mut scratch = vec![0; len];
            let made = run(&mut zlib, &plain, &mut scratch);
            let read = miniz_oxide::inflate::decompress_to_vec_zlib(&scratch[..made]);
            assert!(read.is_ok_and(|read| read == plain), "from {len}");
        }
    }

    #[test]
    fn memory_of_a_large_window_is_returned() {
        let mut deflate = Deflate::new(0);
        let mut out = Vec::new();
        deflate.append(&vec![7; KEPT], &mut out);
        assert_eq!(deflate.scratch.capacity(), 0);
        deflate.append(&[7; 100], &mut out);
        assert!(deflate.scratch.capacity() > 0);
    }
}
