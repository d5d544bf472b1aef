//! Where a receiver keeps its links, and how they are found there: the same for those that come in and for those
//! that it makes.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ackline_link::Budget;
use ackline_spool::Spool;

use super::error::Error;
use super::found::Found;
use super::landed::Landed;
use super::state::Restored;
use super::url::escaped;
use crate::ReceiverError;

/// Links of an earlier process with everything consumed that the spool holds of them.
pub(super) fn caught_up(
    links: Vec<Restored>,
    landed: &Arc<Landed>,
    spool: &Spool,
) -> Result<Vec<Restored>, ReceiverError> {
    if links.is_empty() {
        return Ok(links);
    }
    let found = Found::look(spool, landed.settled()).map_err(state_error)?;
    let caught_up = links.into_iter().map(|one| {
        let mut one = found.caught_up(one)?;
        one.journal = one.journal.landing(Some(Arc::clone(landed)));
        Ok::<_, Error>(one)
    });
    caught_up.collect::<Result<_, _>>().map_err(state_error)
}

/// A text as the name of a file: escaped, and cut where it is too long.
pub(super) fn file_name(text: &str) -> String {
    let mut name = escaped(text);
    if name.len() > MAX_NAME_BYTES {
        name.truncate(MAX_NAME_BYTES);
        name = format!("{name}-{:08x}", crc32c::crc32c(text.as_bytes()));
    }
    name
}

/// Makes a directory for this user alone, if it is not there.
pub(super) fn make_dir(dir: &Path) -> Result<(), ReceiverError> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(ReceiverError::Links(format!("{}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

/// What is kept cannot be used.
pub(super) fn state_error(error: impl std::fmt::Display) -> ReceiverError {
    ReceiverError::Links(error.to_string())
}

/// Half of what can be admitted whatever else is held: the rest is for what comes behind it, the commit.
pub(super) fn most_staged(budget: &Budget) -> usize {
    usize::try_from(budget.largest() / 2).unwrap_or(usize::MAX)
}

/// Between two looks at how much of the spool is in the journals.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(5);
/// A directory's name, before its checksum.
const MAX_NAME_BYTES: usize = 200;
