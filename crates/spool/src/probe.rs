//! How long an fsync takes in a spool's directory, and whether that is plausible.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    SpoolError,
    disk::{Disk, RealDisk},
    folder::Dir,
};

/// The result of probing a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// The median time of an fsync behind a write of 4 KiB, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// Whether the median is too short for a disk that really flushes: it is memory, the flush is
    /// ignored (`nobarrier`, a controller's or hypervisor's cache), or the disk's cache has its own
    /// battery.
    pub suspicious: bool,
}

/// Writes and syncs 4 KiB `rounds` times (at least once) in a file of its own in `dir`, which it
/// removes.
///
/// # Errors
/// `spool.io`.
pub fn fsync_probe(dir: &Path, rounds: u32) -> Result<Probe, SpoolError> {
    let dir = Dir::open(dir)?;
    let name = format!(".fsync-probe.{}", std::process::id());
    // An earlier process with this pid may have been killed.
    RealDisk.remove(&dir, &name)?;
    let times = probe(&dir, &name, rounds.max(1));
    let _ = RealDisk.remove(&dir, &name);
    let mut times = times?;
    times.sort_unstable();
    let rank = |percent: usize| {
        let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
        let time = times.get(at).copied().unwrap_or_default();
        time.as_secs_f64() * 1e6
    };
    Ok(Probe {
        p50_us: rank(50),
        p99_us: rank(99),
        suspicious: rank(50) < TOO_QUICK_US,
    })
}

fn probe(dir: &Dir, name: &str, rounds: u32) -> Result<Vec<Duration>, SpoolError> {
    let (file, path) = (RealDisk.create(dir, name)?, dir.join(name));
    let mut times = Vec::new();
    for _ in 0..rounds {
        RealDisk.write(&file, &path, &[&[0x5A; 4_096]])?;
        let begun = Instant::now();
        RealDisk.sync(&file, &path)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// A flush over the bus to any disk takes longer than this.
const TOO_QUICK_US: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_too_quick_to_be_true_and_nothing_is_left() {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return;
        }
        let temp = tempfile::tempdir_in(memory).unwrap();
        let found = fsync_probe(temp.path(), 200).unwrap();
        assert!(found.suspicious, "{found:?}");
        assert!(found.p50_us > 0.0 && found.p50_us <= found.p99_us);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        let missing = fsync_probe(&temp.path().join("missing"), 1).unwrap_err();
        assert_eq!(missing.code(), "spool.io");
    }
}
