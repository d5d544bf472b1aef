//! Columns of VARIANT: members, and whole events.

use std::collections::HashMap;

use crate::support::long;
use ackline_json::{Mode, Options, Projector, is_variant};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use parquet_variant::Variant;
use std::sync::Arc;

fn variant(name: &str) -> Field {
    let mark = HashMap::from([("variant".to_owned(), "true".to_owned())]);
    let fields = vec![
        Field::new("value", DataType::Binary, false),
        Field::new("metadata", DataType::Binary, false).with_metadata(mark),
    ];
    Field::new_struct(name, fields, true)
}

fn project(fields: Vec<Field>, mode: Mode, events: &[&str]) -> RecordBatch {
    let options = Options {
        mode,
        whole: Some("event".to_owned()),
        ..Options::default()
    };
    let mut projector = Projector::new(Arc::new(Schema::new(fields)), &["event"], &options)
        .expect("VARIANT is filled");
    for (position, event) in (0..).zip(events) {
        projector
            .push(position, event.as_bytes())
            .expect("nothing fails fast");
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(events.len()));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows);
    projector
        .finish(&none.expect("no columns"))
        .expect("a batch")
}

/// The first byte of each value, whose low bits are its basic type; `None` of a null.
fn kinds(batch: &RecordBatch, column: &str) -> Vec<Option<u8>> {
    let column = batch
        .column_by_name(column)
        .expect("the column")
        .as_struct();
    let values = column
        .column_by_name("value")
        .expect("values")
        .as_binary::<i32>();
    let kind = |row| values.value(row).first().map(|byte| byte & 3);
    (0..column.len())
        .map(|row| if column.is_null(row) { None } else { kind(row) })
        .collect()
}

const SCALAR: Option<u8> = Some(0);
const TEXT: Option<u8> = Some(1);
const OBJECT: Option<u8> = Some(2);
const ARRAY: Option<u8> = Some(3);

#[test]
fn members_of_any_shape_are_variants() {
    let events = [
        r#"{"v":1}"#,
        r#"{"v":"a"}"#,
        r#"{"v":{"a":1}}"#,
        r#"{"v":[1]}"#,
        r#"{"v":null}"#,
        "{}",
    ];
    let batch = project(vec![variant("v")], Mode::Permissive, &events);
    assert_eq!(
        kinds(&batch, "v"),
        [SCALAR, TEXT, OBJECT, ARRAY, None, None]
    );
}

#[test]
fn a_whole_event_is_a_variant_and_its_members_are_columns_too() {
    let events = [" {\"a\":1}\n", "[1]", "\"text\"", "1", "nope", "null"];
    let batch = project(vec![variant("event"), long("a")], Mode::Permissive, &events);
    assert_eq!(
        kinds(&batch, "event"),
        [OBJECT, ARRAY, TEXT, SCALAR, None, SCALAR]
    );
    assert_eq!(batch.column(1).null_count(), 5);
    let kept = project(
        vec![variant("event"), long("a")],
        Mode::DropMalformed,
        &events,
    );
    assert_eq!(kinds(&kept, "event"), [OBJECT, ARRAY, TEXT, SCALAR, SCALAR]);
}

#[test]
fn a_struct_is_no_variant_unless_it_is_marked() {
    assert!(is_variant(variant("v").data_type()));
    let plain = |nullable| {
        let fields = vec![
            Field::new("value", DataType::Binary, nullable),
            Field::new("metadata", DataType::Binary, nullable),
        ];
        DataType::Struct(fields.into())
    };
    assert!(!is_variant(&plain(true)));
    assert!(!is_variant(&plain(false)));
    assert!(!is_variant(&DataType::Binary));
}

#[test]
fn of_equal_names_in_a_variant_the_last_is_kept_whatever_it_is() {
    let events = [
        r#"{"a":{"b":1},"a":2}"#,
        r#"{"a":2,"a":{"b":1}}"#,
        r#"{"a":{"b":1},"a":{"c":1}}"#,
    ];
    let batch = project(vec![variant("event")], Mode::Permissive, &events);
    let column = batch.column(0).as_struct();
    let part = |name: &str| {
        let part = column.column_by_name(name).expect("it has both");
        part.as_binary::<i32>().clone()
    };
    let (names, values) = (part("metadata"), part("value"));
    let member = |row: usize, path: &[&str]| {
        let whole = Variant::try_new(names.value(row), values.value(row)).expect("a VARIANT");
        let found = path
            .iter()
            .try_fold(whole, |at, name| at.get_object_field(name));
        found.and_then(|found| found.as_int8())
    };
    assert_eq!(member(0, &["a"]), Some(2));
    assert_eq!(member(1, &["a", "b"]), Some(1));
    assert_eq!(
        (member(2, &["a", "b"]), member(2, &["a", "c"])),
        (None, Some(1))
    );
}
