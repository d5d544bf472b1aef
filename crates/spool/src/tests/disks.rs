//! Disks that fail and disks that are full.

use std::io::ErrorKind;

use super::recorder::{Faults, Recorder};
use super::*;
use crate::{commit::Pace, reserve::Reserve};

const QUICK: Pace = Pace {
    sweep: Duration::from_secs(10),
    recheck: Duration::from_millis(1),
    slow_commit: Duration::from_secs(30),
    say_again: Duration::from_secs(3_600),
};

fn quick(dir: &Path) -> (Writer, Faults) {
    keep();
    let disk = Recorder::default();
    let fail = disk.fail.clone();
    let writer = Writer::open_on(dir, WriterOptions::default(), Arc::new(disk), QUICK);
    let writer = writer.unwrap().0;
    // Its thread has finished its first work.
    writer.append(block(0, 0), Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    (writer, fail)
}

fn fault(fail: &Faults, step: &str, kind: ErrorKind, times: usize) {
    let fault = (step.to_owned(), kind);
    fail.lock().unwrap().extend(vec![fault; times]);
}

#[test]
fn three_failures_in_a_row_end_the_writer_and_two_do_not() {
    for (step, times) in [
        ("sync arrows", 2),
        ("sync idx", 2),
        ("write arrows", 2),
        ("sync segments", 2),
        ("write idx", 3),
    ] {
        let (_temp, dir) = temp();
        let (writer, fail) = quick(&dir);
        fault(&fail, step, ErrorKind::Other, times);
        let told = Arc::new(Told::default());
        writer.append(block(0, 3), told.clone(), 4, Promise::Durable);
        let survives = times < 3;
        assert_eq!(writer.flush(WAIT), survives, "{step}");
        let state = writer.stats().state;
        assert_eq!(state == WriterState::Failed, !survives, "{step}");
        // A flush may return before that call.
        until("the news", || {
            let (settled, failed) = told.seen.lock().unwrap().clone();
            settled.len() + failed.len() > 0
        });
        assert_eq!(told.seen.lock().unwrap().0.len(), usize::from(survives));
        assert_eq!(lines("spool.write_failed", &dir).len(), times, "{step}");
        assert_eq!(lines("spool.failed", &dir).len(), usize::from(!survives));
    }
}

#[test]
fn failures_with_a_success_between_them_are_not_in_a_row() {
    let (_temp, dir) = temp();
    let (writer, fail) = quick(&dir);
    for at in 0..4 {
        fault(&fail, "sync arrows", ErrorKind::Other, 2);
        fill(&writer, at * 3, 1);
    }
    let payloads = positions(&batches(&dir, 0..12, 1, 99));
    assert_eq!(payloads, (0..12).collect::<Vec<_>>());
}

#[test]
fn a_file_system_that_became_read_only_fails_the_writer_and_acknowledges_nothing() {
    let (_temp, dir) = temp();
    let (writer, fail) = quick(&dir);
    fill(&writer, 0, 1);
    fault(&fail, "write arrows", ErrorKind::ReadOnlyFilesystem, 1);
    fault(&fail, "create idx", ErrorKind::ReadOnlyFilesystem, 2);
    let told = Arc::new(Told::default());
    writer.append(block(3, 3), told.clone(), 1, Promise::Durable);
    assert!(!writer.flush(WAIT));
    assert_eq!(writer.stats().state, WriterState::Failed);
    until("the news", || !told.seen.lock().unwrap().1.is_empty());
    let (settled, failed) = told.seen.lock().unwrap().clone();
    assert_eq!((settled.len(), failed[0].code()), (0, "spool.io"));
    assert!(lines("spool.failed", &dir)[0].contains("read-only"));
    drop(writer);
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    assert_eq!((recovered.position, recovered.lost), (3, None));
}

#[test]
fn a_sync_that_fails_once_is_not_believed_the_second_time() {
    for step in ["sync arrows", "sync idx"] {
        let (_temp, dir) = temp();
        let (writer, fail) = quick(&dir);
        fill(&writer, 0, 1);
        fault(&fail, step, ErrorKind::Other, 1);
        fill(&writer, 3, 1);
        writer.close(WAIT);
        let second = dir.join("segments/00000000000000000003.arrows");
        assert!(
            second.exists(),
            "{step}: what failed stands in a new segment"
        );
        let got = positions(&batches(&dir, 0..6, 1, 99));
        assert_eq!(got, (0..6).collect::<Vec<_>>(), "{step}");
    }
}

#[test]
fn a_full_disk_is_logged_once_acknowledges_nothing_and_continues_with_space() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let (_temp, dir) = temp();
        let (writer, fail) = quick(&dir);
        fill(&writer, 0, 1);
        fault(&fail, "write arrows", kind, 1);
        fault(&fail, "create idx", kind, 100_000);
        let told = Arc::new(Told::default());
        writer.append(block(3, 3), told.clone(), 1, Promise::Durable);
        until("the stall", || {
            writer.stats().state == WriterState::StalledDisk
        });
        assert!(!writer.flush(Duration::from_millis(50)));
        assert_eq!(told.seen.lock().unwrap().0.len(), 0);
        fail.lock().unwrap().clear();
        assert!(writer.flush(WAIT));
        assert_eq!(told.seen.lock().unwrap().0, [1]);
        assert_eq!(lines("spool.disk_full", &dir).len(), 1);
        assert_eq!(lines("spool.resumed", &dir).len(), 1);
        assert_eq!(lines("spool.failed", &dir).len(), 0);
    }
}

/// As many as three failures in a row would end the writer.
#[test]
fn without_a_descriptor_it_waits_and_the_disk_is_not_given_up() {
    let (_temp, dir) = temp();
    let (writer, fail) = quick(&dir);
    fill(&writer, 0, 1);
    fault(&fail, "sync arrows", ErrorKind::Other, 1);
    for step in ["create arrows", "create idx"] {
        fault(&fail, step, recorder::NO_DESCRIPTOR, 100_000);
    }
    let told = Arc::new(Told::default());
    writer.append(block(3, 3), told.clone(), 1, Promise::Durable);
    until("the stall", || {
        writer.stats().state == WriterState::StalledDescriptors
    });
    assert!(!writer.flush(Duration::from_millis(50)));
    assert_eq!(told.seen.lock().unwrap().0.len(), 0);
    fail.lock().unwrap().clear();
    assert!(writer.flush(WAIT));
    assert_eq!(told.seen.lock().unwrap().0, [1]);
    assert_eq!(writer.stats().state, WriterState::Ok);
    assert_eq!(lines("spool.descriptors", &dir).len(), 1);
    assert_eq!(lines("spool.resumed", &dir).len(), 1);
    writer.close(WAIT);
    let got = positions(&batches(&dir, 0..6, 1, 99));
    assert_eq!(got, (0..6).collect::<Vec<_>>());
}

#[test]
fn the_mark_is_published_again_when_that_failed() {
    let (_temp, dir) = temp();
    let (writer, fail) = quick(&dir);
    fault(&fail, "publish mark", ErrorKind::Other, 3);
    fill(&writer, 0, 1);
    // Nothing more is appended: the mark must be published by itself.
    let spool = Spool::open(&dir).unwrap();
    until("the mark", || spool.durable().unwrap() == 3);
    assert_eq!(lines("spool.mark_unpublished", &dir).len(), 1);
}

#[test]
fn a_recovery_that_finds_the_disk_full_uses_the_reserve() {
    keep();
    let (_temp, dir) = temp();
    fill(&open(&dir), 0, 1);
    // With the rights that a spool's files have.
    fs::copy(dir.join("durable"), dir.join("reserve")).unwrap();
    let disk = Recorder::default();
    fault(&disk.fail, "publish mark", ErrorKind::StorageFull, 1);
    let opened = Writer::open_on(&dir, WriterOptions::default(), Arc::new(disk), QUICK);
    assert_eq!(opened.unwrap().1.position, 3);
    assert!(!dir.join("reserve").exists());
}

#[test]
fn the_reserve_takes_room_gives_it_back_and_takes_it_again() {
    // Not in memory: there is no reserve there.
    let temp = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
    let folder = folder_on(temp.path(), Arc::new(crate::disk::RealDisk));
    let mut reserve = Reserve::new(&folder, 1 << 20);
    let path = temp.path().join("reserve");
    if reserve.is_whole() {
        return;
    }
    // There was never one: the recovery does not wait for it.
    assert_eq!(reserve.room(), 0);
    for _ in 0..2 {
        reserve.take().unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 1 << 20);
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= 1 << 20);
        assert!(reserve.is_whole());
        assert!(crate::reserve::give_back(&folder));
        assert!(!path.exists() && !reserve.is_whole());
        // The recovery waits for it again.
        assert_eq!(reserve.room(), 1 << 20);
    }
}

/// A file system of its own, where mounting is permitted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Self> {
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(at)
            .output();
        let is_mounted = mount.is_ok_and(|done| done.status.success());
        is_mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// A spool with three events on a file system of its own; `None` where none may be mounted.
fn on_a_small_disk(at: &Path) -> Option<(Mounted, PathBuf, Writer)> {
    let mounted = Mounted::new(at)?;
    let dir = mounted.0.join("spool");
    let disk = Arc::new(crate::disk::RealDisk);
    let (writer, _) = Writer::open_on(&dir, WriterOptions::default(), disk, QUICK).unwrap();
    fill(&writer, 0, 1);
    Some((mounted, dir, writer))
}

#[test]
fn a_really_full_disk_loses_nothing_and_continues_with_space() {
    keep();
    let temp = tempfile::tempdir().unwrap();
    let Some((mounted, dir, writer)) = on_a_small_disk(temp.path()) else {
        return;
    };
    // The remaining space is enough for some groups.
    let filler = mounted.0.join("filler");
    fs::write(&filler, vec![7; 100_000]).unwrap();
    let told = Arc::new(Told::default());
    let mut appended = 3;
    until("the stall", || {
        if writer.flush(Duration::from_millis(1)) {
            writer.append(
                block(appended, 300),
                told.clone(),
                appended,
                Promise::Durable,
            );
            appended += 300;
        }
        writer.stats().state == WriterState::StalledDisk
    });
    let settled = told.seen.lock().unwrap().0.len() as u64;
    assert_eq!(writer.stats().durable, 3 + settled * 300);
    assert!(lines("spool.disk_full", &dir)[0].contains("No space left"));
    // Marks can still move: a page or two is free.
    fs::remove_file(&filler).unwrap();
    assert!(writer.flush(WAIT));
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!((report.events, report.problems), (appended, Vec::new()));
    drop(writer);
}

#[test]
fn a_group_is_written_in_parts_if_it_does_not_fit_as_a_whole() {
    keep();
    let temp = tempfile::tempdir().unwrap();
    let Some((mounted, dir, writer)) = on_a_small_disk(temp.path()) else {
        return;
    };
    let filler = mounted.0.join("filler");
    let free = || crate::filesystem::free_bytes(&mounted.0).unwrap();
    fs::write(&filler, vec![7; usize::try_from(free()).unwrap()]).unwrap();
    let told = Arc::new(Told::default());
    let add = |at: u64| {
        let block = block(3 + at * 300, 300);
        writer.append(block, told.clone(), at, Promise::Durable);
    };
    add(0);
    until("the stall", || {
        writer.stats().state == WriterState::StalledDisk
    });
    // 290 kB are one group now, more than the file system has in all.
    (1..100).for_each(add);
    let half = fs::OpenOptions::new().write(true).open(&filler).unwrap();
    half.set_len(100_000).unwrap();
    drop(half);
    until("a part", || writer.stats().durable > 3 + 2 * 300);
    until("the end of the room", || {
        writer.stats().state == WriterState::StalledDisk && free() < 60_000
    });
    assert_eq!(told.seen.lock().unwrap().0, [0]);
    // Space stays for the mark, and for segments that a consumer has finished with.
    let spool = Spool::open(&dir).unwrap();
    until("the rest", || {
        // While a group is tried there may be no space for the mark.
        let _ = spool.commit_mark("lake", spool.durable().unwrap());
        writer.flush(Duration::from_millis(1))
    });
    assert_eq!(told.seen.lock().unwrap().0, (0..100).collect::<Vec<_>>());
    assert_eq!(spool.durable().unwrap(), 3 + 100 * 300);
    assert_eq!(lines("spool.failed", &dir).len(), 0);
    drop(writer);
}

#[test]
fn a_mark_of_which_nothing_is_sound_is_rebuilt_from_the_last_segment() {
    keep();
    for bytes in [vec![0; 48], vec![7; 48], Vec::new(), vec![7; 10]] {
        let (_temp, dir) = temp();
        let _writer = open_segments(&dir, 3);
        let killed = dir.with_extension("killed");
        copy(&dir, &killed);
        fs::write(killed.join("durable"), &bytes).unwrap();
        let (writer, recovered) = Writer::open(&killed, WriterOptions::default()).unwrap();
        assert_eq!((recovered.position, recovered.lost), (9, None));
        assert_eq!(lines("spool.mark_rebuilt", &killed).len(), 1);
        fill(&writer, 9, 1);
        let got = positions(&batches(&killed, 0..12, 1, 99));
        assert_eq!(got, (0..12).collect::<Vec<_>>());
    }
}

#[test]
fn a_mark_without_anything_to_rebuild_it_from_is_refused_with_the_cure() {
    let (_temp, dir) = temp();
    drop(open(&dir));
    fs::write(dir.join("durable"), [7; 48]).unwrap();
    fs::remove_file(dir.join("start")).unwrap();
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.corrupt");
    assert!(error.to_string().contains("begin a new one"), "{error}");
}

#[test]
fn a_rebuilt_mark_gives_no_position_out_twice() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    writer.close(WAIT);
    fill(&open(&dir), 6, 1);
    // Only a begun segment without any group is left.
    let segment = |first: u64| dir.join(format!("segments/{first:020}.arrows"));
    for path in [segment(0), segment(0).with_extension("idx")] {
        fs::remove_file(path).unwrap();
    }
    let index = segment(6).with_extension("idx");
    let header = fs::read(&index).unwrap()[..64].to_vec();
    fs::write(&index, header).unwrap();
    fs::write(dir.join("durable"), [7; 48]).unwrap();
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    // The start holds the position too.
    assert_eq!(recovered.position, 9);
}
