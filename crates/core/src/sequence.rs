//! 32-bit sequence numbers that wrap.

/// A sequence number modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sequence(pub u32);

impl Sequence {
    /// The number `count` steps on.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Steps forward from `earlier` to here, modulo 2^32.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this number lies less than 2^31 steps ahead of `other`.
    pub const fn is_after(self, other: Self) -> bool {
        let distance = self.since(other);
        distance != 0 && distance < 0x8000_0000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = Sequence(u32::MAX);
        assert_eq!(last.next(), Sequence(0));
        assert!(Sequence(0).is_after(last));
        assert!(!last.is_after(Sequence(0)));
        assert_eq!(Sequence(2).since(last), 3);
        assert!(!last.is_after(last));
    }

    #[test]
    fn half_the_numbers_lie_ahead() {
        let start = Sequence(7);
        assert!(start.plus(0x7fff_ffff).is_after(start));
        assert!(!start.plus(0x8000_0000).is_after(start));
    }
}
