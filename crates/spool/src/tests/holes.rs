//! Positions that are lost or damaged: a strict reader names them, others may skip them.

// One range is a list of ranges here.
#![allow(clippy::single_range_in_vec_init)]

mod restarts;

use super::{
    consumers::retire,
    find::{Shape, made_in, made_of, opened, publish, put, segment_of},
    *,
};
use crate::{
    Loss, LossWhy, Reader,
    index::{HEADER_BYTES, index_name, segment_name},
    losses,
    read::OnLoss,
    segment::SECTOR_BYTES,
};

/// Segments of 9 events each in 3 groups, so that a group begins at each multiple of 3.
fn shape(segments: usize) -> Shape {
    let groups = (0..3).map(|_| vec![(2, 10), (1, 10)]);
    vec![groups.collect(); segments]
}

fn dir_of(spool: &Spool) -> PathBuf {
    spool.folder.dir().to_owned()
}

fn segment_path(spool: &Spool, first: u64) -> PathBuf {
    dir_of(spool).join("segments").join(segment_name(first))
}

fn index_path(spool: &Spool, first: u64) -> PathBuf {
    dir_of(spool).join("segments").join(index_name(first))
}

fn remove(spool: &Spool, first: u64) {
    fs::remove_file(segment_path(spool, first)).unwrap();
    fs::remove_file(index_path(spool, first)).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Flips a bit in the bodies of the group of this number.
fn damage(spool: &Spool, first: u64, number: usize) {
    // The schema takes a sector, and each group one.
    flip(&segment_path(spool, first), (number + 2) * SECTOR_BYTES - 1);
}

fn note(spool: &Spool, from: u64, to: u64, why: LossWhy) {
    let loss = Loss {
        from,
        to,
        why,
        noted_us: 7,
    };
    losses::add(&spool.folder, spool.uuid(), &[loss]).unwrap();
}

type Found = (Vec<i64>, Option<SpoolError>, Vec<(u64, u64, LossWhy)>);

fn ranges(losses: &[Loss]) -> Vec<(u64, u64, LossWhy)> {
    losses
        .iter()
        .map(|one| (one.from, one.to, one.why))
        .collect()
}

/// The positions that are delivered, the error, and the skipped positions.
fn read(spool: &Spool, range: Range<u64>, on_loss: OnLoss, threads: usize) -> Found {
    let options = ReadOptions {
        batch_rows: 4,
        on_loss,
        threads,
        ..ReadOptions::default()
    };
    let mut reader = match spool.read(&layouts(), range, &options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), Vec::new()),
    };
    let (mut found, mut failed) = (Vec::new(), None);
    for batch in reader.by_ref() {
        match batch {
            Ok(batch) => found.extend(positions(&[batch])),
            Err(error) => {
                assert!(failed.is_none());
                failed = Some(error);
            }
        }
    }
    (found, failed, ranges(reader.skipped()))
}

fn strictly(spool: &Spool, range: Range<u64>) -> (Vec<i64>, Option<SpoolError>) {
    let (found, failed, skipped) = read(spool, range.clone(), OnLoss::Fail, 1);
    assert_eq!(skipped, []);
    let by_threads = read(spool, range, OnLoss::Fail, 3);
    assert_eq!(by_threads.0, found);
    assert_eq!(
        by_threads.1.map(|e| e.to_string()),
        failed.as_ref().map(ToString::to_string)
    );
    (found, failed)
}

fn leniently(spool: &Spool, range: Range<u64>) -> (Vec<i64>, Vec<(u64, u64, LossWhy)>) {
    let (found, failed, skipped) = read(spool, range.clone(), OnLoss::Skip, 1);
    assert!(failed.is_none(), "{failed:?}");
    let by_threads = read(spool, range, OnLoss::Skip, 3);
    assert_eq!((&by_threads.0, &by_threads.2), (&found, &skipped));
    (found, skipped)
}

fn gap_of(error: Option<SpoolError>) -> (u64, u64) {
    match error {
        Some(SpoolError::Gap {
            position,
            first_kept,
        }) => (position, first_kept),
        other => panic!("{other:?}"),
    }
}

fn all(ranges: &[Range<i64>]) -> Vec<i64> {
    ranges.iter().cloned().flatten().collect()
}

fn report(spool: &Spool) -> crate::Report {
    spool.verify(&mut |_, _| {}).unwrap()
}

/// A way to damage the bytes of an index.
type Way<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn a_strict_reader_delivers_the_events_before_a_removed_segment_and_names_it() {
    let (_temp, spool) = made_of(&shape(3));
    remove(&spool, 9);
    let (found, failed) = strictly(&spool, 1..27);
    assert_eq!((found, gap_of(failed)), (all(&[1..9]), (9, 18)));
    let (found, failed) = strictly(&spool, 12..27);
    assert_eq!((found, gap_of(failed)), (vec![], (12, 18)));
    assert_eq!(strictly(&spool, 0..9).0, all(&[0..9]));
    assert_eq!(strictly(&spool, 18..27).0, all(&[18..27]));
}

#[test]
fn a_lenient_reader_skips_exactly_a_removed_segment() {
    let (_temp, spool) = made_of(&shape(3));
    remove(&spool, 9);
    let (found, skipped) = leniently(&spool, 0..27);
    assert_eq!(found, all(&[0..9, 18..27]));
    assert_eq!(skipped, [(9, 18, LossWhy::Removed)]);
    assert_eq!(
        leniently(&spool, 7..12),
        (vec![7, 8], vec![(9, 12, LossWhy::Removed)])
    );
    assert_eq!(
        leniently(&spool, 11..14),
        (vec![], vec![(11, 14, LossWhy::Removed)])
    );
}

#[test]
fn segments_that_are_removed_at_the_ends_are_holes_too() {
    let (_temp, spool) = made_of(&shape(3));
    remove(&spool, 0);
    remove(&spool, 18);
    let (found, skipped) = leniently(&spool, 0..27);
    assert_eq!(found, all(&[9..18]));
    assert_eq!(
        skipped,
        [(0, 9, LossWhy::Removed), (18, 27, LossWhy::Removed)]
    );
    assert_eq!(gap_of(strictly(&spool, 3..27).1), (3, 9));
    assert_eq!(gap_of(strictly(&spool, 10..27).1), (18, 27));
    let problems = report(&spool).problems;
    assert_eq!(
        problems,
        [
            "positions 0 to 9 are missing",
            "positions 18 to 27 are missing"
        ]
    );
}

#[test]
fn everything_below_the_start_counts_as_gone_although_files_are_left() {
    let (_temp, spool) = made_of(&shape(3));
    let start = crate::start::Start::read(&spool.folder).unwrap().unwrap();
    let start = crate::start::Start {
        first: 12,
        position: 27,
        ..start
    };
    start.write(&spool.folder).unwrap();
    assert_eq!(spool.first_kept().unwrap(), 12);
    assert_eq!(gap_of(strictly(&spool, 2..27).1), (2, 12));
    assert_eq!(spool.blocks(0..27).err().unwrap().code(), "spool.gap");
    assert_eq!(
        leniently(&spool, 10..14),
        (vec![12, 13], vec![(10, 12, LossWhy::Removed)])
    );
    assert_eq!(report(&spool).problems, Vec::<String>::new());
    assert_eq!(spool.find(0).unwrap(), 12);
    assert_eq!(
        spool.end_for(3, None, None).unwrap_err().code(),
        "spool.gap"
    );
}

#[test]
fn a_damaged_group_is_named_by_its_positions_or_skipped() {
    let (_temp, spool) = made_of(&shape(2));
    damage(&spool, 0, 1);
    let (found, failed) = strictly(&spool, 0..18);
    let failed = failed.unwrap();
    assert_eq!((found, failed.code()), (all(&[0..3]), "spool.corrupt"));
    assert!(failed.to_string().contains("positions 3 to 6"), "{failed}");
    let (found, skipped) = leniently(&spool, 0..18);
    assert_eq!(found, all(&[0..3, 6..18]));
    assert_eq!(skipped, [(3, 6, LossWhy::Corrupt)]);
    assert_eq!(
        leniently(&spool, 1..5),
        (vec![1, 2], vec![(3, 5, LossWhy::Corrupt)])
    );
    assert_eq!(spool.holes(0..18, false).unwrap(), []);
    assert_eq!(
        ranges(&spool.holes(0..18, true).unwrap()),
        [(3, 6, LossWhy::Corrupt)]
    );
    assert_eq!(
        ranges(&spool.holes(4..5, true).unwrap()),
        [(4, 5, LossWhy::Corrupt)]
    );
}

#[test]
fn a_noted_range_is_a_loss_and_no_problem() {
    let (_temp, spool) = made_of(&shape(3));
    damage(&spool, 0, 1);
    remove(&spool, 9);
    let before = report(&spool);
    assert_eq!(before.problems.len(), 2, "{:?}", before.problems);
    assert_eq!(before.losses, []);
    note(&spool, 3, 6, LossWhy::Corrupt);
    note(&spool, 9, 18, LossWhy::Removed);
    let after = report(&spool);
    assert_eq!(after.problems, Vec::<String>::new());
    let noted = [(3, 6, LossWhy::Corrupt), (9, 18, LossWhy::Removed)];
    assert_eq!(ranges(&after.losses), noted);
    assert_eq!(after.losses[0].noted_us, 7);
    assert_eq!((after.segments, after.groups, after.events), (2, 5, 15));
    assert_eq!(ranges(&spool.losses().unwrap()), noted);
    assert_eq!(
        leniently(&spool, 0..27),
        (all(&[0..3, 6..9, 18..27]), noted.to_vec())
    );
    let (found, failed) = strictly(&spool, 0..27);
    let failed = failed.unwrap();
    assert_eq!((found, failed.code()), (all(&[0..3]), "spool.corrupt"));
    assert!(failed.to_string().contains("positions 3 to 6"), "{failed}");
    let events = spool
        .blocks(0..27)
        .unwrap()
        .map(|block| block.unwrap().count);
    assert_eq!(events.sum::<u32>(), 15);
    assert_eq!(spool.lag(0).unwrap().events, 15);
}

#[test]
fn a_loss_that_is_noted_inside_a_group_leaves_its_other_events() {
    let (_temp, spool) = made_of(&shape(1));
    note(&spool, 4, 5, LossWhy::Lost);
    assert_eq!(
        leniently(&spool, 0..9),
        (all(&[0..4, 5..9]), vec![(4, 5, LossWhy::Lost)])
    );
    assert_eq!(gap_of(strictly(&spool, 0..9).1), (4, 5));
    assert_eq!(spool.end_for(0, None, None).unwrap(), 4);
}

#[test]
fn an_index_that_is_missing_or_damaged_is_made_from_the_segment() {
    let header = |bytes: &mut Vec<u8>| bytes[20] ^= 1;
    let entry = |bytes: &mut Vec<u8>| bytes[HEADER_BYTES + 96 + 24] ^= 1;
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(HEADER_BYTES + 100);
    let empty = |bytes: &mut Vec<u8>| bytes.clear();
    let ways: [Way<'_>; 4] = [&header, &entry, &cut, &empty];
    for (way, change) in ways.into_iter().enumerate() {
        for first in [0, 9, 18] {
            let (_temp, spool) = made_of(&shape(3));
            let path = index_path(&spool, first);
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert_eq!(
                strictly(&spool, 0..27).0,
                all(&[0..27]),
                "way {way}, {first}"
            );
            assert_eq!(spool.end_for(0, Some(20), None).unwrap(), 20);
            assert_eq!(spool.lag(0).unwrap().events, 27);
            assert_eq!(spool.find(11).unwrap(), 27);
            let found = spool.digests(&layouts(), &[first + 3], &crate::Digester::keyed([1; 32]));
            assert_eq!(found.unwrap().found.len(), 2);
            let problems = report(&spool).problems;
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains("index"), "{problems:?}");
        }
    }
    let (_temp, spool) = made_of(&shape(3));
    fs::remove_file(index_path(&spool, 9)).unwrap();
    assert_eq!(strictly(&spool, 0..27).0, all(&[0..27]));
    let back: Vec<_> = spool
        .back_from(27, u64::MAX)
        .unwrap()
        .flat_map(Result::unwrap)
        .collect();
    assert_eq!(back.iter().map(|one| one.events).sum::<u32>(), 27);
}

#[test]
fn any_one_entry_that_is_not_sound_hides_nothing() {
    let groups: Vec<_> = (0..600).map(|_| vec![(1, 10)]).collect();
    let (_temp, spool) = made_of(&vec![groups.clone(), groups]);
    let path = index_path(&spool, 0);
    let whole = fs::read(&path).unwrap();
    for number in [0, 1, 255, 256, 299, 300, 598, 599] {
        flip(&path, HEADER_BYTES + number * 96 + 30);
        let spool = Spool::open(&dir_of(&spool)).unwrap();
        for start in [0, 1, 254, 256, 299, 300, 301, 598, 599] {
            assert_eq!(
                strictly(&spool, start..610).0.len() as u64,
                610 - start,
                "{number}"
            );
        }
        assert_eq!(spool.end_for(0, None, None).unwrap(), 1_200);
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn without_an_index_a_group_whose_head_is_damaged_is_a_hole() {
    let (_temp, spool) = made_of(&shape(2));
    fs::remove_file(index_path(&spool, 0)).unwrap();
    flip(&segment_path(&spool, 0), 2 * SECTOR_BYTES + 1);
    let (found, skipped) = leniently(&spool, 0..18);
    assert_eq!(
        (found, skipped),
        (all(&[0..3, 6..18]), vec![(3, 6, LossWhy::Corrupt)])
    );
    let (found, failed) = strictly(&spool, 0..18);
    let failed = failed.unwrap();
    assert_eq!((found, failed.code()), (all(&[0..3]), "spool.corrupt"));
    assert!(failed.to_string().contains("positions 3 to 6"), "{failed}");
    assert_eq!(
        ranges(&spool.holes(0..18, false).unwrap()),
        [(3, 6, LossWhy::Corrupt)]
    );
}

#[test]
fn in_format_1_only_the_positions_of_a_damaged_entry_are_a_hole() {
    let (_temp, spool) = made_in(&shape(3), 1);
    assert_eq!(strictly(&spool, 0..27).0, all(&[0..27]));
    assert_eq!(spool.epoch_at(4).unwrap(), None);
    flip(&index_path(&spool, 9), HEADER_BYTES + 64 + 30);
    let (found, failed) = strictly(&spool, 0..27);
    assert_eq!(
        (found, failed.unwrap().code()),
        (all(&[0..12]), "spool.corrupt")
    );
    let (found, skipped) = leniently(&spool, 0..27);
    assert_eq!(
        (found, skipped),
        (all(&[0..12, 15..27]), vec![(12, 15, LossWhy::Corrupt)])
    );
    // Without its header nothing of the index counts.
    flip(&index_path(&spool, 9), 20);
    let (found, skipped) = leniently(&spool, 0..27);
    assert_eq!(
        (found, skipped),
        (all(&[0..9, 18..27]), vec![(9, 18, LossWhy::Corrupt)])
    );
    assert_eq!(strictly(&spool, 10..20).1.unwrap().code(), "spool.corrupt");
}

#[test]
fn a_lost_tail_of_a_segment_is_a_hole() {
    let (_temp, spool) = made_of(&shape(2));
    let group = vec![(3, 10)];
    let (bytes, index) = segment_of(&dir_of(&spool), &[group], 0, 2, true);
    put(&segment_path(&spool, 0), &bytes);
    put(&index_path(&spool, 0), &index);
    let (found, skipped) = leniently(&spool, 0..18);
    assert_eq!(found, all(&[0..3, 9..18]));
    assert_eq!(skipped, [(3, 9, LossWhy::Removed)]);
    assert_eq!(gap_of(strictly(&spool, 0..18).1), (3, 9));
}

#[test]
fn a_batch_ends_before_a_hole_or_continues_after_it() {
    let (_temp, spool) = made_of(&shape(3));
    remove(&spool, 9);
    for (rows, strict, lenient) in [
        (None, 9, 27),
        (Some(5), 5, 5),
        (Some(9), 9, 18),
        (Some(10), 9, 18),
        (Some(11), 9, 20),
        (Some(40), 9, 27),
    ] {
        assert_eq!(spool.end_for(0, rows, None).unwrap(), strict, "{rows:?}");
        let end = spool.end_for_with(0, rows, None, OnLoss::Skip).unwrap();
        assert_eq!(end, lenient, "{rows:?}");
    }
    assert_eq!(gap_of(spool.end_for(11, Some(1), None).err()), (11, 18));
    assert_eq!(gap_of(spool.end_for(9, None, None).err()), (9, 18));
    assert_eq!(
        spool.end_for_with(11, Some(1), None, OnLoss::Skip).unwrap(),
        19
    );
    assert_eq!(spool.end_for(18, None, None).unwrap(), 27);
    assert_eq!(spool.end_for(27, Some(1), None).unwrap(), 27);
}

#[test]
fn a_hole_that_is_noted_after_a_look_ends_the_next_batch() {
    let (_temp, spool) = made_of(&shape(3));
    for _ in 0..2 {
        assert_eq!(spool.end_for(2, None, None).unwrap(), 27);
    }
    note(&spool, 12, 15, LossWhy::Corrupt);
    assert_eq!(spool.end_for(2, None, None).unwrap(), 12);
    assert_eq!(
        spool.end_for(13, None, None).unwrap_err().code(),
        "spool.corrupt"
    );
    assert_eq!(spool.end_for(15, None, None).unwrap(), 27);
}

#[test]
fn no_slice_spans_a_hole() {
    let (_temp, spool) = made_of(&shape(3));
    note(&spool, 12, 15, LossWhy::Corrupt);
    assert_eq!(
        spool.slices(0..27, 3, 1).unwrap_err().code(),
        "spool.corrupt"
    );
    assert_eq!(spool.slices(0..12, 1, 1).unwrap().len(), 2);
    let slices = spool.slices_with(0..27, 1, 1, OnLoss::Skip).unwrap();
    let cut: Vec<_> = slices.iter().map(|one| one.start..one.end).collect();
    assert_eq!(cut, [0..9, 9..12, 15..18, 18..27]);
    let mut found = Vec::new();
    for slice in &slices {
        let reader = Spool::read_slice(&layouts(), slice, &ReadOptions::default()).unwrap();
        found.extend(positions(&reader.collect::<Result<Vec<_>, _>>().unwrap()));
    }
    assert_eq!(found, all(&[0..12, 15..27]));
}

#[test]
fn a_slice_that_was_damaged_since_it_was_planned_is_read_around_the_damage() {
    let (_temp, spool) = made_of(&shape(1));
    let slices = spool.slices(1..8, 1, 1).unwrap();
    damage(&spool, 0, 1);
    let options = |on_loss| ReadOptions {
        on_loss,
        ..ReadOptions::default()
    };
    let strict = Spool::read_slice(&layouts(), &slices[0], &options(OnLoss::Fail)).unwrap();
    let strict: Vec<_> = strict.collect();
    assert_eq!(positions(&[strict[0].clone().unwrap()]), [1, 2]);
    assert_eq!(strict[1].clone().unwrap_err().code(), "spool.corrupt");
    let mut reader = Spool::read_slice(&layouts(), &slices[0], &options(OnLoss::Skip)).unwrap();
    let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(positions(&found), [1, 2, 6, 7]);
    assert_eq!(ranges(reader.skipped()), [(3, 6, LossWhy::Corrupt)]);
    fs::remove_file(segment_path(&spool, 0)).unwrap();
    let gone = Spool::read_slice(&layouts(), &slices[0], &ReadOptions::default());
    assert_eq!(gap_of(gone.err()), (1, 8));
}
