//! Consumers: one live reader each, and a mark that no other process moves.

use serde_json::{Value, json};

use super::*;
use crate::{
    ConsumerState, Lease, consumers, folder,
    lock::{self, Lock},
    mark::Mark,
    now_us, rfc3339, sealed,
    start::{Start, epoch_hex},
};

mod retention;
mod unsound;

fn spool_of(events: u64) -> (tempfile::TempDir, Spool) {
    let (temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, events / 3);
    writer.close(WAIT);
    (temp, Spool::open(&dir).unwrap())
}

fn lease(spool: &Spool, name: &str) -> Lease {
    spool
        .lease(name, "a test", Duration::ZERO, Some(0))
        .unwrap()
}

fn refused(spool: &Spool, name: &str) -> SpoolError {
    spool
        .lease(name, "another", Duration::ZERO, None)
        .unwrap_err()
}

fn file(spool: &Spool, name: &str) -> PathBuf {
    spool.folder.dir().join(format!("consumers/{name}.json"))
}

fn lock_path(spool: &Spool, name: &str) -> PathBuf {
    spool.folder.dir().join(format!("consumers/{name}.lock"))
}

/// Changes the contents of a mark, with a matching checksum.
fn edit(spool: &Spool, name: &str, change: impl FnOnce(&mut Value)) {
    let path = file(spool, name);
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("crc");
    change(&mut value);
    fs::write(&path, sealed::encode(&value)).unwrap();
}

fn durable(spool: &Spool) -> Mark {
    let root = spool.folder.root();
    let file = root.read_file(folder::MARK).unwrap();
    Mark::read(&file, &root.join(folder::MARK)).unwrap()
}

/// Retires everything below `first`, as retention does.
/// Moves the start of a spool; its files stay.
pub(super) fn retire(spool: &Spool, first: u64) {
    let durable = durable(spool);
    let start = Start {
        uuid: spool.uuid().to_owned(),
        first,
        position: durable.position,
        epoch: durable.epoch,
        watched_us: durable.watched_us,
    };
    start.write(&spool.folder).unwrap();
}

fn mark(spool: &Spool, name: &str) -> crate::Consumer {
    let mut all = spool.consumers().unwrap();
    all.retain(|consumer| consumer.name == name);
    all.remove(0)
}

#[test]
fn a_second_reader_is_refused_naming_the_first() {
    let (_temp, spool) = spool_of(6);
    let first = lease(&spool, "prod");
    let error = refused(&spool, "prod");
    assert_eq!(error.code(), "spool.consumer_busy");
    let text = error.to_string();
    let pid = format!("process {} ", std::process::id());
    assert!(text.contains("\"prod\"") && text.contains(&pid), "{text}");
    assert!(
        text.contains("(a test)") && text.contains("since 2"),
        "{text}"
    );
    assert_eq!(
        Spool::open(spool.folder.dir())
            .unwrap()
            .consumers()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        refused(&spool, "prod").code(),
        "spool.consumer_busy",
        "looking is not letting go"
    );
    drop(first);
    assert_eq!(lease(&spool, "prod").generation(), 2);
}

#[test]
fn a_reader_waits_for_the_one_before() {
    let (_temp, spool) = spool_of(6);
    let first = lease(&spool, "prod");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| spool.lease("prod", "second", WAIT, None).unwrap());
        first.commit(3).unwrap();
        drop(first);
        let second = second.join().unwrap();
        assert_eq!(
            (second.generation(), second.committed().unwrap()),
            (2, Some(3))
        );
    });
}

#[test]
fn a_lease_makes_its_consumer_at_the_given_position_or_not_at_all() {
    let (_temp, spool) = spool_of(6);
    let made = spool.lease("made", "", Duration::ZERO, Some(3)).unwrap();
    assert_eq!(mark(&spool, "made").committed, 3);
    assert_eq!(made.generation(), 1);
    let tail = spool.lease("later", "", Duration::ZERO, None).unwrap();
    assert_eq!(tail.committed().unwrap(), None);
    assert!(!file(&spool, "later").exists());
    assert_eq!(spool.consumers().unwrap().len(), 1);
    tail.commit(6).unwrap();
    let consumer = mark(&spool, "later");
    assert_eq!(
        (consumer.committed, consumer.generation, consumer.live),
        (6, 1, true)
    );
    let above = spool.lease("above", "", Duration::ZERO, Some(7));
    assert_eq!(above.unwrap_err().code(), "spool.behind_checkpoint");
}

#[test]
fn a_lease_names_its_holder_and_its_end() {
    let (_temp, spool) = spool_of(6);
    let held = lease(&spool, "prod");
    let consumer = mark(&spool, "prod");
    assert_eq!(consumer.state(), ConsumerState::Live);
    let holder = consumer.holder.unwrap();
    assert_eq!(
        (holder.pid, holder.what.as_str()),
        (std::process::id(), "a test")
    );
    assert!(holder.start > 0 && now_us() - holder.since_us < 60_000_000);
    held.commit(3).unwrap();
    assert_eq!(mark(&spool, "prod").holder.unwrap().pid, std::process::id());
    drop(held);
    let consumer = mark(&spool, "prod");
    assert_eq!(consumer.state(), ConsumerState::Idle);
    assert_eq!(
        (consumer.holder, consumer.committed, consumer.generation),
        (None, 3, 1)
    );
}

#[test]
fn a_reader_that_lost_its_lock_moves_nothing() {
    let (_temp, spool) = spool_of(9);
    let lost = lease(&spool, "prod");
    lost.commit(3).unwrap();
    fs::remove_file(lock_path(&spool, "prod")).unwrap();
    let newer = lease(&spool, "prod");
    assert_eq!(newer.generation(), 2);
    let error = lost.commit(9).unwrap_err();
    assert_eq!(error.code(), "spool.stale_generation");
    let text = error.to_string();
    assert!(
        text.contains("generation 1") && text.contains("generation 2"),
        "{text}"
    );
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    drop(lost);
    let consumer = mark(&spool, "prod");
    assert!(
        consumer.holder.is_some() && consumer.live,
        "the old one takes nothing along"
    );
    newer.commit(6).unwrap();
    assert_eq!(mark(&spool, "prod").committed, 6);
}

#[test]
fn a_mark_of_a_newer_generation_is_not_overwritten() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    edit(&spool, "prod", |value| value["generation"] = json!(7));
    let error = held.commit(9).unwrap_err();
    assert_eq!(error.code(), "spool.stale_generation");
    assert!(error.to_string().contains("generation 7"), "{error}");
    drop(held);
    assert_eq!(mark(&spool, "prod").committed, 0);
    assert_eq!(lease(&spool, "prod").generation(), 8);
}

#[test]
fn a_consumer_removed_by_hand_does_not_come_back() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    fs::remove_file(file(&spool, "prod")).unwrap();
    assert_eq!(held.commit(3).unwrap_err().code(), "spool.no_consumer");
    drop(held);
    assert_eq!(spool.consumers().unwrap(), []);
}

#[test]
fn tools_are_refused_while_a_reader_is_live() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    let errors = [
        spool.seek_consumer("prod", 3).unwrap_err(),
        spool.remove_consumer("prod").unwrap_err(),
        spool.add_consumer("prod", 3).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.consumer_busy");
    }
    held.commit(6).unwrap();
    drop(held);
    assert_eq!(
        spool.add_consumer("prod", 3).unwrap_err().code(),
        "spool.consumer_exists"
    );
    assert!(spool.remove_consumer("prod").unwrap());
    assert!(!spool.remove_consumer("prod").unwrap());
    assert_eq!(
        spool.seek_consumer("prod", 3).unwrap_err().code(),
        "spool.no_consumer"
    );
    assert_eq!(
        lease(&spool, "prod").generation(),
        1,
        "a new one of that name"
    );
}

#[test]
fn a_lease_ends_with_a_seek_it_did_not_see() {
    let (_temp, spool) = spool_of(9);
    let lost = lease(&spool, "prod");
    fs::remove_file(lock_path(&spool, "prod")).unwrap();
    spool.seek_consumer("prod", 6).unwrap();
    assert_eq!(lost.commit(3).unwrap_err().code(), "spool.stale_generation");
    assert_eq!(mark(&spool, "prod").committed, 6);
}

#[test]
fn a_seek_returns_the_skipped_and_repeated_events() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    let there = spool.seek_consumer("prod", 8).unwrap();
    assert_eq!(
        (there.from, there.to, there.skipped, there.repeated),
        (3, 8, 5, 0)
    );
    let back = spool.seek_consumer("prod", 2).unwrap();
    assert_eq!(
        (back.from, back.to, back.skipped, back.repeated),
        (8, 2, 0, 6)
    );
    assert_eq!(mark(&spool, "prod").committed, 2);
}

#[test]
fn a_mark_is_never_above_the_durable_position() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 9).unwrap();
    let errors = [
        spool.add_consumer("above", 10).unwrap_err(),
        spool.seek_consumer("prod", 10).unwrap_err(),
        spool.commit_mark("prod", 10).unwrap_err(),
        lease(&spool, "prod").commit(10).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.behind_checkpoint");
    }
    assert_eq!(mark(&spool, "prod").committed, 9);
}

#[test]
fn a_mark_of_another_spool_is_refused() {
    let (_temp, spool) = spool_of(9);
    let (_temp, other) = spool_of(9);
    other.add_consumer("prod", 9).unwrap();
    fs::copy(file(&other, "prod"), file(&spool, "prod")).unwrap();
    let error = spool.consumers().unwrap_err();
    assert_eq!(error.code(), "spool.replaced");
    assert!(error.to_string().contains(other.uuid()), "{error}");
    assert_eq!(refused(&spool, "prod").code(), "spool.replaced");
    edit(&spool, "prod", |value| value["committed"] = json!(60));
    let recovered = Writer::open(spool.folder.dir(), WriterOptions::default())
        .unwrap()
        .1;
    assert_eq!((recovered.position, recovered.lost), (9, None));
}

#[test]
fn a_consumer_is_stale_after_an_hour_without_a_reader() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    assert_eq!(mark(&spool, "prod").state(), ConsumerState::Idle);
    let hour = 3_600_000_000;
    edit(&spool, "prod", |value| {
        value["seen"] = json!(rfc3339(now_us() - hour));
    });
    assert_eq!(mark(&spool, "prod").state(), ConsumerState::Stale);
    spool.seek_consumer("prod", 6).unwrap();
    assert_eq!(
        mark(&spool, "prod").state(),
        ConsumerState::Stale,
        "a tool is no reader"
    );
    let held = lease(&spool, "prod");
    assert_eq!(mark(&spool, "prod").state(), ConsumerState::Live);
    drop(held);
    assert_eq!(mark(&spool, "prod").state(), ConsumerState::Idle);
}

#[test]
fn a_lock_that_was_let_go_is_free_though_a_child_has_inherited_it() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let spool = Spool::open(&dir).unwrap();
    let held = lease(&spool, "prod");
    let _child = [
        lock::inherited(spool.folder.root(), folder::LOCK),
        lock::inherited(spool.folder.consumers().unwrap(), "prod.lock"),
    ];
    writer.close(WAIT);
    drop(held);
    assert_eq!(mark(&spool, "prod").state(), ConsumerState::Idle);
    lease(&spool, "prod");
    open(&dir).close(WAIT);
}

#[test]
fn marks_without_a_lease_keep_generation_and_holder() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    spool.commit_mark("prod", 6).unwrap();
    let consumer = mark(&spool, "prod");
    assert_eq!(
        (consumer.committed, consumer.generation, consumer.live),
        (6, 1, true)
    );
    held.commit(9).unwrap();
}

#[test]
fn threads_that_come_and_go_never_hold_a_consumer_at_once() {
    let (_temp, spool) = spool_of(9);
    let held = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let lease = spool.lease("prod", "", WAIT, Some(0)).unwrap();
                    assert!(!held.swap(true, order));
                    spool.consumers().unwrap();
                    lease.commit(3).unwrap();
                    held.store(false, order);
                }
            });
        }
    });
    assert_eq!(mark(&spool, "prod").generation, 20);
}

#[test]
fn generations_count_also_readers_that_left_no_mark() {
    let (_temp, spool) = spool_of(9);
    drop(spool.lease("prod", "", Duration::ZERO, None).unwrap());
    let second = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    assert_eq!(second.generation(), 2);
    second.commit(3).unwrap();
    assert_eq!(mark(&spool, "prod").generation, 2);
}

#[test]
fn a_reader_that_lost_its_lock_before_its_first_mark_makes_none() {
    let (_temp, spool) = spool_of(9);
    let lost = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    fs::remove_file(lock_path(&spool, "prod")).unwrap();
    let newer = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    assert_eq!(lost.commit(9).unwrap_err().code(), "spool.stale_generation");
    newer.commit(3).unwrap();
    assert_eq!(lost.commit(9).unwrap_err().code(), "spool.stale_generation");
    assert_eq!(mark(&spool, "prod").committed, 3);
}

#[test]
fn a_reader_whose_lock_names_another_moves_nothing() {
    let (_temp, spool) = spool_of(9);
    let lost = lease(&spool, "prod");
    let text = json!({
        "format": 2, "generation": 2, "pid": 4, "since": rfc3339(0), "host": "elsewhere",
    });
    fs::write(lock_path(&spool, "prod"), sealed::encode(&text)).unwrap();
    let error = lost.commit(9).unwrap_err();
    assert_eq!(error.code(), "spool.stale_generation");
    assert!(
        error.to_string().contains("process 4 on host elsewhere"),
        "{error}"
    );
}

#[test]
fn retired_events_are_neither_a_mark_nor_skipped() {
    let (_temp, dir) = temp();
    let writer = open_segments(&dir, 4);
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    spool.add_consumer("prod", 2).unwrap();
    let held = spool.lease("held", "", Duration::ZERO, Some(9)).unwrap();
    retire(&spool, 6);
    let errors = [
        spool.add_consumer("more", 5).unwrap_err(),
        spool.seek_consumer("prod", 5).unwrap_err(),
        spool.lease("new", "", Duration::ZERO, Some(5)).unwrap_err(),
        held.commit(5).unwrap_err(),
        spool.commit_mark("held", 5).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.gap");
    }
    assert_eq!(mark(&spool, "prod").committed, 2);
    assert_eq!(mark(&spool, "held").committed, 9);
    held.commit(6).unwrap();
    let sought = spool.seek_consumer("prod", 10).unwrap();
    assert_eq!((sought.from, sought.skipped, sought.repeated), (2, 4, 0));
}

#[test]
fn temporary_files_are_no_consumers() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    for name in [".prod.json.4.tmp", ".hidden.json", ".json", ".lock"] {
        fs::write(spool.folder.dir().join("consumers").join(name), "x").unwrap();
    }
    let names = |kind| consumers::names(&spool.folder, kind).unwrap();
    assert_eq!(names(consumers::MARK), ["prod"]);
    assert_eq!(names(consumers::LOCK), ["prod"]);
}
