//! Files that are removed under a running writer: events that would be lost are not acknowledged.

use super::recorder::Recorder;
use super::*;
use crate::{commit::Pace, disk::RealDisk};

/// A way to remove files, and the file that is missed first.
type Way = (&'static str, fn(&Path), &'static str);

fn segment(dir: &Path) -> PathBuf {
    dir.join("segments/00000000000000000000.arrows")
}

/// Puts a copy in the place of a file.
fn replace(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    fs::rename(copy, path).unwrap();
}

/// Removes a directory in which the writer may just make a file.
fn remove_all(dir: &Path) {
    until("the removal", || {
        fs::remove_dir_all(dir).is_ok() || !dir.exists()
    });
}

const SEGMENT: &str = "segments/00000000000000000000.arrows";
const INDEX: &str = "segments/00000000000000000000.idx";

const WAYS: &[Way] = &[
    ("rm -r DIR", remove_all, SEGMENT),
    (
        "mv DIR",
        |dir| fs::rename(dir, dir.with_extension("b")).unwrap(),
        SEGMENT,
    ),
    (
        "mv DIR, a new one",
        |dir| {
            fs::rename(dir, dir.with_extension("b")).unwrap();
            open(dir).close(WAIT);
        },
        SEGMENT,
    ),
    (
        "rm -r segments",
        |dir| fs::remove_dir_all(dir.join("segments")).unwrap(),
        SEGMENT,
    ),
    (
        "mv segments",
        |dir| fs::rename(dir.join("segments"), dir.join("away")).unwrap(),
        SEGMENT,
    ),
    (
        "rm segment",
        |dir| fs::remove_file(segment(dir)).unwrap(),
        SEGMENT,
    ),
    (
        "rm index",
        |dir| fs::remove_file(dir.join(INDEX)).unwrap(),
        INDEX,
    ),
    (
        "rm durable",
        |dir| fs::remove_file(dir.join("durable")).unwrap(),
        "durable",
    ),
    (
        "rm spool.json",
        |dir| fs::remove_file(dir.join("spool.json")).unwrap(),
        "spool.json",
    ),
    (
        "rm lock",
        |dir| fs::remove_file(dir.join("lock")).unwrap(),
        "lock",
    ),
    ("cp segment", |dir| replace(&segment(dir)), SEGMENT),
    ("cp index", |dir| replace(&dir.join(INDEX)), INDEX),
    ("cp durable", |dir| replace(&dir.join("durable")), "durable"),
    (
        "cp spool.json",
        |dir| replace(&dir.join("spool.json")),
        "spool.json",
    ),
];

/// Checks that a failure that names the file was reported, and nothing else.
fn refused(told: &Told, (way, _, missed): &Way, dir: &Path) {
    // A flush may return before that call.
    until("the news", || !told.seen.lock().unwrap().1.is_empty());
    let (settled, failed) = told.seen.lock().unwrap().clone();
    assert_eq!(settled, Vec::<u64>::new(), "{way}");
    assert_eq!(failed[0].code(), "spool.moved", "{way}");
    let text = failed[0].to_string();
    let named = match *way {
        // Its files go one after the other.
        "rm -r DIR" => dir.display().to_string(),
        _ => format!("{} ", dir.join(missed).display()),
    };
    assert!(text.starts_with(&named), "{way}: {text}");
    assert_eq!(lines("spool.failed", dir).len(), 1, "{way}");
}

#[test]
fn nothing_is_settled_when_a_written_file_is_not_in_its_place() {
    keep();
    for way in WAYS {
        let (_temp, dir) = temp();
        let writer = open(&dir);
        fill(&writer, 0, 1);
        way.1(&dir);
        let told = Arc::new(Told::default());
        writer.append(block(3, 3), told.clone(), 1, Promise::Durable);
        assert!(!writer.flush(WAIT), "{}", way.0);
        assert_eq!(writer.stats().state, WriterState::Failed, "{}", way.0);
        assert_eq!(writer.stats().durable, 3, "{}", way.0);
        refused(&told, way, &dir);
        // And no later block either.
        let told = Arc::new(Told::default());
        writer.append(block(3, 3), told.clone(), 2, Promise::Durable);
        assert_eq!(told.seen.lock().unwrap().1[0].code(), "spool.moved");
        writer.close(WAIT);
    }
}

#[test]
fn a_file_removed_during_a_write_is_missed_before_the_group_is_settled() {
    keep();
    for step in ["write arrows", "sync arrows", "sync idx"] {
        for way in WAYS {
            let (_temp, dir) = temp();
            let disk = Recorder::default();
            let then = disk.then.clone();
            let options = WriterOptions::default();
            let opened = Writer::open_on(&dir, options, Arc::new(disk), Pace::default());
            let writer = opened.unwrap().0;
            fill(&writer, 0, 1);
            let (take_away, at) = (way.1, dir.clone());
            *then.lock().unwrap() = Some((step.to_owned(), Box::new(move || take_away(&at))));
            let told = Arc::new(Told::default());
            writer.append(block(3, 3), told.clone(), 1, Promise::Durable);
            assert!(!writer.flush(WAIT), "{step}: {}", way.0);
            refused(&told, way, &dir);
            assert_eq!(lines("spool.write_failed", &dir).len(), 0, "{step}");
            writer.close(WAIT);
        }
    }
}

#[test]
fn blocks_that_wait_for_a_commit_fail_when_their_events_are_gone() {
    keep();
    for way in WAYS {
        let (_temp, dir) = temp();
        let options = WriterOptions {
            acks: Some("lake".to_owned()),
            ..WriterOptions::default()
        };
        let (writer, _) = Writer::open(&dir, options).unwrap();
        let told = Arc::new(Told::default());
        writer.append(block(0, 3), told.clone(), 1, Promise::Committed);
        assert!(writer.flush(WAIT), "{}", way.0);
        way.1(&dir);
        until("the failure", || {
            writer.stats().state == WriterState::Failed && !told.seen.lock().unwrap().1.is_empty()
        });
        refused(&told, way, &dir);
        assert_eq!(writer.stats().uncommitted_blocks, 0, "{}", way.0);
        writer.close(WAIT);
    }
}

#[test]
fn a_directory_that_was_moved_away_opens_again_with_all_that_was_acknowledged() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let away = dir.with_extension("b");
    fs::rename(&dir, &away).unwrap();
    let told = Arc::new(Told::default());
    writer.append(block(6, 3), told, 1, Promise::Durable);
    assert!(!writer.flush(WAIT));
    writer.close(WAIT);
    let (again, recovered) = Writer::open(&away, WriterOptions::default()).unwrap();
    assert_eq!(recovered.lost, None);
    assert!(recovered.position >= 6);
    fill(&again, recovered.position, 1);
    let end = recovered.position + 3;
    let got = positions(&batches(&away, 0..end, 1, 99));
    assert_eq!(got, (0..i64::try_from(end).unwrap()).collect::<Vec<_>>());
    let report = Spool::open(&away).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn a_link_to_where_the_directory_was_moved_is_the_same_place() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    let away = dir.with_extension("b");
    fs::rename(&dir, &away).unwrap();
    std::os::unix::fs::symlink(&away, &dir).unwrap();
    fill(&writer, 3, 1);
    assert_eq!(writer.stats().state, WriterState::Ok);
}

#[test]
fn missing_segments_that_a_consumer_wants_are_a_problem() {
    let problems = |dir: &Path| {
        let spool = Spool::open(dir).unwrap();
        spool.verify(&mut |_, _| {}).unwrap().problems
    };
    let (_temp, dir) = temp();
    let writer = open_segments(&dir, 3);
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("done", 9).unwrap();
    spool.commit_mark("lake", 2).unwrap();
    assert_eq!(problems(&dir), Vec::<String>::new());
    let take_away = |first: u64| {
        let path = dir.join(format!("segments/{first:020}.arrows"));
        fs::remove_file(path.with_extension("idx")).unwrap();
        fs::remove_file(path).unwrap();
    };
    take_away(0);
    // The spool names its own start: a missing position above that is a hole.
    let found = problems(&dir);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("positions 0 to 3"), "{found:?}");
    let error = read_error(&spool, 0..9);
    assert_eq!(error.code(), "spool.gap");
    take_away(3);
    take_away(6);
    let found = problems(&dir);
    assert!(found[0].contains("positions 0 to 9"), "{found:?}");
    // Mending notes it, and the positions are never given out again.
    crate::mend(&dir, crate::Access::default(), false).unwrap();
    assert_eq!(problems(&dir), Vec::<String>::new());
    let losses = Spool::open(&dir).unwrap().losses().unwrap();
    let ranges: Vec<_> = losses.iter().map(|loss| (loss.from, loss.to)).collect();
    assert_eq!(ranges, [(0, 9)]);
    assert_eq!(open(&dir).stats().durable, 9);
}

#[test]
fn a_budget_in_which_nothing_works_is_refused_by_name() {
    let (_temp, dir) = temp();
    let of = |budget| WriterOptions {
        budget,
        ..WriterOptions::default()
    };
    let error = Writer::open(&dir, of(65_535)).unwrap_err();
    assert_eq!(error.code(), "spool.budget");
    let text = error.to_string();
    assert!(
        text.contains("--budget") && text.contains("65536 bytes (64KiB)"),
        "{text}"
    );
    assert!(!dir.exists(), "nothing was made");
    Writer::open(&dir, of(65_536)).unwrap();
}

#[test]
fn a_window_larger_than_the_budget_is_reported_and_taken_when_nothing_else_is_kept() {
    keep();
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 64 << 10,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    fill(&writer, 0, 1);
    let told = Arc::new(Told::default());
    writer.append(block(3, 10_000), told.clone(), 1, Promise::Durable);
    until("the line", || {
        !lines("spool.stalled_budget", &dir).is_empty()
    });
    let line = lines("spool.stalled_budget", &dir).remove(0);
    assert!(
        line.contains("a window of 92810 bytes") && line.contains("--budget 65536"),
        "{line}"
    );
    Spool::open(&dir).unwrap().commit_mark("lake", 3).unwrap();
    assert!(writer.flush(WAIT));
    assert_eq!(told.seen.lock().unwrap().0, [1]);
}

#[test]
fn a_missing_consumer_that_acknowledges_is_named_with_the_cure() {
    keep();
    let (_temp, dir) = temp();
    let options = WriterOptions {
        acks: Some("lake".to_owned()),
        ..WriterOptions::default()
    };
    let disk = Arc::new(RealDisk);
    let writer = Writer::open_on(&dir, options, disk, Pace::default())
        .unwrap()
        .0;
    let told = Arc::new(Told::default());
    let spool = Spool::open(&dir).unwrap();
    spool.remove_consumer("lake").unwrap();
    writer.append(block(0, 3), told.clone(), 1, Promise::Committed);
    until("the line", || !lines("ack.mark_unread", &dir).is_empty());
    let line = lines("ack.mark_unread", &dir).remove(0);
    let cure = format!("ackline spool consumers add {} lake", dir.display());
    assert!(
        line.contains("consumer=\"lake\"") && line.contains(&cure),
        "{line}"
    );
    spool.add_consumer("lake", 0).unwrap();
    spool.commit_mark("lake", 3).unwrap();
    until("the ack", || told.seen.lock().unwrap().0 == [1]);
}

#[test]
fn a_consumer_that_was_not_added_leaves_nothing_behind() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(
        spool.add_consumer("b", 99).unwrap_err().code(),
        "spool.behind_checkpoint"
    );
    assert_eq!(
        spool.seek_consumer("b", 1).unwrap_err().code(),
        "spool.no_consumer"
    );
    assert!(!spool.remove_consumer("b").unwrap());
    assert_eq!(fs::read_dir(dir.join("consumers")).unwrap().count(), 0);
    spool.add_consumer("b", 1).unwrap();
    assert_eq!(
        spool.add_consumer("b", 99).unwrap_err().code(),
        "spool.consumer_exists"
    );
    assert_eq!(fs::read_dir(dir.join("consumers")).unwrap().count(), 2);
}

#[test]
fn a_writer_that_waits_for_space_notices_that_its_files_are_gone() {
    keep();
    for way in WAYS {
        let (_temp, dir) = temp();
        let options = WriterOptions {
            budget: 30_000,
            segment_bytes: 30_000,
            ..WriterOptions::default()
        };
        let writer = open_small(&dir, options);
        fill(&writer, 0, 1);
        let told = Arc::new(Told::default());
        writer.append(block(3, 2_000), told.clone(), 1, Promise::Durable);
        until("the stall", || {
            writer.stats().state == WriterState::StalledBudget
        });
        way.1(&dir);
        until("the failure", || !told.seen.lock().unwrap().1.is_empty());
        assert_eq!(writer.stats().state, WriterState::Failed, "{}", way.0);
        refused(&told, way, &dir);
        writer.close(WAIT);
    }
}
