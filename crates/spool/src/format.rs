//! The small files of a spool: its identity, the entries of an index, the durable mark. Encoding and
//! checks only; who writes and syncs them when is the writer's matter.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::{Access, SpoolError};

/// The format this release writes, and the oldest reader that understands it.
pub(crate) const FORMAT: u64 = 1;

/// Where the files of a spool are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) access: Access,
}

impl Layout {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            access: Access::default(),
        }
    }

    pub(crate) fn with(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub(crate) fn identity(&self) -> PathBuf {
        self.dir.join("spool.json")
    }

    pub(crate) fn durable(&self) -> PathBuf {
        self.dir.join("durable")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Up to where events went by age alone.
    pub(crate) fn retired(&self) -> PathBuf {
        self.dir.join("retired")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    /// What keys digests.
    pub(crate) fn key(&self) -> PathBuf {
        self.dir.join("key")
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    pub(crate) fn consumers(&self) -> PathBuf {
        self.dir.join("consumers")
    }

    pub(crate) fn segment(&self, first: u64) -> PathBuf {
        self.segments().join(format!("{first:020}.arrows"))
    }

    /// The first positions of all segments, in order.
    pub(crate) fn list(&self) -> Result<Vec<u64>, SpoolError> {
        let dir = self.segments();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(SpoolError::io("list", &dir, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry
                .map_err(|e| SpoolError::io("list", &dir, e))?
                .file_name();
            let name = name.to_string_lossy();
            let first = name
                .strip_suffix(".arrows")
                .filter(|digits| digits.len() == 20);
            found.extend(first.and_then(|digits| digits.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// The index beside a segment.
pub(crate) fn index_of(segment: &Path) -> PathBuf {
    segment.with_extension("idx")
}

/// What `spool.json` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uuid: String,
    /// The UUIDs it had before it was adopted: files may still carry them.
    pub(crate) formerly: Vec<String>,
}

impl Identity {
    pub(crate) fn random() -> Result<Self, std::io::Error> {
        let mut bytes = [0_u8; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            uuid: uuid_v4(bytes),
            formerly: Vec::new(),
        })
    }

    /// Whether a file with this UUID is one of the spool's.
    pub(crate) fn knows(&self, uuid: &str) -> bool {
        self.uuid == uuid || self.formerly.iter().any(|former| former == uuid)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = json!({
            "format": FORMAT,
            "min_reader": FORMAT,
            "uuid": self.uuid,
            "created": rfc3339(now_us()),
        });
        if !self.formerly.is_empty() {
            value["formerly"] = json!(self.formerly);
        }
        format!("{value}\n").into_bytes()
    }

    /// Reads `spool.json`; `None` when there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, SpoolError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SpoolError::io("read", path, error)),
        };
        let value: Value = serde_json::from_slice(&text)
            .map_err(|error| SpoolError::corrupt(path, error.to_string()))?;
        check_format(path, value["format"].as_u64(), value["min_reader"].as_u64())?;
        let uuid = value["uuid"]
            .as_str()
            .filter(|uuid| uuid_bytes(uuid).is_some());
        let uuid = uuid.ok_or_else(|| SpoolError::corrupt(path, "it holds no UUID"))?;
        let former = |uuid: &Value| uuid.as_str().map(str::to_owned);
        let formerly = value["formerly"].as_array().into_iter().flatten();
        Ok(Some(Self {
            uuid: uuid.to_owned(),
            formerly: formerly.filter_map(former).collect(),
        }))
    }
}

fn check_format(path: &Path, format: Option<u64>, reader: Option<u64>) -> Result<(), SpoolError> {
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

/// The header of an index: 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) uuid: String,
    pub(crate) first: u64,
    pub(crate) first_time_us: i64,
}

impl IndexHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&1_u16.to_le_bytes());
        out[10..12].copy_from_slice(&1_u16.to_le_bytes());
        out[12..16].copy_from_slice(&64_u32.to_le_bytes());
        out[16..32].copy_from_slice(&uuid_bytes(&self.uuid).unwrap_or_default());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_time_us.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Checks the header of the index at `path` against the spool and the segment's name.
    pub(crate) fn check(bytes: &[u8], path: &Path) -> Result<Self, SpoolError> {
        let sound = bytes.len() == HEADER_BYTES && bytes[..8] == *MAGIC && is_sealed(bytes);
        if !sound {
            return Err(SpoolError::corrupt(
                path,
                "the header of the index is not sound",
            ));
        }
        let format = u64::from(u16::from_le_bytes(array(bytes, 8)));
        let reader = u64::from(u16::from_le_bytes(array(bytes, 10)));
        check_format(path, Some(format), Some(reader))?;
        Ok(Self {
            uuid: uuid_text(&array(bytes, 16)),
            first: u64::from_le_bytes(array(bytes, 32)),
            first_time_us: i64::from_le_bytes(array(bytes, 40)),
        })
    }
}

/// One entry of an index: a group commit, or the end of the segment. 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) blocks: u32,
    /// Where the group begins in the segment.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// CRC-32C of the group's bytes.
    pub(crate) crc: u32,
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// A group: when it was made durable. The footer: when the last block was received.
    pub(crate) time_us: i64,
    pub(crate) inflated: u64,
}

/// What an index entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Footer,
}

impl Entry {
    /// The position after its last event.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// The byte after its last one.
    pub(crate) fn byte_end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        let kind: u32 = if self.kind == Kind::Group { 1 } else { 2 };
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.length.to_le_bytes());
        out[20..24].copy_from_slice(&self.crc.to_le_bytes());
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.count.to_le_bytes());
        out[40..48].copy_from_slice(&self.time_us.to_le_bytes());
        out[48..56].copy_from_slice(&self.inflated.to_le_bytes());
        seal(&mut out);
        out
    }

    /// The entry, when its CRC says that it is whole.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != ENTRY_BYTES || !is_sealed(bytes) {
            return None;
        }
        let kind = match u32::from_le_bytes(array(bytes, 0)) {
            1 => Kind::Group,
            2 => Kind::Footer,
            _ => return None,
        };
        Some(Self {
            kind,
            blocks: u32::from_le_bytes(array(bytes, 4)),
            offset: u64::from_le_bytes(array(bytes, 8)),
            length: u32::from_le_bytes(array(bytes, 16)),
            crc: u32::from_le_bytes(array(bytes, 20)),
            first: u64::from_le_bytes(array(bytes, 24)),
            count: u64::from_le_bytes(array(bytes, 32)),
            time_us: i64::from_le_bytes(array(bytes, 40)),
            inflated: u64::from_le_bytes(array(bytes, 48)),
        })
    }
}

/// The durable mark: two slots, written in turn, so that a torn write leaves the other one.
#[derive(Debug)]
pub(crate) struct DurableMark;

impl DurableMark {
    /// The slot for the `turn`th write and where it goes.
    pub(crate) fn encode(turn: u64, position: u64) -> ([u8; SLOT_BYTES], u64) {
        let mut out = [0; SLOT_BYTES];
        out[..8].copy_from_slice(MARK_MAGIC);
        out[8..16].copy_from_slice(&position.to_le_bytes());
        seal(&mut out);
        (out, (turn % 2) * SLOT_BYTES as u64)
    }

    /// The higher one of the sound slots.
    pub(crate) fn read(file: &File, path: &Path) -> Result<u64, SpoolError> {
        Self::slots(file, path)?
            .into_iter()
            .flatten()
            .max()
            .ok_or_else(|| SpoolError::corrupt(path, "neither slot of the durable mark is sound"))
    }

    /// Names each slot that is not sound: the other one may be a group commit behind.
    pub(crate) fn problems(file: &File, path: &Path) -> Result<Vec<String>, SpoolError> {
        let mut torn = vec![0, 1];
        // A writer may be writing one of them: what is not sound once may be so the next time.
        for _ in 0..3 {
            let slots = Self::slots(file, path)?;
            torn.retain(|slot: &usize| slots[*slot].is_none());
        }
        let name = |slot: usize| {
            let (begin, end) = (slot * SLOT_BYTES, (slot + 1) * SLOT_BYTES);
            let path = path.display();
            format!(
                "{path}: slot {slot} of the durable mark (bytes {begin} to {end}) is not sound; the other \
                 one may hide what is newer until a writer opens the spool"
            )
        };
        Ok(torn.into_iter().map(name).collect())
    }

    fn slots(file: &File, path: &Path) -> Result<[Option<u64>; 2], SpoolError> {
        let mut bytes = [0; 2 * SLOT_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SpoolError::io("read", path, error)),
            }
        }
        let position = |slot: &[u8]| {
            let sound = slot[..8] == *MARK_MAGIC && is_sealed(slot);
            sound.then(|| u64::from_le_bytes(array(slot, 8)))
        };
        let (first, second) = bytes.split_at(SLOT_BYTES);
        Ok([position(first), position(second)])
    }
}

/// Microseconds since 1970, by the wall clock.
pub fn now_us() -> i64 {
    us_since_1970(SystemTime::now())
}

/// Microseconds since 1970 of a time; 0 before that.
pub(crate) fn us_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds since 1970 as RFC 3339 in UTC: `2026-11-21T12:00:00.000000Z`.
pub fn rfc3339(us: i64) -> String {
    let (days, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    // Howard Hinnant's civil_from_days: years begin in March, eras are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Microseconds since 1970 of a time as [`rfc3339`] writes it.
pub(crate) fn us_of(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse::<i64>().ok()).flatten()
    };
    let marks: String = text
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect();
    if text.len() != 27 || marks != "--T::.Z" {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // Howard Hinnant's days_from_civil, the way back.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let us = seconds * 1_000_000 + number(20..26)?;
    // A 31st of February is not taken for a day of March.
    (rfc3339(us) == text).then_some(us)
}

/// A UUID of version 4 (RFC 9562 §5.4) of these random bytes.
pub fn uuid_v4(mut random: [u8; 16]) -> String {
    random[6] = (random[6] & 0x0F) | 0x40;
    random[8] = (random[8] & 0x3F) | 0x80;
    uuid_text(&random)
}

fn uuid_text(bytes: &[u8; 16]) -> String {
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

fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
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

/// Puts the CRC of what comes before into the last four bytes.
fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32c::crc32c(&bytes[..at]) == u32::from_le_bytes(array(bytes, at))
}

/// `N` bytes at a constant offset of a buffer whose length was checked.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_BYTES: usize = 64;
const SLOT_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"ACKLIDX1";
const MARK_MAGIC: &[u8; 8] = b"ACKLDUR1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_become_a_uuid_of_version_4() {
        assert_eq!(uuid_v4([0xFF; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid_v4([0; 16]), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(rfc3339(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(
            rfc3339(4_107_542_399_999_999),
            "2100-02-28T23:59:59.999999Z"
        );
        assert_eq!(
            rfc3339(1_795_272_000_500_000),
            "2026-11-21T14:40:00.500000Z"
        );
    }

    #[test]
    fn times_are_read_as_they_were_written() {
        for us in [
            0,
            -1,
            951_782_400_000_001,
            4_107_542_399_999_999,
            1_795_272_000_500_000,
        ] {
            assert_eq!(us_of(&rfc3339(us)), Some(us));
        }
        for text in [
            "",
            "2026-11-21",
            "2026-02-31T00:00:00.000000Z",
            "2026-1é-21T14:40:00.50000Z",
        ] {
            assert_eq!(us_of(text), None, "{text}");
        }
    }

    #[test]
    fn an_entry_with_any_flipped_bit_is_not_sound() {
        let entry = Entry {
            kind: Kind::Group,
            blocks: 3,
            offset: 712,
            length: 999,
            crc: 7,
            first: 4,
            count: 9,
            time_us: 5,
            inflated: 6,
        };
        let bytes = entry.encode();
        assert_eq!(Entry::decode(&bytes), Some(entry));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Entry::decode(&bad), None, "bit {bit}");
        }
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
