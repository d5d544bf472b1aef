//! File descriptors: some are reserved for uses other than connections.
//!
//! A process may open only a limited number of files (`ulimit -n`). If connections took all of
//! them, a spool could open no file. So a listener accepts nothing while fewer than [`reserve`] are
//! left.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::units::to_u64;

/// The most descriptors that connections leave for other uses.
const MOST_RESERVED: u64 = 256;
/// The most descriptors that the table is grown for: 1 MiB of the system's memory.
const MOST_ROOM: u64 = 1 << 17;

/// Descriptors that connections leave for other uses: a quarter of the process's limit, 256 at the
/// most.
pub fn reserve() -> u64 {
    limit().map_or(MOST_RESERVED, |limit| (limit / 4).min(MOST_RESERVED))
}

/// The process's limit of descriptors; `None` if there is no limit.
fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Grows the table of descriptors for this number of connections; `any` is an open descriptor.
///
/// The system doubles the table as it fills, and while other threads run it stops the growing one each time for 10 ms
/// and more, with all connections that the thread serves.
pub(crate) fn make_room(any: impl AsFd, connections: usize) {
    let wanted = to_u64(connections).saturating_add(MOST_RESERVED);
    let most = limit().unwrap_or(u64::MAX).min(MOST_ROOM);
    let last = i32::try_from(wanted.min(most)).unwrap_or(i32::MAX) - 1;
    // Without room the table grows later.
    drop(rustix::io::fcntl_dupfd_cloexec(any, last));
}

/// Whether a connection may take a descriptor; `any` is an open one.
///
/// # Errors
/// EMFILE if only the reserve is left.
pub(crate) fn check(any: impl AsFd) -> io::Result<()> {
    let Some(limit) = limit() else {
        return Ok(());
    };
    // The system gives out the lowest free number.
    let lowest = rustix::io::fcntl_dupfd_cloexec(any, 0)?;
    let lowest = u64::try_from(lowest.as_raw_fd()).unwrap_or(0);
    if lowest < limit.saturating_sub(reserve()) {
        return Ok(());
    }
    Err(Errno::MFILE.into())
}
