//! Percent-encoding of UTF-8 text after RFC 3986 (R-MM-12): unreserved characters stand for themselves, all other bytes
//! are written as `%XX` with upper-case digits. Reading accepts either case and any ASCII outside escapes; `+` is a plus.

use std::borrow::Cow;

/// Appends a text with its escapes.
pub(crate) fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(digit(byte >> 4));
            out.push(digit(byte & 0x0f));
        }
    }
}

/// Reads a text, or nothing if an escape is incomplete or the text is not UTF-8.
pub(crate) fn decode(raw: &[u8]) -> Option<String> {
    EscapedText::read(raw).map(|text| text.to_string_lossy().into_owned())
}

/// A text with escapes, which are sound: each has two hexadecimal digits, and together they are UTF-8. Comparing it does
/// not allocate.
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a> {
    raw: &'a [u8],
    /// The number of bytes for which the text stands.
    len: usize,
}

impl<'a> EscapedText<'a> {
    /// Checks the escapes of a text.
    pub(crate) fn read(raw: &'a [u8]) -> Option<Self> {
        if !raw.is_ascii() {
            return None;
        }
        let has_escapes = raw.contains(&b'%');
        let len = if has_escapes {
            decoded_len(raw)?
        } else {
            raw.len()
        };
        Some(Self { raw, len })
    }

    /// A text that is known to be ASCII without escapes.
    pub(crate) const fn plain(raw: &'a [u8]) -> Self {
        let len = raw.len();
        Self { raw, len }
    }

    /// The text behind a letter, if it begins with it.
    pub(crate) fn strip_letter(self, letter: u8) -> Option<Self> {
        let raw = self.raw.strip_prefix(&[letter])?;
        let len = self.len.saturating_sub(1);
        Some(Self { raw, len })
    }

    /// Whether there are no escapes.
    const fn is_plain(self) -> bool {
        self.len == self.raw.len()
    }

    /// The text as it was sent, with its escapes.
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The bytes for which the text stands; they are UTF-8.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a> {
        let mut rest = self.raw;
        std::iter::from_fn(move || {
            let (byte, behind) = split_byte(rest)?;
            rest = behind;
            Some(byte)
        })
    }

    /// The number of bytes for which the text stands.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the text stands for nothing.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Whether the text stands for `other`.
    pub fn is(&self, other: &str) -> bool {
        if self.is_plain() {
            return self.raw == other.as_bytes();
        }
        self.bytes().eq(other.bytes())
    }

    /// Whether the text begins with `start`.
    pub fn starts_with(&self, start: &str) -> bool {
        if self.is_plain() {
            return self.raw.starts_with(start.as_bytes());
        }
        let mut bytes = self.bytes();
        start.bytes().all(|byte| bytes.next() == Some(byte))
    }

    /// Whether the text ends with `end`.
    pub fn ends_with(&self, end: &str) -> bool {
        if self.is_plain() {
            return self.raw.ends_with(end.as_bytes());
        }
        let before = self.len().checked_sub(end.len());
        before.is_some_and(|before| self.bytes().skip(before).eq(end.bytes()))
    }

    /// The text without escapes. Nothing is lost, for the escapes are sound.
    pub fn to_string_lossy(&self) -> Cow<'a, str> {
        if self.is_plain() {
            return String::from_utf8_lossy(self.raw);
        }
        let bytes: Vec<u8> = self.bytes().collect();
        Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl PartialEq for EscapedText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

/// The number of bytes for which a text stands, if every escape is complete and the text is UTF-8.
fn decoded_len(mut raw: &[u8]) -> Option<usize> {
    let mut len = 0_usize;
    while !raw.is_empty() {
        let mut character = [0_u8; 4];
        let [first, following @ ..] = &mut character;
        (*first, raw) = split_byte(raw)?;
        let following_bytes = match *first {
            0x00..=0x7f => {
                len = len.saturating_add(1);
                continue;
            }
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => return None,
        };
        for byte in following.iter_mut().take(following_bytes) {
            (*byte, raw) = split_byte(raw)?;
        }
        let character = character.get(..=following_bytes)?;
        std::str::from_utf8(character).ok()?;
        len = len.saturating_add(character.len());
    }
    Some(len)
}

/// The byte for which the front of a text stands, and the text behind it. Nothing is at the end, or before a percent sign
/// without two hexadecimal digits.
fn split_byte(raw: &[u8]) -> Option<(u8, &[u8])> {
    match raw {
        [b'%', high, low, rest @ ..] => Some((value(*high)? << 4 | value(*low)?, rest)),
        [b'%', ..] | [] => None,
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

/// The value of a hexadecimal digit.
fn value(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// The upper-case hexadecimal digit of a value below 16.
fn digit(value: u8) -> char {
    let digit = char::from_digit(u32::from(value), 16).unwrap_or_default();
    digit.to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &str) -> String {
        let mut out = String::new();
        encode(&mut out, text);
        out
    }

    #[test]
    fn unreserved_characters_stand_and_all_others_are_escaped_in_upper_case() {
        let unreserved = "azAZ09-._~";
        assert_eq!(encoded(unreserved), unreserved);
        assert_eq!(encoded("å+ /%"), "%C3%A5%2B%20%2F%25");
        for byte in 0..0x80_u8 {
            let text = char::from(byte).to_string();
            let stands = byte.is_ascii_alphanumeric() || "-._~".contains(&text);
            assert_eq!(encoded(&text) == text, stands, "{byte}");
        }
    }

    #[test]
    fn escapes_of_either_case_are_read_and_a_plus_is_a_plus() {
        for (raw, text) in [
            ("%c3%A5%2b+", "å++"),
            ("", ""),
            ("a;=: b", "a;=: b"),
            ("%00%7f", "\0\u{7f}"),
            ("%E2%82%AC%F0%9F%98%80x", "€😀x"),
            ("%25%34%31", "%41"),
        ] {
            assert_eq!(decode(raw.as_bytes()).as_deref(), Some(text), "{raw}");
        }
    }

    #[test]
    fn bad_escapes_other_bytes_than_ascii_and_other_text_than_utf_8_are_refused() {
        for raw in [
            "%",
            "a%",
            "%4",
            "a%4",
            "%4g",
            "%g4",
            "%%",
            "%25%",
            "%+4",
            "é",
            "%C3",
            "%C3a",
            "%A5",
            "%C0%80",
            "%ED%A0%80",
            "%F4%90%80%80",
            "%F0%80%80%80",
            "%E2%82",
            "%FF",
            "%C3%A5%A5",
            "%E2%82%",
            "%C3é",
        ] {
            assert_eq!(decode(raw.as_bytes()), None, "{raw}");
        }
        // A literal byte and an escape are no character together.
        assert_eq!(decode(b"\xc3%A5"), None);
        assert_eq!(decode(b"%C3\xa5"), None);
    }

    /// Texts with some characters escaped that need not be, in either case.
    fn raw_text() -> impl Strategy<Value = (String, String)> {
        let characters = proptest::collection::vec((any::<char>(), 0_u8..3), 0..20);
        let few = proptest::collection::vec(("[ab%é]", 0_u8..3), 0..8);
        let few = few.prop_map(|all| {
            let first = |(text, how): (String, u8)| (text.chars().next().unwrap(), how);
            all.into_iter().map(first).collect()
        });
        prop_oneof![characters, few].prop_map(|all: Vec<(char, u8)>| {
            let mut pair = (String::new(), String::new());
            for (character, how) in all {
                pair.0.push(character);
                let text = character.to_string();
                match how {
                    0 => pair.1.push_str(&encoded(&text)),
                    1 => pair
                        .1
                        .extend(text.bytes().map(|byte| format!("%{byte:02x}"))),
                    _ if character.is_ascii() && character != '%' => pair.1.push(character),
                    _ => pair
                        .1
                        .extend(text.bytes().map(|byte| format!("%{byte:02X}"))),
                }
            }
            pair
        })
    }

    proptest! {
        #[test]
        fn a_written_text_is_read_again(text in any::<String>()) {
            let raw = encoded(&text);
            prop_assert!(raw.is_ascii());
            prop_assert_eq!(decode(raw.as_bytes()), Some(text));
        }

        #[test]
        fn decoding_is_that_of_whole_bytes(raw in proptest::collection::vec(
            prop_oneof![Just(b'%'), Just(b'C'), Just(b'3'), Just(b'A'), Just(b'8'), Just(b'E'), any::<u8>()],
            0..16,
        )) {
            prop_assert_eq!(decode(&raw), model(&raw));
        }

        #[test]
        fn comparisons_are_those_of_the_decoded_text(
            (text, raw) in raw_text(),
            (other, other_raw) in raw_text(),
            cut in any::<prop::sample::Index>(),
        ) {
            let escaped = EscapedText::read(raw.as_bytes()).unwrap();
            prop_assert_eq!(escaped.to_string_lossy(), text.as_str());
            prop_assert_eq!(escaped.len(), text.len());
            prop_assert_eq!(escaped.is_empty(), text.is_empty());
            let at = text.floor_char_boundary(cut.index(text.len().saturating_add(1)));
            for part in [&text[..at], &text[at..], &other, &format!("{text}a"), &format!("a{text}")] {
                prop_assert_eq!(escaped.is(part), text == part);
                prop_assert_eq!(escaped.starts_with(part), text.starts_with(part));
                prop_assert_eq!(escaped.ends_with(part), text.ends_with(part));
            }
            let other_escaped = EscapedText::read(other_raw.as_bytes()).unwrap();
            prop_assert_eq!(escaped == other_escaped, text == other);
        }
    }

    /// Decodes all bytes first, and then reads them as UTF-8.
    fn model(raw: &[u8]) -> Option<String> {
        let raw = std::str::from_utf8(raw).ok().filter(|raw| raw.is_ascii())?;
        let mut parts = raw.split('%');
        let mut bytes = parts.next()?.as_bytes().to_vec();
        for part in parts {
            let digits = part.get(..2)?;
            if digits.starts_with('+') {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        String::from_utf8(bytes).ok()
    }
}
