//! The search for a text within an escaped text, by the algorithm of Knuth, Morris and Pratt. It never steps back in the
//! searched text, so its work is linear for any two texts that a peer chooses.

use crate::text::EscapedText;

/// The properties of a message have at most so many bytes: a longer text is in none.
const MOST_BYTES: usize = 65_535;

/// The borders of a text that is searched for. The condition keeps the text itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Needle {
    /// For each beginning of the text: the length of the longest shorter beginning that it ends with.
    borders: Box<[usize]>,
}

impl Needle {
    /// Prepares the search for a text.
    pub(super) fn new(text: &[u8]) -> Self {
        let mut needle = Self::default();
        if text.len() > MOST_BYTES {
            return needle;
        }
        needle.borders = vec![0; text.len()].into_boxed_slice();
        let mut found = 0;
        for (at, byte) in text.iter().enumerate().skip(1) {
            found = needle.next(text, found, *byte);
            if let Some(border) = needle.borders.get_mut(at) {
                *border = found;
            }
        }
        needle
    }

    /// Whether the searched text contains `text`, from which this needle was made.
    pub(super) fn is_in(&self, text: &str, searched: EscapedText<'_>) -> bool {
        let text = text.as_bytes();
        let mut found = 0;
        let mut bytes = searched.bytes();
        let is_prepared = text.len() == self.borders.len();
        let mut is_end = |byte| {
            found = self.next(text, found, byte);
            found == text.len()
        };
        text.is_empty() || is_prepared && bytes.any(&mut is_end)
    }

    /// Bytes of memory behind this needle.
    pub(super) fn held_bytes(&self) -> usize {
        size_of_val::<[usize]>(&self.borders)
    }

    /// The length of the beginning of `text` that ends with `byte`, where one of length `found` ended before it.
    fn next(&self, text: &[u8], mut found: usize, byte: u8) -> usize {
        while text.get(found) != Some(&byte) {
            let Some(shorter) = found.checked_sub(1) else {
                return 0;
            };
            found = self.borders.get(shorter).copied().unwrap_or_default();
        }
        found.saturating_add(1)
    }
}
