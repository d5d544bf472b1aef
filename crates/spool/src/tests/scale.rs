//! Many segments: only the requested ones are read.

use super::{
    find::{Shape, made_of, publish, put, segment_of},
    *,
};
use crate::{
    index::{index_name, segment_name},
    start::Start,
};

const SEGMENTS: u64 = 3_000;

/// Segments of one group of one event.
fn many(segments: u64) -> Shape {
    (0..segments).map(|_| vec![vec![(1, 10)]]).collect()
}

/// The descriptors that this process has open in a folder.
fn descriptors(dir: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    targets.filter(|target| target.starts_with(dir)).count()
}

#[test]
fn however_many_segments_are_read_few_are_open() {
    let (_temp, spool) = made_of(&many(SEGMENTS));
    let dir = spool.folder.dir().to_owned();
    let options = ReadOptions {
        batch_rows: 100,
        ..ReadOptions::default()
    };
    let mut most = 0;
    let mut look = || most = most.max(descriptors(&dir));
    assert_eq!(spool.end_for(5, None, None).unwrap(), SEGMENTS);
    look();
    assert_eq!(spool.end_for(5, Some(2_000), None).unwrap(), 2_005);
    let slices = spool.slices(0..SEGMENTS, 4, 1).unwrap();
    assert_eq!(slices.len() as u64, SEGMENTS);
    look();
    let mut read = 0;
    for batch in spool.read(&layouts(), 0..SEGMENTS, &options).unwrap() {
        read += batch.unwrap().num_rows() as u64;
        look();
    }
    assert_eq!(read, SEGMENTS);
    let mut blocks = 0;
    for block in spool.blocks(0..SEGMENTS).unwrap() {
        blocks += u64::from(block.unwrap().count);
        if blocks % 500 == 0 {
            look();
        }
    }
    assert_eq!(blocks, SEGMENTS);
    let back = spool.back_from(SEGMENTS, u64::MAX).unwrap();
    assert_eq!(
        back.map(|blocks| blocks.unwrap().len() as u64).sum::<u64>(),
        SEGMENTS
    );
    assert_eq!(spool.lag(0).unwrap().events, SEGMENTS);
    assert_eq!(spool.verify(&mut |_, _| look()).unwrap().events, SEGMENTS);
    // Root, segments, consumers, the mark; a segment and its index, and the next ones.
    assert!(most <= 8, "{most} descriptors");
}

#[test]
fn a_batch_is_planned_in_a_hundred_thousand_segments() {
    let segments = 100_000;
    let (_temp, spool) = made_of(&many(segments));
    let whole = spool.slices(0..segments, 16, 1).unwrap();
    assert_eq!(whole.len() as u64, segments, "a slice lies in one segment");
    let ends = whole.iter().map(|slice| (slice.start, slice.end));
    assert!(ends.eq((0..segments).map(|at| (at, at + 1))));
    let spool = Spool::open(spool.folder.dir()).unwrap();
    // The first plan of a view lists the folder; each one after that looks at its own segments alone.
    assert_eq!(
        spool.end_for(segments - 5, Some(3), None).unwrap(),
        segments - 2
    );
    let before = accesses();
    for first in [0, segments / 2, segments - 5] {
        assert_eq!(spool.end_for(first, Some(3), None).unwrap(), first + 3);
        assert_eq!(spool.slices(first..first + 3, 4, 1).unwrap().len(), 3);
    }
    let calls = accesses() - before;
    assert!(calls < 1_000, "{calls} system calls of reading");
}

/// The system calls by which this thread has read so far.
fn accesses() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find(|line| line.starts_with("syscr:")).unwrap();
    line.trim_start_matches("syscr:").trim().parse().unwrap()
}

#[test]
fn opening_a_spool_lists_no_segments() {
    let (_temp, spool) = made_of(&many(3));
    assert_eq!(spool.first_kept().unwrap(), 0);
    assert_eq!(spool.durable().unwrap(), 3);
    assert!(!spool.listed.is_listed());
    assert_eq!(spool.end_for(1, Some(1), None).unwrap(), 2);
    assert!(spool.listed.is_listed());
}

#[test]
fn a_spool_that_stays_open_finds_new_segments_and_forgets_old_ones() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        segment_bytes: 10_000,
        ..WriterOptions::default()
    };
    let writer = Writer::open(&dir, options).unwrap().0;
    let spool = Spool::open(&dir).unwrap();
    for round in 0..60 {
        fill(&writer, round * 3, 1);
        let end = (round + 1) * 3;
        assert_eq!(spool.end_for(0, None, None).unwrap(), end);
        assert_eq!(spool.end_for(end - 1, Some(9), None).unwrap(), end);
        let read = spool
            .read(&layouts(), 0..end, &ReadOptions::default())
            .unwrap();
        let rows: usize = read.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, end);
    }
    let firsts = crate::index::list(&spool.folder).unwrap();
    assert!(firsts.len() > 10, "{}", firsts.len());
    let start = Start {
        first: firsts[5] + 1,
        ..Start::read(&spool.folder).unwrap().unwrap()
    };
    Start {
        position: 180,
        ..start
    }
    .write(&spool.folder)
    .unwrap();
    for first in &firsts[..5] {
        fs::remove_file(dir.join("segments").join(segment_name(*first))).unwrap();
    }
    assert_eq!(spool.first_kept().unwrap(), firsts[5] + 1);
    assert_eq!(spool.end_for(firsts[5] + 1, None, None).unwrap(), 180);
    assert_eq!(
        spool.end_for(0, None, None).unwrap_err().code(),
        "spool.gap"
    );
    assert_eq!(spool.find(0).unwrap(), firsts[5] + 1);
}

#[test]
fn the_segment_behind_one_that_failed_is_found_by_a_spool_that_stays_open() {
    let (_temp, spool) = made_of(&vec![vec![vec![(3, 10)], vec![(3, 10)]]]);
    let dir = spool.folder.dir().to_owned();
    publish(&dir, 3);
    let rows = |range: Range<u64>| -> Vec<i64> {
        let read = spool
            .read(&layouts(), range, &ReadOptions::default())
            .unwrap();
        positions(&read.collect::<Result<Vec<_>, _>>().unwrap())
    };
    assert_eq!(rows(0..3), [0, 1, 2]);
    // The second group was written and never acknowledged: the next segment begins at its first
    // position.
    let (bytes, index) = segment_of(&dir, &[vec![(1, 10)], vec![(6, 10)]], 3, 2, false);
    put(&dir.join("segments").join(segment_name(3)), &bytes);
    put(&dir.join("segments").join(index_name(3)), &index);
    publish(&dir, 4);
    assert_eq!(rows(0..4), [0, 1, 2, 3]);
    publish(&dir, 10);
    assert_eq!(rows(2..10), (2..10).collect::<Vec<_>>());
    assert_eq!(spool.end_for(0, Some(4), None).unwrap(), 4);
    let counts = spool
        .blocks(0..10)
        .unwrap()
        .map(|block| block.unwrap().count);
    assert_eq!(counts.collect::<Vec<_>>(), [3, 1, 6]);
}
