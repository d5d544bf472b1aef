//! Escaping of texts that a peer chooses, for logs, columns and identities: each text has one form,
//! and no two texts share one.

/// Adds one character, escaped as in RFC 4514 §2.4: a backslash before itself and before each of
/// `special`; characters that change how the rest of a line is shown as their UTF-8 bytes (`\0A`).
pub(crate) fn push(text: &mut String, char: char, special: &str) {
    if char.is_control() || is_bidi(char) {
        let mut bytes = [0; 4];
        for byte in char.encode_utf8(&mut bytes).bytes() {
            text.push('\\');
            push_hex(text, byte);
        }
        return;
    }
    if char == '\\' || special.contains(char) {
        text.push('\\');
    }
    text.push(char);
}

/// Adds a byte as two digits.
pub(crate) fn push_hex(text: &mut String, byte: u8) {
    for digit in [byte >> 4, byte & 0xf] {
        let digit = char::from_digit(u32::from(digit), 16).unwrap_or_default();
        text.push(digit.to_ascii_uppercase());
    }
}

/// Escapes a whole text; see [`push`].
pub(crate) fn escaped(text: &str, special: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    text.chars().for_each(|char| push(&mut safe, char, special));
    safe
}

/// Separators and marks that change how the rest of a line is shown.
const fn is_bidi(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}
