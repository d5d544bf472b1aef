//! Freed memory goes back to the system.
//!
//! glibc keeps what is freed between blocks that are in use: after thousands of connections that held 64 KiB each,
//! hundreds of megabytes. `malloc_trim` gives all whole pages of it back. It takes milliseconds, so it is called
//! only when the process has grown since the last time.

use std::time::Duration;

use tokio::runtime::Runtime;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Bytes by which the process must have grown.
const GROWTH: u64 = 16 << 20;

/// Looks for as long as the runtime lives. Does nothing with another C library than glibc.
pub(crate) fn begin(runtime: &Runtime) {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    runtime.spawn(async {
        let mut least = u64::MAX;
        loop {
            tokio::time::sleep(EVERY).await;
            let Some(now) = resident() else {
                return;
            };
            if now.saturating_sub(least) >= GROWTH {
                let trimmed = tokio::task::spawn_blocking(trim).await;
                least = trimmed.ok().and_then(|()| resident()).unwrap_or(now);
            } else {
                least = least.min(now);
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
    // SAFETY: it may be called at any time, by any thread; it touches free memory alone.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
