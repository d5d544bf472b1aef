//! Freed memory goes back to the system.
//!
//! glibc keeps freed memory that lies between blocks in use: after thousands of connections that held 64 KiB each,
//! this is hundreds of megabytes. `malloc_trim` returns all whole pages of it. It takes milliseconds, so it is called
//! when links that have ended have returned much to a budget, when the process has grown since the last time, and for
//! a large process also from time to time: the system does not see the free memory inside it.
//!
//! Large blocks are better asked of the system and given back at once. glibc does so from 128 KiB on, but raises that to
//! the size of the largest block that was freed, up to 32 MiB: a receiver fixes it ([`large_blocks`]).

use std::time::Duration;

use ackline_link::Budget;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(1);
/// Time in which a link that has returned bytes to its budget frees them.
const FREED_IN: Duration = Duration::from_millis(5);
/// The least time from one call to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes by which the process must have grown.
const GROWTH: u64 = 16 << 20;
/// Bytes of a large process, and the number of checks after which it is trimmed even without growth.
const LARGE: u64 = 64 << 20;
const LOOKS: u32 = 10;

/// Checks for as long as the runtime lives. Does nothing with another C library than glibc.
pub(crate) fn begin(runtime: &Runtime) {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    runtime.spawn(async {
        let (mut least, mut looks) = (u64::MAX, 0);
        loop {
            let is_returned = timeout(EVERY, Budget::much_returned()).await.is_ok();
            if is_returned {
                tokio::time::sleep(FREED_IN).await;
            }
            let Some(now) = resident() else {
                return;
            };
            looks += 1;
            least = least.min(now);
            if is_returned || now - least >= GROWTH || (now >= LARGE && looks >= LOOKS) {
                let trimmed = tokio::task::spawn_blocking(trim).await;
                least = trimmed.ok().and_then(|()| resident()).unwrap_or(now);
                looks = 0;
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
}

/// Bytes of this process that are in memory; `None` without `/proc`.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it may be called at any time, by any thread; it touches only free memory.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes from which on a block goes back to the system when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BLOCK: libc::c_int = 1 << 20;

/// From now on large blocks of this process go back to the system at once. Does nothing with another C library than glibc.
pub(crate) fn large_blocks() {
    // SAFETY: it may be called at any time, by any thread.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
