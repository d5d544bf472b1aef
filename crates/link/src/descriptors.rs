//! File descriptors: some are kept for others than connections.
//!
//! A process may open only so many files (`ulimit -n`). If connections took all of them, nothing could be kept any
//! more: a spool needs files too. So a listener accepts nothing while fewer than [`reserve`] are left.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Descriptors that connections leave to others at the most.
const MOST_RESERVED: u64 = 256;

/// Descriptors that connections leave to others: a quarter of those that the process may have, 256 at the most.
pub fn reserve() -> u64 {
    limit().map_or(MOST_RESERVED, |limit| (limit / 4).min(MOST_RESERVED))
}

/// Descriptors that this process may have; `None` is without a limit.
fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether a connection may take a descriptor; `any` is one that is open.
///
/// # Errors
/// EMFILE where only the reserve is left.
pub(crate) fn check(any: impl AsFd) -> io::Result<()> {
    let Some(limit) = limit() else {
        return Ok(());
    };
    // The system gives out the lowest number that is free.
    let lowest = rustix::io::fcntl_dupfd_cloexec(any, 0)?;
    let lowest = u64::try_from(lowest.as_raw_fd()).unwrap_or(0);
    if lowest < limit.saturating_sub(reserve()) {
        return Ok(());
    }
    Err(Errno::MFILE.into())
}
