//! Looking back at single blocks, leaving duplicates out, making digests.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::{DIGEST, Digester, Standing};

fn digester() -> Digester {
    Digester::keyed([3; 32])
}

/// The digests of the events `from` to `to`, as [`block`] makes them.
fn expected(digester: &Digester, range: Range<u64>) -> Vec<u128> {
    let texts = range.map(|n| format!("{n:08}"));
    texts
        .map(|text| digester.payload(text.as_bytes()))
        .collect()
}

/// Blocks of three events in groups of one and of three blocks, in several segments.
fn spread(dir: &Path) -> Writer {
    let options = WriterOptions {
        segment_bytes: 6_000,
        ..WriterOptions::default()
    };
    let writer = Writer::open(dir, options).unwrap().0;
    fill(&writer, 0, 4);
    for at in 4..7 {
        let settle = Arc::new(Told::default());
        writer.append(block(at * 3, 3), settle, at, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    fill(&writer, 21, 3);
    writer
}

fn options(columns: &[&str], skip_repeats: bool) -> ReadOptions {
    let columns = columns.iter().map(|&name| name.to_owned()).collect();
    ReadOptions {
        columns: Some(columns),
        skip_repeats,
        batch_rows: 4,
        ..ReadOptions::default()
    }
}

/// The groups of the segment that begins at `first`.
fn entries(spool: &Spool, first: u64, limit: u64) -> Vec<crate::index::Entry> {
    let segment = crate::walk::Segment::open(&spool.listed, first).unwrap();
    segment.all(&spool.listed, limit).unwrap().1
}

fn read(dir: &Path, range: Range<u64>, options: &ReadOptions) -> Vec<RecordBatch> {
    let read = Spool::open(dir).unwrap().read(&layouts(), range, options);
    read.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn single_blocks_are_digested_wherever_they_stand() {
    let (_temp, dir) = temp();
    let writer = spread(&dir);
    let spool = Spool::open(&dir).unwrap();
    for wanted in [vec![0], vec![15], vec![3, 12, 18, 27], vec![]] {
        let found = spool.digests(&layouts(), &wanted, &digester()).unwrap();
        let blocks = wanted
            .iter()
            .flat_map(|first| expected(&digester(), *first..*first + 3));
        assert_eq!(found.found, blocks.collect::<Vec<_>>(), "{wanted:?}");
        assert_eq!(found.events, vec![Some(3); wanted.len()]);
    }
    let inside = spool.digests(&layouts(), &[13], &digester()).unwrap_err();
    assert_eq!(inside.code(), "spool.corrupt");
    drop(writer);
}

#[test]
fn parts_are_digested_as_parts() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut parts = block(0, 1);
    parts.body = vec![Bytes::from_static(b"Parts123")];
    writer.append(parts, Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let spool = Spool::open(&dir).unwrap();
    let found = spool.digests(&layouts(), &[0], &digester()).unwrap().found;
    let parts = [&b"Part"[..], b"s123"];
    assert_eq!(found, [digester().parts(parts.into_iter())]);
}

#[test]
fn retired_blocks_are_counted_and_skipped() {
    let (_temp, dir) = temp();
    let writer = spread(&dir);
    let spool = Spool::open(&dir).unwrap();
    drop(writer);
    let segments = spool.slices(0..30, 100, 1).unwrap();
    let first = segments.first().unwrap().path.clone();
    let second = segments.iter().find(|one| one.path != first).unwrap();
    fs::remove_file(&first).unwrap();
    // One that had listed it before it went, and one that comes later.
    for spool in [spool, Spool::open(&dir).unwrap()] {
        let found = spool.digests(&layouts(), &[0, second.start], &digester());
        let found = found.unwrap();
        assert_eq!(found.events, [None, Some(3)]);
        let kept = second.start..second.start + 3;
        assert_eq!(found.found, expected(&digester(), kept));
    }
}

#[test]
fn a_damaged_body_is_not_digested() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    drop(writer);
    let path = dir.join("segments/00000000000000000000.arrows");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|one| one == b"00000001").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let spool = Spool::open(&dir).unwrap();
    let error = spool.digests(&layouts(), &[0], &digester()).unwrap_err();
    assert_eq!(error.code(), "spool.corrupt");
    let mut back = spool.back_from(3, u64::MAX).unwrap();
    assert_eq!(back.next().unwrap().unwrap_err().code(), "spool.corrupt");
}

#[test]
fn the_last_blocks_are_named_from_the_end_back() {
    let (_temp, dir) = temp();
    let writer = spread(&dir);
    let mut named = block(30, 3);
    named.windows = 2;
    named.attributes.push(("sender".into(), "tls:CN=a".into()));
    writer.append(named, Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let spool = Spool::open(&dir).unwrap();
    let back = |end, bytes| -> Vec<Standing> {
        let found = spool.back_from(end, bytes).unwrap();
        found.flat_map(Result::unwrap).collect()
    };
    let all = back(33, u64::MAX);
    let firsts: Vec<_> = all.iter().map(|one| one.first_position).collect();
    assert_eq!(firsts, (0..11).rev().map(|at| at * 3).collect::<Vec<_>>());
    assert_eq!((all[0].windows, all[0].events), (2, 3));
    assert_eq!(
        (&*all[0].sender, &*all[1].sender),
        ("tls:CN=a", "127.0.0.1")
    );
    assert_eq!(all[0].link, "link-1");
    // The begin of a segment depends on the sizes of the groups.
    let last = *crate::index::list(&spool.folder).unwrap().last().unwrap();
    let entries = entries(&spool, last, 33);
    let group = entries.last().unwrap();
    assert_eq!((group.first, group.count), (30, 3));
    assert_eq!(back(33, group.length.into()).len(), 1);
    assert_eq!(back(33, 1), Vec::new());
    assert_eq!(back(30, u64::MAX)[0].first_position, 27);
    assert_eq!(back(0, u64::MAX), Vec::new());
}

#[test]
fn a_group_is_checked_once_and_each_body_each_time() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    drop(writer);
    let spool = Spool::open(&dir).unwrap();
    let digests = || spool.digests(&layouts(), &[0], &digester());
    assert_eq!(digests().unwrap().found.len(), 3);
    let path = dir.join("segments/00000000000000000000.arrows");
    let mut bytes = fs::read(&path).unwrap();
    let end = usize::try_from(entries(&spool, 0, 3)[0].byte_end()).unwrap();
    // The padding after the last body belongs to the group and to no block.
    bytes[end - 1] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(digests().unwrap().found.len(), 3);
    let other = Spool::open(&dir).unwrap();
    assert!(other.digests(&layouts(), &[0], &digester()).is_err());
    let at = bytes.windows(8).position(|one| one == b"00000001").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(digests().is_err());
}

#[test]
fn repeats_are_left_out_and_positions_count_them() {
    let (_temp, dir) = temp();
    let writer = spread(&dir);
    drop(writer);
    let marked = |position: i64| position.rem_euclid(6) == 0 || position.rem_euclid(6) == 2;
    for range in [0..30, 1..29, 2..4, 6..7, 8..20] {
        let bounds = i64::try_from(range.start).unwrap()..i64::try_from(range.end).unwrap();
        let kept: Vec<_> = bounds.clone().filter(|one| !marked(*one)).collect();
        for columns in [
            &["position"][..],
            &["position", "payload", "repeat", "sequence"],
        ] {
            let found = read(&dir, range.clone(), &options(columns, true));
            assert_eq!(positions(&found), kept, "{range:?} {columns:?}");
            let all = read(&dir, range.clone(), &options(columns, false));
            assert_eq!(positions(&all), bounds.clone().collect::<Vec<_>>());
        }
    }
    let threads = ReadOptions {
        threads: 3,
        ..options(&["position", "payload", "sequence"], true)
    };
    let found = read(&dir, 0..30, &threads);
    let kept: Vec<_> = (0..30).filter(|one| !marked(*one)).collect();
    assert_eq!(positions(&found), kept);
    let rows = found.iter().flat_map(|batch| {
        let payloads = batch["payload"].as_binary::<i32>();
        let sequences = batch["sequence"].as_primitive::<Int64Type>();
        (0..batch.num_rows())
            .map(|row| (payloads.value(row).to_vec(), sequences.value(row)))
            .collect::<Vec<_>>()
    });
    let expected = kept.iter().map(|at| (format!("{at:08}").into_bytes(), *at));
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn a_digest_is_the_last_column_if_it_is_named() {
    let (_temp, dir) = temp();
    let writer = spread(&dir);
    let mut named = block(30, 3);
    named.attributes.push(("sender".into(), "b".into()));
    writer.append(named, Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let found = read(&dir, 0..33, &options(&[DIGEST, "position"], false));
    assert_eq!(found[0].schema().field(1).name(), DIGEST);
    let digests = found.iter().flat_map(|batch| {
        let digests = batch[DIGEST].as_binary::<i32>();
        let value = |row| u128::from_le_bytes(digests.value(row).try_into().unwrap());
        (0..batch.num_rows()).map(value).collect::<Vec<_>>()
    });
    let mut expect = expected(&Digester::of_sender("127.0.0.1"), 0..30);
    expect.extend(expected(&Digester::of_sender("b"), 30..33));
    assert_eq!(digests.collect::<Vec<_>>(), expect);
    let all = batches(&dir, 0..3, 1, 3);
    assert!(all[0].column_by_name(DIGEST).is_none());
}

#[test]
fn a_key_is_made_once_and_anew_where_it_is_missing_or_damaged() {
    let (_temp, dir) = temp();
    let key = || {
        drop(open(&dir));
        let spool = Spool::open(&dir).unwrap();
        spool.digester().unwrap().payload(b"x")
    };
    let first = key();
    assert_eq!(key(), first);
    let path = dir.join("key");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut seen = vec![first];
    let damaged = [&b""[..], b"abc", &[b'g'; 64], &[b'0'; 63], &[b'0'; 66]];
    for text in damaged {
        fs::write(&path, text).unwrap();
        assert!(Spool::open(&dir).unwrap().digester().is_err());
        let new = key();
        assert!(!seen.contains(&new));
        seen.push(new);
    }
    // As a spool of an earlier release.
    fs::remove_file(&path).unwrap();
    assert!(!seen.contains(&key()));
    seen.push(key());
    crate::adopt(&dir, crate::Access::default()).unwrap();
    assert!(!seen.contains(&key()));
}
