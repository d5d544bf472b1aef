//! The spool from the outside: durable events stay, torn ones are cut, no link is notified too
//! early.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use ackline_testkit::lines::{keep, lines};
use arrow_array::{Array, RecordBatch, cast::AsArray, types::Int64Type};
use bytes::Bytes;

use crate::{
    Block, Handed, Layout, LayoutError, Layouts, Promise, ReadOptions, Rows, Settle, Spool,
    SpoolError, StoredBlock, Writer, WriterOptions, WriterState,
};

mod adopt;
mod consumers;
mod disks;
mod ends;
mod fence;
mod find;
mod holes;
mod hostile;
mod memory;
mod moved;
mod order;
mod power;
mod promise;
mod recall;
mod recorder;
mod retention;
mod rights;
mod scale;
mod torn;

use recorder::open_faulty;

/// Events of 8 bytes each, one after another.
struct Eights;

impl Layout for Eights {
    fn name(&self) -> &'static str {
        "eights/1"
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        for row in rows {
            let at = row as usize * 8;
            let event = block.body.get(at..at + 8);
            let event = event.ok_or_else(|| LayoutError(format!("no event {row}")))?;
            let sequence = block.first_sequence.saturating_add(row.into());
            if event[0] == b'P' {
                out.push_parts(sequence, event.chunks(4));
            } else {
                out.push_payload(sequence, event);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Told {
    seen: Mutex<(Vec<u64>, Vec<SpoolError>)>,
    changed: Condvar,
}

impl Settle for Told {
    fn settle(&self, tokens: &[u64]) {
        self.seen.lock().unwrap().0.extend(tokens);
        self.changed.notify_all();
    }

    fn failed(&self, error: &SpoolError) {
        self.seen.lock().unwrap().1.push(error.clone());
        self.changed.notify_all();
    }
}

fn layouts() -> Layouts {
    Layouts::new(vec![Arc::new(Eights)])
}

fn block(first: u64, count: u32) -> Block {
    let texts = (first..first + u64::from(count)).map(|n| format!("{n:08}"));
    let body: String = texts.collect::<Vec<_>>().concat();
    Block {
        protocol: "test".into(),
        peer: "127.0.0.1:1".into(),
        link: "link-1".into(),
        stream: None,
        layout: "eights/1",
        codec: "plain",
        first_sequence: i64::try_from(first).unwrap(),
        count,
        windows: 1,
        inflated_bytes: body.len() as u64,
        repeats: (first.is_multiple_of(2)).then(|| vec![0b101]),
        attributes: vec![("a".into(), "b".into())],
        body: vec![Bytes::from(body)],
    }
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    // Thousands of recoveries are quick where syncing is.
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    let temp = temp.unwrap();
    let dir = temp.path().join("spool");
    (temp, dir)
}

fn open(dir: &Path) -> Writer {
    Writer::open(dir, WriterOptions::default()).unwrap().0
}

/// A writer with a budget below the smallest one, which few events use up.
fn open_small(dir: &Path, options: WriterOptions) -> Writer {
    let disk = Arc::new(crate::disk::RealDisk);
    let opened = Writer::open_on(dir, options, disk, crate::commit::Pace::default());
    opened.unwrap().0
}

/// A writer of segments of one block each, with so many of them.
fn open_segments(dir: &Path, blocks: u64) -> Writer {
    let options = WriterOptions {
        segment_bytes: 1,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(dir, options).unwrap();
    fill(&writer, 0, blocks);
    writer
}

/// Appends blocks of three events, each a commit of its own.
fn fill(writer: &Writer, from: u64, blocks: u64) {
    for at in 0..blocks {
        writer.append(
            block(from + at * 3, 3),
            Arc::new(Told::default()),
            at,
            Promise::Durable,
        );
        assert!(writer.flush(WAIT));
    }
}

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
    assert_eq!((stats.durable, stats.groups), (420, 20));
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

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::yield_now();
    }
}

fn batches(dir: &Path, range: Range<u64>, threads: usize, rows: usize) -> Vec<RecordBatch> {
    let options = ReadOptions {
        threads,
        batch_rows: rows,
        ..ReadOptions::default()
    };
    let spool = Spool::open(dir).unwrap();
    spool
        .read(&layouts(), range, &options)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn positions(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |b: &RecordBatch| b["position"].as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(column).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    make_dir(to).unwrap();
    for sub in ["segments", "consumers"] {
        make_dir(&to.join(sub)).unwrap();
        for entry in fs::read_dir(from.join(sub)).unwrap().flatten() {
            fs::copy(entry.path(), to.join(sub).join(entry.file_name())).unwrap();
        }
    }
    for name in ["spool.json", "durable", "start", "losses"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// The error that ends the reading of a range.
fn read_error(spool: &Spool, range: Range<u64>) -> SpoolError {
    let read = spool.read(&layouts(), range, &ReadOptions::default());
    let mut ended = read.map(|mut batches| batches.find_map(Result::err));
    ended
        .as_mut()
        .map_or_else(|error| error.clone(), |error| error.take().unwrap())
}

/// Changes a text in a small file and repairs its checksum.
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    let mut value: serde_json::Value = serde_json::from_str(&text.replace(from, to)).unwrap();
    value.as_object_mut().unwrap().remove("crc");
    fs::write(path, crate::sealed::encode(&value)).unwrap();
}

/// The steps of commits, without those by which retention writes the second copy of the position.
fn of_commits(mut steps: Vec<String>) -> Vec<String> {
    let others = ["tmp", "start", "spool"];
    steps.retain(|step| !others.iter().any(|other| step.ends_with(other)));
    steps
}

/// A directory for its owner alone.
fn make_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The folder of a spool on a disk.
fn folder_on(dir: &Path, disk: Arc<dyn crate::disk::Disk>) -> crate::folder::Folder {
    crate::folder::Folder::open(dir, crate::Access::default(), disk).unwrap()
}

#[test]
fn events_come_back_as_they_were_appended() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 5);
    let whole = batches(&dir, 0..15, 1, 4);
    assert_eq!(positions(&whole), (0..15).collect::<Vec<_>>());
    assert_eq!(
        whole.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(),
        [4, 4, 4, 3]
    );
    let payload = whole[1]["payload"].as_binary::<i32>();
    assert_eq!(payload.value(1), b"00000005");
    assert!(whole[0]["parts"].is_null(0));
    assert_eq!(whole[0]["sequence"].as_primitive::<Int64Type>().value(3), 3);
    let repeat = whole[0]["repeat"].as_boolean();
    assert!(repeat.value(0) && !repeat.value(1) && repeat.value(2) && !repeat.value(3));
    assert_eq!(repeat.null_count(), 0, "what was not judged is no repeat");
    let repeat = whole[2]["repeat"].as_boolean();
    assert!(repeat.value(0) && !repeat.value(1));
    let attributes = whole[0]["attributes"].as_map().value(3);
    assert_eq!(attributes.column(1).as_string::<i32>().value(0), "b");
    writer.close(WAIT);
    assert_eq!(
        positions(&batches(&dir, 0..15, 3, 2)),
        (0..15).collect::<Vec<_>>()
    );
    assert_eq!(
        positions(&batches(&dir, 4..11, 1, 100)),
        (4..11).collect::<Vec<_>>()
    );
}

#[test]
fn a_repeat_is_found_in_whatever_batch_its_row_lands() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    for rows in 1..4 {
        let judged = batches(&dir, 0..3, 1, rows);
        let judged = judged.iter().flat_map(|b| b["repeat"].as_boolean().iter());
        let want = [Some(true), Some(false), Some(true)];
        assert_eq!(judged.collect::<Vec<_>>(), want, "{rows} rows");
    }
    let inside = batches(&dir, 1..2, 1, 9);
    assert!(!inside[0]["repeat"].as_boolean().value(0));
}

#[test]
fn the_slowest_consumer_holds_its_unfinished_events() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 40_000,
        ..WriterOptions::default()
    };
    let writer = open_small(&dir, options);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("slow", 0).unwrap();
    let stalled = || writer.stats().state == WriterState::StalledBudget;
    for at in 0..50 {
        writer.append(
            block(at * 3, 3),
            Arc::new(Told::default()),
            at,
            Promise::Durable,
        );
        until("the block", || {
            stalled() || spool.durable().unwrap() == at * 3 + 3
        });
        if stalled() {
            break;
        }
        spool.commit_mark("fast", spool.durable().unwrap()).unwrap();
    }
    assert!(stalled());
    assert_eq!(spool.first_kept().unwrap(), 0);
}

#[test]
fn a_stream_is_null_where_the_link_has_none() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut named = block(3, 3);
    named.stream = Some("channel".into());
    for block in [block(0, 3), named, block(6, 3)] {
        writer.append(block, Arc::new(Told::default()), 0, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    let batch = batches(&dir, 0..9, 1, 9).remove(0);
    let streams: Vec<_> = batch["stream"].as_string::<i32>().iter().collect();
    let want = [[None; 3], [Some("channel"); 3], [None; 3]].concat();
    assert_eq!(streams, want);
    assert_eq!(batch["peer"].null_count(), 0);
}

#[test]
fn parts_stand_in_their_own_column() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut several = block(0, 2);
    several.body = vec![
        Bytes::from_static(b"P001P002"),
        Bytes::from_static(b"00000001"),
    ];
    writer.append(several, Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let batch = batches(&dir, 0..2, 1, 10).remove(0);
    let parts = batch["parts"].as_list::<i32>();
    assert_eq!(parts.value(0).as_binary::<i32>().value(1), b"P002");
    assert!(parts.is_null(1) && batch["payload"].is_null(0) && batch["payload"].is_valid(1));
}

#[test]
fn only_the_columns_asked_for_are_built() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let columns = Some(vec!["position".to_owned(), "link".to_owned()]);
    let options = ReadOptions {
        columns,
        ..ReadOptions::default()
    };
    let spool = Spool::open(&dir).unwrap();
    let reader = spool.read(&Layouts::default(), 1..5, &options).unwrap();
    let got = reader.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(got[0].num_columns(), 2);
    assert_eq!(positions(&got), [1, 2, 3, 4]);
    let columns = Some(vec!["nothing".to_owned()]);
    let error = spool
        .read(&layouts(), 0..1, &ReadOptions { columns, ..options })
        .unwrap_err();
    assert_eq!(error.code(), "spool.unknown_column");
}

#[test]
fn reopening_continues_at_the_next_position() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    writer.close(WAIT);
    let (writer, recovered) = Writer::open(&dir, WriterOptions::default()).unwrap();
    assert_eq!(
        (recovered.created, recovered.cut_bytes, recovered.position),
        (false, 0, 6)
    );
    fill(&writer, 6, 2);
    assert_eq!(
        positions(&batches(&dir, 0..12, 1, 100)),
        (0..12).collect::<Vec<_>>()
    );
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!((report.events, report.blocks, report.segments), (12, 4, 2));
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn a_second_writer_is_refused_by_name() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.locked");
    assert!(error.to_string().contains(&std::process::id().to_string()));
    writer.close(WAIT);
    open(&dir);
}

#[test]
fn a_reader_beside_a_writer_sees_the_durable_events() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let spool = Spool::open(&dir).unwrap();
    for round in 0..20 {
        assert_eq!(spool.durable().unwrap(), round * 3);
        fill(&writer, round * 3, 1);
        let end = spool.durable().unwrap();
        let read = spool
            .read(&layouts(), round * 3..end, &ReadOptions::default())
            .unwrap();
        let got = read.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(positions(&got).len(), 3);
    }
    let error = spool
        .read(&layouts(), 0..61, &ReadOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), "spool.behind_checkpoint");
}

#[test]
fn a_batch_ends_at_a_block_or_inside_the_first() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 4);
    let spool = Spool::open(&dir).unwrap();
    let end = |start, rows, bytes| spool.end_for(start, rows, bytes).unwrap();
    assert_eq!(end(0, None, None), 12);
    assert_eq!(end(0, Some(7), None), 6);
    assert_eq!(end(0, Some(2), None), 2);
    assert_eq!(end(2, Some(2), None), 3);
    assert_eq!(end(2, Some(4), None), 6);
    assert_eq!(end(0, None, Some(50)), 6);
    assert_eq!(end(0, None, Some(17)), 2);
    assert_eq!(end(0, None, Some(1)), 1);
    assert_eq!(end(12, Some(5), None), 12);
    assert_eq!(
        spool.end_for(13, None, None).unwrap_err().code(),
        "spool.behind_checkpoint"
    );
}

#[test]
fn slices_cover_the_range_once_and_read_by_their_file() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 10);
    let spool = Spool::open(&dir).unwrap();
    let slices = spool.slices(1..29, 4, 1).unwrap();
    assert!(slices.len() > 1 && slices.len() <= 4, "{slices:?}");
    let mut got = Vec::new();
    for slice in &slices {
        let read = Spool::read_slice(&layouts(), slice, &ReadOptions::default()).unwrap();
        got.extend(positions(&read.collect::<Result<Vec<_>, _>>().unwrap()));
    }
    assert_eq!(got, (1..29).collect::<Vec<_>>());
    let mut other = slices[0].clone();
    other.uuid = "00000000-0000-4000-8000-000000000000".to_owned();
    let error = Spool::read_slice(&layouts(), &other, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.replaced");
}

#[test]
fn a_full_budget_stalls_until_all_consumers_are_done() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 80_000,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    let told = Arc::new(Told::default());
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("slow", 0).unwrap();
    for at in 0..100 {
        writer.append(block(at * 100, 100), told.clone(), at, Promise::Durable);
    }
    until("the stall", || {
        writer.stats().state == WriterState::StalledBudget
    });
    let durable = spool.durable().unwrap();
    assert!(durable > 0 && durable < 10_000);
    assert!(writer.stats().bytes <= 80_000);
    spool.commit_mark("fast", durable).unwrap();
    assert_eq!(spool.first_kept().unwrap(), 0);
    let mut last = 0;
    until("the last block", || {
        last = spool.durable().unwrap();
        spool.commit_mark("slow", last).unwrap();
        spool.commit_mark("fast", last).unwrap();
        last == 10_000
    });
    assert!(writer.flush(WAIT));
    assert_eq!(told.seen.lock().unwrap().0, (0..100).collect::<Vec<_>>());
    let first = spool.first_kept().unwrap();
    assert!(first > 0);
    let error = spool
        .read(&layouts(), 0..10, &ReadOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), "spool.gap");
    writer.close(WAIT);
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    assert_eq!(recovered.position, 10_000);
}

#[test]
fn marks_survive_and_names_are_checked() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let spool = Spool::open(&dir).unwrap();
    spool.commit_mark("etl.1", 6).unwrap();
    spool.commit_mark("etl.1", 3).unwrap();
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    let marks = spool.consumers().unwrap();
    assert_eq!(
        (marks[0].name.as_str(), marks[0].committed, marks.len()),
        ("etl.1", 3, 1)
    );
    for name in ["", "a/b", "ä", ".", "..", "-a", "_a", ".a", &"x".repeat(65)] {
        assert_eq!(
            spool.commit_mark(name, 0).unwrap_err().code(),
            "spool.consumer_name"
        );
    }
    assert_eq!(
        spool.commit_mark("etl", 7).unwrap_err().code(),
        "spool.behind_checkpoint"
    );
    assert!(spool.remove_consumer("etl.1").unwrap() && !spool.remove_consumer("etl.1").unwrap());
}

#[test]
fn an_unknown_format_and_a_foreign_directory_are_refused() {
    let (_temp, dir) = temp();
    drop(open(&dir));
    let path = dir.join("spool.json");
    // A later release may use another checksum, or none.
    let later = br#"{"created":"","format":3,"min_reader":3,"name":"?"}"#;
    for text in [
        crate::sealed::encode(&serde_json::from_slice(later).unwrap()),
        later.to_vec(),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(Spool::open(&dir).unwrap_err().code(), "spool.format");
        let opened = Writer::open(&dir, WriterOptions::default());
        assert_eq!(opened.unwrap_err().code(), "spool.format");
        let mended = crate::mend(&dir, crate::Access::default(), false);
        assert_eq!(mended.unwrap_err().code(), "spool.format");
    }
    fs::remove_file(&path).unwrap();
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.not_a_spool");
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

const WAIT: Duration = Duration::from_secs(20);
