//! The end of a spool torn or damaged at every byte: sound groups stay, lost ones are named, and no
//! position is given out twice.

use std::io::ErrorKind;

use super::{recorder::Recorder, *};
use crate::{
    LossWhy, Lost, Recovered, active::Active, commit::Pace, disk::RealDisk, format::Identity,
    index::IndexHeader,
};

const SEGMENT: &str = "segments/00000000000000000000.arrows";
const INDEX: &str = "segments/00000000000000000000.idx";

/// A spool of three groups of three events, as a kill leaves it; the segment's and the index's
/// length before the last group, and whether the mark names that group.
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

    /// Calls `check` with the result of recovery for each way to damage `name` at or after byte
    /// `from`: cut there, or one bit of that byte flipped.
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

    /// Recovery names the lost positions. At every 29th byte also: sound events are read, lost ones
    /// are a gap, the next events have new positions.
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
        let spool = Spool::open(&self.torn).unwrap();
        for range in [5..10, 6..9, 7..8] {
            let start = range.start.max(6);
            let found = read_error(&spool, range);
            let expected = SpoolError::Gap {
                position: start,
                first_kept: 9,
            };
            assert_eq!(found.to_string(), expected.to_string(), "{how}");
        }
        let losses = spool.losses().unwrap();
        let noted: Vec<_> = losses.iter().map(|loss| (loss.from, loss.to)).collect();
        assert_eq!(noted, [(6, 9)], "{how}");
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
}

#[test]
fn a_damaged_group_with_a_whole_entry_may_have_been_read_at_every_byte() {
    let spool = Killed::new(false);
    let check = |how: &str, writer, recovered| spool.check_lost(how, writer, recovered);
    spool.at_every_byte(SEGMENT, spool.segment, check);
}

#[test]
fn a_group_whose_entry_is_torn_is_found_by_its_seal_at_every_byte() {
    let spool = Killed::new(false);
    spool.at_every_byte(INDEX, spool.index, |how, writer, recovered| {
        // An entry without any written byte: its group was never durable.
        let is_whole = how.contains("cut") && byte_of(how) == spool.index;
        let end = if is_whole { 6 } else { 9 };
        assert_eq!((recovered.position, recovered.lost), (end, None), "{how}");
        drop(writer);
        let got = positions(&batches(&spool.torn, 0..end, 1, 9));
        let want = (0..i64::try_from(end).unwrap()).collect::<Vec<_>>();
        assert_eq!(got, want, "{how}");
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
    let (temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 3);
    writer.close(WAIT);
    let len = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
    let (segment, index) = (len(SEGMENT), len(INDEX));
    assert_eq!((segment, index), (4 * 4_096 + 8, 64 + 4 * 96));
    let spool = Killed {
        torn: dir.with_extension("torn"),
        segment: 3 * 4_096,
        index: 64 + 2 * 96,
        dir,
        _temp: temp,
    };
    spool.at_every_byte(SEGMENT, spool.segment, |how, writer, recovered| {
        if byte_of(how) < 4 * 4_096 {
            spool.check_lost(how, writer, recovered);
        } else {
            // The end-of-stream marker alone.
            assert_eq!((recovered.position, recovered.lost), (9, None), "{how}");
        }
    });
}

#[test]
fn a_lost_range_is_reported_until_events_follow_it() {
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
    assert_eq!(report.problems, Vec::<String>::new());
    let noted: Vec<_> = report.losses.iter().map(|one| (one.from, one.to)).collect();
    assert_eq!(noted, [(6, 9)]);
}

#[test]
fn a_spool_that_lost_its_only_group_continues_after_it() {
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
    let error = read_error(&Spool::open(&dir).unwrap(), 0..6);
    assert_eq!(error.code(), "spool.gap");
    // The rest of it is moved to `lost+found`.
    assert!(dir.join("lost+found/00000000000000000000.arrows").exists());
}

#[test]
fn a_lost_position_is_not_filled_with_the_remains_of_a_failed_write() {
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
    assert_eq!(positions(&batches(&dir, 0..3, 1, 9)), [0, 1, 2]);
    assert_eq!(read_error(&spool, 3..6).code(), "spool.gap");
}

#[test]
fn a_group_that_could_not_be_cut_does_not_come_back_under_a_lost_position() {
    let (_temp, dir) = temp();
    let (writer, _, fail) = open_faulty(&dir);
    fill(&writer, 0, 1);
    let faults = ["sync idx", "cut idx"];
    let faults = faults.map(|step| (step.to_owned(), ErrorKind::Other));
    fail.lock().unwrap().extend(faults);
    fill(&writer, 3, 1);
    drop(writer);
    // The group is in both segments, and only the second one was acknowledged.
    let second = dir.join("segments/00000000000000000003.arrows");
    let bytes = fs::read(&second).unwrap();
    fs::write(&second, &bytes[..bytes.len() / 2]).unwrap();
    let recovered = Writer::open(&dir, WriterOptions::default()).unwrap().1;
    let lost = Some(Lost { from: 3, to: 6 });
    assert_eq!((recovered.position, recovered.lost), (6, lost));
    // It is gone from the first one too: it is not hidden by the list of losses alone.
    assert_eq!(
        fs::metadata(dir.join(SEGMENT)).unwrap().len(),
        2 * 4_096 + 8
    );
    fs::remove_file(dir.join("losses")).unwrap();
    let error = read_error(&Spool::open(&dir).unwrap(), 3..6);
    assert_eq!(error.code(), "spool.gap");
}

#[test]
fn positions_that_an_index_alone_still_names_are_not_given_out_again() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    // A loss of power may leave the small files as they are now.
    let stale = ["durable", "start"].map(|name| (name, fs::read(dir.join(name)).unwrap()));
    fill(&writer, 3, 2);
    writer.close(WAIT);
    for (name, bytes) in stale {
        fs::write(dir.join(name), bytes).unwrap();
    }
    fs::remove_file(dir.join("segments/00000000000000000000.arrows")).unwrap();
    let writer = open(&dir);
    assert_eq!(writer.stats().durable, 9);
    fill(&writer, 9, 1);
    let lost = Spool::open(&dir).unwrap().losses().unwrap();
    let lost: Vec<_> = lost.iter().map(|loss| (loss.from, loss.to)).collect();
    assert_eq!(lost, [(0, 9)]);
}

#[test]
fn a_position_that_an_empty_segment_names_outlives_its_removal() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    let mark = fs::read(dir.join("durable")).unwrap();
    fill(&writer, 3, 1);
    let killed = dir.with_extension("killed");
    copy(&dir, &killed);
    // A new segment was begun at 6; then the power failed, and took the second group of the first
    // one with it.
    let folder = folder_on(&killed, Arc::new(RealDisk));
    let identity = Identity::read(&folder).unwrap().unwrap();
    Active::begin(&folder, &IndexHeader::new(identity.uuid, 6, 1), 1 << 32, 0).unwrap();
    for (name, len) in [(SEGMENT, 2 * 4_096), (INDEX, 64 + 96)] {
        let bytes = fs::read(killed.join(name)).unwrap();
        fs::write(killed.join(name), &bytes[..len]).unwrap();
    }
    fs::write(killed.join("durable"), mark).unwrap();
    // The process ends as soon as the empty segment is removed.
    let disk = Recorder::default();
    let (from, to) = (killed.clone(), dir.with_extension("ended"));
    let keep = move || copy(&from, &to);
    *disk.then.lock().unwrap() = Some(("remove arrows".to_owned(), Box::new(keep)));
    let opened = Writer::open_on(
        &killed,
        WriterOptions::default(),
        Arc::new(disk),
        Pace::default(),
    );
    let lost = Some(Lost { from: 3, to: 6 });
    assert_eq!(opened.unwrap().1.lost, lost);
    let ended = dir.with_extension("ended");
    for end in ["arrows", "idx"] {
        fs::remove_file(ended.join(format!("segments/00000000000000000006.{end}"))).unwrap();
    }
    let recovered = Writer::open(&ended, WriterOptions::default()).unwrap().1;
    assert_eq!((recovered.position, recovered.lost), (6, lost));
}

#[test]
fn damage_with_something_sound_behind_it_is_a_hole_and_its_neighbours_stay() {
    let spool = Killed::new(true);
    let path = spool.dir.join(SEGMENT);
    let mut bytes = fs::read(&path).unwrap();
    bytes[spool.segment - 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (writer, recovered) = Writer::open(&spool.dir, WriterOptions::default()).unwrap();
    assert_eq!((recovered.position, recovered.lost), (9, None));
    fill(&writer, 9, 1);
    let reader = Spool::open(&spool.dir).unwrap();
    let losses = reader.losses().unwrap();
    let noted: Vec<_> = losses
        .iter()
        .map(|one| (one.from, one.to, one.why))
        .collect();
    assert_eq!(noted, [(3, 6, LossWhy::Corrupt)]);
    assert_eq!(positions(&batches(&spool.dir, 0..3, 1, 9)), [0, 1, 2]);
    let behind = positions(&batches(&spool.dir, 6..12, 1, 9));
    assert_eq!(behind, (6..12).collect::<Vec<_>>());
    let text = read_error(&reader, 0..12).to_string();
    assert!(text.contains("positions 3 to 6"), "{text}");
}

#[test]
fn an_index_with_any_damaged_byte_is_made_anew_and_loses_nothing() {
    let spool = Killed::new(true);
    spool.at_every_byte(INDEX, 0, |how, writer, recovered| {
        assert_eq!((recovered.position, recovered.lost), (9, None), "{how}");
        drop(writer);
        let got = positions(&batches(&spool.torn, 0..9, 1, 9));
        assert_eq!(got, (0..9).collect::<Vec<_>>(), "{how}");
    });
    copy(&spool.dir, &spool.torn);
    fs::remove_file(spool.torn.join(INDEX)).unwrap();
    let recovered = Writer::open(&spool.torn, WriterOptions::default())
        .unwrap()
        .1;
    assert_eq!((recovered.position, recovered.lost), (9, None));
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
    for byte in (4_096..4_160).chain(8_192..8_256) {
        let mut torn = whole.clone();
        torn[byte] ^= 0x10;
        fs::write(&path, torn).unwrap();
        let found = problems();
        assert_eq!(found.len(), 1, "byte {byte}: {found:?}");
        let slot = format!("slot {} of the durable mark", byte / 4_096 - 1);
        assert!(found[0].contains(&slot), "{found:?}");
    }
    fs::write(&path, &whole[..8_200]).unwrap();
    assert!(problems()[0].contains("slot 1"));
    drop(writer);
    open(&dir);
    assert_eq!(problems(), Vec::<String>::new());
}
