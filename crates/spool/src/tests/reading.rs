//! Events that are read back: rows, columns, batches and slices.

use super::*;

#[test]
fn events_come_back_as_they_were_appended() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 5);
    let whole = batches(&dir, 0..15, 1, 4);
    assert_eq!(positions(&whole), (0..15).collect::<Vec<_>>());
    assert_eq!(
        whole.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(),
        [4, 4, 4, 3]
    );
    let payload = whole[1]["payload"].as_binary::<i32>();
    assert_eq!(payload.value(1), b"00000005");
    assert!(whole[0]["parts"].is_null(0));
    assert_eq!(whole[0]["sequence"].as_primitive::<Int64Type>().value(3), 3);
    let repeat = whole[0]["repeat"].as_boolean();
    assert!(repeat.value(0) && !repeat.value(1) && repeat.value(2) && !repeat.value(3));
    assert_eq!(repeat.null_count(), 0, "what was not judged is no repeat");
    let repeat = whole[2]["repeat"].as_boolean();
    assert!(repeat.value(0) && !repeat.value(1));
    let attributes = whole[0]["attributes"].as_map().value(3);
    assert_eq!(attributes.column(1).as_string::<i32>().value(0), "b");
    writer.close(WAIT);
    assert_eq!(
        positions(&batches(&dir, 0..15, 3, 2)),
        (0..15).collect::<Vec<_>>()
    );
    assert_eq!(
        positions(&batches(&dir, 4..11, 1, 100)),
        (4..11).collect::<Vec<_>>()
    );
}

#[test]
fn a_repeat_is_found_in_whatever_batch_its_row_lands() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    for rows in 1..4 {
        let judged = batches(&dir, 0..3, 1, rows);
        let judged = judged.iter().flat_map(|b| b["repeat"].as_boolean().iter());
        let want = [Some(true), Some(false), Some(true)];
        assert_eq!(judged.collect::<Vec<_>>(), want, "{rows} rows");
    }
    let inside = batches(&dir, 1..2, 1, 9);
    assert!(!inside[0]["repeat"].as_boolean().value(0));
}

#[test]
fn a_stream_is_null_where_the_link_has_none() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut named = block(3, 3);
    named.origin.stream = Some("channel".into());
    for block in [block(0, 3), named, block(6, 3)] {
        writer.append(block, Arc::new(Told::default()), 0, Promise::Durable);
    }
    assert!(writer.flush(WAIT));
    let batch = batches(&dir, 0..9, 1, 9).remove(0);
    let streams: Vec<_> = batch["stream"].as_string::<i32>().iter().collect();
    let want = [[None; 3], [Some("channel"); 3], [None; 3]].concat();
    assert_eq!(streams, want);
    assert_eq!(batch["peer"].null_count(), 0);
}

#[test]
fn parts_stand_in_their_own_column() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let mut several = block(0, 2);
    several.body = vec![
        Bytes::from_static(b"P001P002"),
        Bytes::from_static(b"00000001"),
    ];
    writer.append(several, Arc::new(Told::default()), 0, Promise::Durable);
    assert!(writer.flush(WAIT));
    let batch = batches(&dir, 0..2, 1, 10).remove(0);
    let parts = batch["parts"].as_list::<i32>();
    assert_eq!(parts.value(0).as_binary::<i32>().value(1), b"P002");
    assert!(parts.is_null(1) && batch["payload"].is_null(0) && batch["payload"].is_valid(1));
}

#[test]
fn only_the_columns_asked_for_are_built() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let columns = Some(vec!["position".to_owned(), "link".to_owned()]);
    let options = ReadOptions {
        columns,
        ..ReadOptions::default()
    };
    let spool = Spool::open(&dir).unwrap();
    let reader = spool.read(&Layouts::default(), 1..5, &options).unwrap();
    let got = reader.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(got[0].num_columns(), 2);
    assert_eq!(positions(&got), [1, 2, 3, 4]);
    let columns = Some(vec!["nothing".to_owned()]);
    let error = spool
        .read(&layouts(), 0..1, &ReadOptions { columns, ..options })
        .unwrap_err();
    assert_eq!(error.code(), "spool.unknown_column");
}

#[test]
fn a_reader_beside_a_writer_sees_the_durable_events() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    let spool = Spool::open(&dir).unwrap();
    for round in 0..20 {
        assert_eq!(spool.durable().unwrap(), round * 3);
        fill(&writer, round * 3, 1);
        let end = spool.durable().unwrap();
        let read = spool
            .read(&layouts(), round * 3..end, &ReadOptions::default())
            .unwrap();
        let got = read.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(positions(&got).len(), 3);
    }
    let error = spool
        .read(&layouts(), 0..61, &ReadOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), "spool.behind_checkpoint");
}

#[test]
fn a_batch_ends_at_a_block_or_inside_the_first() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 4);
    let spool = Spool::open(&dir).unwrap();
    let end = |start, rows, bytes| spool.end_for(start, rows, bytes).unwrap();
    assert_eq!(end(0, None, None), 12);
    assert_eq!(end(0, Some(7), None), 6);
    assert_eq!(end(0, Some(2), None), 2);
    assert_eq!(end(2, Some(2), None), 3);
    assert_eq!(end(2, Some(4), None), 6);
    assert_eq!(end(0, None, Some(50)), 6);
    assert_eq!(end(0, None, Some(17)), 2);
    assert_eq!(end(0, None, Some(1)), 1);
    assert_eq!(end(12, Some(5), None), 12);
    assert_eq!(
        spool.end_for(13, None, None).unwrap_err().code(),
        "spool.behind_checkpoint"
    );
}

#[test]
fn slices_cover_the_range_once_and_read_by_their_file() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 10);
    let spool = Spool::open(&dir).unwrap();
    let slices = spool.slices(1..29, 4, 1).unwrap();
    assert!(slices.len() > 1 && slices.len() <= 4, "{slices:?}");
    let mut got = Vec::new();
    for slice in &slices {
        let read = Spool::read_slice(&layouts(), slice, &ReadOptions::default()).unwrap();
        got.extend(positions(&read.collect::<Result<Vec<_>, _>>().unwrap()));
    }
    assert_eq!(got, (1..29).collect::<Vec<_>>());
    let mut other = slices[0].clone();
    other.uuid = "00000000-0000-4000-8000-000000000000".to_owned();
    let error = Spool::read_slice(&layouts(), &other, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.replaced");
}
