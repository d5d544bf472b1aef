//! The columns of an event and their Arrow types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::SpoolError;

/// The columns of an event, in their order.
pub const COLUMNS: [&str; 12] = [
    "spool",
    "position",
    "received_at",
    "protocol",
    "peer",
    "link",
    "stream",
    "sequence",
    "repeat",
    "attributes",
    "parts",
    "payload",
];

/// The column that is built only if it is named: 16 bytes that identify an event in every spool,
/// computed from its sender and its bytes (`Digester::of_sender`).
pub const DIGEST: &str = "digest";

/// The schema of these columns, in the order of [`COLUMNS`]; all of them if none are named.
pub(crate) fn schema(columns: Option<&[String]>) -> Result<SchemaRef, SpoolError> {
    if let Some(name) = columns
        .into_iter()
        .flatten()
        .find(|name| !COLUMNS.contains(&name.as_str()) && *name != DIGEST)
    {
        return Err(SpoolError::Column { name: name.clone() });
    }
    let named = |name: &str| columns.is_some_and(|columns| columns.iter().any(|c| c == name));
    let wanted = |name: &str| columns.is_none() || named(name);
    let ordered = COLUMNS.iter().filter(|name| wanted(name));
    let fields = ordered
        .chain([&DIGEST].into_iter().filter(|name| named(name)))
        .map(|name| Field::new(*name, data_type(name), true))
        .collect::<Vec<_>>();
    Ok(Arc::new(Schema::new(fields)))
}

/// The Arrow field of a column of [`COLUMNS`] or [`DIGEST`]; `None` if there is none.
pub fn column(name: &str) -> Option<Field> {
    let is_known = COLUMNS.contains(&name) || name == DIGEST;
    is_known.then(|| Field::new(name, data_type(name), true))
}

fn data_type(column: &str) -> DataType {
    match column {
        "position" | "sequence" => DataType::Int64,
        "received_at" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "repeat" => DataType::Boolean,
        "attributes" => DataType::Map(map_entries(), false),
        "parts" => DataType::List(Arc::new(Field::new("element", DataType::Binary, true))),
        "payload" | DIGEST => DataType::Binary,
        _ => DataType::Utf8,
    }
}

/// The entries of `map<string not null, string>`, by the names pyarrow gives them.
pub(crate) fn map_entries() -> FieldRef {
    Arc::new(Field::new("entries", DataType::Struct(map_fields()), false))
}

pub(crate) fn map_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ])
}
