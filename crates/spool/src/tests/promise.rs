//! Acknowledgements that wait for a consumer's commit.

use super::*;
use crate::WriterStats;

/// Distinguishes landed from settled blocks.
#[derive(Default)]
struct Both {
    settled: Told,
    landed: Told,
}

impl Settle for Both {
    fn settle(&self, tokens: &[u64]) {
        self.settled.settle(tokens);
    }

    fn landed(&self, tokens: &[u64]) {
        self.landed.settle(tokens);
    }

    fn failed(&self, error: &SpoolError) {
        self.settled.failed(error);
    }
}

impl Both {
    fn settled(&self) -> Vec<u64> {
        self.settled.seen.lock().unwrap().0.clone()
    }

    fn landed(&self) -> Vec<u64> {
        self.landed.seen.lock().unwrap().0.clone()
    }
}

fn with_acks(dir: &Path) -> Writer {
    let options = WriterOptions {
        acks: Some("etl".to_owned()),
        ..WriterOptions::default()
    };
    Writer::open(dir, options).unwrap().0
}

fn append(writer: &Writer, link: &Arc<Both>, blocks: Range<u64>, promise: Promise) {
    for at in blocks {
        writer.append(block(at * 3, 3), link.clone(), at, promise);
        assert!(writer.flush(WAIT));
    }
}

fn held(writer: &Writer) -> (usize, u64) {
    let WriterStats {
        uncommitted_blocks,
        uncommitted_events,
        ..
    } = writer.stats();
    (uncommitted_blocks, uncommitted_events)
}

#[test]
fn a_committed_block_is_settled_when_the_mark_has_passed_it() {
    let (_temp, dir) = temp();
    let writer = with_acks(&dir);
    let spool = Spool::open(&dir).unwrap();
    let link = Arc::new(Both::default());
    append(&writer, &link, 0..3, Promise::Committed);
    assert_eq!(link.landed(), [0, 1, 2]);
    assert_eq!(held(&writer), (3, 9));
    assert_eq!(spool.durable().unwrap(), 9);
    // A mark inside a block does not settle it.
    for (mark, want) in [
        (3, vec![0]),
        (5, vec![0]),
        (8, vec![0, 1]),
        (9, vec![0, 1, 2]),
    ] {
        spool.commit_mark("etl", mark).unwrap();
        until("the settlement", || link.settled() == want);
        // A later look must not settle more: a look after this mark notifies the other link.
        let probe = Arc::new(Both::default());
        writer.append(block(0, 0), probe.clone(), 0, Promise::Durable);
        until("the probe", || probe.settled() == [0]);
        assert_eq!(link.settled(), want, "mark {mark}");
    }
    assert_eq!(held(&writer), (0, 0));
}

#[test]
fn another_consumers_mark_settles_nothing() {
    let (_temp, dir) = temp();
    let writer = with_acks(&dir);
    let spool = Spool::open(&dir).unwrap();
    let link = Arc::new(Both::default());
    append(&writer, &link, 0..1, Promise::Committed);
    spool.commit_mark("other", 3).unwrap();
    writer.close(Duration::from_millis(100));
    assert_eq!(link.settled(), [0_u64; 0]);
    assert!(link.settled.seen.lock().unwrap().1.is_empty());
}

#[test]
fn a_durable_promise_does_not_wait_for_the_commit() {
    let (_temp, dir) = temp();
    let writer = with_acks(&dir);
    let (slow, quick) = (Arc::new(Both::default()), Arc::new(Both::default()));
    append(&writer, &slow, 0..1, Promise::Committed);
    append(&writer, &quick, 1..2, Promise::Durable);
    assert_eq!((quick.settled(), quick.landed()), (vec![1], vec![]));
    assert_eq!((slow.settled(), slow.landed()), (vec![], vec![0]));
}

#[test]
fn an_empty_block_is_settled_in_its_turn_also_by_a_commit() {
    let (_temp, dir) = temp();
    let writer = with_acks(&dir);
    let link = Arc::new(Both::default());
    append(&writer, &link, 0..1, Promise::Committed);
    writer.append(block(3, 0), link.clone(), 1, Promise::Committed);
    assert!(writer.flush(WAIT));
    assert_eq!(link.landed(), [0, 1]);
    assert_eq!(link.settled(), [0_u64; 0]);
    Spool::open(&dir).unwrap().commit_mark("etl", 3).unwrap();
    until("both", || link.settled() == [0, 1]);
}

#[test]
fn the_consumer_is_made_at_the_first_kept_position_and_an_old_one_stays() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    writer.close(WAIT);
    with_acks(&dir).close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    let mark = |spool: &Spool| spool.consumers().unwrap()[0].committed;
    assert_eq!(mark(&spool), 0);
    spool.commit_mark("etl", 6).unwrap();
    with_acks(&dir).close(WAIT);
    assert_eq!(mark(&spool), 6);
}

#[test]
fn a_close_waits_for_the_commits_until_its_deadline() {
    let (_temp, dir) = temp();
    let writer = with_acks(&dir);
    let link = Arc::new(Both::default());
    append(&writer, &link, 0..2, Promise::Committed);
    let closing = std::thread::spawn({
        let writer = writer.clone();
        move || writer.close(WAIT)
    });
    until("the close", || {
        writer.stats().state == WriterState::Draining
    });
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 6).unwrap();
    closing.join().unwrap();
    assert_eq!(link.settled(), [0, 1]);
}

#[test]
fn a_failed_disk_also_fails_blocks_that_wait_for_a_commit() {
    let (_temp, dir) = temp();
    drop(with_acks(&dir));
    let options = WriterOptions {
        acks: Some("etl".to_owned()),
        ..WriterOptions::default()
    };
    let (writer, _, fail) = recorder::open_recorded(&dir, options);
    let link = Arc::new(Both::default());
    append(&writer, &link, 0..1, Promise::Committed);
    // The first failure is followed by the sync of the cut.
    for _ in 0..4 {
        let fault = ("sync arrows".to_owned(), std::io::ErrorKind::Other);
        fail.lock().unwrap().push(fault);
    }
    writer.append(block(3, 3), Arc::new(Told::default()), 9, Promise::Durable);
    until("the failure", || {
        !link.settled.seen.lock().unwrap().1.is_empty()
    });
    assert_eq!(writer.stats().state, WriterState::Failed);
    assert_eq!(held(&writer), (0, 0));
}

#[test]
fn a_committed_promise_without_a_consumer_fails_at_once() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let link = Arc::new(Both::default());
    writer.append(block(0, 3), link.clone(), 0, Promise::Committed);
    let failed = link.settled.seen.lock().unwrap().1.clone();
    assert_eq!(failed[0].code(), "spool.no_ack_consumer");
    append(&writer, &link, 0..1, Promise::Durable);
}

#[test]
fn commits_settle_while_the_budget_is_used_up() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        acks: Some("etl".to_owned()),
        budget: 80_000,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    let link = Arc::new(Both::default());
    for at in 0..100 {
        writer.append(block(at * 100, 100), link.clone(), at, Promise::Committed);
    }
    until("the stall", || {
        writer.stats().state == WriterState::StalledBudget
    });
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl", 100).unwrap();
    until("the first one", || link.settled() == [0]);
    until("the rest", || {
        spool.commit_mark("etl", spool.durable().unwrap()).unwrap();
        link.settled() == (0..100).collect::<Vec<_>>()
    });
}
