//! A reader holds no more at once than its memory, no matter what a block claims.

use super::*;
use crate::LEAST_MEMORY;

/// Events whose sizes are in the body, four bytes each, as a decoder of an envelope would yield
/// them. It keeps the most bytes that one call pushed before it was told to stop.
#[derive(Default)]
struct Inflating {
    most_pushed: Mutex<usize>,
    calls: Mutex<u32>,
}

impl Layout for Inflating {
    fn name(&self) -> &'static str {
        "eights/1"
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        let sizes = block.body.chunks(4);
        let sizes = sizes.map(|size| u32::from_le_bytes(size.try_into().unwrap()) as usize);
        let wanted = rows.start as usize..rows.end as usize;
        let mut pushed = 0;
        for (row, size) in sizes.enumerate().take(wanted.end).skip(wanted.start) {
            out.push_payload(row.try_into().unwrap(), &vec![b'x'; size]);
            if out.is_full() {
                break;
            }
            pushed += size;
        }
        let mut most = self.most_pushed.lock().unwrap();
        *most = pushed.max(*most);
        *self.calls.lock().unwrap() += 1;
        Ok(())
    }
}

/// A spool of blocks, each of events of these sizes.
fn spool_of(blocks: u64, sizes: &[u32]) -> (tempfile::TempDir, PathBuf) {
    let (temp, dir) = temp();
    let writer = open(&dir);
    let body: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    for at in 0..blocks {
        let count = u32::try_from(sizes.len()).unwrap();
        let block = Block {
            body: vec![Bytes::from(body.clone())],
            inflated_bytes: 1,
            repeats: None,
            ..block(at * u64::from(count), count)
        };
        writer.append(block, Arc::new(Told::default()), at, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    (temp, dir)
}

fn options(memory: u64, threads: usize) -> ReadOptions {
    ReadOptions {
        threads,
        memory,
        ..ReadOptions::default()
    }
}

/// Reads everything. Returns the events with their sizes, the largest batch in bytes, and the error
/// at the end.
fn read_all(
    dir: &Path,
    layout: &Arc<Inflating>,
    options: &ReadOptions,
) -> (Vec<(i64, usize)>, usize, Option<SpoolError>) {
    let layouts = Layouts::new(vec![Arc::clone(layout) as Arc<dyn Layout>]);
    let spool = Spool::open(dir).unwrap();
    let reader = spool.read(&layouts, 0..spool.durable().unwrap(), options);
    let (mut events, mut largest, mut error) = (Vec::new(), 0, None);
    for batch in reader.unwrap() {
        match batch {
            Ok(batch) => {
                let sizes = batch["payload"].as_binary::<i32>();
                let sizes = sizes.iter().map(|one| one.unwrap().len());
                events.extend(
                    positions(std::slice::from_ref(&batch))
                        .into_iter()
                        .zip(sizes),
                );
                largest = largest.max(batch.get_array_memory_size());
            }
            Err(found) => error = Some(found),
        }
    }
    (events, largest, error)
}

#[test]
fn a_block_that_inflates_to_more_than_the_memory_is_read_in_parts() {
    // 60 MB in each of three blocks, which claim to have one byte.
    let sizes: Vec<u32> = (0..600).map(|at| 100_000 + at).collect();
    let (_temp, dir) = spool_of(3, &sizes);
    let expected: Vec<(i64, usize)> = (0..)
        .zip(sizes.iter().cycle().take(1_800))
        .map(|(at, size)| (at, *size as usize))
        .collect();
    for threads in [1, 4] {
        let layout = Arc::new(Inflating::default());
        let memory: u64 = 16 << 20;
        let (events, largest, error) = read_all(&dir, &layout, &options(memory, threads));
        assert!(error.is_none(), "{error:?}");
        assert!(events == expected, "threads={threads}");
        let room = usize::try_from(memory).unwrap() / 8 * 3;
        let most = *layout.most_pushed.lock().unwrap();
        assert!(
            most <= room && largest <= room,
            "{most} and {largest} of {room}"
        );
        // A batch takes half of the memory, and a call fills it.
        let calls = *layout.calls.lock().unwrap();
        assert!((30..=50).contains(&calls), "{calls} calls");
    }
}

#[test]
fn all_threads_together_stay_within_the_memory() {
    let sizes = [50_000; 2_000];
    let (_temp, dir) = spool_of(8, &sizes);
    let layout = Arc::new(Inflating::default());
    let memory: u64 = 160 << 20;
    let (events, _, error) = read_all(&dir, &layout, &options(memory, 4));
    assert!(error.is_none() && events.len() == 16_000, "{error:?}");
    let most = *layout.most_pushed.lock().unwrap();
    assert!(most * 4 <= 60 << 20, "{most} for each of four threads");
}

#[test]
fn a_block_that_is_too_large_for_one_of_several_threads_is_read_by_itself() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut first = 0;
    // Events of 20 MiB, none of which fits into a quarter of the memory.
    for sizes in [[1_000, 1_000], [20 << 20, 20 << 20], [2_000, 2_000]] {
        let body: Vec<u8> = sizes
            .iter()
            .flat_map(|size: &u32| size.to_le_bytes())
            .collect();
        let block = Block {
            body: vec![Bytes::from(body)],
            inflated_bytes: sizes.iter().map(|size| u64::from(*size)).sum(),
            repeats: None,
            ..block(first, 2)
        };
        writer.append(block, Arc::new(Told::default()), first, Promise::Durable);
        first += 2;
    }
    assert!(writer.flush(WAIT));
    let layout = Arc::new(Inflating::default());
    let (events, _, error) = read_all(&dir, &layout, &options(160 << 20, 4));
    assert!(error.is_none(), "{error:?}");
    let sizes: Vec<usize> = events.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes, [1_000, 1_000, 20 << 20, 20 << 20, 2_000, 2_000]);
}

#[test]
fn an_event_larger_than_the_memory_is_an_error_that_names_the_option() {
    let (_temp, dir) = spool_of(1, &[10, 20, 3 << 20, 30]);
    for threads in [1, 4] {
        let layout = Arc::new(Inflating::default());
        let (_, _, error) = read_all(&dir, &layout, &options(LEAST_MEMORY, threads));
        let error = error.unwrap();
        assert_eq!(error.code(), "spool.memory");
        let text = error.to_string();
        for part in [
            "00000000000000000000.arrows: an event of the block at position 0 has 3145",
            "a memory of 4194304 bytes has room for 1572864",
            "--memory",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let (events, _, error) = read_all(&dir, &layout, &options(16 << 20, threads));
        assert!(error.is_none() && events.len() == 4, "{error:?}");
    }
}

#[test]
fn a_group_larger_than_the_memory_is_an_error_that_names_the_option() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let body = Bytes::from(vec![b'0'; 8 << 20]);
    let large = Block {
        body: vec![body],
        repeats: None,
        ..block(3, 1 << 20)
    };
    fill(&writer, 0, 1);
    writer.append(large, Arc::new(Told::default()), 1, Promise::Durable);
    assert!(writer.flush(WAIT));
    fill(&writer, 3 + (1 << 20), 1);
    let spool = Spool::open(&dir).unwrap();
    for threads in [1, 4] {
        let read = |memory: u64| {
            let reader = spool.read(&layouts(), 0..6 + (1 << 20), &options(memory, threads));
            let all = reader.unwrap().collect::<Vec<_>>();
            let rows = all
                .iter()
                .flatten()
                .map(RecordBatch::num_rows)
                .sum::<usize>();
            (rows, all.into_iter().find_map(Result::err))
        };
        let (rows, error) = read(8 << 20);
        let error = error.unwrap();
        assert_eq!((rows, error.code()), (3, "spool.memory"));
        assert!(error.to_string().contains("the group at position 3 has 83"));
        // Three quarters are enough for a single group.
        let (rows, error) = read(12 << 20);
        assert!(
            error.is_none() && rows == 6 + (1 << 20),
            "{rows}: {error:?}"
        );
    }
}

#[test]
fn a_text_that_every_event_of_a_block_has_counts_for_each_of_them() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut large = Block {
        attributes: vec![("a".repeat(50_000).into(), "b".into())],
        ..block(0, 1_000)
    };
    large.origin.peer = "p".repeat(100_000).into();
    writer.append(large, Arc::new(Told::default()), 1, Promise::Durable);
    assert!(writer.flush(WAIT));
    let spool = Spool::open(&dir).unwrap();
    for (threads, columns) in [(1, None), (4, None), (1, Some(vec!["peer".to_owned()]))] {
        let options = ReadOptions {
            columns,
            ..options(8 << 20, threads)
        };
        let mut rows = 0;
        for batch in spool.read(&layouts(), 0..1_000, &options).unwrap() {
            let batch = batch.unwrap();
            assert!(batch.get_array_memory_size() < 3 << 20);
            rows += batch.num_rows();
        }
        assert_eq!(rows, 1_000);
    }
}

#[test]
fn a_block_of_a_billion_events_is_read_in_parts_where_no_body_is_needed() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let huge = Block {
        repeats: None,
        ..block(0, 3)
    };
    let huge = Block {
        count: 1_000_000_000,
        ..huge
    };
    writer.append(huge, Arc::new(Told::default()), 1, Promise::Durable);
    assert!(writer.flush(WAIT));
    let spool = Spool::open(&dir).unwrap();
    let options = ReadOptions {
        columns: Some(vec!["position".to_owned()]),
        ..options(LEAST_MEMORY, 1)
    };
    let started = Instant::now();
    let reader = spool.read(&layouts(), 0..1_000_000_000, &options).unwrap();
    let rows: usize = reader
        .take(200)
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(rows, 200 * 10_000);
    assert!(started.elapsed() < WAIT);
}

#[test]
fn events_that_are_left_out_are_left_out_of_every_part() {
    let sizes = [40_000; 300];
    let (temp, dir) = temp();
    let writer = open(&dir);
    let body: Vec<u8> = sizes
        .iter()
        .flat_map(|size: &u32| size.to_le_bytes())
        .collect();
    let marked = Block {
        body: vec![Bytes::from(body)],
        repeats: Some(vec![0b0101_0110; 38]),
        ..block(0, 300)
    };
    writer.append(marked, Arc::new(Told::default()), 1, Promise::Durable);
    assert!(writer.flush(WAIT));
    let expected: Vec<i64> = (0..300_i64)
        .filter(|at| 0b0101_0110 & (1 << (at % 8)) == 0)
        .collect();
    for threads in [1, 4] {
        let layout = Arc::new(Inflating::default());
        let options = ReadOptions {
            skip_repeats: true,
            ..options(LEAST_MEMORY, threads)
        };
        let (events, _, error) = read_all(&dir, &layout, &options);
        assert!(error.is_none(), "{error:?}");
        let found: Vec<i64> = events.iter().map(|(at, _)| *at).collect();
        assert_eq!(found, expected);
        assert!(*layout.calls.lock().unwrap() > 3);
    }
    drop(temp);
}
