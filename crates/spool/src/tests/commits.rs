//! Group commits: their steps on disk, failed and full disks.

use super::*;

#[test]
fn blocks_that_are_handed_over_together_are_committed_and_settled_together() {
    /// Each call by itself.
    #[derive(Default)]
    struct Calls(Mutex<Vec<Vec<u64>>>);

    impl Settle for Calls {
        fn settle(&self, tokens: &[u64]) {
            self.0.lock().unwrap().push(tokens.to_vec());
        }

        fn failed(&self, error: &SpoolError) {
            panic!("{error}");
        }
    }

    let (_temp, dir) = temp();
    let writer = open(&dir);
    let calls = Arc::new(Calls::default());
    for round in 0..20 {
        let handed = (0..7).map(|at| Handed {
            block: block((round * 7 + at) * 3, 3),
            settle: Arc::clone(&calls) as _,
            token: at,
            promise: Promise::Durable,
        });
        writer.append_all(handed);
        assert!(writer.flush(WAIT));
    }
    assert_eq!(*calls.0.lock().unwrap(), vec![[0, 1, 2, 3, 4, 5, 6]; 20]);
    let stats = writer.stats();
    assert_eq!((stats.durable, stats.commits.groups), (420, 20));
}

#[test]
fn a_refused_block_does_not_delay_the_others_of_its_call() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let told = Arc::new(Told::default());
    let handed = |count, promise, token| Handed {
        block: Block {
            count,
            ..block(0, 3)
        },
        settle: Arc::clone(&told) as _,
        token,
        promise,
    };
    writer.append_all([
        handed(3, Promise::Durable, 1),
        handed(u32::MAX, Promise::Durable, 2),
        handed(3, Promise::Committed, 3),
        handed(3, Promise::Durable, 4),
    ]);
    assert!(writer.flush(WAIT));
    let seen = told.seen.lock().unwrap();
    assert_eq!(seen.0, [1, 4]);
    let codes: Vec<_> = seen.1.iter().map(SpoolError::code).collect();
    assert_eq!(codes, ["spool.block_too_large", "spool.no_ack_consumer"]);
}

#[test]
fn segment_then_index_then_mark_then_the_links() {
    let (_temp, dir) = temp();
    let (writer, steps, _) = open_faulty(&dir);
    fill(&writer, 0, 2);
    let want = [
        "create idx",
        "write idx",
        "sync idx",
        "create arrows",
        "write arrows",
        "sync arrows",
        "sync segments",
        "write arrows",
        "sync arrows",
        "write idx",
        "sync idx",
        "publish mark",
        "write arrows",
        "sync arrows",
        "write idx",
        "sync idx",
        "publish mark",
    ];
    let steps = steps.lock().unwrap().clone();
    assert_eq!(of_commits(steps), want);
}

#[test]
fn a_failed_step_opens_a_new_segment_and_loses_nothing() {
    for step in ["write arrows", "sync arrows", "write idx", "sync idx"] {
        let (_temp, dir) = temp();
        let (writer, _, fail) = open_faulty(&dir);
        fill(&writer, 0, 1);
        let failed = dir.join("segments/00000000000000000000.arrows");
        fail.lock()
            .unwrap()
            .push((step.to_owned(), std::io::ErrorKind::Other));
        fill(&writer, 3, 1);
        let left = fs::read(&failed).unwrap();
        fill(&writer, 6, 1);
        assert_eq!(fs::read(&failed).unwrap(), left, "{step}");
        assert!(
            dir.join("segments/00000000000000000003.arrows").exists(),
            "{step}"
        );
        assert_eq!(
            positions(&batches(&dir, 0..9, 1, 100)),
            (0..9).collect::<Vec<_>>(),
            "{step}"
        );
        drop(writer);
        assert_eq!(
            Writer::open(&dir, WriterOptions::default())
                .unwrap()
                .1
                .position,
            9,
            "{step}"
        );
    }
}

#[test]
fn three_failures_in_a_row_fail_everything() {
    let (_temp, dir) = temp();
    let (writer, _, fail) = open_faulty(&dir);
    fill(&writer, 0, 1);
    let error = ("sync arrows".to_owned(), std::io::ErrorKind::Other);
    // The first failure is followed by the sync of the cut.
    fail.lock().unwrap().extend(vec![error; 4]);
    let told = Arc::new(Told::default());
    writer.append(block(3, 3), told.clone(), 7, Promise::Durable);
    until("the failure", || {
        writer.stats().state == WriterState::Failed
    });
    until("the news", || told.seen.lock().unwrap().1.len() == 1);
    writer.append(block(3, 3), told.clone(), 8, Promise::Durable);
    assert_eq!(told.seen.lock().unwrap().1.len(), 2);
    assert_eq!(told.seen.lock().unwrap().1[1].code(), "spool.io");
    assert!(told.seen.lock().unwrap().0.is_empty() && !writer.flush(WAIT));
    drop(writer);
    assert_eq!(
        Writer::open(&dir, WriterOptions::default())
            .unwrap()
            .1
            .position,
        3
    );
}

#[test]
fn a_full_disk_is_waited_for() {
    let (_temp, dir) = temp();
    let (writer, _, fail) = open_faulty(&dir);
    let full = ("write arrows".to_owned(), std::io::ErrorKind::StorageFull);
    fail.lock().unwrap().extend(vec![full; 100_000]);
    let told = Arc::new(Told::default());
    writer.append(block(0, 3), told.clone(), 1, Promise::Durable);
    until("the stall", || {
        writer.stats().state == WriterState::StalledDisk
    });
    fail.lock().unwrap().clear();
    assert!(writer.flush(WAIT));
    assert_eq!(told.seen.lock().unwrap().0, [1]);
    assert_eq!(writer.stats().state, WriterState::Ok);
}

#[test]
fn closing_a_stalled_writer_fails_blocks_that_are_not_durable() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 40_000,
        ..WriterOptions::default()
    };
    let writer = open_small(&dir, options);
    let told = Arc::new(Told::default());
    for at in 0..100 {
        writer.append(block(at * 100, 100), told.clone(), at, Promise::Durable);
    }
    until("the stall", || {
        writer.stats().state == WriterState::StalledBudget
    });
    writer.close(Duration::ZERO);
    let seen = told.seen.lock().unwrap();
    assert_eq!(seen.1.last().unwrap().code(), "spool.closed");
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    assert_eq!(recovered.position, seen.0.len() as u64 * 100);
}
