//! Rows as JSON: every type, nulls, names, stamps; read back by `serde_json`.
#![allow(clippy::unwrap_used)] // tests may panic

use std::sync::Arc;

use ackline_json::{EncodeError, Encoder, Nulls, Stamp, texts};
use arrow_array::builder::{
    FixedSizeListBuilder, Int32Builder, LargeListBuilder, ListBuilder, MapBuilder, StringBuilder,
};
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Int8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array,
    Decimal128Array, Decimal256Array, DictionaryArray, DurationMicrosecondArray,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeBinaryArray,
    LargeStringArray, NullArray, PrimitiveArray, RecordBatch, StringArray, StringViewArray,
    StructArray, Time32SecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_buffer::{Buffer, IntervalMonthDayNano, NullBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Schema};
use proptest::prelude::*;
use serde_json::{Value, json};

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.iter().map(|(_, array)| Arc::clone(array)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn encode_with(batch: &RecordBatch, nulls: Nulls, stamp: Option<Stamp>) -> Vec<String> {
    let mut encoder = Encoder::new(batch.schema_ref(), nulls, stamp).unwrap();
    let rows = encoder.encode(batch).unwrap();
    rows.iter()
        .map(|row| std::str::from_utf8(row).unwrap().to_owned())
        .collect()
}

/// The rows of a single column `c`.
fn column(array: impl Array + 'static) -> Vec<String> {
    encode_with(&batch(&[("c", Arc::new(array))]), Nulls::Omit, None)
}

/// The values of one column, as written in the text.
fn values(array: impl Array + 'static) -> Vec<String> {
    let inner = |row: String| -> Option<String> {
        Some(row.strip_prefix(r#"{"c":"#)?.strip_suffix('}')?.to_owned())
    };
    column(array)
        .into_iter()
        .map(|row| inner(row).unwrap())
        .collect()
}

#[test]
fn whole_numbers_and_booleans_are_as_they_are() {
    assert_eq!(values(Int8Array::from(vec![-128, 127])), ["-128", "127"]);
    assert_eq!(values(Int16Array::from(vec![i16::MIN])), ["-32768"]);
    assert_eq!(values(Int32Array::from(vec![i32::MIN])), ["-2147483648"]);
    assert_eq!(
        values(Int64Array::from(vec![i64::MIN, i64::MAX])),
        ["-9223372036854775808", "9223372036854775807"]
    );
    assert_eq!(
        values(UInt64Array::from(vec![u64::MAX])),
        ["18446744073709551615"]
    );
    assert_eq!(
        values(BooleanArray::from(vec![true, false])),
        ["true", "false"]
    );
}

#[test]
fn floats_are_their_shortest_text_and_no_number_is_null() {
    let doubles = vec![0.1, -0.0, 1.0, 1e300, f64::NAN, f64::INFINITY];
    assert_eq!(
        values(Float64Array::from(doubles)),
        ["0.1", "-0.0", "1.0", "1e+300", "null", "null"]
    );
    assert_eq!(
        values(Float32Array::from(vec![
            0.1,
            16_777_216.0,
            f32::NEG_INFINITY
        ])),
        ["0.1", "16777216.0", "null"]
    );
    let half = Float16Type::DATA_TYPE;
    let halves = PrimitiveArray::<Float16Type>::new_null(1);
    assert_eq!(halves.data_type(), &half);
    assert_eq!(column(halves), ["{}"]);
}

#[test]
fn decimals_have_all_their_digits() {
    let of = |unscaled: Vec<i128>, scale| {
        values(
            Decimal128Array::from(unscaled)
                .with_precision_and_scale(38, scale)
                .unwrap(),
        )
    };
    assert_eq!(
        of(vec![12_345, -5, 0, 100], 2),
        ["123.45", "-0.05", "0.00", "1.00"]
    );
    assert_eq!(of(vec![7, -7], 0), ["7", "-7"]);
    assert_eq!(of(vec![7, 0, -7], -3), ["7000", "0", "-7000"]);
    let digits = "9".repeat(38);
    assert_eq!(
        of(vec![digits.parse().unwrap()], 38),
        [format!("0.{digits}")]
    );
    let wide = i256::from_string(&"8".repeat(70)).unwrap();
    let wide = Decimal256Array::from(vec![wide]).with_precision_and_scale(76, 10);
    assert_eq!(
        values(wide.unwrap()),
        [format!("{}.{}", "8".repeat(60), "8".repeat(10))]
    );
}

#[test]
fn strings_of_every_layout_are_the_same() {
    let texts = vec![Some("a\"b\\c\n\u{1}\u{e9}\u{1f600}"), None, Some("")];
    let expected = [r#"{"c":"a\"b\\c\n\u0001é😀"}"#, "{}", r#"{"c":""}"#];
    assert_eq!(column(StringArray::from(texts.clone())), expected);
    assert_eq!(column(LargeStringArray::from(texts.clone())), expected);
    assert_eq!(column(StringViewArray::from(texts.clone())), expected);
    let dictionary: DictionaryArray<Int8Type> = texts.into_iter().collect();
    assert_eq!(column(dictionary), expected);
}

#[test]
fn strings_that_are_not_utf_8_are_replaced_not_trusted() {
    let values = Buffer::from(b"ok\xff\xfe".to_vec());
    let offsets = Buffer::from_slice_ref([0_i32, 2, 4]);
    let data = arrow_array::make_array(
        BinaryArray::from(vec![b"".as_slice()])
            .to_data()
            .into_builder()
            .len(2)
            .buffers(vec![offsets, values])
            .build()
            .unwrap(),
    );
    let binary = data.as_any().downcast_ref::<BinaryArray>().unwrap();
    // Arrays from the C interface are not checked: this makes such an array.
    #[allow(unsafe_code)]
    let strings = unsafe {
        StringArray::new_unchecked(binary.offsets().clone(), binary.values().clone(), None)
    };
    assert_eq!(
        column(strings),
        [r#"{"c":"ok"}"#, "{\"c\":\"\u{fffd}\u{fffd}\"}"]
    );
}

#[test]
fn binary_of_every_layout_is_base64() {
    let bytes: Vec<&[u8]> = vec![b"", b"f", b"fo", b"foo", b"\xff\xfe\xfd\xfc"];
    let expected = [
        r#""""#,
        r#""Zg==""#,
        r#""Zm8=""#,
        r#""Zm9v""#,
        r#""//79/A==""#,
    ];
    assert_eq!(values(BinaryArray::from(bytes.clone())), expected);
    assert_eq!(values(LargeBinaryArray::from(bytes.clone())), expected);
    assert_eq!(values(BinaryViewArray::from(bytes)), expected);
    let fixed = FixedSizeBinaryArray::try_from(vec![b"foo".as_slice()]).unwrap();
    assert_eq!(values(fixed), [expected[3]]);
}

#[test]
fn dates_and_times_are_iso_8601() {
    let days = vec![
        0, -1, 11_016, 20_778, -719_162, 2_932_896, 2_932_897, -719_529,
    ];
    assert_eq!(
        values(Date32Array::from(days)),
        [
            "1970-01-01",
            "1969-12-31",
            "2000-02-29",
            "2026-11-21",
            "0001-01-01",
            "9999-12-31",
            "+10000-01-01",
            "-0001-12-31",
        ]
        .map(|day| format!("\"{day}\""))
    );
    assert_eq!(
        values(Date64Array::from(vec![-1, 86_400_000])),
        [r#""1969-12-31""#, r#""1970-01-02""#]
    );
    let utc = |array: TimestampMicrosecondArray| values(array.with_timezone("Europe/Berlin"));
    assert_eq!(
        utc(vec![1_795_255_933_123_456, -1].into()),
        [
            r#""2026-11-21T10:12:13.123456Z""#,
            r#""1969-12-31T23:59:59.999999Z""#
        ]
    );
    let expected = [r#""1970-01-01T00:00:01.000000""#];
    assert_eq!(values(TimestampSecondArray::from(vec![1])), expected);
    assert_eq!(
        values(TimestampMillisecondArray::from(vec![1000])),
        expected
    );
    assert_eq!(
        values(TimestampNanosecondArray::from(vec![1_000_000_000, 1])),
        [expected[0], r#""1970-01-01T00:00:00.000000001""#]
    );
    assert_eq!(
        values(Time64NanosecondArray::from(vec![86_399_999_999_000])),
        [r#""23:59:59.999999""#]
    );
    assert_eq!(
        values(Time32SecondArray::from(vec![3_661])),
        [r#""01:01:01.000000""#]
    );
    assert_eq!(
        values(DurationMicrosecondArray::from(vec![93_784_500_000, -1])),
        [r#""PT93784.500000S""#, r#""PT-0.000001S""#]
    );
    assert_eq!(
        values(IntervalYearMonthArray::from(vec![14, -14])),
        [r#""P14M""#, r#""P-14M""#]
    );
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn structs_leave_nulls_out_unless_they_are_kept() {
    let fields: Fields = vec![
        Field::new("a", DataType::Utf8, true),
        Field::new("b.c", DataType::Utf8, true),
    ]
    .into();
    let inner = StructArray::new(
        fields,
        vec![
            strings(&[Some("x"), None, Some("y")]),
            strings(&[None, None, Some("z")]),
        ],
        Some(NullBuffer::from(vec![true, true, false])),
    );
    let batch = batch(&[
        ("s", Arc::new(inner)),
        ("n", Arc::new(NullArray::new(3))),
        ("i", Arc::new(Int32Array::from(vec![1, 2, 3]))),
    ]);
    assert_eq!(
        encode_with(&batch, Nulls::Omit, None),
        [
            r#"{"s":{"a":"x"},"i":1}"#,
            r#"{"s":{},"i":2}"#,
            r#"{"i":3}"#
        ]
    );
    assert_eq!(
        encode_with(&batch, Nulls::Keep, None),
        [
            r#"{"s":{"a":"x","b.c":null},"n":null,"i":1}"#,
            r#"{"s":{"a":null,"b.c":null},"n":null,"i":2}"#,
            r#"{"s":null,"n":null,"i":3}"#
        ]
    );
}

#[test]
fn lists_keep_their_nulls() {
    let rows: [Option<Vec<Option<i32>>>; 4] = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(3)]),
    ];
    let expected = [r#"{"c":[1,null]}"#, "{}", r#"{"c":[]}"#, r#"{"c":[3]}"#];
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut large = LargeListBuilder::new(Int32Builder::new());
    for row in rows {
        lists.append_option(row.clone());
        large.append_option(row);
    }
    assert_eq!(column(lists.finish()), expected);
    assert_eq!(column(large.finish()), expected);
    let mut fixed = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    for pair in [[1, 2], [3, 4]] {
        fixed.values().append_slice(&pair);
        fixed.append(true);
    }
    assert_eq!(values(fixed.finish()), ["[1,2]", "[3,4]"]);
}

#[test]
fn maps_are_objects_whose_keys_are_text() {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for (key, value) in [("a\"", Some(1)), ("b", None)] {
        maps.keys().append_value(key);
        maps.values().append_option(value);
    }
    maps.append(true).unwrap();
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    assert_eq!(
        column(maps.finish()),
        [r#"{"c":{"a\"":1,"b":null}}"#, r#"{"c":{}}"#, "{}"]
    );
    let mut numbered = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    numbered.keys().append_value(-7);
    numbered.values().append_value("x");
    numbered.append(true).unwrap();
    assert_eq!(column(numbered.finish()), [r#"{"c":{"-7":"x"}}"#]);
}

#[test]
fn a_slice_is_its_rows_alone() {
    let whole = batch(&[
        ("i", Arc::new(Int32Array::from(vec![1, 2, 3, 4]))),
        ("s", strings(&[Some("a"), None, Some("c"), Some("d")])),
    ]);
    let rows = encode_with(&whole.slice(1, 2), Nulls::Omit, None);
    assert_eq!(rows, [r#"{"i":2}"#, r#"{"i":3,"s":"c"}"#]);
    assert!(encode_with(&whole.slice(0, 0), Nulls::Omit, None).is_empty());
}

#[test]
fn rows_are_slices_of_one_buffer() {
    let numbers = batch(&[("i", Arc::new(Int32Array::from(vec![1, 2, 3])))]);
    let mut encoder = Encoder::new(numbers.schema_ref(), Nulls::Omit, None).unwrap();
    let rows = encoder.encode(&numbers).unwrap();
    for pair in rows.windows(2) {
        assert_eq!(pair[0].as_ptr_range().end, pair[1].as_ptr());
    }
}

#[test]
fn a_stamp_is_the_last_member_and_counts_on() {
    let numbers = batch(&[("i", Arc::new(Int32Array::from(vec![Some(1), None])))]);
    let stamp = Stamp::new(
        "ack\"line",
        &[("query", json!("q\"1")), ("batch", json!(7))],
    );
    let mut encoder = Encoder::new(numbers.schema_ref(), Nulls::Omit, Some(stamp)).unwrap();
    let mut rows = encoder.encode(&numbers).unwrap();
    rows.extend(encoder.encode(&numbers).unwrap());
    assert_eq!(
        rows[1],
        r#"{"ack\"line":{"query":"q\"1","batch":7,"ordinal":1}}"#
    );
    let ordinals: Vec<Value> = rows
        .iter()
        .map(|row| {
            let row: Value = serde_json::from_slice(row).unwrap();
            row["ack\"line"]["ordinal"].clone()
        })
        .collect();
    assert_eq!(ordinals, [json!(0), json!(1), json!(2), json!(3)]);
}

#[test]
fn types_without_a_form_are_refused_by_their_path() {
    let refused = |field: Field, stamp| {
        Encoder::new(&Schema::new(vec![field]), Nulls::Omit, stamp)
            .unwrap_err()
            .to_string()
    };
    let month_day = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3)]);
    let interval = Field::new("element", month_day.data_type().clone(), true);
    let list = DataType::List(Arc::new(interval));
    let outer = DataType::Struct(vec![Field::new("l", list, true)].into());
    assert_eq!(
        refused(Field::new("s", outer, true), None),
        "column s.l.element is Interval(MonthDayNano), which has no form in JSON: convert it before"
    );
    let twice = vec![
        Field::new("x", DataType::Utf8, true),
        Field::new("x", DataType::Int8, true),
    ];
    assert_eq!(
        refused(Field::new("s", DataType::Struct(twice.into()), true), None),
        "two columns are named s.x: a JSON object has each name once"
    );
    let part = Field::new("metadata", DataType::Binary, true)
        .with_metadata([("variant".to_owned(), "true".to_owned())]);
    assert_eq!(
        refused(
            Field::new("v", DataType::Struct(vec![part].into()), true),
            None
        ),
        "column v is variant, which has no form in JSON: convert it before"
    );
    let key = Field::new("key", DataType::Struct(Fields::empty()), false);
    let value = Field::new("value", DataType::Utf8, true);
    let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
    let map = DataType::Map(Arc::new(entries), false);
    assert!(refused(Field::new("m", map, true), None).starts_with("column m.key is Struct"));
    let stamp = Some(Stamp::new("x", &[]));
    assert_eq!(
        refused(Field::new("x", DataType::Utf8, true), stamp),
        "a column is named x, as the member that tells where an event comes from"
    );
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let one = batch(&[("a", strings(&[None]))]);
    let other = batch(&[("b", strings(&[None]))]);
    let mut encoder = Encoder::new(one.schema_ref(), Nulls::Omit, None).unwrap();
    assert_eq!(encoder.encode(&other), Err(EncodeError::OtherSchema));
}

#[test]
fn texts_are_sent_as_they_are_and_never_empty() {
    let raw = texts(&batch(&[(
        "value",
        strings(&[Some("{\"a\": 1}"), Some("x")]),
    )]));
    assert_eq!(raw.unwrap(), ["{\"a\": 1}", "x"]);
    let bytes = BinaryArray::from(vec![b"\xff".as_slice()]);
    assert_eq!(
        texts(&batch(&[("payload", Arc::new(bytes))])).unwrap(),
        [b"\xff".as_slice()]
    );
    for empty in [None, Some("")] {
        let error = texts(&batch(&[("value", strings(&[Some("x"), empty]))])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "value of row 1 is null or empty: an event has at least one byte"
        );
    }
    let number = batch(&[("value", Arc::new(Int32Array::from(vec![1])))]);
    assert!(matches!(
        texts(&number),
        Err(EncodeError::Unsupported { .. })
    ));
    let two = batch(&[("a", strings(&[None])), ("b", strings(&[None]))]);
    assert_eq!(texts(&two), Err(EncodeError::OtherSchema));
}

proptest! {
    #[test]
    fn floats_read_back_as_they_were(double: f64, single: f32) {
        let read = |text: &str| text.parse::<f64>().ok();
        if double.is_finite() {
            let text = &values(Float64Array::from(vec![double]))[0];
            prop_assert_eq!(read(text).map(f64::to_bits), Some(double.to_bits()));
        }
        if single.is_finite() {
            let text = &values(Float32Array::from(vec![single]))[0];
            prop_assert_eq!(text.parse::<f32>().ok().map(f32::to_bits), Some(single.to_bits()));
        }
    }

    #[test]
    fn any_row_is_the_object_that_it_was(
        names in prop::collection::hash_set(".*", 1..5),
        texts in prop::collection::vec(prop::option::of(".*"), 0..5),
        numbers in prop::collection::vec(prop::option::of(any::<i64>()), 5),
    ) {
        let rows = texts.len();
        let columns: Vec<(&str, ArrayRef)> = names
            .iter()
            .enumerate()
            .map(|(at, name)| -> (&str, ArrayRef) {
                if at % 2 == 0 {
                    (name, Arc::new(StringArray::from(texts.clone())))
                } else {
                    (name, Arc::new(Int64Array::from(numbers[..rows].to_vec())))
                }
            })
            .collect();
        let written = encode_with(&batch(&columns), Nulls::Omit, None);
        prop_assert_eq!(written.len(), rows);
        for (row, text) in written.iter().enumerate() {
            let mut expected = serde_json::Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = if at % 2 == 0 { json!(texts[row]) } else { json!(numbers[row]) };
                if !value.is_null() {
                    expected.insert(name.clone(), value);
                }
            }
            let read: Value = serde_json::from_str(text).unwrap();
            prop_assert_eq!(read, Value::Object(expected));
        }
    }
}
