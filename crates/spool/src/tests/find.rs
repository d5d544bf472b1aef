//! From times to positions, in spools whose clock misbehaved.

use proptest::prelude::*;

use super::*;
use crate::{
    disk::{Disk, RealDisk},
    find::again,
    format::{
        DurableMark, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, Layout as Files, index_of,
    },
    segment::{Encoder, Placed},
};

/// Blocks (events, `received_at`) in groups in segments.
type Shape = Vec<Vec<Vec<(u32, i64)>>>;

/// Writes a spool of that shape whose durable times fall: the clock was set back all the time.
fn made_of(shape: &Shape) -> (tempfile::TempDir, Spool) {
    let (temp, dir) = temp();
    drop(open(&dir));
    let files = Files::new(&dir);
    let uuid = Identity::read(&files.identity()).unwrap().unwrap().uuid;
    let mut next = 0;
    for groups in shape {
        let header = IndexHeader {
            uuid: uuid.clone(),
            first: next,
            first_time_us: groups[0][0].1,
        };
        let (mut encoder, mut segment) = Encoder::new(&header).unwrap();
        let path = files.segment(next);
        let mut index = header.encode().to_vec();
        for blocks in groups {
            let placed: Vec<_> = blocks
                .iter()
                .scan(next, |first, &(count, received_at_us)| {
                    let block = block(*first, count);
                    *first += u64::from(count);
                    Some(Placed {
                        block,
                        received_at_us,
                    })
                })
                .collect();
            let bytes = encoder.group(next, &placed).unwrap();
            let bytes: Vec<u8> = bytes.iter().flat_map(|piece| piece.to_vec()).collect();
            let count = blocks.iter().map(|(count, _)| u64::from(*count)).sum();
            let entry = Entry {
                kind: Kind::Group,
                blocks: u32::try_from(blocks.len()).unwrap(),
                offset: segment.len() as u64,
                length: u32::try_from(bytes.len()).unwrap(),
                crc: crc32c::crc32c(&bytes),
                first: next,
                count,
                time_us: -i64::try_from(next).unwrap(),
                inflated: count * 8,
            };
            next += count;
            segment.extend(bytes);
            index.extend(entry.encode());
        }
        assert_eq!((index.len() - HEADER_BYTES) / 64, groups.len());
        RealDisk.create(&path).unwrap();
        RealDisk.create(&index_of(&path)).unwrap();
        fs::write(index_of(&path), index).unwrap();
        fs::write(&path, segment).unwrap();
    }
    for turn in 0..2 {
        let (slot, at) = DurableMark::encode(turn, next);
        let mark = fs::File::options()
            .write(true)
            .open(files.durable())
            .unwrap();
        RealDisk
            .publish(&mark, &files.durable(), &slot, at)
            .unwrap();
    }
    (temp, Spool::open(&dir).unwrap())
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
    // What the writer left is an hour ahead of the clock that the next one looks at.
    let ahead = crate::now_us() + hour;
    let shape = vec![vec![vec![(3, ahead), (3, ahead + 1)]]];
    let (_made, made) = made_of(&shape);
    let writer = open(&made.layout.dir);
    fill(&writer, 6, 2);
    writer.close(WAIT);
    let spool = Spool::open(&made.layout.dir).unwrap();
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
}

#[test]
fn a_retired_segment_is_not_looked_into() {
    let shape = vec![
        vec![vec![(3, 10)]],
        vec![vec![(3, 20)]],
        vec![vec![(3, 30)]],
    ];
    let (_temp, spool) = made_of(&shape);
    let first = spool.layout.segment(0);
    fs::remove_file(index_of(&first)).unwrap();
    fs::remove_file(first).unwrap();
    assert_eq!(spool.find(5).unwrap(), 3);
    assert_eq!(spool.find(25).unwrap(), 6);
    assert_eq!(spool.lag(0).unwrap().events, 6);
    assert_eq!(spool.lag(0).unwrap().oldest_us, Some(20));
}

#[test]
fn a_lag_counts_what_is_kept_above_a_position() {
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
