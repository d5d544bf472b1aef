//! Rows that were written as JSON come back as the same columns.
#![allow(clippy::unwrap_used)] // tests may panic

use std::sync::Arc;

use ackline_json::{Encoder, Mode, Nulls, Options, Projector};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

const ROWS: usize = 3;

fn back(batch: &RecordBatch, nulls: Nulls) -> RecordBatch {
    let mut encoder = Encoder::new(batch.schema_ref(), nulls, None).unwrap();
    let options = Options {
        mode: Mode::FailFast,
        rescued: None,
        case_sensitive: true,
        ..Options::default()
    };
    let mut projector = Projector::new(batch.schema(), &[], &options).unwrap();
    for (position, row) in (0..).zip(encoder.encode(batch).unwrap()) {
        projector.push(position, &row).unwrap();
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let beside = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows);
    projector.finish(&beside.unwrap()).unwrap()
}

fn check(columns: Vec<(&str, ArrayRef)>) -> Result<(), TestCaseError> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    for nulls in [Nulls::Omit, Nulls::Keep] {
        prop_assert_eq!(back(&batch, nulls), batch.clone());
    }
    Ok(())
}

/// Times of the years 1 to 9999, in microseconds.
const TIMES: std::ops::Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

proptest! {
    #[test]
    fn numbers_and_truth(
        booleans in vec(of(any::<bool>()), ROWS),
        bytes in vec(of(any::<i8>()), ROWS),
        longs in vec(of(any::<i64>()), ROWS),
        singles in vec(of(-1e30_f32..1e30), ROWS),
        doubles in vec(of(-1e300_f64..1e300), ROWS),
        decimals in vec(of(-10_i128.pow(20)..10_i128.pow(20)), ROWS),
    ) {
        let decimals = Decimal128Array::from(decimals).with_precision_and_scale(22, 4).unwrap();
        check(vec![
            ("b", Arc::new(BooleanArray::from(booleans))),
            ("i8", Arc::new(Int8Array::from(bytes))),
            ("i64", Arc::new(Int64Array::from(longs))),
            ("f32", Arc::new(Float32Array::from(singles))),
            ("f64", Arc::new(Float64Array::from(doubles))),
            ("dec", Arc::new(decimals)),
        ])?;
    }

    #[test]
    fn text_bytes_and_times(
        texts in vec(of(".*"), ROWS),
        bytes in vec(of(vec(any::<u8>(), 0..20)), ROWS),
        days in vec(of(-719_162_i32..2_932_897), ROWS),
        times in vec(of(TIMES), ROWS),
    ) {
        let bytes: Vec<Option<&[u8]>> = bytes.iter().map(Option::as_deref).collect();
        let times = TimestampMicrosecondArray::from(times);
        check(vec![
            ("s", Arc::new(StringArray::from(texts))),
            ("bin", Arc::new(BinaryArray::from(bytes))),
            ("day", Arc::new(Date32Array::from(days))),
            ("at", Arc::new(times.clone().with_timezone("UTC"))),
            ("ntz", Arc::new(times)),
        ])?;
    }

    #[test]
    fn lists_and_structs(
        lists in vec(of(vec(of(any::<i32>()), 0..4)), ROWS),
        inner in vec(of(".*"), ROWS),
    ) {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let inner: ArrayRef = Arc::new(StringArray::from(inner));
        let part = Arc::new(Field::new("x y", DataType::Utf8, true));
        let outer = StructArray::from(vec![(part, inner)]);
        check(vec![("l", Arc::new(lists)), ("s", Arc::new(outer))])?;
    }
}
