//! Links that are known to have ended in good order: their landed blocks were acknowledged, and the
//! peer had taken the acknowledgement. A lost note, as after a loss of power, does no harm: the
//! link then counts as cut off.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use ackline_core::locked;
use rustix::fs::OFlags;

use crate::{
    Spool, SpoolError,
    folder::{ENDS, Folder},
};

/// The links of one spool that ended in order: the newest 28,339 at the most, in 1 MiB.
#[derive(Debug)]
pub struct Ends {
    path: PathBuf,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
struct Notes {
    /// `None` when it cannot be written any more.
    file: Option<File>,
    bytes: u64,
}

impl Spool {
    /// Opens the notes of the links that ended in good order, and reads them. For the process that
    /// writes the spool, once.
    ///
    /// # Errors
    /// `spool.io`, `spool.rights`.
    pub fn ends(&self) -> Result<(Ends, HashSet<String>), SpoolError> {
        let path = self.folder.root().join(ENDS);
        let failed = |error| SpoolError::io("read", &path, error);
        let mut file = open(&self.folder)?;
        let links = newest(&mut file).map_err(failed)?;
        let mut bytes = links.len() as u64 * NOTE_BYTES;
        if file.metadata().map_err(failed)?.len() != bytes {
            bytes = rewrite(&mut file, &links).map_err(failed)?;
        }
        let notes = Notes {
            file: Some(file),
            bytes,
        };
        let ends = Ends {
            path,
            notes: Mutex::new(notes),
        };
        Ok((ends, links.into_iter().collect()))
    }
}

impl Ends {
    /// Notes that a link has ended in good order. The note is written, not synced: the process may
    /// die after it. If it cannot be written, that is logged once, and nothing is noted any more.
    pub fn note(&self, link: &str) {
        if link.len() != LINK_BYTES {
            return;
        }
        let mut notes = locked(&self.notes);
        let Err(error) = notes.add(link) else {
            return;
        };
        notes.file = None;
        drop(notes);
        tracing::warn!(code = "spool.ends", path = %self.path.display(), %error,
            "links that end in order are not noted any more: after a restart they count as cut off");
    }
}

impl Notes {
    fn add(&mut self, link: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.bytes + NOTE_BYTES > MOST_BYTES {
            let links = newest(file)?;
            self.bytes = rewrite(file, links.get(links.len() / 2..).unwrap_or_default())?;
        }
        file.write_all(format!("{link}\n").as_bytes())?;
        self.bytes += NOTE_BYTES;
        Ok(())
    }
}

fn open(folder: &Folder) -> Result<File, SpoolError> {
    let root = folder.root();
    match root.open_file(ENDS, OFlags::RDWR | OFlags::APPEND) {
        Err(error) if error.is_not_found() => {}
        opened => return opened,
    }
    drop(folder.create(root, ENDS)?);
    root.open_file(ENDS, OFlags::RDWR | OFlags::APPEND)
}

/// The links noted in the file's last bytes, oldest first.
fn newest(file: &mut File) -> io::Result<Vec<String>> {
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(MOST_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A note that was cut by the death of a process, or of the machine, does not count.
    let whole = text.lines().filter(|line| line.len() == LINK_BYTES);
    Ok(whole.map(str::to_owned).collect())
}

/// Rewrites the file with these links. Returns its bytes.
fn rewrite(file: &mut File, links: &[String]) -> io::Result<u64> {
    let mut text = links.join("\n");
    if !links.is_empty() {
        text.push('\n');
    }
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    Ok(text.len() as u64)
}

/// Bytes of a link's name: a UUID, as connections have it.
const LINK_BYTES: usize = 36;
const NOTE_BYTES: u64 = LINK_BYTES as u64 + 1;
const MOST_BYTES: u64 = 1 << 20;
