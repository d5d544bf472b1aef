//! The end of a spool torn or damaged at every byte: what is sound stays, what is gone is named, and no
//! position is given out twice.

use std::io::ErrorKind;

use super::*;
use crate::{Lost, Recovered};

const SEGMENT: &str = "segments/00000000000000000000.arrows";
const INDEX: &str = "segments/00000000000000000000.idx";

/// A spool of three groups of three events, as a kill leaves it; the segment's and the index's length
/// before the last group, and whether the mark names that.
struct Killed {
    _temp: tempfile::TempDir,
    dir: PathBuf,
    torn: PathBuf,
    segment: usize,
    index: usize,
}

impl Killed {
    fn new(published: bool) -> Self {
        let (temp, dir) = temp();
        let writer = open(&dir);
        fill(&writer, 0, 2);
        let mark = fs::read(dir.join("durable")).unwrap();
        let len = |name: &str| fs::read(dir.join(name)).unwrap().len();
        let (segment, index) = (len(SEGMENT), len(INDEX));
        fill(&writer, 6, 1);
        let killed = dir.with_extension("killed");
        copy(&dir, &killed);
        if !published {
            fs::write(killed.join("durable"), mark).unwrap();
        }
        Self {
            torn: dir.with_extension("torn"),
            _temp: temp,
            dir: killed,
            segment,
            index,
        }
    }

    /// Calls `check` with what recovery says for each way to damage `name` at or behind byte `from`:
    /// cut there, or one bit of that byte turned.
    fn at_every_byte(&self, name: &str, from: usize, check: impl Fn(&str, Writer, Recovered)) {
        let whole = fs::read(self.dir.join(name)).unwrap();
        for at in from..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x40;
            for (how, bytes) in [("cut", &whole[..at]), ("flipped", &flipped[..])] {
                copy(&self.dir, &self.torn);
                fs::write(self.torn.join(name), bytes).unwrap();
                let (writer, recovered) =
                    Writer::open(&self.torn, WriterOptions::default()).unwrap();
                check(&format!("{name} {how} at byte {at}"), writer, recovered);
            }
        }
    }

    /// Recovery names what is lost. At every 29th byte also: what was sound is read, what is lost is a
    /// gap, what comes next has new positions.
    fn check_lost(&self, how: &str, writer: Writer, recovered: Recovered) {
        let lost = Some(Lost { from: 6, to: 9 });
        assert_eq!((recovered.position, recovered.lost), (9, lost), "{how}");
        assert!(recovered.cut_bytes > 0, "{how}");
        if !byte_of(how).is_multiple_of(29) {
            return;
        }
        fill(&writer, 9, 1);
        drop(writer);
        assert_eq!(
            positions(&batches(&self.torn, 0..6, 1, 9)),
            (0..6).collect::<Vec<_>>(),
            "{how}"
        );
        assert_eq!(positions(&batches(&self.torn, 9..12, 1, 9)), [9, 10, 11]);
        for range in [5..10, 6..9, 7..8] {
            let spool = Spool::open(&self.torn).unwrap();
            let start = range.start.max(6);
            let error = spool.read(&layouts(), range, &ReadOptions::default());
            let found = error.unwrap_err();
            let expected = SpoolError::Gap {
                position: start,
                first_kept: 9,
            };
            assert_eq!(found.to_string(), expected.to_string(), "{how}");
        }
        let (_, again) = Writer::open(&self.torn, WriterOptions::default()).unwrap();
        let quiet = (again.position, again.lost, again.cut_bytes);
        assert_eq!(quiet, (12, None, 0), "{how}");
    }
}

fn byte_of(how: &str) -> usize {
    how.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_published_tail_that_is_damaged_is_lost_loudly_at_every_byte() {
    let spool = Killed::new(true);
    let check = |how: &str, writer, recovered| spool.check_lost(how, writer, recovered);
    spool.at_every_byte(SEGMENT, spool.segment, check);
    spool.at_every_byte(INDEX, spool.index, check);
}

#[test]
fn a_damaged_group_with_a_whole_entry_may_have_been_read_at_every_byte() {
    let spool = Killed::new(false);
    let check = |how: &str, writer, recovered| spool.check_lost(how, writer, recovered);
    spool.at_every_byte(SEGMENT, spool.segment, check);
}

#[test]
fn a_group_without_a_whole_entry_was_never_durable_at_every_byte() {
    let spool = Killed::new(false);
    spool.at_every_byte(INDEX, spool.index, |how, writer, recovered| {
        assert_eq!((recovered.position, recovered.lost), (6, None), "{how}");
        assert!(recovered.cut_bytes > 0, "{how}");
        drop(writer);
        let got = positions(&batches(&spool.torn, 0..6, 1, 9));
        assert_eq!(got, (0..6).collect::<Vec<_>>(), "{how}");
    });
    // The group was written, its entry not at all: cut or damaged, it does not count.
    let index = fs::read(spool.dir.join(INDEX)).unwrap();
    fs::write(spool.dir.join(INDEX), &index[..spool.index]).unwrap();
    spool.at_every_byte(SEGMENT, spool.segment, |how, _writer, recovered| {
        assert_eq!((recovered.position, recovered.lost), (6, None), "{how}");
    });
}

#[test]
fn a_segment_ended_in_good_order_loses_its_tail_the_same_way() {
    let spool = Killed::new(true);
    drop(open(&spool.dir));
    let footer = fs::metadata(spool.dir.join(INDEX)).unwrap().len();
    assert_eq!(usize::try_from(footer).unwrap(), spool.index + 128);
    let whole = fs::read(spool.dir.join(SEGMENT)).unwrap();
    spool.at_every_byte(SEGMENT, spool.segment, |how, writer, recovered| {
        if byte_of(how) < whole.len() - 8 {
            spool.check_lost(how, writer, recovered);
        } else {
            // The end-of-stream marker alone.
            assert_eq!((recovered.position, recovered.lost), (9, None), "{how}");
        }
    });
}

#[test]
fn a_lost_range_is_told_until_something_follows_and_goes_round_it() {
    let spool = Killed::new(true);
    let whole = fs::read(spool.dir.join(SEGMENT)).unwrap();
    fs::write(spool.dir.join(SEGMENT), &whole[..spool.segment + 9]).unwrap();
    for _ in 0..2 {
        let (_, recovered) = Writer::open(&spool.dir, WriterOptions::default()).unwrap();
        assert_eq!(recovered.lost, Some(Lost { from: 6, to: 9 }));
    }
    let writer = open(&spool.dir);
    fill(&writer, 9, 1);
    let reader = Spool::open(&spool.dir).unwrap();
    assert_eq!(reader.end_for(0, None, None).unwrap(), 6);
    assert_eq!(reader.end_for(0, Some(100), None).unwrap(), 6);
    assert_eq!(reader.end_for(0, Some(4), None).unwrap(), 3);
    assert_eq!(reader.end_for(9, None, None).unwrap(), 12);
    assert_eq!(
        reader.end_for(6, None, None).unwrap_err().code(),
        "spool.gap"
    );
    let blocks = reader.blocks(0..12).unwrap().map(Result::unwrap);
    let firsts: Vec<u64> = blocks.map(|block| block.first_position).collect();
    assert_eq!(firsts, [0, 3, 9]);
    let report = reader.verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, ["positions 6 to 9 are missing"]);
}

#[test]
fn a_spool_that_lost_its_only_group_goes_on_behind_it() {
    let (_temp, dir) = temp();
    fill(&open(&dir), 0, 1);
    let bytes = fs::read(dir.join(SEGMENT)).unwrap();
    fs::write(dir.join(SEGMENT), &bytes[..bytes.len() / 2]).unwrap();
    let (writer, recovered) = Writer::open(&dir, WriterOptions::default()).unwrap();
    let lost = Some(Lost { from: 0, to: 3 });
    assert_eq!((recovered.position, recovered.lost), (3, lost));
    assert!(!dir.join(SEGMENT).exists() && !dir.join(INDEX).exists());
    fill(&writer, 3, 1);
    assert_eq!(positions(&batches(&dir, 3..6, 1, 9)), [3, 4, 5]);
    let error = Spool::open(&dir)
        .unwrap()
        .read(&layouts(), 0..6, &ReadOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), "spool.gap");
}

#[test]
fn a_lost_position_is_not_filled_with_what_a_failed_write_left() {
    let (_temp, dir) = temp();
    let (writer, _, fail) = open_faulty(&dir);
    fill(&writer, 0, 1);
    fail.lock()
        .unwrap()
        .push(("sync idx".to_owned(), ErrorKind::Other));
    fill(&writer, 3, 1);
    drop(writer);
    let second = dir.join("segments/00000000000000000003.arrows");
    let bytes = fs::read(&second).unwrap();
    fs::write(&second, &bytes[..bytes.len() / 2]).unwrap();
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    let lost = Some(Lost { from: 3, to: 6 });
    assert_eq!((recovered.position, recovered.lost), (6, lost));
    let spool = Spool::open(&dir).unwrap();
    let read = |range| spool.read(&layouts(), range, &ReadOptions::default());
    assert!(read(0..3).is_ok());
    assert_eq!(read(3..6).unwrap_err().code(), "spool.gap");
}

#[test]
fn damage_with_something_sound_behind_it_is_an_error_and_cuts_nothing() {
    for name in [SEGMENT, INDEX] {
        let spool = Killed::new(true);
        let path = spool.dir.join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = if name == SEGMENT {
            spool.segment - 40
        } else {
            spool.index - 40
        };
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = Writer::open(&spool.dir, WriterOptions::default()).unwrap_err();
        assert_eq!(error.code(), "spool.corrupt");
        let text = error.to_string();
        assert!(
            text.contains("position 3") && text.contains("below 9"),
            "{text}"
        );
        assert_eq!(fs::read(&path).unwrap(), bytes);
        // The cure that the text names.
        for name in [SEGMENT, INDEX] {
            fs::remove_file(spool.dir.join(name)).unwrap();
        }
        let recovered = Writer::open(&spool.dir, WriterOptions::default())
            .unwrap()
            .1;
        assert_eq!(recovered.position, 9);
    }
}

#[test]
fn an_index_without_its_header_is_an_error_once_something_was_durable() {
    let spool = Killed::new(true);
    let index = fs::read(spool.dir.join(INDEX)).unwrap();
    for len in 0..64 {
        fs::write(spool.dir.join(INDEX), &index[..len]).unwrap();
        let error = Writer::open(&spool.dir, WriterOptions::default()).unwrap_err();
        assert_eq!(error.code(), "spool.corrupt");
    }
    fs::write(spool.dir.join(INDEX), &index).unwrap();
    assert_eq!(
        Writer::open(&spool.dir, WriterOptions::default())
            .unwrap()
            .1
            .position,
        9
    );
}

#[test]
fn damage_that_a_reader_meets_is_an_error_for_those_positions() {
    let spool = Killed::new(true);
    let mut bytes = fs::read(spool.dir.join(SEGMENT)).unwrap();
    bytes[spool.segment + 99] ^= 1;
    fs::write(spool.dir.join(SEGMENT), &bytes).unwrap();
    let reader = Spool::open(&spool.dir).unwrap();
    let read = reader
        .read(&layouts(), 0..9, &ReadOptions::default())
        .unwrap();
    assert_eq!(read.last().unwrap().unwrap_err().code(), "spool.corrupt");
    let report = reader.verify(&mut |_, _| {}).unwrap();
    assert_eq!((report.problems.len(), report.events), (1, 6));
    fs::write(
        spool.dir.join(INDEX),
        &fs::read(spool.dir.join(INDEX)).unwrap()[..spool.index + 63],
    )
    .unwrap();
    let error = Spool::open(&spool.dir)
        .unwrap()
        .read(&layouts(), 0..9, &ReadOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), "spool.corrupt");
}

#[test]
fn a_slot_of_the_mark_that_is_not_sound_is_named() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let path = dir.join("durable");
    let whole = fs::read(&path).unwrap();
    let problems = || {
        Spool::open(&dir)
            .unwrap()
            .verify(&mut |_, _| {})
            .unwrap()
            .problems
    };
    assert_eq!(problems(), Vec::<String>::new());
    for byte in 0..whole.len() {
        let mut torn = whole.clone();
        torn[byte] ^= 0x10;
        fs::write(&path, torn).unwrap();
        let found = problems();
        assert_eq!(found.len(), 1, "byte {byte}: {found:?}");
        let slot = format!("slot {} of the durable mark", byte / 24);
        assert!(found[0].contains(&slot), "{found:?}");
    }
    fs::write(&path, &whole[..30]).unwrap();
    assert!(problems()[0].contains("slot 1"));
    drop(writer);
    open(&dir);
    assert_eq!(problems(), Vec::<String>::new());
}
