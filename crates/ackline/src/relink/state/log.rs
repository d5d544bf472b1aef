//! A file of groups of bytes, each durable before it is used: append, cut a group that a crash
//! tore, rewrite.
//!
//! ```text
//! file  = "ACKLREL1" salt[8] crc u32 group*        crc: CRC-32C of the bytes before it
//! group = "RLG1" length u32 crc u32 bytes          crc: CRC-32C of salt, length and bytes; numbers little-endian
//! ```
//!
//! The salt is random: bytes that a peer chooses cannot pass for a group.
//!
//! A group is written only after the one before it is synced. So at the end there may be one that is not
//! whole, and it was not used by anybody: it is cut. One that is not sound with a sound one behind it is no
//! torn end but a damaged file, which is refused.
//!
//! A process may have a log for each of tens of thousands of links, and descriptors for far fewer. So a file is
//! closed when [`MOST_OPEN`] others were opened since, or when it [rests](Log::rest), and opened again for the next group: all that was written
//! to it is synced, so nothing is lost with its descriptor.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Appends groups to one file.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<Slot>,
    path: PathBuf,
    salt: [u8; SALT_BYTES],
    len: u64,
    /// A write or sync failed: the contents of the file are unknown, and it is not written again.
    has_failed: bool,
}

/// The contents of a file when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) groups: Vec<Vec<u8>>,
    /// Bytes of a torn end that were cut.
    pub(crate) cut: u64,
}

impl Log {
    /// Opens the file at `path`, or makes it; returns its contents.
    ///
    /// # Errors
    /// It cannot be read or written, is none of ours, or is damaged other than at its end.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Kept)> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self::replace(path, &[])?, Kept::default()));
            }
            Err(error) => return Err(at(path, &error)),
        };
        let (salt, mut rest) =
            head_of(&bytes).ok_or_else(|| damaged(path, "it is no journal of ours"))?;
        let mut groups = Vec::new();
        while let Some((group, behind)) = group_at(&salt, rest) {
            groups.push(group.to_vec());
            rest = behind;
        }
        if (1..rest.len()).any(|from| group_at(&salt, &rest[from..]).is_some()) {
            return Err(damaged(path, "a sound group stands behind a damaged one"));
        }
        let cut = to_u64(rest.len());
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|error| at(path, &error))?;
        let len = to_u64(bytes.len()) - cut;
        if cut > 0 {
            let shortened = file.set_len(len).and_then(|()| file.sync_all());
            shortened.map_err(|error| at(path, &error))?;
        }
        let log = Self {
            file: kept_open(file),
            path: path.to_owned(),
            salt,
            len,
            has_failed: false,
        };
        Ok((log, Kept { groups, cut }))
    }

    /// A file with these groups in the place of the one at `path`: a process that opens it finds the old or the
    /// new one, whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn replace(path: &Path, groups: &[Vec<u8>]) -> io::Result<Self> {
        let salt = RandomState::new().hash_one(0).to_le_bytes();
        let written = || {
            let temporary = path.with_extension("new");
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(&salt)?;
            file.write_all(&checksum(MAGIC, &[], &salt))?;
            let mut len = to_u64(FILE_HEAD_BYTES);
            for group in groups {
                len += write_group(&mut file, &salt, group)?;
            }
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_dir(path)?;
            Ok((file, len))
        };
        let (file, len) = written().map_err(|error| at(path, &error))?;
        Ok(Self {
            file: kept_open(file),
            path: path.to_owned(),
            salt,
            len,
            has_failed: false,
        })
    }

    /// Appends a group; it is on the disk when this returns.
    ///
    /// # Errors
    /// It could not be written or synced: then nothing more can be appended, since a later sync could succeed
    /// without it.
    pub(crate) fn append(&mut self, group: &[u8]) -> io::Result<()> {
        if self.has_failed {
            let message = "an earlier write has failed";
            return Err(at(&self.path, &io::Error::other(message)));
        }
        let mut slot = self.file.lock();
        let file = if let Some(file) = &mut *slot {
            file
        } else {
            // Nothing was written yet: it may be tried again.
            let file = reopened(&self.path, self.len);
            count(&self.file);
            slot.insert(file.map_err(|error| at(&self.path, &error))?)
        };
        let written =
            write_group(file, &self.salt, group).and_then(|count| file.sync_data().map(|()| count));
        match written {
            Ok(count) => {
                self.len += count;
                Ok(())
            }
            Err(error) => {
                self.has_failed = true;
                Err(at(&self.path, &error))
            }
        }
    }

    /// One on a disk that is full.
    #[cfg(test)]
    pub(super) fn broken() -> Self {
        let path = PathBuf::from("/dev/full");
        Self {
            file: Slot::of(OpenOptions::new().append(true).open(&path).unwrap()),
            path,
            salt: [0; SALT_BYTES],
            len: 0,
            has_failed: false,
        }
    }

    /// Closes the file until the next group.
    pub(crate) fn rest(&self) {
        *self.file.lock() = None;
    }

    /// Bytes of the file.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Removes the file, for good.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
            .and_then(|()| sync_dir(&self.path))
            .map_err(|error| at(&self.path, &error))
    }
}

/// A file, while it is open.
#[derive(Debug)]
struct Slot(Mutex<Option<File>>);

impl Slot {
    fn of(file: File) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(file))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files that are open, in the order in which they were opened.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// Files of logs that a process has open at once, beside those that are being written.
const MOST_OPEN: usize = 64;

/// No more than half of the descriptors that connections leave to others.
fn most_open() -> usize {
    let reserved = ackline_link::reserved_descriptors();
    usize::try_from(reserved / 2).map_or(MOST_OPEN, |half| half.min(MOST_OPEN))
}

fn kept_open(file: File) -> Arc<Slot> {
    let slot = Slot::of(file);
    count(&slot);
    slot
}

/// One was opened: those that were opened long before it are closed.
fn count(slot: &Arc<Slot>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.push_back(Arc::downgrade(slot));
    for _ in most_open()..open.len() {
        let Some(oldest) = open.pop_front() else {
            return;
        };
        let Some(slot) = oldest.upgrade() else {
            continue;
        };
        match slot.0.try_lock() {
            Ok(mut file) => *file = None,
            // It is being written.
            Err(_) => open.push_back(oldest),
        }
    }
}

/// The file of this length, for the next group.
fn reopened(path: &Path, len: u64) -> io::Result<File> {
    let file = OpenOptions::new().append(true).open(path)?;
    let is = file.metadata()?.len();
    if is == len {
        return Ok(file);
    }
    Err(io::Error::other(format!(
        "it has {is} bytes where {len} were written: another process has changed it"
    )))
}

const MAGIC: &[u8] = b"ACKLREL1";
const GROUP: &[u8] = b"RLG1";
const SALT_BYTES: usize = 8;
const FILE_HEAD_BYTES: usize = MAGIC.len() + SALT_BYTES + 4;
const HEAD_BYTES: usize = 12;

/// The salt, and the bytes behind the file's head.
fn head_of(bytes: &[u8]) -> Option<([u8; SALT_BYTES], &[u8])> {
    let (head, rest) = bytes.split_at_checked(FILE_HEAD_BYTES)?;
    let (salt, crc) = head.strip_prefix(MAGIC)?.split_first_chunk()?;
    (crc == checksum(MAGIC, &[], salt)).then_some((*salt, rest))
}

/// The sound group that begins here, and the bytes behind it.
fn group_at<'a>(salt: &[u8], bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (length, crc) = head.strip_prefix(GROUP)?.split_at_checked(4)?;
    let count = u32::from_le_bytes(length.try_into().ok()?);
    let (group, behind) = rest.split_at_checked(usize::try_from(count).ok()?)?;
    (crc == checksum(salt, length, group)).then_some((group, behind))
}

fn write_group(file: &mut File, salt: &[u8], group: &[u8]) -> io::Result<u64> {
    let count = u32::try_from(group.len())
        .map_err(|_| io::Error::other("a group of 4 GiB and more does not fit"))?;
    let length = count.to_le_bytes();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + group.len());
    bytes.extend_from_slice(GROUP);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(salt, &length, group));
    bytes.extend_from_slice(group);
    file.write_all(&bytes)?;
    Ok(to_u64(bytes.len()))
}

fn checksum(salt: &[u8], length: &[u8], group: &[u8]) -> [u8; 4] {
    let pieces = [salt, length, group].into_iter();
    pieces.fold(0, crc32c::crc32c_append).to_le_bytes()
}

fn sync_dir(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn damaged(path: &Path, why: &str) -> io::Error {
    at(path, &io::Error::new(io::ErrorKind::InvalidData, why))
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &Path) -> (Log, Vec<String>, u64) {
        let (log, kept) = Log::open(path).unwrap();
        let groups = kept.groups.into_iter();
        let groups = groups.map(|group| String::from_utf8(group).unwrap());
        (log, groups.collect(), kept.cut)
    }

    /// A file of three groups, and where each ends.
    fn three(path: &Path) -> (Vec<u8>, [usize; 3]) {
        let (mut log, ..) = opened(path);
        let mut ends = Vec::new();
        for group in [&b"one"[..], b"", b"three"] {
            log.append(group).unwrap();
            ends.push(usize::try_from(log.len()).unwrap());
        }
        (fs::read(path).unwrap(), ends.try_into().unwrap())
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        three(&path);
        let (mut log, groups, cut) = opened(&path);
        assert_eq!(
            (groups, cut),
            (vec!["one".into(), String::new(), "three".into()], 0)
        );
        log.append(b"four").unwrap();
        assert_eq!(log.len(), fs::metadata(&path).unwrap().len());
        assert_eq!(opened(&path).1.len(), 4);
    }

    #[test]
    fn a_torn_end_is_cut_wherever_it_was_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (whole, ends) = three(&path);
        for len in FILE_HEAD_BYTES..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let (mut log, groups, cut) = opened(&path);
            let sound = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(groups.len(), sound, "{len}");
            let kept = ends[..sound].last().copied().unwrap_or(FILE_HEAD_BYTES);
            assert_eq!(cut, to_u64(len - kept));
            log.append(b"next").unwrap();
            assert_eq!(opened(&path).1.last().unwrap(), "next");
        }
    }

    #[test]
    fn a_last_group_that_is_not_sound_is_cut_and_an_earlier_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (whole, ends) = three(&path);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let opened = Log::open(&path);
            if at < ends[1] {
                let error = opened.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{at}: {error}");
                assert!(error.to_string().contains("log"), "{error}");
                assert_eq!(fs::read(&path).unwrap(), bytes, "it is left as it is");
            } else {
                assert_eq!(opened.unwrap().1.groups.len(), 2, "{at}");
            }
        }
    }

    #[test]
    fn a_rewritten_file_holds_what_it_was_given_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        three(&path);
        let mut log = Log::replace(&path, &[b"all".to_vec()]).unwrap();
        log.append(b"more").unwrap();
        assert_eq!(log.len(), fs::metadata(&path).unwrap().len());
        assert_eq!(opened(&path).1, ["all", "more"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_many_logs_few_are_open_and_each_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..300).map(|at| dir.path().join(at.to_string())).collect();
        let mut logs: Vec<_> = paths.iter().map(|path| opened(path).0).collect();
        for round in ["one", "two"] {
            for log in &mut logs {
                log.append(round.as_bytes()).unwrap();
            }
            let open = logs.iter().filter(|log| log.file.lock().is_some()).count();
            // Other tests have theirs.
            assert!(open <= MOST_OPEN, "{open}");
        }
        for path in &paths {
            assert_eq!(opened(path).1, ["one", "two"]);
        }
    }

    #[test]
    fn a_log_that_another_process_has_changed_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, ..) = opened(&path);
        log.append(b"one").unwrap();
        *log.file.lock() = None;
        let sound = fs::read(&path).unwrap();
        fs::write(&path, [&sound[..], b"x"].concat()).unwrap();
        let error = log.append(b"two").unwrap_err().to_string();
        assert!(error.contains("bytes where"), "{error}");
        fs::write(&path, &sound).unwrap();
        log.append(b"two").unwrap();
        assert_eq!(opened(&path).1, ["one", "two"]);
    }

    #[test]
    fn after_a_failed_write_nothing_more_is_appended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, ..) = opened(&path);
        log.file = Slot::of(File::open(&path).unwrap());
        assert!(log.append(b"lost").is_err());
        log.file = Slot::of(OpenOptions::new().append(true).open(&path).unwrap());
        let error = log.append(b"later").unwrap_err().to_string();
        assert!(error.contains("an earlier write has failed"), "{error}");
        assert_eq!(opened(&path).1, Vec::<String>::new());
    }

    #[test]
    fn a_group_is_there_when_it_was_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, ..) = opened(&dir.path().join("log"));
        // It takes every write, and no sync.
        log.file = Slot::of(OpenOptions::new().append(true).open("/dev/null").unwrap());
        let error = log.append(b"lost").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }

    #[test]
    fn bytes_of_a_message_do_not_pass_for_a_group() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["log", "other"].map(|name| dir.path().join(name));
        let (crafted, _) = three(&other);
        let (mut log, ..) = opened(&path);
        log.append(&crafted).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(opened(&path).1, Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, b"something else").unwrap();
        assert!(Log::open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"something else");
    }
}
