//! The identity of a spool, its formats, and the checksums of binary records.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    SpoolError,
    clock::{now_us, rfc3339},
    folder::{Folder, IDENTITY},
    sealed,
};

/// The format that this release writes, and the newest one that it reads.
pub(crate) const FORMAT: u64 = 2;

/// The first format whose `spool.json` ends with a checksum.
const FIRST_SEALED: u64 = 2;

/// The contents of `spool.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uuid: String,
    /// The UUIDs it had before it was adopted: files may still carry them.
    pub(crate) formerly: Vec<String>,
    /// The format that its file names.
    pub(crate) format: u64,
    /// When it was created, RFC 3339.
    created: String,
}

impl Identity {
    pub(crate) fn random() -> Result<Self, std::io::Error> {
        let mut bytes = [0_u8; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            uuid: uuid_v4(bytes),
            formerly: Vec::new(),
            format: FORMAT,
            created: rfc3339(now_us()),
        })
    }

    /// Whether a file with this UUID is one of the spool's.
    pub(crate) fn knows(&self, uuid: &str) -> bool {
        self.uuid == uuid || self.formerly.iter().any(|former| former == uuid)
    }

    /// The identity of a spool whose `spool.json` is lost: the UUIDs in its other files, the newest
    /// one last.
    pub(crate) fn of_files(mut uuids: Vec<String>, format: u64) -> Option<Self> {
        Some(Self {
            uuid: uuids.pop()?,
            formerly: uuids,
            format,
            created: rfc3339(now_us()),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut value = json!({
            "format": self.format,
            "min_reader": self.format,
            "uuid": self.uuid,
            "created": self.created,
        });
        if !self.formerly.is_empty() {
            value["formerly"] = json!(self.formerly);
        }
        if self.format < FIRST_SEALED {
            return format!("{value}\n").into_bytes();
        }
        sealed::encode(&value)
    }

    /// Reads `spool.json`; `None` when there is none.
    pub(crate) fn read(folder: &Folder) -> Result<Option<Self>, SpoolError> {
        let path = folder.root().join(IDENTITY);
        let Some(text) = folder.root().read(IDENTITY)? else {
            return Ok(None);
        };
        let value = sealed::parse(&text, &path)?;
        let (format, min_reader) = (value["format"].as_u64(), value["min_reader"].as_u64());
        // A later release may use another checksum.
        if min_reader.is_some_and(|reader| reader > FORMAT) {
            check_format(&path, format, min_reader)?;
        }
        if has_checksum(&value) {
            sealed::decode(&text, &path)?;
        }
        check_format(&path, format, min_reader)?;
        let uuid = value["uuid"]
            .as_str()
            .filter(|uuid| uuid_bytes(uuid).is_some());
        let uuid = uuid.ok_or_else(|| SpoolError::corrupt(&path, "it holds no UUID"))?;
        let former = |uuid: &Value| uuid.as_str().map(str::to_owned);
        let formerly = value["formerly"].as_array().into_iter().flatten();
        let created = value["created"].as_str().unwrap_or_default();
        Ok(Some(Self {
            uuid: uuid.to_owned(),
            formerly: formerly.filter_map(former).collect(),
            format: format.unwrap_or_default(),
            created: created.to_owned(),
        }))
    }

    /// Whether `spool.json` has a checksum that does not match.
    pub(crate) fn is_damaged(folder: &Folder) -> Result<bool, SpoolError> {
        let path = folder.root().join(IDENTITY);
        let text = folder.root().read(IDENTITY)?.unwrap_or_default();
        let value = sealed::parse(&text, &path)?;
        Ok(value.get("crc").is_some() && sealed::decode(&text, &path).is_err())
    }

    /// Writes `spool.json` in its format.
    pub(crate) fn write(&self, folder: &Folder) -> Result<(), SpoolError> {
        folder.replace(folder.root(), IDENTITY, &self.encode())
    }
}

/// Whether this `spool.json` ends with a checksum, or should: in format 1 it had none.
fn has_checksum(value: &Value) -> bool {
    let format = value["format"].as_u64();
    value.get("crc").is_some() || format.is_some_and(|format| format >= FIRST_SEALED)
}

/// Refuses files that need a newer reader than this release.
pub(crate) fn check_format(
    path: &Path,
    format: Option<u64>,
    reader: Option<u64>,
) -> Result<(), SpoolError> {
    let (found, min_reader) = (format.unwrap_or(0), reader.unwrap_or(0));
    if found == 0 || min_reader > FORMAT || min_reader == 0 {
        let path = path.to_owned();
        return Err(SpoolError::Format {
            path,
            found,
            min_reader,
            supported: FORMAT,
        });
    }
    Ok(())
}

/// A UUID of version 4 (RFC 9562 §5.4) of these random bytes.
pub fn uuid_v4(mut random: [u8; 16]) -> String {
    random[6] = (random[6] & 0x0F) | 0x40;
    random[8] = (random[8] & 0x3F) | 0x80;
    uuid_text(&random)
}

/// A UUID's text.
pub(crate) fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// A UUID's bytes; `None` if the text is no UUID.
pub(crate) fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let hex = text.replace('-', "");
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut out = [0; 16];
    for (byte, at) in out.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(out)
}

/// Writes the CRC of the preceding bytes into the last four.
pub(crate) fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the last four bytes are the CRC of those before them.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32c::crc32c(&bytes[..at]) == u32::from_le_bytes(array(bytes, at))
}

/// `N` bytes at a constant offset of a buffer whose length was checked.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_become_a_uuid_of_version_4() {
        assert_eq!(uuid_v4([0xFF; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid_v4([0; 16]), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn a_uuid_is_read_as_it_was_written() {
        let identity = Identity::random().unwrap();
        assert_eq!(
            uuid_text(&uuid_bytes(&identity.uuid).unwrap()),
            identity.uuid
        );
    }
}
