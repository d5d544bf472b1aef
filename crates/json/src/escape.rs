//! Text as JSON strings: most of it needs no escape and is copied in one piece.

/// Appends `bytes` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
pub(crate) fn push_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        push_escaped(chunk.valid().as_bytes(), out);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = first_special(rest) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, behind)) = special.split_first() else {
            return;
        };
        push_escape(*byte, out);
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// The index of the first byte that must be escaped. Reads eight bytes at once.
fn first_special(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let specials = specials(u64::from_le_bytes(*word));
        if specials != 0 {
            let within = usize::try_from(specials.trailing_zeros() / 8).unwrap_or_default();
            return Some(at * 8 + within);
        }
    }
    let within = rest.iter().position(|byte| is_special(*byte))?;
    Some(words.len() * 8 + within)
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The highest bit of each special byte; exact up to and including the first of them, which is
/// enough: a borrow can only mark bytes above it.
const fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHS: u64 = ONES << 7;
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word
    }
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    let quotes = zeros(word ^ (ONES * 0x22));
    let slashes = zeros(word ^ (ONES * 0x5c));
    (controls | quotes | slashes) & HIGHS
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half & 0xf)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn string(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        push_string(bytes, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn escapes_are_the_short_ones_where_there_are() {
        assert_eq!(
            string(b"\"\\/\x08\x0c\n\r\t\x00\x1f\x7f"),
            r#""\"\\/\b\f\n\r\t\u0000\u001f"#.to_owned() + "\u{7f}\""
        );
    }

    #[test]
    fn every_byte_at_every_place_of_a_word_is_classified() {
        for at in 0..17 {
            for byte in 0..0x80 {
                let mut text = [b'~'; 17];
                text[at] = byte;
                let found = first_special(&text);
                assert_eq!(found, is_special(byte).then_some(at), "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn invalid_utf_8_becomes_the_replacement_character() {
        assert_eq!(string(b"a\xffb\xe2\x82"), "\"a\u{fffd}b\u{fffd}\"");
    }

    proptest! {
        #[test]
        fn a_string_reads_back_as_it_was(text in any::<String>()) {
            let read: String = serde_json::from_str(&string(text.as_bytes())).expect("valid");
            prop_assert_eq!(read, text);
        }

        #[test]
        fn any_bytes_read_back_as_their_lossy_text(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let read: String = serde_json::from_str(&string(&bytes)).expect("valid");
            prop_assert_eq!(read, String::from_utf8_lossy(&bytes));
        }
    }
}
