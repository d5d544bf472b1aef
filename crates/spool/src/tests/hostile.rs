//! Spools made to harm a reader: every number in them may be wrong, and every checksum is right.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::{
    OnLoss,
    index::{Entry, Kind},
    segment,
};

const SEGMENT: &str = "segments/00000000000000000000.arrows";
const INDEX: &str = "segments/00000000000000000000.idx";

/// A spool of one group of two blocks of three events, whose bytes and entry may be changed.
struct Hostile {
    _temp: tempfile::TempDir,
    dir: PathBuf,
    segment: Vec<u8>,
    index: Vec<u8>,
}

impl Hostile {
    fn new() -> Self {
        let (temp, dir) = temp();
        let writer = open(&dir);
        let handed = (0..2).map(|at| Handed {
            block: block(at * 3, 3),
            settle: Arc::new(Told::default()),
            token: at,
            promise: Promise::Durable,
        });
        writer.append_all(handed);
        assert!(writer.flush(WAIT));
        drop(writer);
        let (segment, index) = (
            fs::read(dir.join(SEGMENT)).unwrap(),
            fs::read(dir.join(INDEX)).unwrap(),
        );
        Self {
            _temp: temp,
            dir,
            segment,
            index,
        }
    }

    fn entry(&self) -> Entry {
        Entry::decode(&self.index[64..160]).unwrap()
    }

    fn group(&self) -> Range<usize> {
        let entry = self.entry();
        usize::try_from(entry.offset).unwrap()..usize::try_from(entry.byte_end()).unwrap()
    }

    /// The end of the group's head: its bytes up to there are Arrow's message, zeros and the seal.
    fn head(&self) -> usize {
        let group = &self.segment[self.group()];
        8 + u32::from_le_bytes(group[4..8].try_into().unwrap()) as usize
    }

    /// Writes the group with these changes, repairs all checksums, and reads it in every way.
    fn read(&self, how: &str, change: impl FnOnce(&mut [u8]), lie: impl FnOnce(&mut Entry)) {
        let (mut bytes, mut index) = (self.segment.clone(), self.index.clone());
        let old = self.entry();
        let group = &mut bytes[self.group()];
        change(group);
        let crc = segment::crc_without_seal(group).unwrap_or(old.crc);
        let mut new = Entry { crc, ..old };
        lie(&mut new);
        segment::seal_anew(group, &old, &new);
        index[64..160].copy_from_slice(&new.encode());
        fs::write(self.dir.join(SEGMENT), bytes).unwrap();
        fs::write(self.dir.join(INDEX), index).unwrap();
        let read = catch_unwind(AssertUnwindSafe(|| every_reader(&self.dir, how)));
        assert!(read.is_ok(), "{how}: a reader panicked");
    }
}

/// The error that ends a reader of all events, if there is one.
fn told(dir: &Path) -> Option<String> {
    let spool = Spool::open(dir).unwrap();
    let read = spool.read(&layouts(), 0..6, &ReadOptions::default());
    let error = read.map_or_else(Some, |mut batches| batches.find_map(Result::err));
    error.map(|error| error.to_string())
}

/// Reads a spool of six events in every way. Each reader ends, with the events or with an error
/// that names a file and a place in it.
fn every_reader(dir: &Path, how: &str) {
    let names_its_place = |error: &SpoolError| {
        let text = error.to_string();
        // An entry that has lost its positions leaves a gap, which no file has.
        let is_gap = error.code() == "spool.gap";
        let is_placed = text.contains("position") || text.contains("byte ");
        assert!(
            is_placed && (is_gap || text.contains(".arrows")),
            "{how}: {text}"
        );
    };
    let spool = Spool::open(dir).unwrap();
    for (threads, on_loss, columns) in [
        (1, OnLoss::Fail, None),
        (4, OnLoss::Skip, None),
        (1, OnLoss::Fail, Some(vec!["position".to_owned()])),
    ] {
        let options = ReadOptions {
            threads,
            on_loss,
            columns,
            batch_rows: 2,
            ..ReadOptions::default()
        };
        match spool.read(&layouts(), 0..6, &options) {
            Err(error) => names_its_place(&error),
            Ok(mut reader) => {
                let mut rows = 0;
                let error = reader.by_ref().find_map(|batch| match batch {
                    Ok(batch) => {
                        rows += batch.num_rows();
                        None
                    }
                    Err(error) => Some(error),
                });
                assert!(rows <= 6, "{how}: {rows} rows");
                match error {
                    Some(error) => names_its_place(&error),
                    None => assert!(rows == 6 || !reader.skipped().is_empty(), "{how}: {rows}"),
                }
            }
        }
    }
    for block in spool.blocks(0..6).unwrap() {
        let _ = block.map_err(|error| names_its_place(&error));
    }
    let _ = spool
        .slices(0..6, 3, 0)
        .map_err(|error| names_its_place(&error));
    let _ = spool
        .end_for(0, Some(2), None)
        .map_err(|error| names_its_place(&error));
    let _ = spool.find(0);
    let _ = spool.lag(0);
    let _ = spool.holes(0..6, true).unwrap();
    let digester = crate::Digester::of_sender("somebody");
    let _ = spool.digests(&layouts(), &[0, 3], &digester);
    let _ = spool.back_from(6, u64::MAX).unwrap().collect::<Vec<_>>();
    spool.verify(&mut |_, _| {}).unwrap();
}

/// Changes a field of an entry.
type Lie = fn(&mut Entry, u64);

/// The lower half of a number.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap()
}

/// Numbers that a field of 32 or 64 bits may be changed to.
const LIES: [i64; 9] = [
    0,
    1,
    7,
    -1,
    1 << 20,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

#[test]
fn an_unchanged_group_is_read_by_every_reader() {
    Hostile::new().read("unchanged", |_| {}, |_| {});
}

#[test]
fn no_number_in_the_head_of_a_group_makes_a_reader_panic() {
    let hostile = Hostile::new();
    let mut all = String::new();
    // Zeros and the seal follow the message.
    for at in (0..hostile.head().min(2_048)).step_by(2) {
        for lie in [0, 1, -1, 0x7FFF, 1 << 20] {
            let value = i32::to_le_bytes(lie);
            for width in [2, 4] {
                let change =
                    |group: &mut [u8]| group[at..at + width].copy_from_slice(&value[..width]);
                hostile.read(&format!("{lie} in {width} bytes at {at}"), change, |_| {});
                all.extend(told(&hostile.dir));
            }
        }
    }
    // Each is found before Arrow reads the group.
    for fault in [
        "bytes from byte",
        "bytes and needs",
        "column count has 1 nulls in 2 values",
        "values in 2 rows",
        "members of several lengths",
        "it announces -",
    ] {
        assert!(all.contains(fault), "{fault}");
    }
}

#[test]
fn no_number_in_the_columns_of_a_group_makes_a_reader_panic() {
    let hostile = Hostile::new();
    let (begin, end) = (hostile.head(), hostile.group().len());
    for at in (begin..end - 8).step_by(4) {
        for lie in LIES {
            let value = lie.to_le_bytes();
            for width in [4, 8] {
                let change =
                    |group: &mut [u8]| group[at..at + width].copy_from_slice(&value[..width]);
                hostile.read(&format!("{lie} in {width} bytes at {at}"), change, |_| {});
            }
        }
    }
}

#[test]
fn no_byte_of_a_text_makes_a_reader_panic() {
    let hostile = Hostile::new();
    for at in hostile.head()..hostile.group().len() {
        hostile.read(&format!("0xFF at {at}"), |group| group[at] = 0xFF, |_| {});
    }
}

#[test]
fn no_number_in_the_entry_of_a_group_makes_a_reader_panic() {
    let hostile = Hostile::new();
    let fields: [(&str, Lie); 9] = [
        ("blocks", |entry, to| entry.blocks = low(to)),
        ("offset", |entry, to| entry.offset = to),
        ("length", |entry, to| entry.length = low(to)),
        ("first", |entry, to| entry.first = to),
        ("count", |entry, to| entry.count = to),
        ("time", |entry, to| entry.time_us = to.cast_signed()),
        ("inflated", |entry, to| entry.inflated = to),
        ("epoch", |entry, to| entry.epoch = to),
        ("watched", |entry, to| entry.watched_us = to),
    ];
    for (name, set) in fields {
        for lie in LIES {
            let how = format!("{name} is {lie}");
            hostile.read(&how, |_| {}, |entry| set(entry, lie.cast_unsigned()));
        }
    }
    hostile.read(
        "the group is a footer",
        |_| {},
        |entry| entry.kind = Kind::Footer,
    );
}

#[test]
fn no_length_of_a_group_makes_a_reader_panic() {
    let hostile = Hostile::new();
    let all = u32::try_from(hostile.group().len()).unwrap();
    for length in (0..all).step_by(32).chain([all - 1, all + 1, all + 4_096]) {
        hostile.read(
            &format!("{length} bytes"),
            |_| {},
            |entry| entry.length = length,
        );
    }
}
