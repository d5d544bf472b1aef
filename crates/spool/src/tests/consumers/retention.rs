//! Marks beside retention, at other paths and on a full disk.

use super::*;

/// Runs `work` while the lock on marks is held, as retention holds it, and retires everything below 6
/// meanwhile. Returns the outcome.
fn beside_retention<T: Send>(
    spool: &Spool,
    is_begun: impl Fn() -> bool,
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let marks = Lock::marks(&spool.folder).unwrap();
        let working = scope.spawn(work);
        until("the work", is_begun);
        retire(spool, 6);
        assert!(!working.is_finished());
        drop(marks);
        working.join().unwrap()
    })
}

#[test]
fn a_mark_that_goes_back_waits_for_retention_and_is_refused_below_the_first_kept_position() {
    let fresh = || {
        let (temp, spool) = spool_of(9);
        spool.add_consumer("prod", 9).unwrap();
        (temp, spool)
    };
    let is_held = |spool: &Spool, name: &str| {
        let dir = spool.folder.consumers().unwrap();
        lock::holder(dir, &format!("{name}.lock"))
            .unwrap()
            .is_some()
    };
    let gap = |error: SpoolError| {
        assert!(
            matches!(
                error,
                SpoolError::Gap {
                    position: 3,
                    first_kept: 6
                }
            ),
            "{error}"
        );
    };
    let (_temp, spool) = fresh();
    let begun = || is_held(&spool, "prod");
    gap(beside_retention(&spool, begun, || spool.seek_consumer("prod", 3)).unwrap_err());
    let (_temp, spool) = fresh();
    let begun = || is_held(&spool, "more");
    gap(beside_retention(&spool, begun, || spool.add_consumer("more", 3)).unwrap_err());
    assert!(!lock_path(&spool, "more").exists());
    let (_temp, spool) = fresh();
    let begun = || is_held(&spool, "new");
    let take = || spool.lease("new", "", Duration::ZERO, Some(3));
    gap(beside_retention(&spool, begun, take).unwrap_err());
    assert!(!file(&spool, "new").exists());
    let (_temp, spool) = fresh();
    let held = lease(&spool, "prod");
    gap(beside_retention(&spool, || true, || held.commit(3)).unwrap_err());
    assert_eq!(held.committed().unwrap(), Some(9));
}

#[test]
fn a_mark_that_goes_forward_does_not_wait() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    let _marks = Lock::marks(&spool.folder).unwrap();
    held.commit(3).unwrap();
    spool.commit_mark("prod", 6).unwrap();
    assert_eq!(mark(&spool, "prod").committed, 6);
}

#[test]
fn a_spool_whose_path_leads_elsewhere_moves_no_mark() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    let dir = spool.folder.dir();
    let moved = dir.with_extension("moved");
    fs::rename(dir, &moved).unwrap();
    assert_eq!(refused(&spool, "prod").code(), "spool.not_a_spool");
    copy(&moved, dir);
    assert_eq!(refused(&spool, "prod").code(), "spool.moved");
    fs::remove_dir_all(dir).unwrap();
    fs::rename(&moved, dir).unwrap();
    lease(&spool, "prod").commit(6).unwrap();
    fs::rename(dir.join("consumers"), dir.join("aside")).unwrap();
    make_dir(&dir.join("consumers")).unwrap();
    assert_eq!(refused(&spool, "prod").code(), "spool.moved");
}

/// A file system of its own of one mebibyte, where mounting is permitted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Self> {
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(at)
            .output();
        let is_mounted = mount.is_ok_and(|done| done.status.success());
        is_mounted.then(|| Self(at.to_owned()))
    }

    /// Takes all the space that is left.
    fn fill_up(&self) {
        use std::io::Write;
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[7; 4_096]).is_ok() {}
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_with_a_reserve_has_room_for_leases_and_marks() {
    use std::os::unix::fs::OpenOptionsExt;
    let temp = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(temp.path()) else {
        return;
    };
    let dir = mounted.0.join("spool");
    let writer = open(&dir);
    fill(&writer, 0, 3);
    let spool = Spool::open(&dir).unwrap();
    let reserve = dir.join("reserve");
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600);
    let file = file.open(&reserve).unwrap();
    file.set_len(65_536).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 65_536).unwrap();
    drop(file);
    mounted.fill_up();
    let held = spool.lease("prod", "", Duration::ZERO, Some(0)).unwrap();
    assert_eq!(reserve.metadata().unwrap().len(), 0);
    held.commit(6).unwrap();
    spool.add_consumer("more", 3).unwrap();
    mounted.fill_up();
    let error = spool.add_consumer("none", 3).unwrap_err();
    assert!(error.is_full(), "{error}");
}
