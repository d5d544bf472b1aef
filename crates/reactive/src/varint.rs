//! Varints: whole numbers in groups of seven bits, the lowest first, up to 2^64-1 in ten bytes (R-RS-1). Numbers with
//! zeros at their end are accepted; ours have none.

use crate::Kind;

/// The reason that a message cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The input must hold so many bytes first.
    More(usize),
    /// The message is invalid, with any further bytes.
    Wrong(Kind),
}

impl From<Kind> for Stop {
    fn from(kind: Kind) -> Self {
        Self::Wrong(kind)
    }
}

/// The most bytes of a varint.
const MOST_BYTES: usize = 10;

/// Reads the fields of a message from the front of the input. Every read fails where bytes are missing.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// Bytes that were read.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Reads a varint.
    pub(crate) fn varint(&mut self) -> Result<u64, Stop> {
        let bytes = self.input.get(self.at..).unwrap_or_default();
        let (mut value, mut shift) = (0_u64, 0_u32);
        for (read, byte) in bytes.iter().take(MOST_BYTES).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit of 64.
            if shift == 63 && bits > 1 {
                return Err(Kind::VarintOverflow.into());
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                self.at = self.at.saturating_add(read).saturating_add(1);
                return Ok(value);
            }
            shift = shift.saturating_add(7);
        }
        if bytes.len() >= MOST_BYTES {
            return Err(Kind::VarintOverflow.into());
        }
        Err(Stop::More(self.input.len().saturating_add(1)))
    }

    /// Reads the next `len` bytes; the result is where they lie.
    pub(crate) fn take(&mut self, len: usize) -> Result<std::ops::Range<usize>, Stop> {
        let end = self.at.saturating_add(len);
        if end > self.input.len() {
            return Err(Stop::More(end));
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    /// The bytes of a range that was read.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &'a [u8] {
        self.input.get(range).unwrap_or_default()
    }
}

/// Appends a varint in its shortest form.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_no_prefix_is(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varint(), Ok(value));
            prop_assert_eq!(cursor.at(), bytes.len());
            for cut in 0..bytes.len() {
                prop_assert_eq!(Cursor::new(&bytes[..cut]).varint(), Err(Stop::More(cut.saturating_add(1))));
            }
        }
    }

    #[test]
    fn the_tenth_byte_holds_one_bit_and_an_eleventh_is_refused() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varint();
        let nine = [0xff; 9];
        let with = |last: &[u8]| read(&[&nine[..], last].concat());
        assert_eq!(with(&[0x01]), Ok(u64::MAX));
        assert_eq!(with(&[0x02]), Err(Stop::Wrong(Kind::VarintOverflow)));
        assert_eq!(with(&[0x81]), Err(Stop::Wrong(Kind::VarintOverflow)));
        assert_eq!(read(&[0x81, 0x80, 0x00]), Ok(1));
    }
}
