//! Consumers: one live reader each, and a mark that nobody else moves.

use serde_json::{Value, json};

use super::*;
use crate::{ConsumerState, Lease, format::rfc3339, now_us};

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
    spool.layout.consumers().join(format!("{name}.json"))
}

fn edit(spool: &Spool, name: &str, change: impl FnOnce(&mut Value)) {
    let path = file(spool, name);
    let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(&path, value.to_string()).unwrap();
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
        Spool::open(&spool.layout.dir)
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
fn a_lease_makes_its_consumer_where_it_is_told_or_not_at_all() {
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
fn a_lease_says_who_holds_it_and_when_it_ended() {
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
    fs::remove_file(spool.layout.consumers().join("prod.lock")).unwrap();
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
    fs::remove_file(spool.layout.consumers().join("prod.lock")).unwrap();
    spool.seek_consumer("prod", 6).unwrap();
    assert_eq!(lost.commit(3).unwrap_err().code(), "spool.stale_generation");
    assert_eq!(mark(&spool, "prod").committed, 6);
}

#[test]
fn a_seek_tells_what_is_skipped_and_repeated() {
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
fn a_file_that_is_no_mark_is_named() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    let path = file(&spool, "prod");
    let whole = fs::read(&path).unwrap();
    let json_end = whole.len() - 1;
    let named = |error: SpoolError| {
        assert_eq!(error.code(), "spool.corrupt");
        assert!(error.to_string().contains("consumers/prod.json"), "{error}");
    };
    for at in 0..json_end {
        fs::write(&path, &whole[..at]).unwrap();
        named(spool.consumers().unwrap_err());
        named(refused(&spool, "prod"));
        named(spool.seek_consumer("prod", 3).unwrap_err());
    }
    for (member, value) in [
        ("committed", json!(-1)),
        ("committed", json!("3")),
        ("committed", json!(1.5)),
        ("committed", json!(1_u64 << 63)),
        ("generation", json!([])),
        ("updated", json!("yesterday")),
        ("seen", json!(3)),
        ("holder", json!({})),
        ("uuid", json!(null)),
    ] {
        fs::write(&path, &whole).unwrap();
        edit(&spool, "prod", |all| all[member] = value.clone());
        named(spool.consumers().unwrap_err());
    }
    fs::write(&path, vec![0; whole.len()]).unwrap();
    named(spool.commit_mark("prod", 3).unwrap_err());
    assert!(
        spool.remove_consumer("prod").unwrap(),
        "what is no mark can be removed"
    );
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
    let recovered = Writer::open(&spool.layout.dir, WriterOptions::default())
        .unwrap()
        .1;
    assert_eq!((recovered.position, recovered.lost), (9, None));
}

#[test]
fn a_mark_of_the_release_before_is_read() {
    let (_temp, spool) = spool_of(9);
    let updated = "2026-11-21T12:00:00.000000Z";
    let text = json!({"format": 1, "uuid": spool.uuid(), "committed": 6, "updated": updated});
    fs::write(file(&spool, "prod"), text.to_string()).unwrap();
    let consumer = mark(&spool, "prod");
    assert_eq!((consumer.committed, consumer.generation), (6, 0));
    assert_eq!(rfc3339(consumer.updated_us), updated);
    assert_eq!(consumer.seen_us, consumer.updated_us);
    assert_eq!(lease(&spool, "prod").generation(), 1);
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
fn positions_below_a_mark_are_never_given_out_again() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 9).unwrap();
    edit(&spool, "prod", |value| value["committed"] = json!(60));
    fs::copy(file(&spool, "prod"), file(&spool, "bad")).unwrap();
    edit(&spool, "bad", |value| *value = json!([]));
    let dir = &spool.layout.dir;
    let (writer, recovered) = Writer::open(dir, WriterOptions::default()).unwrap();
    assert_eq!(recovered.position, 60);
    assert_eq!(recovered.lost, Some(crate::Lost { from: 9, to: 60 }));
    fill(&writer, 60, 1);
    writer.close(WAIT);
    let recovered = Writer::open(dir, WriterOptions::default()).unwrap().1;
    assert_eq!((recovered.position, recovered.lost), (63, None));
    assert_eq!(positions(&batches(dir, 60..63, 1, 9)), [60, 61, 62]);
    let lost = spool.read(&layouts(), 6..63, &ReadOptions::default());
    assert_eq!(lost.unwrap_err().code(), "spool.gap");
}

#[test]
fn a_mark_that_cannot_be_read_keeps_nobody_from_writing() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 9).unwrap();
    edit(&spool, "prod", |value| *value = json!([]));
    let (writer, recovered) = Writer::open(&spool.layout.dir, WriterOptions::default()).unwrap();
    assert_eq!(recovered.position, 9);
    fill(&writer, 9, 1);
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
    let lock = spool.layout.consumers().join("prod.lock");
    fs::remove_file(&lock).unwrap();
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
    // Whoever opens and closes the file in this process gives the lock up for all of it.
    let path = spool.layout.consumers().join("prod.lock");
    let text = json!({"generation": 2, "pid": 4, "since": rfc3339(0), "host": "elsewhere"});
    fs::write(path, text.to_string()).unwrap();
    let error = lost.commit(9).unwrap_err();
    assert_eq!(error.code(), "spool.stale_generation");
    assert!(
        error.to_string().contains("process 4 on host elsewhere"),
        "{error}"
    );
}

#[test]
fn what_was_retired_is_neither_a_mark_nor_skipped() {
    let (_temp, dir) = temp();
    let writer = open_segments(&dir, 4);
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    spool.add_consumer("prod", 2).unwrap();
    for first in [0, 3] {
        let path = spool.layout.segment(first);
        fs::remove_file(path.with_extension("idx")).unwrap();
        fs::remove_file(path).unwrap();
    }
    assert_eq!(
        spool.add_consumer("more", 5).unwrap_err().code(),
        "spool.gap"
    );
    assert_eq!(
        spool.seek_consumer("prod", 5).unwrap_err().code(),
        "spool.gap"
    );
    assert_eq!(mark(&spool, "prod").committed, 2);
    let sought = spool.seek_consumer("prod", 10).unwrap();
    assert_eq!((sought.from, sought.skipped, sought.repeated), (2, 4, 0));
}
