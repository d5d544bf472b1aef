//! Small files of JSON that end with a checksum: `{…,"crc":"0123abcd"}` and a line feed. The
//! checksum is the CRC-32C of every byte before its member, so that every flipped bit is detected.

use std::{fmt::Write as _, path::Path};

use serde_json::Value;

use crate::SpoolError;

/// The file's bytes. `value` is an object with at least one member.
pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut text = value.to_string();
    text.pop();
    let crc = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, ",\"crc\":\"{crc:08x}\"}}");
    text.into_bytes()
}

/// The object in a file's bytes.
///
/// # Errors
/// `spool.corrupt` if the checksum is missing or wrong.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Value, SpoolError> {
    if !is_sealed(bytes) {
        return Err(SpoolError::corrupt(
            path,
            "it does not fit its checksum (crc): it was damaged, or edited by hand",
        ));
    }
    parse(bytes, path)
}

/// The object in a file's bytes, without checking its checksum.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Value, SpoolError> {
    serde_json::from_slice(bytes).map_err(|error| SpoolError::corrupt(path, error.to_string()))
}

fn is_sealed(bytes: &[u8]) -> bool {
    let Some(at) = bytes.len().checked_sub(TAIL_BYTES) else {
        return false;
    };
    let (text, tail) = bytes.split_at(at);
    let crc = crc32c::crc32c(text);
    tail == format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes()
}

/// Bytes of the member and everything after it.
const TAIL_BYTES: usize = 19;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_with_any_flipped_bit_is_refused() {
        let value = json!({ "format": 2, "committed": 10 });
        let bytes = encode(&value);
        let path = Path::new("x");
        assert_eq!(decode(&bytes, path).unwrap()["committed"], 10);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, path).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], path).is_err(), "{len} bytes");
        }
    }
}
