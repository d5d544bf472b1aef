//! JSON text: its depth, the places of its parts, the contents of its strings.
//!
//! The parser has validated the text before, except in [`nests_too_deep`].

use std::borrow::Cow;

/// The most nested objects and arrays of an event.
pub(crate) const MAX_DEPTH: usize = 128;

/// A part of an event's text, by its offsets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The span of `part`, which must lie in `text`; empty if it does not.
    pub(crate) fn of(text: &str, part: &str) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        Self {
            start,
            end: start.wrapping_add(part.len()),
        }
    }

    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Where it begins.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    pub(crate) fn within(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Whether objects and arrays nest deeper than [`MAX_DEPTH`]; the text need not be JSON.
pub(crate) fn nests_too_deep(text: &str) -> bool {
    // Nearly every event has fewer brackets in all, and counting them takes no branches.
    let brackets: usize = text
        .as_bytes()
        .chunks(COUNTED)
        .map(|chunk| {
            let opens = |byte: &u8| u8::from(byte & !0x20 == b'[');
            usize::from(chunk.iter().map(opens).fold(0_u8, u8::wrapping_add))
        })
        .sum();
    brackets > MAX_DEPTH && depth(text) > MAX_DEPTH
}

fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => drop(bytes.next()),
            b'[' | b'{' if !in_string => {
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The text between the quotes of a JSON string, still escaped.
pub(crate) fn body(string: &str) -> &str {
    string
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(string)
}

/// Whether the body of a JSON string is ASCII alone, without escapes and dots.
pub(crate) fn is_plain(body: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'.' | b'\\');
    let (words, _) = body.as_bytes().as_chunks::<8>();
    match body.as_bytes().last_chunk::<8>() {
        Some(last) => words.iter().chain([last]).all(|word| is_plain_word(*word)),
        None => body.as_bytes().iter().all(is_plain),
    }
}

/// The same of eight bytes, without a branch for each.
fn is_plain_word(word: [u8; 8]) -> bool {
    let word = u64::from_ne_bytes(word);
    let marks = below(word ^ each(b'.'), 1) | below(word ^ each(b'\\'), 1);
    (word | marks) & each(0x80) == 0
}

/// Eight times the same byte.
pub(crate) const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Eight bytes of which each that is below `limit` has its top bit set; above such a byte others may have it too.
pub(crate) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit)) & !word & each(0x80)
}

/// The unescaped body of a JSON string; `None` if it has half a surrogate pair.
pub(crate) fn unescaped(body: &str) -> Option<Cow<'_, str>> {
    if !body.contains('\\') {
        return Some(Cow::Borrowed(body));
    }
    let mut bytes = Vec::with_capacity(body.len());
    unescape(body, &mut bytes)?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Appends the unescaped body of a JSON string; `None`, with a part appended, if it has half a
/// surrogate pair.
pub(crate) fn unescape(body: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = body;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        let (letter, behind) = escaped.split_at_checked(1)?;
        rest = behind;
        let says = match letter {
            "b" => '\u{8}',
            "f" => '\u{c}',
            "n" => '\n',
            "r" => '\r',
            "t" => '\t',
            "u" => {
                let (character, behind) = escaped_character(rest)?;
                rest = behind;
                character
            }
            itself => itself.chars().next()?,
        };
        out.extend_from_slice(says.encode_utf8(&mut [0; 4]).as_bytes());
    }
    out.extend_from_slice(rest.as_bytes());
    Some(())
}

/// The character of four hex digits, or of a pair such as `d83d\ude00`, and the text after it.
fn escaped_character(text: &str) -> Option<(char, &str)> {
    let (first, rest) = unit(text)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, rest));
    }
    let (second, rest) = unit(rest.strip_prefix("\\u")?)?;
    let is_pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    let code = 0x1_0000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
    let character = char::from_u32(code).filter(|_| is_pair)?;
    Some((character, rest))
}

fn unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

/// Whether text is a number as JSON writes it.
pub(crate) fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
        && !text.ends_with([' ', '\t', '\n', '\r'])
}

/// The number of bytes whose brackets fit into a counter of one byte.
const COUNTED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!nests_too_deep(&nested(128)));
        assert!(nests_too_deep(&nested(129)));
        assert!(!nests_too_deep(&format!("\"{}\"", nested(1000))));
        assert!(!nests_too_deep(&format!("[{}0]", "[],".repeat(1000))));
        assert!(!nests_too_deep(&format!("\"\\\"{}\"", nested(1000))));
    }

    #[test]
    fn strings_are_unescaped() {
        let says = |body| unescaped(body).map(Cow::into_owned);
        assert_eq!(says(r"a\u00e9\n\/\\\u0000"), Some("a\u{e9}\n/\\\0".into()));
        assert_eq!(says(r"\ud83d\ude00!"), Some("\u{1f600}!".into()));
        for lone in [
            r"\ud800",
            r"\udc00",
            r"\ud800x",
            r"\ud800\n",
            r"\ud800\ud800",
        ] {
            assert_eq!(says(lone), None, "{lone}");
        }
    }

    #[test]
    fn names_are_plain_without_dots_escapes_and_other_letters() {
        for length in 0..40 {
            let name = "aZ0~\x01/-[]_`/0^.".replace('.', "").repeat(4);
            let name = name.get(..length).expect("ASCII");
            assert!(is_plain(name), "{name}");
            for at in 0..length {
                for other in [".", "\\", "\u{80}", "\u{212a}", "\u{fffd}"] {
                    let (before, behind) = name.split_at(at);
                    let name = format!("{before}{other}{behind}");
                    assert!(!is_plain(&name), "{name}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_those_of_json() {
        for text in ["0", "-0", "12", "1.5", "-1e9", "1E+3"] {
            assert!(is_number(text), "{text}");
        }
        for text in [
            "", "01", "+1", "1.", ".5", "1 ", " 1", "NaN", "-", "0x1", "1,2",
        ] {
            assert!(!is_number(text), "{text}");
        }
    }
}
