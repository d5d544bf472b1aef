//! Choices of a run, taken from any bytes.

/// The choices of a run, one byte each.
#[derive(Debug)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// Takes its choices from `data`.
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether no choice is left.
    pub const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next choice; 0 if none is left.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let byte = usize::from(self.byte());
        byte.checked_rem(end).unwrap_or(0)
    }
}
