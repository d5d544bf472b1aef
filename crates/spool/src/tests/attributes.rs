//! Events with attributes of their own: beside those of their block, and never in their place.

use std::borrow::Cow;

use super::*;
use crate::{DIGEST, LEAST_MEMORY};

/// Lines, each an event: `name=value name=value|payload`.
struct Lines {
    /// Whether attributes may be read.
    reads: bool,
}

impl Layout for Lines {
    fn name(&self) -> &'static str {
        "eights/1"
    }

    fn has_attributes(&self) -> bool {
        true
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        let body = std::str::from_utf8(block.body).unwrap();
        let wanted = rows.start as usize..rows.end as usize;
        for line in body.lines().take(wanted.end).skip(wanted.start) {
            if out.is_full() {
                return Ok(());
            }
            let (pairs, payload) = line.split_once('|').unwrap();
            let pairs = pairs.split(' ').filter(|pair| !pair.is_empty());
            let pairs = pairs.map(|pair| {
                assert!(self.reads, "nobody wants them");
                let (name, value) = pair.split_once('=').unwrap();
                (Cow::from(name), Cow::from(value))
            });
            out.push_payload_with(7, payload.as_bytes(), pairs);
        }
        Ok(())
    }
}

/// A spool of blocks of these lines.
fn spool_of(blocks: &[&[&str]]) -> (tempfile::TempDir, PathBuf) {
    let (temp, dir) = temp();
    let writer = open(&dir);
    for (at, lines) in (0..).zip(blocks) {
        let count = u32::try_from(lines.len()).unwrap();
        let one = Block {
            body: vec![Bytes::from(lines.join("\n"))],
            attributes: vec![
                ("a".into(), "b".into()),
                ("tls.subject".into(), "CN=me".into()),
            ],
            ..block(0, count)
        };
        writer.append(one, Arc::new(Told::default()), at, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    (temp, dir)
}

fn read(dir: &Path, reads: bool, options: &ReadOptions) -> Result<Vec<RecordBatch>, SpoolError> {
    let layouts = Layouts::new(vec![Arc::new(Lines { reads })]);
    let spool = Spool::open(dir).unwrap();
    let all = 0..spool.durable().unwrap();
    spool.read(&layouts, all, options).unwrap().collect()
}

/// The attributes of each row.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let of_row = |batch: &RecordBatch, at| {
        let entries = batch["attributes"].as_map().value(at);
        let names = entries.column(0).as_string::<i32>().iter();
        let values = entries.column(1).as_string::<i32>().iter();
        let pairs = names.zip(values);
        let pairs = pairs.map(|(name, value)| format!("{}={}", name.unwrap(), value.unwrap()));
        pairs.collect::<Vec<_>>().join(" ")
    };
    let of_batch = |batch: &RecordBatch| {
        (0..batch.num_rows())
            .map(|at| of_row(batch, at))
            .collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

fn only(column: &str) -> ReadOptions {
    ReadOptions {
        columns: Some(vec![column.to_owned()]),
        ..ReadOptions::default()
    }
}

const LINK: &str = "a=b tls.subject=CN=me";

#[test]
fn an_event_has_its_own_attributes_behind_those_of_its_block() {
    let blocks: [&[&str]; 3] = [
        &["|0", "x=1 y=2|1", "|2", "x=3|3"],
        &["z=|4", "x=é|5"],
        &["|6", "|7"],
    ];
    let (_temp, dir) = spool_of(&blocks);
    let own = ["", " x=1 y=2", "", " x=3", " z=", " x=é", "", ""];
    let wanted = own.map(|own| format!("{LINK}{own}"));
    for batch_rows in 1..9 {
        for threads in [1, 3] {
            let options = ReadOptions {
                threads,
                batch_rows,
                ..ReadOptions::default()
            };
            let batches = read(&dir, true, &options).unwrap();
            assert_eq!(shown(&batches), wanted, "batches of {batch_rows}");
            let payloads = batches.iter().flat_map(|batch| {
                let payloads = batch["payload"].as_binary::<i32>();
                payloads
                    .iter()
                    .map(|one| one.unwrap().to_vec())
                    .collect::<Vec<_>>()
            });
            assert_eq!(payloads.collect::<Vec<_>>().concat(), b"01234567");
        }
    }
}

#[test]
fn a_single_row_from_the_middle_has_its_own_attributes() {
    let (_temp, dir) = spool_of(&[&["x=0|", "x=1|", "|", "x=3|"]]);
    let layouts = Layouts::new(vec![Arc::new(Lines { reads: true })]);
    let spool = Spool::open(&dir).unwrap();
    for (at, own) in (0..).zip([" x=0", " x=1", "", " x=3"]) {
        let read = spool
            .read(&layouts, at..at + 1, &only("attributes"))
            .unwrap();
        let read = read.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(shown(&read), [format!("{LINK}{own}")]);
    }
}

#[test]
fn an_event_changes_no_attribute_of_its_block_and_the_first_of_a_name_counts() {
    let lines = [
        "tls.subject=CN=you x=1|",
        "tls.subject=1 tls.subject=2 property.tls.subject=3|",
        "property.tls.subject=3 tls.subject=1|",
        "x=1 y=2 x=3 a=c|",
    ];
    let (_temp, dir) = spool_of(&[&lines]);
    let own = [
        " property.tls.subject=CN=you x=1",
        " property.tls.subject=1",
        " property.tls.subject=3",
        " x=1 y=2 property.a=c",
    ];
    let wanted = own.map(|own| format!("{LINK}{own}"));
    assert_eq!(
        shown(&read(&dir, true, &only("attributes")).unwrap()),
        wanted
    );
}

#[test]
fn the_digest_of_an_event_is_that_of_its_sender_whatever_its_attributes_say() {
    let digests = |lines: &[&str]| -> Vec<Vec<u8>> {
        let (_temp, dir) = spool_of(&[lines]);
        let batches = read(
            &dir,
            true,
            &ReadOptions {
                columns: Some(vec!["attributes".to_owned(), DIGEST.to_owned()]),
                ..ReadOptions::default()
            },
        );
        let digests = batches.unwrap()[0][DIGEST].as_binary::<i32>().clone();
        digests.iter().map(|one| one.unwrap().to_vec()).collect()
    };
    let plain = digests(&["|1", "|1", "|2"]);
    assert_eq!(
        digests(&["sender=tls:CN=you|1", "x=1|1", "sender=|2"]),
        plain
    );
    assert_eq!(plain[0], plain[1]);
}

#[test]
fn listener_and_endpoint_are_columns_of_those_that_name_them() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let links = [
        ("relink", "orders/17/1"),
        ("relink", "/17/2"),
        ("relink", "a/b/17/3"),
        ("bpmux", "orders/17/4"),
    ];
    for (at, (protocol, link)) in (0..).zip(links) {
        let mut one = Block {
            attributes: vec![("a".into(), "b".into())],
            body: vec![Bytes::from("receiver.url=own|x")],
            ..block(0, 1)
        };
        one.origin.protocol = protocol.into();
        one.origin.link = link.into();
        if at != 1 {
            let url = format!("relink://h:{at}");
            one.attributes.push(("receiver.url".into(), url.into()));
        }
        writer.append(one, Arc::new(Told::default()), at, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    let columns = ["endpoint", "listener"].map(str::to_owned);
    let options = ReadOptions {
        columns: Some(columns.to_vec()),
        ..ReadOptions::default()
    };
    let batches = read(&dir, false, &options).unwrap();
    let names: Vec<_> = batches[0].schema().fields().iter().cloned().collect();
    assert_eq!(names[0].name(), "listener", "in the order of ON_REQUEST");
    let texts = |name: &str| -> Vec<Option<String>> {
        let texts = batches[0][name].as_string::<i32>().iter();
        texts.map(|text| text.map(str::to_owned)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        texts("listener"),
        [
            some("relink://h:0"),
            None,
            some("relink://h:2"),
            some("relink://h:3")
        ]
    );
    assert_eq!(
        texts("endpoint"),
        [some("orders"), some(""), some("a/b"), None]
    );
    let all = read(&dir, true, &ReadOptions::default()).unwrap();
    assert!(all[0].column_by_name("listener").is_none());
}

#[test]
fn attributes_that_nobody_wants_are_not_read() {
    let (_temp, dir) = spool_of(&[&["x=1|0", "x=2|1"]]);
    for column in ["payload", "sequence", DIGEST, "position"] {
        let batches = read(&dir, false, &only(column)).unwrap();
        assert_eq!(batches[0].num_rows(), 2, "{column}");
    }
}

#[test]
fn repeats_that_are_left_out_take_their_attributes_with_them() {
    // Those of the first and the third row are marked.
    let (_temp, dir) = spool_of(&[&["x=0|", "x=1|", "x=2|", "|", "x=4|"]]);
    for columns in [None, Some(vec!["attributes".to_owned()])] {
        let options = ReadOptions {
            columns,
            skip_repeats: true,
            ..ReadOptions::default()
        };
        let wanted = [" x=1", "", " x=4"].map(|own| format!("{LINK}{own}"));
        assert_eq!(shown(&read(&dir, true, &options).unwrap()), wanted);
    }
}

#[test]
fn attributes_count_in_the_memory_of_a_reader() {
    let line = |at: usize| format!("x={}|{at}", "v".repeat(100_000 + at));
    let lines: Vec<_> = (0..80).map(line).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let (_temp, dir) = spool_of(&[&lines]);
    let mut options = ReadOptions {
        memory: 16 << 20,
        ..only("attributes")
    };
    let batches = read(&dir, true, &options).unwrap();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 80);
    let largest = batches.iter().map(RecordBatch::get_array_memory_size).max();
    // Half of the memory beside the group, in two: each text counts here and in the column.
    assert!(
        largest.unwrap() < 2 << 20 && batches.len() > 5,
        "{largest:?}"
    );
    options.memory = LEAST_MEMORY;
    let large = format!("x={}|", "v".repeat(2 << 20));
    let (_temp, dir) = spool_of(&[&[&large]]);
    let error = read(&dir, true, &options).unwrap_err();
    assert_eq!(error.code(), "spool.memory");
    assert!(read(&dir, false, &only("payload")).is_ok());
}

#[test]
fn ten_thousand_attributes_of_one_event_take_no_long_time() {
    let names = (0..20_000).map(|at| format!("n{at}=v"));
    let line = names.collect::<Vec<_>>().join(" ") + "|";
    let (_temp, dir) = spool_of(&[&[&line, &line]]);
    let begin = Instant::now();
    let batches = read(&dir, true, &only("attributes")).unwrap();
    assert_eq!(batches[0]["attributes"].as_map().value(1).len(), 20_002);
    assert!(begin.elapsed() < Duration::from_secs(2));
}
