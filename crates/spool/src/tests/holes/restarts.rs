//! Groups that a start or retention moves, and the writers of groups.

use super::*;

/// A spool whose writer was killed after three groups of three events in one segment. The next
/// start moves the last one.
fn killed_behind_three_groups() -> (tempfile::TempDir, Spool) {
    let (temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 3);
    let killed = dir.with_extension("killed");
    copy(&dir, &killed);
    writer.close(WAIT);
    (temp, Spool::open(&killed).unwrap())
}

/// Starts a writer, which moves the last group, and stops it.
fn restart(spool: &Spool) {
    let dir = spool.folder.dir();
    let moved = dir.join("segments/00000000000000000006.arrows");
    assert!(!moved.exists());
    open(dir).close(WAIT);
    assert!(moved.exists());
}

#[test]
fn a_group_that_a_start_moves_is_found_by_earlier_plans_and_readers() {
    for on_loss in [OnLoss::Fail, OnLoss::Skip] {
        let options = ReadOptions {
            on_loss,
            batch_rows: 3,
            ..ReadOptions::default()
        };
        let all = |reader: &mut Reader| {
            let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
            assert_eq!(ranges(reader.skipped()), []);
            positions(&found)
        };
        // Planned before, also inside the group.
        let (_temp, spool) = killed_behind_three_groups();
        let slices = [spool.slices(0..9, 1, 1), spool.slices(1..8, 1, 1)];
        let slices = slices.map(Result::unwrap).concat();
        restart(&spool);
        for (slice, to) in slices.iter().zip([0..9, 1..8]) {
            let mut reader = Spool::read_slice(&layouts(), slice, &options).unwrap();
            assert_eq!(all(&mut reader), to.collect::<Vec<_>>());
        }
        // Begun before.
        for is_slice in [true, false] {
            let (_temp, spool) = killed_behind_three_groups();
            let slice = spool.slices(0..9, 1, 1).unwrap().remove(0);
            let mut reader = if is_slice {
                Spool::read_slice(&layouts(), &slice, &options).unwrap()
            } else {
                spool.read(&layouts(), 0..9, &options).unwrap()
            };
            let first = reader.next().unwrap().unwrap();
            restart(&spool);
            assert_eq!(positions(&[first]), [0, 1, 2]);
            assert_eq!(all(&mut reader), (3..9).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_group_that_a_start_moves_is_no_problem_and_no_hole() {
    let (_temp, spool) = killed_behind_three_groups();
    let mut blocks = spool.blocks(0..9).unwrap();
    assert_eq!(blocks.next().unwrap().unwrap().first_position, 0);
    let mut is_restarted = false;
    let mut progress = |_, _| {
        if !std::mem::replace(&mut is_restarted, true) {
            restart(&spool);
        }
    };
    let report = spool.verify(&mut progress).unwrap();
    assert_eq!(report.problems, [""; 0]);
    assert_eq!(report.events, 9);
    let rest: Vec<_> = blocks.map(|block| block.unwrap().first_position).collect();
    assert_eq!(rest, [3, 6]);
    assert_eq!(spool.holes(0..9, true).unwrap(), []);
}

#[test]
fn a_removal_by_retention_during_verification_is_no_problem() {
    let (_temp, spool) = made_of(&shape(4));
    let mut is_retired = false;
    let mut progress = |_, _| {
        if !std::mem::replace(&mut is_retired, true) {
            retire(&spool, 27);
            for first in [9, 18] {
                fs::remove_file(segment_path(&spool, first)).unwrap();
            }
        }
    };
    let report = spool.verify(&mut progress).unwrap();
    assert_eq!(report.problems, [""; 0]);
    assert!(is_retired && report.events < 36, "{} events", report.events);
}

#[test]
fn each_group_says_which_writer_wrote_it() {
    let (_temp, dir) = temp();
    for round in 0..2 {
        let writer = open(&dir);
        fill(&writer, round * 3, 1);
        writer.close(WAIT);
    }
    let spool = Spool::open(&dir).unwrap();
    let epoch = |at| spool.epoch_at(at).unwrap();
    assert_eq!(epoch(0), epoch(2));
    assert!(epoch(0) < epoch(3), "{:?} {:?}", epoch(0), epoch(3));
    assert_eq!(epoch(5), epoch(3));
    assert_eq!(epoch(6), None);
    let start = crate::start::Start::read(&opened(&dir)).unwrap().unwrap();
    crate::start::Start {
        first: 3,
        position: 6,
        ..start
    }
    .write(&spool.folder)
    .unwrap();
    assert_eq!(epoch(0), None);
}

#[test]
fn events_above_the_durable_mark_are_not_read() {
    let (_temp, spool) = made_of(&shape(2));
    publish(&dir_of(&spool), 12);
    assert_eq!(strictly(&spool, 0..12).0, all(&[0..12]));
    assert_eq!(spool.end_for(0, None, None).unwrap(), 12);
    assert_eq!(
        strictly(&spool, 0..13).1.unwrap().code(),
        "spool.behind_checkpoint"
    );
    assert_eq!(report(&spool).events, 12);
}
