//! The texts inside frames: lists of extensions, properties of messages, and commands.
//!
//! This module decides which texts can be read and how ours are written. Reading is lenient about names (R-MM-11) and
//! strict about structure (R-MM-V10); writing uses one canonical form. Limits on length and count are the caller's.

use ackline_core::UsageError;

use crate::{Kind, refusal};

mod command;
mod extensions;
mod percent;
mod properties;
mod value;

pub use command::{Command, read_command, write_command};
pub use extensions::{Extension, read_extensions, write_extensions};
pub use percent::EscapedText;
pub use properties::{Properties, read_properties, write_properties};
pub use value::{Number, Property, PropertyRef};
pub(crate) use value::{read_date, read_number, read_text};

/// Whether a name is a FIELD: one or more lower-case letters, digits and hyphens (REQ-MM-15).
pub fn is_field(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(is_allowed)
}

/// The reason that a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is not ASCII (R-MM-35).
    NotAscii,
    /// A percent sign stands without two hexadecimal digits, or escapes are not UTF-8.
    Escape,
    /// Its structure, in words.
    Structure(&'static str),
}

impl Wrong {
    /// The violation for a text that is called `field`; `invalid` makes it from the beginning of the text and the reason.
    pub(crate) fn into_kind(
        self,
        field: &'static str,
        text: &[u8],
        invalid: fn(String, &'static str) -> Kind,
    ) -> Kind {
        match self {
            Self::NotAscii => Kind::NotAscii { field },
            Self::Escape => Kind::InvalidPercentEncoding { field },
            Self::Structure(reason) => invalid(beginning(text), reason),
        }
    }
}

/// Checks that a text is ASCII.
pub(crate) fn check_ascii(text: &[u8]) -> Result<(), Wrong> {
    text.is_ascii().then_some(()).ok_or(Wrong::NotAscii)
}

/// Checks the name of a topic or a queue: every destination of a message can be one, and nothing else (R-MM-35, R-MM-V13).
pub(crate) fn check_destination(name: &str) -> Result<(), UsageError> {
    if !name.is_ascii() {
        return Err(refusal::NOT_ASCII);
    }
    if name.len() > 255 {
        return Err(refusal::DESTINATION_TOO_LONG);
    }
    Ok(())
}

/// Checks the other texts of a message (R-MM-35, R-MM-V13).
pub(crate) fn check_texts(properties: &str, dotnet_type: Option<&str>) -> Result<(), UsageError> {
    if !properties.is_ascii() || dotnet_type.is_some_and(|name| !name.is_ascii()) {
        return Err(refusal::NOT_ASCII);
    }
    if properties.len() > 65_535 {
        return Err(refusal::PROPERTIES_TOO_LONG);
    }
    Ok(())
}

/// A text of a peer for errors and logs: without control characters, and with its quotes as they are.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\'' | '\\' => out.push(char),
            other => out.extend(other.escape_debug()),
        }
    }
    out
}

/// The entries of a text: the parts between semicolons, without the empty part behind a last semicolon (R-MM-9).
pub(crate) fn entries(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = text.strip_suffix(b";").unwrap_or(text);
    let parts = (!text.is_empty()).then(|| parts.split(|byte| *byte == b';'));
    parts.into_iter().flatten()
}

/// The bytes before the first separator, and those behind it.
pub(crate) fn split_once<'a>(text: &'a [u8], separators: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.iter().position(|byte| separators.contains(byte))?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// Whether a name is one that a property of a peer may have: printable ASCII without the separators (R-MM-11, R-MM-V10).
pub fn is_name(name: &str) -> bool {
    read_name(name.as_bytes()).is_ok()
}

/// Whether bytes are such a name.
pub(crate) fn are_name(bytes: &[u8]) -> bool {
    let is_allowed =
        |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b':' | b';' | b',' | b'=');
    !bytes.is_empty() && bytes.iter().all(is_allowed)
}

/// Reads a name as peers may write it (R-MM-V10).
pub(crate) fn read_name(name: &[u8]) -> Result<&str, Wrong> {
    let name = std::str::from_utf8(name).ok().filter(|_| are_name(name));
    name.ok_or(Wrong::Structure(
        "a name is empty or has a character that names do not have",
    ))
}

/// Reads `name=value` pairs with commas between them; any of `separators` may stand for `=`.
fn read_pairs(text: &[u8], separators: &[u8]) -> Result<Vec<(String, String)>, Wrong> {
    let read_pair = |pair| {
        let (name, value) = split_once(pair, separators).ok_or(Wrong::Structure(
            "a property has no sign between name and value",
        ))?;
        let name = read_name(name)?.to_owned();
        Ok((name, percent::decode(value).ok_or(Wrong::Escape)?))
    };
    text.split(|byte| *byte == b',').map(read_pair).collect()
}

/// Appends `name=value` pairs with commas between them.
fn write_pairs(out: &mut String, pairs: &[(String, String)]) {
    for (at, (name, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(name);
        out.push('=');
        percent::encode(out, value);
    }
}

/// The beginning of a text, for an error.
fn beginning(text: &[u8]) -> String {
    let first = text.get(..MOST_SHOWN).unwrap_or(text);
    String::from_utf8_lossy(first).into_owned()
}

/// Bytes of a text that an error shows.
const MOST_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_lower_case_letters_digits_and_hyphens() {
        for name in ["a", "z", "0", "9", "-", "first-name2", "x-a"] {
            assert!(is_field(name), "{name}");
        }
        for name in ["", "A", "first_name", "a b", "é", "a;", "`", "{", "/", ":"] {
            assert!(!is_field(name), "{name}");
        }
    }

    #[test]
    fn names_of_peers_are_printable_ascii_without_separators() {
        for byte in 0..=u8::MAX {
            let is_name = (0x21..=0x7e).contains(&byte) && !":;,=".contains(char::from(byte));
            assert_eq!(read_name(&[byte]).is_ok(), is_name, "{byte}");
            assert_eq!(read_name(&[b'a', byte, b'b']).is_ok(), is_name, "{byte}");
        }
        assert!(read_name(b"").is_err());
    }

    #[test]
    fn an_error_shows_the_beginning_of_the_text() {
        let texts = ["x".repeat(5_000), "\u{1f600}".repeat(200)];
        for text in texts {
            let shown = beginning(text.as_bytes());
            assert!(shown.chars().count() <= 100);
            assert!(text.starts_with(shown.trim_end_matches('\u{fffd}')));
        }
        assert_eq!(beginning(b"short"), "short");
    }
}
