//! Elements as they are kept: the size of every element in front, and then, if it is 0, each element behind its length,
//! else one element behind the other. All numbers are varints.

use crate::varint::{Cursor, put_varint};

/// Appends the size of every element, or the length of one.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    put_varint(out, number);
}

/// The kept elements of a body, from the first one on.
#[derive(Debug, Clone)]
pub struct StoredElements<'a> {
    /// The bytes of the elements that are still to come.
    rest: &'a [u8],
    /// The size of every element, or 0.
    size: usize,
    /// The number of the next element.
    next: u32,
    /// The number of elements.
    count: u32,
}

impl<'a> StoredElements<'a> {
    /// Reads the front of a body that announces `count` elements. Where every element has one size, the whole length is
    /// checked.
    ///
    /// # Errors
    /// The size is missing, or the length differs; the text is a sentence.
    pub fn new(body: &'a [u8], count: u32) -> Result<Self, String> {
        let (size, rest) = split_number(body).ok_or("the size of the elements is missing")?;
        let whole = usize::try_from(size).ok().zip(usize::try_from(count).ok());
        let whole = whole.and_then(|(size, count)| count.checked_mul(size));
        let held = rest.len();
        if size > 0 && whole != Some(held) {
            return Err(format!(
                "the block announces {count} elements of {size} bytes and holds {held} bytes"
            ));
        }
        Ok(Self {
            rest,
            // Without elements any size has the right length.
            size: usize::try_from(size).unwrap_or(usize::MAX),
            next: 0,
            count,
        })
    }

    /// Leaves out so many elements.
    ///
    /// # Errors
    /// The body ends within them; the text is a sentence.
    pub fn skip(&mut self, elements: u32) -> Result<(), String> {
        if self.size == 0 {
            for _ in 0..elements {
                self.read()?;
            }
            return Ok(());
        }
        let bytes = usize::try_from(elements).ok();
        let bytes = bytes.and_then(|elements| elements.checked_mul(self.size));
        let rest = bytes.and_then(|bytes| self.rest.get(bytes..));
        self.rest = rest.ok_or_else(|| self.short())?;
        self.next = self.next.saturating_add(elements);
        Ok(())
    }

    /// Reads the next element.
    ///
    /// # Errors
    /// The body ends within it, or goes on behind the last one; the text is a sentence.
    pub fn read(&mut self) -> Result<&'a [u8], String> {
        let (length, rest) = match self.size {
            0 => {
                let (length, rest) = split_number(self.rest).ok_or_else(|| self.short())?;
                (usize::try_from(length).map_err(|_| self.short())?, rest)
            }
            size => (size, self.rest),
        };
        let split = rest.split_at_checked(length);
        let (element, rest) = split.ok_or_else(|| self.short())?;
        self.rest = rest;
        self.next = self.next.saturating_add(1);
        if self.next == self.count && !rest.is_empty() {
            let more = rest.len();
            let count = self.count;
            return Err(format!(
                "{more} bytes stand behind the {count} elements of the block"
            ));
        }
        Ok(element)
    }

    fn short(&self) -> String {
        let Self { next, count, .. } = self;
        format!("the block announces {count} elements and holds {next}")
    }
}

/// The number in front, and the bytes behind it.
fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut cursor = Cursor::new(bytes);
    let number = cursor.varint().ok()?;
    bytes.get(cursor.at()..).map(|rest| (number, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(size: u64, elements: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        put_number(&mut body, size);
        for element in elements {
            if size == 0 {
                put_number(&mut body, u64::try_from(element.len()).unwrap());
            }
            body.extend_from_slice(element);
        }
        body
    }

    fn read_all(body: &[u8], count: u32, skipped: u32) -> Result<Vec<Vec<u8>>, String> {
        let mut stored = StoredElements::new(body, count)?;
        stored.skip(skipped)?;
        (skipped..count)
            .map(|_| stored.read().map(<[u8]>::to_vec))
            .collect()
    }

    /// Elements of one size, or of any if that is 0.
    fn elements() -> impl Strategy<Value = (u64, Vec<Vec<u8>>)> {
        let of_any =
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20);
        let fixed = (1_usize..300).prop_flat_map(|size| {
            let element = proptest::collection::vec(any::<u8>(), size);
            let elements = proptest::collection::vec(element, 0..20);
            elements.prop_map(move |elements| (u64::try_from(size).unwrap(), elements))
        });
        prop_oneof![of_any.prop_map(|elements| (0, elements)), fixed]
    }

    proptest! {
        #[test]
        fn elements_come_back_from_any_one_on(
            (size, elements) in elements(),
            from in any::<prop::sample::Index>(),
        ) {
            let count = u32::try_from(elements.len()).unwrap();
            let from = from.index(elements.len().saturating_add(1));
            let skipped = u32::try_from(from).unwrap();
            let read = read_all(&body(size, &elements), count, skipped);
            prop_assert_eq!(read, Ok(elements[from..].to_vec()));
        }

        #[test]
        fn a_body_that_is_cut_or_goes_on_is_refused((size, elements) in elements()) {
            prop_assume!(!elements.is_empty());
            let count = u32::try_from(elements.len()).unwrap();
            let whole = body(size, &elements);
            for cut in 0..whole.len() {
                prop_assert!(read_all(&whole[..cut], count, 0).is_err());
            }
            let longer = [&whole[..], &[0]].concat();
            prop_assert!(read_all(&longer, count, 0).is_err());
        }

        #[test]
        fn no_body_panics(
            body in proptest::collection::vec(any::<u8>(), 0..60),
            count in any::<u32>(),
            skipped in 0_u32..1_000,
        ) {
            if let Ok(mut stored) = StoredElements::new(&body, count) {
                let _ = stored.skip(skipped);
                for _ in 0..100 {
                    if stored.read().is_err() {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_body_is_described() {
        for (body, count, says) in [
            (&[][..], 1, "the size of the elements is missing"),
            (
                &[4, 1, 2, 3],
                1,
                "announces 1 elements of 4 bytes and holds 3 bytes",
            ),
            (&[0, 1, 7, 2, 7], 2, "announces 2 elements and holds 1"),
            (&[0, 1, 7, 9], 1, "1 bytes stand behind the 1 elements"),
        ] {
            let error = read_all(body, count, 0).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
