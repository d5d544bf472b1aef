//! A cursor over bytes from the wire that cannot read past their end.

/// Reads big-endian numbers and slices from the front of a byte slice; every read answers `None`
/// where bytes are missing and then takes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that were not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes that were not read yet.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads a big-endian 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*head))
    }

    /// Reads a big-endian 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*head))
    }

    /// Reads the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_takes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), None);
        assert_eq!(reader.take(4), None);
        assert_eq!(reader.remaining(), 3);
        assert_eq!(reader.u8(), Some(1));
        assert_eq!(reader.take(2), Some(&[2, 3][..]));
    }

    #[test]
    fn numbers_are_big_endian_and_taken_once() {
        let bytes: Vec<u8> = (1..=14).collect();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8(), Some(1));
        assert_eq!(reader.u32(), Some(0x0203_0405));
        assert_eq!(reader.u64(), Some(0x0607_0809_0a0b_0c0d));
        assert_eq!((reader.u64(), reader.rest()), (None, &[14][..]));
        assert_eq!(reader.take(0), Some(&[][..]));
    }
}
