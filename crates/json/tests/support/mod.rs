//! Batches as JSON values, so that a test can write down the expected rows.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails a test"
)]

use std::sync::Arc;

use ackline_json::{Mode, Options, ProjectError, Projector, with_rescued};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampNanosecondType, UInt8Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use serde_json::{Map, Value, json};

pub(crate) fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

pub(crate) fn text(name: &str) -> Field {
    field(name, DataType::Utf8)
}

pub(crate) fn long(name: &str) -> Field {
    field(name, DataType::Int64)
}

pub(crate) fn structure(name: &str, fields: Vec<Field>) -> Field {
    Field::new_struct(name, fields, true)
}

pub(crate) fn list(name: &str, element: DataType) -> Field {
    Field::new_list(name, field("element", element), true)
}

pub(crate) fn map(name: &str, value: DataType) -> Field {
    let key = Field::new("key", DataType::Utf8, false);
    Field::new_map(name, "entries", key, field("value", value), false, true)
}

pub(crate) fn timestamp(name: &str) -> Field {
    field(
        name,
        DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
    )
}

/// A projector with the column of rescued members, unless the options turn it off.
pub(crate) fn projector(fields: Vec<Field>, options: &Options) -> Projector {
    Projector::new(with_rescued(&Schema::new(fields), options), &[], options).unwrap()
}

/// All added events, as one JSON object for each row.
pub(crate) fn rows(projector: &mut Projector, added: usize) -> Vec<Value> {
    let options = RecordBatchOptions::new().with_row_count(Some(added));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    let batch = projector.finish(&none.unwrap()).unwrap();
    (0..batch.num_rows())
        .map(|row| object(batch.schema().fields(), batch.columns(), row))
        .collect()
}

/// One event's row, permissive, with the rescued members.
pub(crate) fn row(fields: Vec<Field>, event: &str) -> Value {
    row_of_bytes(fields, event.as_bytes())
}

pub(crate) fn row_of_bytes(fields: Vec<Field>, event: &[u8]) -> Value {
    let mut projector = projector(fields, &Options::default());
    projector.push(0, event).unwrap();
    rows(&mut projector, 1).remove(0)
}

pub(crate) fn without_rescue(mode: Mode) -> Options {
    Options {
        mode,
        rescued: None,
        ..Options::default()
    }
}

pub(crate) fn reason(result: Result<(), ProjectError>) -> (&'static str, String) {
    let error = result.unwrap_err();
    (error.code(), error.to_string())
}

fn object(fields: &arrow_schema::Fields, columns: &[arrow_array::ArrayRef], row: usize) -> Value {
    let members = fields.iter().zip(columns).map(|(field, column)| {
        assert_eq!(field.data_type(), column.data_type());
        (field.name().clone(), value(column, row))
    });
    Value::Object(members.collect::<Map<_, _>>())
}

pub(crate) fn value(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    let number = |value: f64| {
        if value.is_finite() {
            json!(value)
        } else {
            json!(value.to_string())
        }
    };
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => number(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => number(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Binary => column.as_binary::<i32>().value(row).into(),
        DataType::Date32 => column.as_primitive::<Date32Type>().value(row).into(),
        DataType::Decimal128(..) => column
            .as_primitive::<Decimal128Type>()
            .value_as_string(row)
            .into(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => column
            .as_primitive::<TimestampMicrosecondType>()
            .value(row)
            .into(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => column
            .as_primitive::<TimestampNanosecondType>()
            .value(row)
            .into(),
        DataType::List(_) => {
            let list = column.as_list::<i32>().value(row);
            (0..list.len()).map(|at| value(&list, at)).collect()
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1));
            let pairs = (0..entries.len()).map(|at| json!([keys.value(at), value(values, at)]));
            pairs.collect()
        }
        DataType::Struct(fields) => object(fields, column.as_struct().columns(), row),
        other => panic!("{other} is not shown"),
    }
}
