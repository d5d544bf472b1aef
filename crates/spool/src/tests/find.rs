//! From times to positions, in spools whose clock misbehaved.

use proptest::prelude::*;

use super::*;
use crate::{
    find::again,
    folder::{Folder, MARK},
    format::Identity,
    index::{Entry, HEADER_BYTES, IndexHeader, Kind, OLD_ENTRY_BYTES, index_name, segment_name},
    mark::Mark,
    segment::{END_OF_STREAM, Encoder, Placed, Stamp},
};

/// Blocks (events, `received_at`) in groups in segments.
pub(super) type Shape = Vec<Vec<Vec<(u32, i64)>>>;

/// Writes a spool of that shape whose durable times fall: the clock was set back all the time.
pub(super) fn made_of(shape: &Shape) -> (tempfile::TempDir, Spool) {
    made_in(shape, crate::format::FORMAT)
}

/// The same, in this format.
pub(super) fn made_in(shape: &Shape, format: u64) -> (tempfile::TempDir, Spool) {
    let (temp, dir) = temp();
    drop(open(&dir));
    let mut next = 0;
    for (at, groups) in shape.iter().enumerate() {
        let (bytes, index) = segment_of(&dir, groups, next, format, at + 1 < shape.len());
        put(&dir.join("segments").join(segment_name(next)), &bytes);
        put(&dir.join("segments").join(index_name(next)), &index);
        next += events_of(groups);
    }
    publish(&dir, next);
    let spool = Spool::open(&dir).unwrap();
    (temp, spool)
}

/// The bytes of a segment and of its index.
pub(super) fn segment_of(
    dir: &Path,
    groups: &[Vec<(u32, i64)>],
    first: u64,
    format: u64,
    is_ended: bool,
) -> (Vec<u8>, Vec<u8>) {
    let folder = opened(dir);
    let uuid = Identity::read(&folder).unwrap().unwrap().uuid;
    let epoch = published(dir).epoch;
    let mut header = IndexHeader::new(uuid, first, groups[0][0].1);
    let (mut encoder, mut segment) = Encoder::new(&header).unwrap();
    let is_old = format == 1;
    if is_old {
        // Format 1 had no copy of the index in the segment.
        header.entry_bytes = OLD_ENTRY_BYTES;
        let at = segment.len() - HEADER_BYTES;
        segment[at..].fill(0);
    }
    let mut index = header.encode().to_vec();
    let mut next = first;
    for blocks in groups {
        let placed = blocks.iter().scan(next, |first, &(count, received_at_us)| {
            let block = block(*first, count);
            *first += u64::from(count);
            Some(Placed {
                block,
                received_at_us,
            })
        });
        let stamp = Stamp {
            first: next,
            offset: segment.len() as u64,
            time_us: -i64::try_from(next).unwrap(),
            epoch,
            watched_us: 0,
        };
        let (mut entry, pieces) = encoder.group(&placed.collect::<Vec<_>>(), &stamp).unwrap();
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        if is_old {
            let at = bytes.windows(4).position(|four| four == b"SEAL").unwrap();
            bytes[at..at + 4].fill(0);
            let crc = crc32c::crc32c(&bytes);
            entry = Entry {
                crc,
                epoch: 0,
                is_sealed: false,
                ..entry
            };
        }
        next = entry.end();
        segment.extend(bytes);
        index.extend(entry.encode());
    }
    if is_ended {
        let footer = Entry {
            kind: Kind::Footer,
            blocks: u32::try_from(groups.iter().map(Vec::len).sum::<usize>()).unwrap(),
            offset: segment.len() as u64,
            length: 8,
            crc: crc32c::crc32c(&END_OF_STREAM),
            first,
            count: next - first,
            time_us: 0,
            inflated: (next - first) * 8,
            epoch,
            watched_us: 0,
            is_sealed: !is_old,
        };
        segment.extend(END_OF_STREAM);
        index.extend(footer.encode());
    }
    (segment, index)
}

fn events_of(groups: &[Vec<(u32, i64)>]) -> u64 {
    let blocks = groups.iter().flatten();
    blocks.map(|(count, _)| u64::from(*count)).sum()
}

/// Writes a file as the spool would.
pub(super) fn put(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;

    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The spool's folder.
pub(super) fn opened(dir: &Path) -> Folder {
    Folder::open(
        dir,
        crate::Access::default(),
        Arc::new(crate::disk::RealDisk),
    )
    .unwrap()
}

/// The contents of the durable mark.
pub(super) fn published(dir: &Path) -> Mark {
    let path = dir.join(MARK);
    Mark::read(&fs::File::open(&path).unwrap(), &path).unwrap()
}

/// Sets the durable mark.
pub(super) fn publish(dir: &Path, position: u64) {
    let mark = Mark {
        position,
        ..published(dir)
    };
    fs::write(dir.join(MARK), mark.file()).unwrap();
}

/// When each event was received, by walking.
fn times(shape: &Shape) -> Vec<i64> {
    let blocks = shape.iter().flatten().flatten();
    blocks
        .flat_map(|&(count, time)| (0..count).map(move |_| time))
        .collect()
}

fn model(shape: &Shape, at_us: i64) -> u64 {
    times(shape).iter().filter(|time| **time < at_us).count() as u64
}

#[test]
fn a_time_is_found_at_the_borders_of_segments_groups_and_blocks() {
    let shape = vec![
        vec![vec![(3, 10), (2, 20)], vec![(1, 20), (4, 30)]],
        vec![vec![(2, 30)], vec![(2, 40), (1, 50)]],
        vec![vec![(5, 50)], vec![(5, 50)], vec![(1, 60)]],
    ];
    let (_temp, spool) = made_of(&shape);
    for at in [
        0,
        9,
        10,
        11,
        19,
        20,
        21,
        29,
        30,
        31,
        40,
        49,
        50,
        51,
        60,
        61,
        i64::MAX,
    ] {
        assert_eq!(spool.find(at).unwrap(), model(&shape, at), "time {at}");
    }
}

#[test]
fn a_clock_set_back_an_hour_does_not_set_times_back() {
    let (_temp, dir) = temp();
    let hour = 3_600_000_000;
    let writer = open(&dir);
    fill(&writer, 0, 2);
    writer.close(WAIT);
    // The last writer's times are an hour ahead of the next writer's clock.
    let ahead = crate::now_us() + hour;
    let shape = vec![vec![vec![(3, ahead), (3, ahead + 1)]]];
    let (_made, made) = made_of(&shape);
    let writer = open(made.folder.dir());
    fill(&writer, 6, 2);
    writer.close(WAIT);
    let spool = Spool::open(made.folder.dir()).unwrap();
    let received: Vec<_> = spool
        .blocks(0..12)
        .unwrap()
        .map(|block| block.unwrap().received_at_us)
        .collect();
    assert_eq!(received, [ahead, ahead + 1, ahead + 1, ahead + 1]);
    assert_eq!(spool.find(ahead).unwrap(), 0);
    assert_eq!(spool.find(ahead + 1).unwrap(), 3);
    assert_eq!(spool.find(crate::now_us()).unwrap(), 0);
    assert_eq!(spool.find(ahead + 2).unwrap(), 12);
}

#[test]
fn an_empty_spool_has_every_time_at_its_end() {
    let (_temp, spool) = made_of(&Vec::new());
    assert_eq!(spool.find(0).unwrap(), 0);
    assert_eq!(spool.lag(0).unwrap(), crate::Lag::default());
    assert_eq!(spool.waiting_since(0).unwrap(), None);
}

#[test]
fn a_retired_segment_is_not_looked_into() {
    let shape = vec![
        vec![vec![(3, 10)]],
        vec![vec![(3, 20)]],
        vec![vec![(3, 30)]],
    ];
    let (_temp, spool) = made_of(&shape);
    let segments = spool.folder.dir().join("segments");
    fs::remove_file(segments.join(index_name(0))).unwrap();
    fs::remove_file(segments.join(segment_name(0))).unwrap();
    assert_eq!(spool.find(5).unwrap(), 3);
    assert_eq!(spool.find(25).unwrap(), 6);
    assert_eq!(spool.lag(0).unwrap().events, 6);
    assert_eq!(spool.lag(0).unwrap().oldest_us, Some(20));
}

#[test]
fn a_lag_counts_the_kept_events_above_a_position() {
    let shape = vec![
        vec![vec![(3, 10), (2, 20)], vec![(5, 30)]],
        vec![vec![(2, 40)]],
    ];
    let (_temp, spool) = made_of(&shape);
    let lag = |position| {
        let lag = spool.lag(position).unwrap();
        (lag.events, lag.oldest_us)
    };
    assert_eq!(lag(0), (12, Some(10)));
    assert_eq!(lag(2), (10, Some(10)));
    assert_eq!(lag(3), (9, Some(20)));
    assert_eq!(lag(5), (7, Some(30)));
    assert_eq!(lag(11), (1, Some(40)));
    assert_eq!(lag(12), (0, None));
    for position in 0..12 {
        let since = spool.waiting_since(position).unwrap();
        assert_eq!(since, lag(position).1, "{position}");
    }
    assert_eq!(spool.waiting_since(12).unwrap(), None);
    let above = spool.waiting_since(13).unwrap_err();
    assert_eq!(above.code(), "spool.behind_checkpoint");
    assert_eq!(spool.lag(12).unwrap().bytes, 0);
    assert!(spool.bytes().unwrap() > spool.lag(0).unwrap().bytes);
    assert!(spool.lag(4).unwrap().bytes > spool.lag(5).unwrap().bytes);
    assert_eq!(spool.lag(3).unwrap().bytes, spool.lag(0).unwrap().bytes);
    assert_eq!(spool.lag(13).unwrap_err().code(), "spool.behind_checkpoint");
}

/// Times that never fall, with many that are equal.
fn shapes() -> impl Strategy<Value = Shape> {
    let block = (1..4_u32, 0..3_i64);
    let group = prop::collection::vec(block, 1..4);
    let segment = prop::collection::vec(group, 1..5);
    prop::collection::vec(segment, 0..5).prop_map(|mut shape: Shape| {
        let mut now = 100;
        for (_, time) in shape.iter_mut().flatten().flatten() {
            now += *time;
            *time = now;
        }
        shape
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_time_is_found_where_walking_finds_it(shape in shapes()) {
        let (_temp, spool) = made_of(&shape);
        let all = times(&shape);
        let last = all.last().copied().unwrap_or(100);
        for at in 98..=last + 2 {
            prop_assert_eq!(spool.find(at).unwrap(), model(&shape, at), "time {}", at);
        }
        for position in 0..=all.len() {
            let lag = spool.lag(position as u64).unwrap();
            prop_assert_eq!(lag.events, (all.len() - position) as u64);
            prop_assert_eq!(lag.oldest_us, all.get(position).copied());
        }
    }
}

#[test]
fn a_segment_that_is_retired_while_we_look_is_looked_for_again() {
    let gone = || {
        SpoolError::io(
            "open",
            Path::new("x.idx"),
            std::io::ErrorKind::NotFound.into(),
        )
    };
    let looks = std::cell::Cell::new(0);
    let found = again(|| {
        looks.set(looks.get() + 1);
        if looks.get() < 3 { Err(gone()) } else { Ok(7) }
    });
    assert_eq!((found.unwrap(), looks.get()), (7, 3));
    looks.set(0);
    let never: Result<(), _> = again(|| {
        looks.set(looks.get() + 1);
        Err(gone())
    });
    assert_eq!((never.unwrap_err().code(), looks.get()), ("spool.io", 9));
}
