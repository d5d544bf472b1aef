//! Elements of a fixed size as columns: values, byte orders, offsets, and events that are no element.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use ackline_json::Mode;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use crate::element::Element;
use crate::element_columns::{ElementError, Elements, Malformed};
use crate::element_schema::Plan;

fn fields(columns: &[(&str, DataType)]) -> Schema {
    let fields = columns.iter();
    let fields = fields.map(|(name, kind)| Field::new(*name, kind.clone(), true));
    Schema::new(fields.collect::<Vec<_>>())
}

fn plan(element: &str, columns: &[(&str, DataType)]) -> Result<Plan, String> {
    let element = Element::parse(element)?;
    Plan::with_schema(element, &fields(columns), "bad")
}

/// Events at the positions 10, 11, …; `None` is one of keys and values.
fn events(payloads: &[Option<&[u8]>]) -> RecordBatch {
    let positions = Int64Array::from_iter_values((10..).take(payloads.len()));
    let payloads = BinaryArray::from(payloads.to_vec());
    let columns = [
        ("position", Arc::new(positions) as ArrayRef, true),
        ("payload", Arc::new(payloads) as ArrayRef, true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn projected(
    mode: Mode,
    element: &str,
    columns: &[(&str, DataType)],
    payloads: &[Option<&[u8]>],
) -> Result<RecordBatch, ElementError> {
    let elements = Elements::new(plan(element, columns).unwrap(), mode);
    elements.project(&events(payloads))
}

/// The column of a description that is a type alone.
fn column(element: &str, kind: DataType, payloads: &[&[u8]]) -> ArrayRef {
    let payloads: Vec<_> = payloads.iter().copied().map(Some).collect();
    let batch = projected(Mode::FailFast, element, &[("element", kind)], &payloads).unwrap();
    Arc::clone(batch.column(0))
}

macro_rules! assert_numbers {
    ($name:literal, $number:ty, $array:ty, $kind:expr, $values:expr) => {
        let values: &[$number] = &$values;
        let little: Vec<_> = values.iter().map(|value| value.to_le_bytes()).collect();
        let big: Vec<_> = values.iter().map(|value| value.to_be_bytes()).collect();
        for (element, bytes) in [
            ($name.to_owned(), &little),
            (format!("<{}", $name), &little),
            (format!(">{}", $name), &big),
        ] {
            let payloads: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
            let found = column(&element, $kind, &payloads);
            let found = found.as_primitive::<$array>().values().iter();
            let found: Vec<_> = found.map(|value| value.to_be_bytes()).collect();
            let wanted = values.iter();
            let wanted: Vec<_> = wanted
                .map(|value| {
                    <<$array as arrow_array::types::ArrowPrimitiveType>::Native>::from(*value)
                        .to_be_bytes()
                })
                .collect();
            assert_eq!(found, wanted, "{element}");
            // The same behind a byte, and before one: no element stands where its type is aligned.
            let packed: Vec<Vec<u8>> = bytes
                .iter()
                .map(|bytes| [&[7], &bytes[..], &[8]].concat())
                .collect();
            let payloads: Vec<_> = packed.iter().map(|bytes| Some(&bytes[..])).collect();
            let element = format!("a:u8,v:{element},_:i8");
            let batch = projected(Mode::FailFast, &element, &[("v", $kind)], &payloads).unwrap();
            let found = batch.column(0).as_primitive::<$array>().values().iter();
            let found: Vec<_> = found.map(|value| value.to_be_bytes()).collect();
            assert_eq!(found, wanted, "{element}");
        }
    };
}

#[test]
fn numbers_keep_every_bit_in_both_byte_orders() {
    use DataType::{Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    assert_numbers!("i8", i8, Int8Type, Int8, [i8::MIN, -1, 0, i8::MAX]);
    assert_numbers!("i16", i16, Int16Type, Int16, [i16::MIN, -2, 258, i16::MAX]);
    assert_numbers!(
        "i32",
        i32,
        Int32Type,
        Int32,
        [i32::MIN, -2, 0x0102_0304, i32::MAX]
    );
    assert_numbers!(
        "i64",
        i64,
        Int64Type,
        Int64,
        [i64::MIN, -2, 0x0102_0304_0506_0708, i64::MAX]
    );
    assert_numbers!("u8", u8, UInt8Type, UInt8, [0, 1, 128, u8::MAX]);
    assert_numbers!("u16", u16, UInt16Type, UInt16, [0, 258, u16::MAX]);
    assert_numbers!("u32", u32, UInt32Type, UInt32, [0, 0x0102_0304, u32::MAX]);
    assert_numbers!(
        "u64",
        u64,
        UInt64Type,
        UInt64,
        [0, 0x0102_0304_0506_0708, u64::MAX]
    );
    let odd = f32::from_bits(0x7fa1_2345);
    assert_numbers!(
        "f32",
        f32,
        Float32Type,
        Float32,
        [-0.0, 1.5, odd, f32::NEG_INFINITY, 1e-45]
    );
    let odd = f64::from_bits(0xfff4_0000_dead_beef);
    assert_numbers!(
        "f64",
        f64,
        Float64Type,
        Float64,
        [-0.0, 0.1, odd, f64::INFINITY, 5e-324]
    );
}

#[test]
fn unsigned_numbers_fit_into_the_wider_types_of_spark() {
    let whole = DataType::Decimal128(20, 0);
    assert_numbers!("u8", u8, Int16Type, DataType::Int16, [0, 128, u8::MAX]);
    assert_numbers!(
        "u16",
        u16,
        Int32Type,
        DataType::Int32,
        [0, 32_768, u16::MAX]
    );
    assert_numbers!(
        "u32",
        u32,
        Int64Type,
        DataType::Int64,
        [0, 1 << 31, u32::MAX]
    );
    assert_numbers!(
        "u64",
        u64,
        Decimal128Type,
        whole.clone(),
        [0, 1 << 63, u64::MAX]
    );
    let found = column("u64", whole.clone(), &[&[0xff; 8]]);
    assert_eq!(found.data_type(), &whole);
    let text = found.as_primitive::<Decimal128Type>().value_as_string(0);
    assert_eq!(text, "18446744073709551615");
}

#[test]
fn truth_values_and_bytes_are_columns() {
    let element = "flag:bool,_:bytes[2],raw:bytes[3]";
    let columns = [("raw", DataType::Binary), ("flag", DataType::Boolean)];
    let payloads: [Option<&[u8]>; 2] = [Some(b"\x01--abc"), Some(b"\x00--\xff\x00\x01")];
    let batch = projected(Mode::FailFast, element, &columns, &payloads).unwrap();
    assert_eq!(
        batch.column(0).as_binary::<i32>(),
        &BinaryArray::from_vec(vec![b"abc", b"\xff\x00\x01"])
    );
    let flags: Vec<_> = batch.column(1).as_boolean().iter().collect();
    assert_eq!(flags, [Some(true), Some(false)]);
}

#[test]
fn a_slice_of_a_batch_has_its_own_elements() {
    let payloads: [Option<&[u8]>; 4] = [Some(b"longer"), Some(b"ab"), Some(b"cd"), Some(b"")];
    let elements = Elements::new(
        plan(
            "u16",
            &[("element", DataType::UInt16), ("position", DataType::Int64)],
        )
        .unwrap(),
        Mode::FailFast,
    );
    let batch = elements.project(&events(&payloads).slice(1, 2)).unwrap();
    let found = batch
        .column(0)
        .as_primitive::<UInt16Type>()
        .values()
        .to_vec();
    assert_eq!(found, [0x6261, 0x6463]);
    assert_eq!(batch.column(0).null_count(), 0);
    assert_eq!(
        batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec(),
        [11, 12]
    );
    let none = elements.project(&events(&payloads).slice(2, 0)).unwrap();
    assert_eq!(none.num_rows(), 0);
}

const MIXED: [Option<&[u8]>; 6] = [
    Some(b"\x01\x00\x01"),
    Some(b"\x01\x00"),
    Some(b"\x02\x00\x02"),
    None,
    Some(b""),
    Some(b"\x03\x00\x00"),
];
const ELEMENT: &str = "n:u16,b:bool";

#[test]
fn a_malformed_event_is_a_row_of_nulls_and_its_payload_is_kept() {
    let columns = [
        ("position", DataType::Int64),
        ("n", DataType::UInt16),
        ("b", DataType::Boolean),
        ("bad", DataType::Binary),
    ];
    let batch = projected(Mode::Permissive, ELEMENT, &columns, &MIXED).unwrap();
    let found: Vec<_> = batch
        .column(1)
        .as_primitive::<UInt16Type>()
        .iter()
        .collect();
    assert_eq!(found, [Some(1), None, None, None, None, Some(3)]);
    let found: Vec<_> = batch.column(2).as_boolean().iter().collect();
    assert_eq!(found, [Some(true), None, None, None, None, Some(false)]);
    let found: Vec<_> = batch.column(3).as_binary::<i32>().iter().collect();
    let none: Option<&[u8]> = Some(b"");
    assert_eq!(found, [None, MIXED[1], MIXED[2], none, none, None]);
    assert_eq!(batch.column(0).null_count(), 0);
}

#[test]
fn a_malformed_event_has_no_row_in_another_mode() {
    let columns = [("position", DataType::Int64), ("n", DataType::Int32)];
    let batch = projected(Mode::DropMalformed, ELEMENT, &columns, &MIXED).unwrap();
    assert_eq!(
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec(),
        [10, 15]
    );
    assert_eq!(
        batch
            .column(1)
            .as_primitive::<Int32Type>()
            .values()
            .to_vec(),
        [1, 3]
    );
    assert_eq!(batch.column(1).null_count(), 0);
}

#[test]
fn the_first_malformed_event_is_an_error_with_its_position() {
    let columns = [("n", DataType::UInt16)];
    for (payload, reason, code, text) in [
        (
            Some(&b"\x01"[..]),
            Malformed::Size { bytes: 1, size: 3 },
            "element.size",
            "position 11: the payload has 1 byte, and an element has 3 (element \"n:u16,b:bool\"); the mode is FAILFAST",
        ),
        (
            Some(&b"\x01\x00\x80"[..]),
            Malformed::Bool {
                field: "b".to_owned(),
            },
            "element.bool",
            "position 11: the field b is a bool and its byte is neither 0 nor 1 (element",
        ),
        (
            None,
            Malformed::Pairs,
            "element.pairs",
            "position 11: the event has keys and values, and no payload (element",
        ),
    ] {
        let payloads = [MIXED[0], payload, MIXED[1]];
        let error = projected(Mode::FailFast, ELEMENT, &columns, &payloads).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().starts_with(text), "{error}");
        let ElementError::Malformed {
            position,
            reason: found,
            ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!((position, found), (11, reason));
    }
}

#[test]
fn packed_and_mixed_batches_have_the_same_values() {
    let element = "a:>u32,b:f32,c:bytes[2],d:bool";
    let columns = [
        ("a", DataType::Int64),
        ("b", DataType::Float32),
        ("c", DataType::Binary),
        ("d", DataType::Boolean),
    ];
    let payloads: Vec<Vec<u8>> = (0..100_u8)
        .map(|n| [n, 1, 2, n, n, n, 3, 4, n, 5, n % 2].to_vec())
        .collect();
    let mut payloads: Vec<Option<&[u8]>> = payloads.iter().map(|bytes| Some(&bytes[..])).collect();
    let packed = projected(Mode::FailFast, element, &columns, &payloads).unwrap();
    payloads.insert(50, Some(b"short"));
    let mixed = projected(Mode::DropMalformed, element, &columns, &payloads).unwrap();
    assert_eq!(packed, mixed);
}

#[test]
fn all_columns_are_those_of_an_event_and_of_the_description() {
    let element = Element::parse("t:u64,_:u8,raw:bytes[4]").unwrap();
    let plan = Plan::new(element, "bad").unwrap();
    let schema = plan.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names[..2], ["spool", "position"]);
    assert_eq!(names[names.len() - 4..], ["parts", "t", "raw", "bad"]);
    assert_eq!(
        schema.field_with_name("t").unwrap().data_type(),
        &DataType::UInt64
    );
    assert_eq!(plan.filled().fields().len(), 3);
}

#[test]
fn columns_that_cannot_be_filled_are_refused() {
    let long = DataType::Int64;
    for (element, columns, text) in [
        (
            "u64",
            vec![("element", long.clone())],
            "column element has the type Int64, and u64 is DECIMAL(20,0) (Decimal128(20, 0)), or UInt64 outside of Spark",
        ),
        (
            "f64",
            vec![("element", DataType::Float32)],
            "column element has the type Float32, and f64 is DOUBLE (Float64)",
        ),
        (
            "a:u8",
            vec![("b", long.clone())],
            "column b is none of every event, and no field of the element \"a:u8\", which has a",
        ),
        (
            "a:u8",
            vec![("position", DataType::Utf8)],
            "column position is one that every event has, a nullable Int64, not Utf8",
        ),
        (
            "a:u8",
            vec![("bad", DataType::Utf8)],
            "column bad takes payloads that do not fit and is BINARY (Binary), not Utf8",
        ),
        (
            "sequence:u64",
            vec![],
            "a field is named sequence, as a column that every event has",
        ),
        ("digest:bytes[16]", vec![], "a field is named digest"),
        (
            "bad:u64",
            vec![],
            "a field is named bad, as the column for payloads that do not fit",
        ),
        (
            "i64",
            vec![("element", long.clone()), ("element", long)],
            "two columns are named element",
        ),
    ] {
        let fault = plan(element, &columns).unwrap_err();
        assert!(fault.contains(text), "{fault}");
    }
    let strict = Schema::new(vec![Field::new("element", DataType::Float64, false)]);
    let fault = Plan::with_schema(Element::parse("f64").unwrap(), &strict, "bad").unwrap_err();
    assert!(fault.contains("column element may not be null"), "{fault}");
    let fault = Plan::new(Element::parse("f64").unwrap(), "payload").unwrap_err();
    assert!(
        fault.contains("column payload is one that every event has"),
        "{fault}"
    );
}
