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
    Block, Handed, Layout, LayoutError, Layouts, Origin, Promise, ReadOptions, Rows, Settle, Spool,
    SpoolError, StoredBlock, Writer, WriterOptions, WriterState,
};

mod adopt;
mod attributes;
mod commits;
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
mod reading;
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
        origin: Origin {
            protocol: "test".into(),
            peer: "127.0.0.1:1".into(),
            link: "link-1".into(),
            stream: None,
        },
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

const WAIT: Duration = Duration::from_secs(20);
