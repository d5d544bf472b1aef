//! Retention against a model, and the lines about the consumers that hold the space.

use proptest::prelude::*;

use super::*;
use crate::{
    commit::Pace,
    disk::RealDisk,
    retention::{Why, verdict},
    watch,
};

/// Checks all the time.
const QUICK: Pace = Pace {
    sweep: Duration::from_millis(1),
    recheck: Duration::from_millis(1),
    slow_commit: Duration::from_millis(50),
    say_again: Duration::from_secs(3_600),
};

fn quick(dir: &Path, options: WriterOptions) -> Writer {
    keep();
    Writer::open_on(dir, options, Arc::new(RealDisk), QUICK)
        .unwrap()
        .0
}

/// A segment for each group.
fn small() -> WriterOptions {
    WriterOptions {
        segment_bytes: 1,
        ..WriterOptions::default()
    }
}

#[test]
fn segments_that_all_consumers_have_finished_with_are_removed_at_their_age() {
    let (_temp, dir) = temp();
    let writer = quick(
        &dir,
        WriterOptions {
            retain_committed: Duration::ZERO,
            ..small()
        },
    );
    let spool = Spool::open(&dir).unwrap();
    fill(&writer, 0, 20);
    until("a sweep", || writer.stats().bytes > 0);
    assert_eq!(spool.first_kept().unwrap(), 0, "no consumer, nothing goes");
    spool.commit_mark("slow", 6).unwrap();
    spool.commit_mark("fast", 60).unwrap();
    until("the first two", || spool.first_kept().unwrap() == 6);
    until("the lines", || lines("retention.retired", &dir).len() == 2);
    spool.commit_mark("slow", 8).unwrap();
    spool.commit_mark("slow", 9).unwrap();
    until("the third", || spool.first_kept().unwrap() == 9);
    until("the stats", || writer.stats().first_kept == 9);
}

#[test]
fn the_room_is_the_rest_of_the_budget_and_committed_segments_make_way_before_a_block_needs_it() {
    let (_temp, dir) = temp();
    let budget = WriterOptions::LEAST_BUDGET;
    let writer = quick(&dir, WriterOptions { budget, ..small() });
    let whole = writer.room();
    assert!(whole > budget / 2 && whole < budget, "{whole}");
    let mut groups = 0;
    while writer.room() > 0 {
        fill(&writer, 3 * groups, 1);
        groups += 1;
        let used = writer.stats().bytes;
        assert!(writer.room() <= budget - used, "{used}");
    }
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(spool.first_kept().unwrap(), 0, "no consumer, nothing goes");
    assert_eq!(writer.room(), 0);
    spool.commit_mark("etl", 3 * groups).unwrap();
    until("room", || writer.room() > 0);
    until("the eighth of the budget", || writer.stats().first_kept > 0);
    assert_eq!(writer.stats().state, WriterState::Ok, "no block has waited");
}

#[test]
fn committed_segments_stay_until_their_age() {
    let (_temp, dir) = temp();
    let writer = quick(&dir, small());
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 0).unwrap();
    fill(&writer, 0, 5);
    spool.commit_mark("etl", 15).unwrap();
    // Its line shows that sweeps have run.
    spool.commit_mark("old", 15).unwrap();
    let path = dir.join("consumers/old.json");
    edit(&path, "\"seen\":\"20", "\"seen\":\"19");
    until("sweeps", || !lines("consumer.stale", &dir).is_empty());
    assert_eq!(spool.first_kept().unwrap(), 0);
}

#[test]
fn the_maximum_age_removes_uncommitted_segments_and_names_the_losing_consumers() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        retain_max: Some(Duration::from_millis(1)),
        segment_age: Duration::from_millis(1),
        ..WriterOptions::default()
    };
    let writer = quick(&dir, options);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 0).unwrap();
    writer.append(block(0, 3), Arc::new(Told::default()), 0, Promise::Durable);
    until("its end", || spool.first_kept().unwrap() == 3);
    until("the line", || !lines("retention.max", &dir).is_empty());
    let line = &lines("retention.max", &dir)[0];
    assert!(
        line.contains("consumers=\"etl\"") && line.contains("from=0 to=3"),
        "{line}"
    );
    // Events that were removed on purpose are no problem of the spool, even if a consumer wanted
    // them.
    until("the note", || dir.join("retired").exists());
    let problems = || spool.verify(&mut |_, _| {}).unwrap().problems;
    assert_eq!(problems(), Vec::<String>::new());
    spool.remove_consumer("etl").unwrap();
    assert_eq!(problems(), Vec::<String>::new());
}

#[test]
fn an_idle_segment_is_ended_at_its_age() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        segment_age: Duration::from_millis(1),
        ..WriterOptions::default()
    };
    let writer = quick(&dir, options);
    writer.append(block(0, 3), Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let index = dir.join("segments/00000000000000000000.idx");
    until("the footer", || {
        fs::metadata(&index).unwrap().len() == 64 + 2 * 96
    });
}

#[test]
fn a_consumer_file_that_is_no_mark_retires_nothing() {
    let (_temp, dir) = temp();
    let writer = quick(
        &dir,
        WriterOptions {
            retain_committed: Duration::ZERO,
            ..small()
        },
    );
    let spool = Spool::open(&dir).unwrap();
    fs::write(dir.join("consumers/broken.json"), "{").unwrap();
    fill(&writer, 0, 3);
    spool.commit_mark("etl", 9).unwrap();
    until("the line", || {
        !lines("retention.marks_unread", &dir).is_empty()
    });
    assert_eq!(spool.first_kept().unwrap(), 0);
    fs::remove_file(dir.join("consumers/broken.json")).unwrap();
    until("its end", || spool.first_kept().unwrap() > 0);
}

#[test]
fn a_stall_names_the_consumer_that_holds_the_space_and_the_cure() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 40_000,
        ..WriterOptions::default()
    };
    let writer = quick(&dir, options.clone());
    let spool = Spool::open(&dir).unwrap();
    let stall = |writer: &Writer, from: u64| {
        // All at once: the end of the first segment does not depend on when the writer looks.
        writer.append_all((from..from + 100).map(|at| Handed {
            block: block(at * 100, 100),
            settle: Arc::new(Told::default()),
            token: at,
            promise: Promise::Durable,
        }));
        until("the stall", || {
            writer.stats().state == WriterState::StalledBudget
        });
    };
    stall(&writer, 0);
    until("the line", || {
        lines("spool.stalled_budget", &dir).len() == 1
    });
    let line = &lines("spool.stalled_budget", &dir)[0];
    assert!(
        line.contains("no consumer exists") && line.contains("consumers add"),
        "{line}"
    );
    // The slow one first: segments that only the fast one has finished with would be removed at
    // once.
    spool.commit_mark("slow", 100).unwrap();
    spool.commit_mark("fast", spool.durable().unwrap()).unwrap();
    drop(writer);
    let writer = quick(&dir, options);
    stall(&writer, spool.durable().unwrap() / 100);
    until("the line", || {
        lines("spool.stalled_budget", &dir).len() == 2
    });
    let line = &lines("spool.stalled_budget", &dir)[1];
    let lag = spool.lag(100).unwrap();
    let wanted = [
        "consumer=\"slow\"".to_owned(),
        format!("lag_events={} lag_bytes={}", lag.events, lag.bytes),
        format!("rm {} slow", dir.display()),
        format!("seek {} slow --to latest", dir.display()),
    ];
    for part in wanted {
        assert!(line.contains(&part), "{part}: {line}");
    }
    spool.remove_consumer("slow").unwrap();
    until("room", || spool.first_kept().unwrap() > 100);
    until("its line", || !lines("retention.early", &dir).is_empty());
}

#[test]
fn commits_that_do_not_come_are_said() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        acks: Some("etl".to_owned()),
        ..WriterOptions::default()
    };
    let writer = quick(&dir, options);
    let told = Arc::new(Told::default());
    writer.append(block(0, 3), told.clone(), 0, Promise::Committed);
    until("the line", || !lines("ack.commits_slow", &dir).is_empty());
    let line = &lines("ack.commits_slow", &dir)[0];
    assert!(
        line.contains("consumer=\"etl\"") && line.contains("mark=0 wanted=3"),
        "{line}"
    );
    fs::remove_file(dir.join("consumers/etl.json")).unwrap();
    until("that line", || !lines("ack.mark_unread", &dir).is_empty());
    Spool::open(&dir).unwrap().commit_mark("etl", 3).unwrap();
    until("its end", || told.seen.lock().unwrap().0 == [0]);
    assert_eq!(lines("ack.commits_slow", &dir).len(), 1);
}

#[test]
fn a_stale_consumer_is_said_once_and_when_it_is_back() {
    let (_temp, dir) = temp();
    let writer = quick(&dir, WriterOptions::default());
    fill(&writer, 0, 1);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 0).unwrap();
    let path = dir.join("consumers/etl.json");
    edit(&path, "\"seen\":\"20", "\"seen\":\"19");
    until("the line", || !lines("consumer.stale", &dir).is_empty());
    let line = &lines("consumer.stale", &dir)[0];
    assert!(
        line.contains("consumer=\"etl\"") && line.contains("lag_events=3"),
        "{line}"
    );
    spool.commit_mark("etl", 3).unwrap();
    until("its return", || !lines("consumer.awake", &dir).is_empty());
    assert_eq!(lines("consumer.stale", &dir).len(), 1);
}

/// A model of retention in a few lines.
fn model(
    kept: &[(u64, i64)],
    lowest: Option<u64>,
    free: usize,
    now: i64,
    (age, most): (i64, Option<i64>),
) -> usize {
    let gone = kept.iter().enumerate().take_while(|(at, (end, last))| {
        let old = now - last;
        let done = lowest.is_some_and(|mark| *end <= mark);
        (done && (old >= age || *at < free)) || most.is_some_and(|most| old >= most)
    });
    gone.count()
}

proptest! {
    #[test]
    fn retention_follows_its_model_and_spares_uncommitted_segments(
        sizes in prop::collection::vec((1_u64..50, 0_i64..100), 0..12),
        marks in prop::collection::vec(0_u64..400, 0..4),
        free in 0_usize..12,
        (age, most) in (0_i64..200, prop::option::of(0_i64..200)),
        late in -50_i64..300,
    ) {
        let (mut end, mut time) = (0, 0);
        let kept: Vec<(u64, i64)> = sizes.iter().map(|(events, later)| {
            end += events;
            time += later;
            (end, time)
        }).collect();
        let options = WriterOptions {
            retain_committed: Duration::from_micros(age.unsigned_abs()),
            retain_max: most.map(|most| Duration::from_micros(most.unsigned_abs())),
            ..WriterOptions::default()
        };
        let (lowest, now) = (marks.iter().copied().min(), time + late);
        let mut gone = 0;
        for (at, (end, last_us)) in kept.iter().enumerate() {
            let age = watch::age(now, *last_us, u64::MAX, 0);
            let Some(why) = verdict(*end, lowest, at < free, age, &options) else { break };
            prop_assert!(why == Why::Max || lowest.is_some_and(|mark| *end <= mark));
            prop_assert!(why != Why::Max || most.is_some());
            gone += 1;
        }
        let rules = (age, most);
        // A clock that was set back makes no event older than new.
        let clamped: Vec<_> = kept.iter().map(|(end, last)| (*end, (*last).min(now))).collect();
        prop_assert_eq!(gone, model(&clamped, lowest, free, now, rules));
    }
}

#[test]
fn a_sweep_never_passes_the_lowest_mark_whatever_happens() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 60_000,
        retain_committed: Duration::ZERO,
        ..small()
    };
    let writer = quick(&dir, options);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("a", 0).unwrap();
    spool.commit_mark("b", 0).unwrap();
    let (mut marks, mut state) = ([0_u64; 2], 12_345_u64);
    for at in 0..300 {
        writer.append(
            block(at * 3, 3),
            Arc::new(Told::default()),
            at,
            Promise::Durable,
        );
        until("a turn", || {
            writer.stats().queued_blocks == 0 || writer.stats().state == WriterState::StalledBudget
        });
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let which = usize::from(state >> 40 & 1 == 1);
        let durable = spool.durable().unwrap();
        marks[which] = (marks[which] + (state >> 50) % 12).min(durable);
        spool.commit_mark(["a", "b"][which], marks[which]).unwrap();
        let first = spool.first_kept().unwrap();
        let lowest = *marks.iter().min().unwrap();
        assert!(
            first <= lowest,
            "{first} is kept first, {lowest} is committed"
        );
    }
    assert!(spool.first_kept().unwrap() > 0);
}
