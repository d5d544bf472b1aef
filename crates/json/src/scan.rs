//! Finds the values of JSON text without making anything of them.
//!
//! It takes the texts that `serde_json` takes when it skips values, which tests compare; of a text that it does not take,
//! `serde_json` says what is wrong. Strings are looked through eight bytes at a time.

use crate::text::{Span, below, each};

/// A place in a text, which moves forward. After `None` it has no meaning: the text is not valid.
///
/// Objects and arrays nest no deeper than the text was checked for before.
pub(crate) struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scanner<'t> {
    /// The beginning of a text.
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
        }
    }

    /// The first byte of the next value or mark, which stays.
    pub(crate) fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Passes a mark.
    pub(crate) fn pass(&mut self, mark: u8) -> Option<()> {
        (self.next()? == mark).then(|| self.at += 1)
    }

    /// Passes the name of an object's next member, with its quotes, and the colon.
    pub(crate) fn name(&mut self) -> Option<Span> {
        self.next()?;
        let start = self.at;
        self.string()?;
        let name = Span::new(start, self.at);
        self.pass(b':')?;
        Some(name)
    }

    /// Passes what stands behind an element or member: whether another follows. `end` is the mark of the last one.
    pub(crate) fn goes_on(&mut self, end: u8) -> Option<bool> {
        let byte = self.next()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ => (byte == end).then_some(false),
        }
    }

    /// Passes the mark that begins an object or array, and its end if it is empty: whether something is in it.
    pub(crate) fn enter(&mut self, begin: u8, end: u8) -> Option<bool> {
        self.pass(begin)?;
        if self.next()? != end {
            return Some(true);
        }
        self.at += 1;
        Some(false)
    }

    /// Whether only white space is left.
    pub(crate) fn is_over(&mut self) -> bool {
        self.next().is_none()
    }

    /// Passes a value.
    pub(crate) fn value(&mut self) -> Option<Span> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' => {
                let mut has_more = self.enter(b'{', b'}')?;
                while has_more {
                    self.name()?;
                    self.value()?;
                    has_more = self.goes_on(b'}')?;
                }
            }
            b'[' => {
                let mut has_more = self.enter(b'[', b']')?;
                while has_more {
                    self.value()?;
                    has_more = self.goes_on(b']')?;
                }
            }
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => self.number()?,
        }
        Some(Span::new(start, self.at))
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text
            .get(self.at..)?
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.is_at(b'-'));
        if self.is_at(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.is_at(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if self.is_at(b'e') || self.is_at(b'E') {
            self.at += 1;
            self.at += usize::from(self.is_at(b'+') || self.is_at(b'-'));
            self.digits()?;
        }
        // A digit behind a leading zero is not taken for the next value: nothing takes it.
        Some(())
    }

    fn is_at(&self, byte: u8) -> bool {
        self.text.get(self.at) == Some(&byte)
    }

    /// One digit or more.
    fn digits(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    fn string(&mut self) -> Option<()> {
        if !self.is_at(b'"') {
            return None;
        }
        self.at += 1;
        loop {
            self.plain();
            match *self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                // A control character.
                _ => return None,
            }
        }
    }

    /// Passes bytes of a string up to its end, an escape or a control character.
    fn plain(&mut self) {
        while let Some(eight) = self.text.get(self.at..).and_then(<[u8]>::first_chunk) {
            let word = u64::from_le_bytes(*eight);
            let marks =
                below(word, b' ') | below(word ^ each(b'"'), 1) | below(word ^ each(b'\\'), 1);
            if marks != 0 {
                self.at += marks.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_plain = |byte: &&u8| **byte >= b' ' && !matches!(byte, b'"' | b'\\');
        self.at += rest.iter().take_while(is_plain).count();
    }

    fn escape(&mut self) -> Option<()> {
        match *self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = self.text.get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::value::members;

    /// Whether a text is one value.
    fn takes(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.value().is_some() && scanner.is_over()
    }

    fn assert_as_serde(text: &str) {
        let known = serde_json::from_str::<IgnoredAny>(text).is_ok();
        assert_eq!(takes(text), known, "{text:?}");
    }

    #[test]
    fn values_are_taken_as_serde_json_takes_them() {
        for text in [
            "",
            " ",
            "{}",
            " { } ",
            "[]",
            "[ ]",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\"}",
            "{\"a\" : 1 , \"b\":[{}]}",
            "{a:1}",
            "{\"a\":1]",
            "[1}",
            "true",
            "tru",
            "truex",
            "false",
            "null",
            "nul",
            "0",
            "-0",
            "-",
            "00",
            "01",
            "-01",
            "1.",
            "1.5",
            ".5",
            "1e",
            "1e+",
            "1e-7",
            "1E+7",
            "1.e7",
            "+1",
            "1 2",
            "\"\"",
            "\"",
            "\"a",
            "\"\\\"\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12aF\"",
            "\"\\u12g4\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\n\"",
            "\"\u{7f}\"",
            "\"a\u{1f}bcdefgh\"",
            "\"abcdefgh\"",
            "\"abcdefg\"",
            "\"abcdefghi\u{0}\"",
            "\"größer als acht\"",
            "\u{feff}1",
            "[\"a\",\"b\"",
            "1\u{b}",
            "{}{}",
            "NaN",
        ] {
            assert_as_serde(text);
        }
    }

    /// A number of a sequence that looks random.
    fn draw(state: &mut u64, below: usize) -> usize {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % below
    }

    #[test]
    fn altered_texts_are_taken_as_serde_json_takes_them() {
        let event = r#"{"@timestamp":"2026-11-21T10:00:00.000Z","log":{"offset":-1.5e+7,"file":{"path":"/var"}},
            "message":"203.0.113.9 \"GET /\\x?ref=\u00e4\" größer","tags":["a",null,true,[],{}],"n":[0,10,false]}"#;
        assert!(takes(event));
        let mut state = 1;
        let replacements: Vec<char> = "{}[]\",:\\0123456789eE+-.truefalsn \n\t\u{1}ä/u"
            .chars()
            .collect();
        for _ in 0..200_000 {
            let mut text: Vec<char> = event.chars().collect();
            for _ in 0..=draw(&mut state, 3) {
                let at = draw(&mut state, text.len());
                match draw(&mut state, 3) {
                    0 => drop(text.remove(at)),
                    1 => text.insert(at, replacements[draw(&mut state, replacements.len())]),
                    _ => text[at] = replacements[draw(&mut state, replacements.len())],
                }
            }
            let end = if draw(&mut state, 8) == 0 {
                draw(&mut state, text.len())
            } else {
                text.len()
            };
            let text: String = text[..end].iter().collect();
            assert_as_serde(&text);
            let mut expected = Vec::new();
            if members(&text, &mut |name, value| {
                expected.push((name.to_owned(), value.to_owned()));
            })
            .is_ok()
                && takes(&text)
            {
                assert_eq!(found(&text), Some(expected), "{text:?}");
            }
        }
    }

    /// The members of an object.
    fn found(text: &str) -> Option<Vec<(String, String)>> {
        let mut scanner = Scanner::new(text);
        let mut found = Vec::new();
        let mut has_more = scanner.enter(b'{', b'}')?;
        while has_more {
            let (name, value) = (scanner.name()?, scanner.value()?);
            found.push((name.within(text).to_owned(), value.within(text).to_owned()));
            has_more = scanner.goes_on(b'}')?;
        }
        scanner.is_over().then_some(found)
    }
}
