//! Cases from outside trials: two writers, files changed under a writer, defects, copies from a backup,
//! indexes and marks that power loss leaves behind, clocks that are set.

mod mending;

use std::{io::ErrorKind, os::unix::fs::FileExt};

use super::recorder::{Hook, Recorder};
use super::*;
use crate::{Access, Loss, LossWhy, adopt, commit::Pace, disk::RealDisk, mark::Mark, mend};

const QUICK: Pace = Pace {
    sweep: Duration::from_millis(1),
    recheck: Duration::from_millis(1),
    slow_commit: Duration::from_secs(30),
    say_again: Duration::from_secs(3_600),
};
const SEGMENT: &str = "segments/00000000000000000000.arrows";
const INDEX: &str = "segments/00000000000000000000.idx";

fn opened_on(dir: &Path, disk: Recorder, pace: Pace) -> Writer {
    let opened = Writer::open_on(dir, WriterOptions::default(), Arc::new(disk), pace);
    opened.unwrap().0
}

fn append(writer: &Writer, first: u64) -> Arc<Told> {
    let told = Arc::new(Told::default());
    writer.append(block(first, 3), told.clone(), 1, Promise::Durable);
    told
}

/// A way to damage a spool, with its name.
type Way = (&'static str, fn(&Path));

/// The code of the error that a link received.
fn refusal(told: &Told) -> &'static str {
    until("the news", || !told.seen.lock().unwrap().1.is_empty());
    let (settled, failed) = told.seen.lock().unwrap().clone();
    assert_eq!(settled, Vec::<u64>::new());
    failed[0].code()
}

fn ranges(losses: &[Loss]) -> Vec<(u64, u64)> {
    losses.iter().map(|loss| (loss.from, loss.to)).collect()
}

#[test]
fn a_writer_that_another_one_replaced_acknowledges_nothing() {
    keep();
    let (_temp, dir) = temp();
    let first = open(&dir);
    fill(&first, 0, 2);
    // A removed lock has no effect.
    fs::remove_file(dir.join("lock")).unwrap();
    let second = open(&dir);
    assert_eq!(second.stats().durable, 6);
    fill(&second, 6, 1);
    assert_eq!(refusal(&append(&first, 6)), "spool.fenced");
    assert_eq!(first.stats().state, WriterState::Failed);
    fill(&second, 9, 1);
    let failed = lines("spool.failed", &dir);
    assert!(failed[0].contains("another writer"), "{failed:?}");
    assert_eq!(
        positions(&batches(&dir, 0..12, 1, 99)),
        (0..12).collect::<Vec<_>>()
    );
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn a_writer_that_is_replaced_between_its_sync_and_its_ack_acknowledges_nothing() {
    for step in ["write arrows", "sync arrows", "write idx", "sync idx"] {
        let (_temp, dir) = temp();
        let disk = Recorder::default();
        let then = disk.then.clone();
        let first = opened_on(&dir, disk, Pace::default());
        fill(&first, 0, 1);
        let (at, second) = (dir.clone(), Arc::new(Mutex::new(None)));
        let taken = second.clone();
        let take_over = move || {
            fs::remove_file(at.join("lock")).unwrap();
            *taken.lock().unwrap() = Some(open(&at));
        };
        *then.lock().unwrap() = Some((step.to_owned(), Box::new(take_over)));
        let code = refusal(&append(&first, 3));
        assert!(
            ["spool.fenced", "spool.changed"].contains(&code),
            "{step}: {code}"
        );
        let second = second.lock().unwrap().take().unwrap();
        let end = second.stats().durable;
        fill(&second, end, 1);
        let read = positions(&batches(&dir, 0..end + 3, 1, 99));
        assert_eq!(
            read,
            (0..i64::try_from(end + 3).unwrap()).collect::<Vec<_>>(),
            "{step}"
        );
    }
}

/// Writes an older writer's slot of the durable mark at each of these syncs of a spool's opening, counted from
/// the next one on.
fn publish_late(then: &Hook, file: PathBuf, mut syncs: Vec<bool>) {
    if syncs.is_empty() {
        return;
    }
    let (is_late, next) = (syncs.remove(0), then.clone());
    let step = move || {
        if is_late {
            let late = Mark {
                position: 3,
                epoch: 1 << 32,
                generation: 9,
                watched_us: 0,
            };
            let (slot, at) = late.encode();
            let mark = fs::OpenOptions::new().write(true).open(&file).unwrap();
            mark.write_all_at(&slot, at).unwrap();
        }
        publish_late(&next, file, syncs);
    };
    *then.lock().unwrap() = Some(("sync mark".to_owned(), Box::new(step)));
}

#[test]
fn an_epoch_is_raised_until_no_older_writer_has_written_over_it() {
    let epoch = |dir: &Path| {
        let (path, file) = (dir.join("durable"), fs::File::open(dir.join("durable")));
        Mark::read(&file.unwrap(), &path).unwrap().epoch >> 32
    };
    let reopen = |syncs| {
        let (temp, dir) = temp();
        open(&dir).close(WAIT);
        assert_eq!(epoch(&dir), 1);
        let disk = Recorder::default();
        publish_late(&disk.then, dir.join("durable"), syncs);
        let opened = Writer::open_on(
            &dir,
            WriterOptions::default(),
            Arc::new(disk),
            Pace::default(),
        );
        let durable = opened.map(|(writer, _)| writer.stats().durable);
        (temp, epoch(&dir), durable)
    };
    let (_temp, raised, durable) = reopen(vec![]);
    assert_eq!((raised, durable.unwrap()), (2, 0));
    let (_temp, raised, durable) = reopen(vec![false, true]);
    assert_eq!(
        (raised, durable.unwrap()),
        (3, 3),
        "what it published counts"
    );
    // A process that still writes after that is not a replaced writer of ours.
    let (_temp, _, opened) = reopen([false, true].repeat(8));
    assert_eq!(opened.unwrap_err().code(), "spool.fenced");
}

#[test]
fn a_start_that_belongs_to_another_spool_is_not_believed() {
    keep();
    let (_temp, dir) = temp();
    let (_other, other) = temp();
    for (at, blocks) in [(&dir, 3), (&other, 30)] {
        let writer = open(at);
        fill(&writer, 0, blocks);
        writer.close(WAIT);
    }
    fs::copy(other.join("start"), dir.join("start")).unwrap();
    let writer = open(&dir);
    assert_eq!(writer.stats().durable, 9);
    assert_eq!(lines("spool.start_rebuilt", &dir).len(), 1);
    fill(&writer, 9, 1);
    assert_eq!(
        positions(&batches(&dir, 0..12, 1, 99)),
        (0..12).collect::<Vec<_>>()
    );
}

#[test]
fn a_writer_without_events_stops_too_once_it_is_replaced() {
    let (_temp, dir) = temp();
    let disk = Arc::new(RealDisk);
    let first = Writer::open_on(&dir, WriterOptions::default(), disk, QUICK)
        .unwrap()
        .0;
    fill(&first, 0, 1);
    fs::remove_file(dir.join("lock")).unwrap();
    let _second = open(&dir);
    until("the end", || first.stats().state == WriterState::Failed);
}

#[test]
fn a_file_that_is_cut_or_grows_under_the_writer_ends_it() {
    keep();
    for (name, len) in [
        (SEGMENT, 0),
        (SEGMENT, 9_000),
        (SEGMENT, 1 << 20),
        (INDEX, 64),
        (INDEX, 65),
    ] {
        let (_temp, dir) = temp();
        let writer = open(&dir);
        fill(&writer, 0, 2);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(dir.join(name))
            .unwrap();
        file.set_len(len).unwrap();
        assert_eq!(
            refusal(&append(&writer, 6)),
            "spool.changed",
            "{name} {len}"
        );
        assert_eq!(writer.stats().durable, 6);
        let text = lines("spool.failed", &dir).remove(0);
        assert!(text.contains(&format!("{len} bytes")), "{text}");
    }
}

#[test]
fn a_defect_on_the_commit_thread_fails_all_that_waits_and_frees_the_spool() {
    struct Panics;
    impl Settle for Panics {
        fn settle(&self, _: &[u64]) {
            panic!("a bug in a link");
        }
        fn failed(&self, _: &SpoolError) {
            panic!("another one");
        }
    }
    keep();
    let (_temp, dir) = temp();
    let options = WriterOptions {
        acks: Some("etl".to_owned()),
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    let held = Arc::new(Told::default());
    writer.append(block(0, 3), held.clone(), 1, Promise::Committed);
    assert!(writer.flush(WAIT));
    let beside = Arc::new(Told::default());
    writer.append_all([
        Handed {
            block: block(3, 3),
            settle: Arc::new(Panics),
            token: 0,
            promise: Promise::Durable,
        },
        Handed {
            block: block(6, 3),
            settle: beside.clone(),
            token: 1,
            promise: Promise::Durable,
        },
    ]);
    for told in [&beside, &held] {
        assert_eq!(refusal(told), "spool.panic");
    }
    assert!(!writer.flush(WAIT));
    assert_eq!(writer.stats().state, WriterState::Failed);
    assert_eq!(refusal(&append(&writer, 9)), "spool.panic");
    let line = lines("spool.failed", &dir).remove(0);
    assert!(line.contains("a bug in a link"), "{line}");
    // The lock is released with the thread; durable events are kept.
    until("the lock", || {
        Writer::open(&dir, WriterOptions::default()).is_ok()
    });
    assert_eq!(open(&dir).stats().durable, 9);
}

#[test]
fn a_copy_from_a_backup_is_noticed_by_its_consumers_marks() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    writer.close(WAIT);
    let backup = dir.with_extension("backup");
    copy(&dir, &backup);
    let writer = open(&dir);
    fill(&writer, 3, 2);
    writer.close(WAIT);
    Spool::open(&dir).unwrap().commit_mark("etl", 9).unwrap();
    let marks = dir.join("consumers/etl.json");
    fs::copy(&marks, backup.join("consumers/etl.json")).unwrap();
    for _ in 0..4 {
        let error = Writer::open(&backup, WriterOptions::default()).unwrap_err();
        assert_eq!(error.code(), "spool.restored");
        let text = error.to_string();
        for part in [
            "ends at position 3",
            "at position 9",
            "\"etl\"",
            "ackline spool adopt",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let error = mend(&backup, Access::default(), false).unwrap_err();
        assert_eq!(error.code(), "spool.restored");
    }
    let reader = Spool::open(&backup).unwrap();
    let lease = reader.lease("etl", "", Duration::ZERO, None);
    assert_eq!(lease.unwrap_err().code(), "spool.restored");
    adopt(&backup, Access::default()).unwrap();
    let writer = open(&backup);
    fill(&writer, 3, 1);
    assert_eq!(
        positions(&batches(&backup, 0..6, 1, 9)),
        (0..6).collect::<Vec<_>>()
    );
}

#[test]
fn an_index_that_power_loss_left_beside_a_stale_mark_costs_nothing() {
    let ways: [Way; 4] = [
        ("a bit of the header", |dir| {
            let mut index = fs::read(dir.join(INDEX)).unwrap();
            index[40] ^= 1;
            fs::write(dir.join(INDEX), index).unwrap();
        }),
        ("no index", |dir| fs::remove_file(dir.join(INDEX)).unwrap()),
        ("an empty index", |dir| {
            fs::write(dir.join(INDEX), []).unwrap();
        }),
        ("zeros", |dir| {
            fs::write(dir.join(INDEX), [0; 2_000]).unwrap();
        }),
    ];
    for (way, damage) in ways {
        for is_torn in [false, true] {
            let (_temp, dir) = temp();
            let writer = open(&dir);
            let stale = fs::read(dir.join("durable")).unwrap();
            fill(&writer, 0, 20);
            let killed = dir.with_extension("killed");
            copy(&dir, &killed);
            let mark = if is_torn { vec![0; 48] } else { stale };
            fs::write(killed.join("durable"), &mark).unwrap();
            damage(&killed);
            let (writer, recovered) = Writer::open(&killed, WriterOptions::default()).unwrap();
            assert_eq!((recovered.position, recovered.lost), (60, None), "{way}");
            fill(&writer, 60, 1);
            let read = positions(&batches(&killed, 0..63, 1, 99));
            assert_eq!(read, (0..63).collect::<Vec<_>>(), "{way}");
        }
    }
}

#[test]
fn a_position_survives_the_loss_of_any_one_file_that_holds_it() {
    for lost in ["durable", "start"] {
        let (_temp, dir) = temp();
        let options = WriterOptions {
            segment_bytes: 1,
            retain_committed: Duration::ZERO,
            ..WriterOptions::default()
        };
        let disk = Arc::new(RealDisk);
        let writer = Writer::open_on(&dir, options, disk, QUICK).unwrap().0;
        fill(&writer, 0, 4);
        let spool = Spool::open(&dir).unwrap();
        spool.commit_mark("etl", 12).unwrap();
        until("all but the last", || spool.first_kept().unwrap() >= 9);
        writer.close(WAIT);
        spool.remove_consumer("etl").unwrap();
        fs::remove_file(dir.join(lost)).unwrap();
        let (writer, recovered) = Writer::open(&dir, WriterOptions::default()).unwrap();
        assert_eq!((recovered.position, recovered.lost), (12, None), "{lost}");
        fill(&writer, 12, 1);
    }
}

#[test]
fn the_next_start_does_not_trust_the_remains_of_a_failed_sync() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let (_temp, dir) = temp();
        let disk = Recorder::default();
        let fail = disk.fail.clone();
        let writer = opened_on(
            &dir,
            disk,
            Pace {
                sweep: WAIT,
                ..QUICK
            },
        );
        fill(&writer, 0, 1);
        let fault = |step: &str, times| vec![(step.to_owned(), kind); times];
        // The sync of the index, then that of its cut, then no new segment.
        fail.lock().unwrap().extend(fault("sync idx", 2));
        fail.lock().unwrap().extend(fault("create idx", 100_000));
        let told = append(&writer, 3);
        until("the end of the tries", || {
            let state = writer.stats().state;
            [WriterState::Failed, WriterState::StalledDisk].contains(&state)
        });
        assert_eq!(told.seen.lock().unwrap().0, Vec::<u64>::new());
        let killed = dir.with_extension("killed");
        copy(&dir, &killed);
        let (writer, recovered) = Writer::open(&killed, WriterOptions::default()).unwrap();
        assert_eq!((recovered.position, recovered.lost), (3, None), "{kind}");
        fill(&writer, 3, 1);
        assert_eq!(
            positions(&batches(&killed, 0..6, 1, 9)),
            (0..6).collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_last_group_is_written_anew_before_it_is_trusted() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 3);
    let killed = dir.with_extension("killed");
    copy(&dir, &killed);
    let disk = Recorder::default();
    let steps = disk.steps.clone();
    let writer = opened_on(&killed, disk, Pace::default());
    let steps = steps.lock().unwrap().clone();
    let renamed = steps
        .iter()
        .position(|step| step == "rename arrows")
        .unwrap();
    assert_eq!(steps[renamed - 1], "sync tmp", "{steps:?}");
    // Its group is in a segment of its own now, which is read like any other.
    assert!(killed.join("segments/00000000000000000006.arrows").exists());
    fill(&writer, 9, 1);
    assert_eq!(
        positions(&batches(&killed, 0..12, 1, 99)),
        (0..12).collect::<Vec<_>>()
    );
}

#[test]
fn temporary_files_that_were_left_behind_are_cleared() {
    let (_temp, dir) = temp();
    drop(open(&dir));
    let left = [
        "spool.json.tmp",
        ".durable.4194999.tmp",
        "consumers/.etl.json.4194999.tmp",
        "segments/.00000000000000000003.arrows.4194999.tmp",
    ];
    for name in left {
        fs::copy(dir.join("spool.json"), dir.join(name)).unwrap();
    }
    drop(open(&dir));
    for name in left {
        assert!(!dir.join(name).exists(), "{name}");
    }
}

/// A machine whose clock is ahead by so many microseconds, and whose removals take a while.
#[derive(Default)]
struct Odd {
    ahead_us: Arc<Mutex<i64>>,
    removal: Duration,
}

impl Odd {
    fn writer(self, dir: &Path, options: WriterOptions, pace: Pace) -> Writer {
        let disk = Recorder {
            ahead_us: self.ahead_us,
            removal: self.removal,
            ..Recorder::default()
        };
        Writer::open_on(dir, options, Arc::new(disk), pace)
            .unwrap()
            .0
    }
}

#[test]
fn a_clock_that_is_set_removes_nothing_and_is_named() {
    keep();
    let (_temp, dir) = temp();
    let odd = Odd::default();
    let ahead_us = odd.ahead_us.clone();
    let options = WriterOptions {
        segment_bytes: 1,
        retain_committed: Duration::from_secs(7 * 86_400),
        retain_max: Some(Duration::from_secs(7 * 86_400)),
        ..WriterOptions::default()
    };
    let writer = odd.writer(&dir, options, QUICK);
    fill(&writer, 0, 20);
    Spool::open(&dir).unwrap().commit_mark("etl", 30).unwrap();
    *ahead_us.lock().unwrap() = 8 * 86_400_000_000;
    until("the line", || {
        !lines("retention.clock_step", &dir).is_empty()
    });
    let line = lines("retention.clock_step", &dir).remove(0);
    assert!(
        line.contains("step_s=691200") || line.contains("step_s=691199"),
        "{line}"
    );
    fill(&writer, 60, 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(Spool::open(&dir).unwrap().first_kept().unwrap(), 0);
    assert_eq!(lines("retention.clock_step", &dir).len(), 1);
}

#[test]
fn commits_do_not_wait_for_removals() {
    let (_temp, dir) = temp();
    let odd = Odd {
        removal: Duration::from_millis(20),
        ..Odd::default()
    };
    let options = WriterOptions {
        segment_bytes: 1,
        retain_committed: Duration::ZERO,
        ..WriterOptions::default()
    };
    let writer = odd.writer(
        &dir,
        options,
        Pace {
            sweep: Duration::from_millis(10),
            ..QUICK
        },
    );
    fill(&writer, 0, 100);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 300).unwrap();
    // For readers all of them are gone at once; their files take four seconds.
    until("the start", || spool.first_kept().unwrap() >= 297);
    let begun = Instant::now();
    fill(&writer, 300, 20);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let left = fs::read_dir(dir.join("segments")).unwrap().count();
    assert!(left > 50, "{left} files are left while it goes on");
}
