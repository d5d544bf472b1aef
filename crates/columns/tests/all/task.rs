//! Tasks: pruned columns have the values of all columns, errors have their place.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use ackline_columns::{Piece, Reading, Task, TaskError};
use ackline_spool::{
    Block, Layout, LayoutError, Layouts, Origin, Promise, Rows, Settle, Spool, SpoolError,
    StoredBlock, Writer, WriterOptions,
};
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Events that are lines, the number of times that bodies were read, and the threads that did it.
#[derive(Default)]
struct Lines(AtomicUsize, Mutex<HashSet<ThreadId>>);

impl Layout for Lines {
    fn name(&self) -> &'static str {
        "lines/1"
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.lock().unwrap().insert(thread::current().id());
        let lines: Vec<&[u8]> = block.body.split(|byte| *byte == b'\n').collect();
        for row in rows {
            let line = lines.get(row as usize).copied().unwrap_or_default();
            let sequence = block.first_sequence.saturating_add(row.into());
            if line.starts_with(b"=") {
                out.push_parts(sequence, line[1..].split(|byte| *byte == b'='));
            } else {
                out.push_payload(sequence, line);
            }
        }
        Ok(())
    }
}

struct Untold;

impl Settle for Untold {
    fn settle(&self, _tokens: &[u64]) {}

    fn failed(&self, error: &SpoolError) {
        eprintln!("the block failed: {error}");
    }
}

/// A spool of two segments.
struct Fixture {
    temp: tempfile::TempDir,
    pieces: Vec<Piece>,
    lines: Arc<Lines>,
}

/// Sound events, a misfit, one of keys and values, and text that is no JSON.
const EVENTS: [&str; 7] = [
    r#"{"a":1,"b":"x"}"#,
    r#"{"a":"no","b":"y"}"#,
    "no JSON",
    r#"{"c":3}"#,
    "=a=5=b=z",
    "ab",
    r#"{"a":2,"b":"w","channel":"c"}"#,
];

const SOUND: [&str; 3] = [r#"{"a":1,"b":"x"}"#, r#"{"a":4}"#, r#"{"b":"y"}"#];

const OF_EVENTS: [&str; 13] = [
    "spool",
    "position",
    "received_at",
    "protocol",
    "peer",
    "link",
    "stream",
    "sequence",
    "repeat",
    "attributes",
    "parts",
    "payload",
    "digest",
];

impl Fixture {
    /// The events twice: each time in a segment of its own, where the first is a repeat.
    fn new(events: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("spool");
        let options = WriterOptions {
            segment_bytes: 1,
            ..WriterOptions::default()
        };
        let (writer, _) = Writer::open(&dir, options).unwrap();
        for first in 0..2 {
            writer.append(block(first, events), Arc::new(Untold), 0, Promise::Durable);
            assert!(writer.flush(Duration::from_secs(60)));
        }
        writer.close(Duration::from_secs(60));
        let spool = Spool::open(&dir).unwrap();
        let slices = spool.slices(0..spool.durable().unwrap(), 1, 1 << 20);
        let pieces = slices.unwrap().into_iter().map(|slice| Piece {
            path: slice.path,
            uuid: slice.uuid,
            byte_start: slice.byte_start,
            byte_end: slice.byte_end,
            start: slice.start,
            end: slice.end,
        });
        let pieces: Vec<Piece> = pieces.collect();
        assert_eq!(pieces.len(), 2);
        let lines = Arc::default();
        Self {
            temp,
            pieces,
            lines,
        }
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("spool")
    }

    fn open(&self, reading: &Value, wanted: &[&str]) -> Result<Task, TaskError> {
        let reading: Reading = serde_json::from_value(reading.clone()).unwrap();
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let layouts = Layouts::new(vec![self.lines.clone()]);
        Task::open(layouts, &reading, &wanted, self.pieces.clone())
    }

    /// All events of a reading as one batch.
    fn read(&self, reading: &Value, wanted: &[&str]) -> Result<RecordBatch, TaskError> {
        let task = self.open(reading, wanted)?;
        let schema = task.schema();
        let batches = task.collect::<Result<Vec<_>, _>>()?;
        assert!(batches.iter().all(|batch| batch.schema() == schema));
        Ok(concat_batches(&schema, &batches).unwrap())
    }

    /// How many times bodies are read for these columns.
    fn expanded(&self, reading: &Value, wanted: &[&str]) -> usize {
        let before = self.lines.0.load(Ordering::Relaxed);
        self.read(reading, wanted).unwrap();
        self.lines.0.load(Ordering::Relaxed) - before
    }

    /// Checks that a reading of some columns has the values that these have in a reading of all columns.
    fn assert_pruned(&self, reading: &Value, wanted: &[&str]) {
        let names: Vec<String> = serde_json::from_value(reading["names"].clone()).unwrap();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = self.read(reading, &names).unwrap();
        let of_all = |name: &&str| all.schema().index_of(name).unwrap();
        let places: Vec<usize> = wanted.iter().map(of_all).collect();
        let found = self.read(reading, wanted).unwrap();
        assert_eq!(found, all.project(&places).unwrap(), "{wanted:?}");
    }
}

fn block(first: i64, events: &[&str]) -> Block {
    let body = events.join("\n");
    Block {
        origin: Origin {
            protocol: "test".into(),
            peer: "127.0.0.1:1".into(),
            link: format!("link-{first}").as_str().into(),
            stream: None,
        },
        layout: "lines/1",
        codec: "plain",
        first_sequence: first,
        count: u32::try_from(events.len()).unwrap(),
        windows: 1,
        inflated_bytes: body.len() as u64,
        repeats: Some(vec![0b1]),
        attributes: vec![("key".into(), "value".into())],
        body: vec![body.into()],
    }
}

fn stored() -> Value {
    json!({"names": OF_EVENTS, "skip_repeats": false, "memory": 64 << 20})
}

/// A schema as a message of Arrow's IPC format, in base64.
fn message(fields: Vec<Field>) -> String {
    let schema = Schema::new(fields);
    let stream = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    STANDARD.encode(stream.get_ref())
}

fn of_event(name: &str, own: &str) -> Field {
    ackline_spool::column(own).unwrap().with_name(name)
}

const OF_JSON: [&str; 8] = [
    "b",
    "channel",
    "position",
    "a",
    "received_at",
    "_rescued",
    "_corrupt_record",
    "payload",
];

fn json_reading(mode: &str) -> Value {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let schema = message(vec![
        text("b"),
        of_event("channel", "link"),
        of_event("position", "position"),
        Field::new("a", DataType::Int32, true),
        of_event("received_at", "received_at"),
        text("_rescued"),
        text("_corrupt_record"),
        of_event("payload", "payload"),
    ]);
    let own = ["position", "received_at", "payload"].map(|name| [name, name]);
    let own: Vec<_> = [["channel", "link"]].into_iter().chain(own).collect();
    json!({
        "names": OF_JSON, "skip_repeats": false, "memory": 64 << 20,
        "projection": {
            "kind": "json", "schema": schema, "mode": mode, "rescued": "_rescued",
            "corrupt_record": "_corrupt_record", "case_sensitive": false, "event_columns": own,
        },
    })
}

fn element_reading(mode: &str) -> Value {
    let schema = message(vec![
        of_event("peer", "peer"),
        Field::new("two", DataType::Binary, true),
        of_event("position", "position"),
        Field::new("bad", DataType::Binary, true),
    ]);
    json!({
        "names": ["peer", "two", "position", "bad"], "skip_repeats": false, "memory": 64 << 20,
        "projection": {
            "kind": "elements", "element": "two:bytes[2]", "schema": schema, "mode": mode,
            "corrupt_record": "bad",
        },
    })
}

#[test]
fn stored_columns_are_the_same_alone_and_among_all() {
    let fixture = Fixture::new(&EVENTS);
    for name in OF_EVENTS {
        fixture.assert_pruned(&stored(), &[name]);
    }
    fixture.assert_pruned(&stored(), &["payload", "position", "spool"]);
    fixture.assert_pruned(&stored(), &OF_EVENTS.map(|name| name));
}

#[test]
fn stored_columns_have_the_names_of_the_query() {
    let fixture = Fixture::new(&EVENTS);
    let reading = json!({
        "names": ["at", "channel", "again"], "of_events": ["position", "link", "position"],
        "skip_repeats": false, "memory": 64 << 20,
    });
    fixture.assert_pruned(&reading, &["channel", "at"]);
    let batch = fixture.read(&reading, &["again", "channel", "at"]).unwrap();
    let own = fixture.read(&stored(), &["position", "link", "position"]);
    assert_eq!(batch.columns(), own.unwrap().columns());
    assert_eq!(batch.schema().field(1).name(), "channel");
}

#[test]
fn bodies_are_read_only_if_a_wanted_column_needs_them() {
    let fixture = Fixture::new(&EVENTS);
    assert_eq!(fixture.expanded(&stored(), &["payload"]), 2);
    for reading in [
        stored(),
        json_reading("PERMISSIVE"),
        element_reading("permissive"),
    ] {
        assert_eq!(fixture.expanded(&reading, &["position"]), 0);
        assert_eq!(fixture.expanded(&reading, &[]), 0);
    }
    assert_eq!(
        fixture.expanded(&json_reading("PERMISSIVE"), &["channel"]),
        0
    );
    assert_eq!(
        fixture.expanded(&json_reading("PERMISSIVE"), &["_rescued"]),
        2
    );
    assert_eq!(fixture.expanded(&json_reading("DROPMALFORMED"), &[]), 2);
    assert_eq!(
        fixture.expanded(&element_reading("PERMISSIVE"), &["bad"]),
        2
    );
}

#[test]
fn events_are_the_same_and_in_order_on_more_threads() {
    let fixture = Fixture::new(&EVENTS);
    let here = HashSet::from([thread::current().id()]);
    for (threads, is_here) in [(0, true), (1, true), (2, false), (5, false)] {
        let task = fixture.open(&stored(), &["position", "payload", "parts"]);
        let mut task = task.unwrap().on_threads(threads);
        fixture.lines.1.lock().unwrap().clear();
        let batches: Vec<_> = task.by_ref().map(Result::unwrap).collect();
        let found = concat_batches(&task.schema(), &batches).unwrap();
        let expected = fixture.read(&stored(), &["position", "payload", "parts"]);
        assert_eq!(found, expected.unwrap(), "{threads}");
        assert!(task.spent().expanding > Duration::ZERO, "{threads}");
        let on = fixture.lines.1.lock().unwrap().clone();
        // The expected events were read here.
        assert_eq!(on == here, is_here, "{threads}: {on:?}");
    }
}

#[test]
fn rows_are_counted_without_columns() {
    let fixture = Fixture::new(&EVENTS);
    let rows = |reading: &Value| {
        let task = fixture.open(reading, &[]).unwrap();
        assert!(task.schema().fields().is_empty());
        task.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    assert_eq!(rows(&stored()), 14);
    assert_eq!(rows(&json_reading("PERMISSIVE")), 14);
    // The malformed are the misfit, unless it is rescued, and the two texts.
    assert_eq!(rows(&json_reading("DROPMALFORMED")), 10);
    assert_eq!(rows(&element_reading("DROPMALFORMED")), 2);
}

#[test]
fn projected_columns_are_the_same_alone_and_among_all() {
    let fixture = Fixture::new(&EVENTS);
    for mode in ["PERMISSIVE", "DROPMALFORMED"] {
        for name in OF_JSON {
            fixture.assert_pruned(&json_reading(mode), &[name]);
        }
        fixture.assert_pruned(&json_reading(mode), &["payload", "channel", "position"]);
        fixture.assert_pruned(&json_reading(mode), &["a", "position", "_rescued"]);
        for name in ["peer", "two", "position", "bad"] {
            fixture.assert_pruned(&element_reading(mode), &[name]);
        }
    }
}

/// Members by their path and by their whole name, repeated ones, and values that do not fit.
const PATHS: [&str; 8] = [
    r#"{"log":{"level":1,"name":"a"},"n":1}"#,
    r#"{"log.level":2,"log":{"name":"b"},"n":2}"#,
    r#"{"log":{"level":3},"log.level":4,"LOG.name":"c","n":"no"}"#,
    r#"{"log":"text","log.level":5,"n":3}"#,
    r#"{"log":{"level":6},"log":"text","n":4,"n":5}"#,
    r#"{"log":7,"logs":{"log":1},"n":{"log":1}}"#,
    "=log.level=8=LOG=x=n=6",
    r#"{"log":{"level":"no","name":[1]},"logs":{"log":"x","n":2},"n":7"#,
];

#[test]
fn columns_of_one_member_decide_each_others_values_also_when_pruned() {
    let fixture = Fixture::new(&PATHS);
    let logs = vec![
        Field::new("log", DataType::Int64, true),
        Field::new("n", DataType::Utf8, true),
    ];
    let fields = [
        Field::new("log.level", DataType::Int32, true),
        Field::new("n", DataType::Int64, true),
        Field::new("log", DataType::Utf8, true),
        Field::new("logs", DataType::Struct(logs.into()), true),
        Field::new("log.name", DataType::Utf8, true),
    ];
    let mut reading = json_reading("PERMISSIVE");
    reading["projection"]["schema"] = message(fields.to_vec()).into();
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    for case_sensitive in [false, true] {
        reading["names"] = names.clone().into();
        reading["projection"]["case_sensitive"] = case_sensitive.into();
        for chosen in 0..1_u32 << names.len() {
            let wanted = names.iter().enumerate();
            let wanted = wanted.filter(|(at, _)| chosen & (1 << at) != 0);
            let wanted: Vec<&str> = wanted.map(|(_, name)| *name).collect();
            fixture.assert_pruned(&reading, &wanted);
        }
    }
}

#[test]
fn event_columns_that_are_not_wanted_are_not_read_for_a_projection() {
    let fixture = Fixture::new(&EVENTS);
    let task = fixture.open(&json_reading("PERMISSIVE"), &["b", "channel"]);
    let read = ["position", "link", "parts", "payload"];
    assert_eq!(task.unwrap().read_columns(), read);
    let task = fixture.open(&json_reading("FAILFAST"), &["b"]);
    let read = ["position", "received_at", "link", "parts", "payload"];
    assert_eq!(task.unwrap().read_columns(), read);
}

#[test]
fn a_column_that_is_not_wanted_still_ends_a_query_that_fails_fast() {
    let sound = Fixture::new(&SOUND);
    sound.assert_pruned(&json_reading("FAILFAST"), &["position"]);
    sound.assert_pruned(&json_reading("FAILFAST"), &["b", "received_at"]);
    let malformed = Fixture::new(&EVENTS);
    let error = malformed.read(&json_reading("FAILFAST"), &["position"]);
    assert_eq!(error.unwrap_err().code, "json.syntax");
    let error = malformed.read(&element_reading("FAILFAST"), &[]);
    assert_eq!(error.unwrap_err().code, "element.size");
}

#[test]
fn repeats_are_left_out_if_the_query_skips_them() {
    let fixture = Fixture::new(&EVENTS);
    for mut reading in [
        stored(),
        json_reading("PERMISSIVE"),
        json_reading("DROPMALFORMED"),
    ] {
        let marked = fixture.read(&reading, &["position"]).unwrap().num_rows();
        reading["skip_repeats"] = true.into();
        let kept = fixture.read(&reading, &["position"]).unwrap().num_rows();
        assert_eq!(kept, marked - 2);
        fixture.assert_pruned(&reading, &["position"]);
        fixture.assert_pruned(&reading, &["payload"]);
    }
}

#[test]
fn an_error_has_its_place_and_is_the_last() {
    let fixture = Fixture::new(&EVENTS);
    let mut task = fixture.open(&json_reading("FAILFAST"), &["a"]).unwrap();
    let error = task.next().unwrap().unwrap_err();
    let place = format!(
        "(spool {}, positions 0 to 7, host ",
        fixture.dir().display()
    );
    assert!(
        error.text.starts_with("json.syntax: position 2: "),
        "{error}"
    );
    assert!(error.text.contains(&place), "{error}");
    assert!(error.text.ends_with(')'), "{error}");
    assert!(task.next().is_none());
}

#[test]
fn an_error_of_a_later_piece_comes_after_the_events_before_it() {
    let mut fixture = Fixture::new(&EVENTS);
    fixture.pieces[1].uuid = "another".to_owned();
    let mut task = fixture.open(&stored(), &["position"]).unwrap();
    assert_eq!(task.next().unwrap().unwrap().num_rows(), 7);
    let error = task.next().unwrap().unwrap_err();
    assert!(
        error.text.starts_with(&format!("{}: ", error.code)),
        "{error}"
    );
    assert!(error.text.contains("positions 7 to 14, host "), "{error}");
    assert!(task.next().is_none());
}

#[test]
fn a_spool_whose_directory_is_gone_has_a_name() {
    let fixture = Fixture::new(&EVENTS);
    let mut task = fixture.open(&stored(), &["position"]).unwrap();
    std::fs::remove_dir_all(fixture.dir()).unwrap();
    let error = task.next().unwrap().unwrap_err();
    assert_eq!(error.code, "spool.gone");
    let text = format!(
        "spool.gone: there is no spool in {}; ",
        fixture.dir().display()
    );
    assert!(error.text.starts_with(&text), "{error}");
    assert!(error.text.contains("positions 0 to 7, host "), "{error}");
}

#[test]
fn an_unsound_reading_is_refused_before_a_file_is_opened() {
    let fixture = Fixture::new(&SOUND);
    let refused = |reading: &Value, wanted: &[&str]| match fixture.open(reading, wanted) {
        Ok(_) => panic!("{reading} is not refused"),
        Err(error) => (error.code, error.text),
    };
    let mut reading = stored();
    reading["memory"] = 5.into();
    let text = "memory is 5; it is a whole number from 4194304 to 18446744073709551615";
    assert_eq!(
        refused(&reading, &[]),
        ("memory".to_owned(), text.to_owned())
    );
    assert_eq!(refused(&stored(), &["a"]).1, "the query has no column a");
    let (code, text) = refused(&json_reading("strict"), &[]);
    assert_eq!(code, "json.schema");
    assert!(text.starts_with("mode must be PERMISSIVE"), "{text}");
    let mut reading = element_reading("PERMISSIVE");
    reading["projection"]["element"] = "f46".into();
    assert_eq!(refused(&reading, &[]).0, "element.schema");
}
