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

/// The URL that a receiver listened on, or connected to, when it took the event: the attribute [`RECEIVER_URL`]. It is
/// null for events of receivers that noted none.
pub const LISTENER: &str = "listener";

/// The attribute of a block with the URL of its receiver.
pub const RECEIVER_URL: &str = "receiver.url";

/// The name of the endpoint that the event was sent to, by Relink: the beginning of `link`. It is null for other
/// protocols.
pub const ENDPOINT: &str = "endpoint";

/// The columns that are built only if they are named, behind all others.
pub const ON_REQUEST: [&str; 3] = [DIGEST, LISTENER, ENDPOINT];

/// The schema of these columns, in the order of [`COLUMNS`]; all of them if none are named.
pub(crate) fn schema(columns: Option<&[String]>) -> Result<SchemaRef, SpoolError> {
    if let Some(name) = columns.into_iter().flatten().find(|name| !is_known(name)) {
        return Err(SpoolError::Column { name: name.clone() });
    }
    let named = |name: &str| columns.is_some_and(|columns| columns.iter().any(|c| c == name));
    let wanted = |name: &str| columns.is_none() || named(name);
    let ordered = COLUMNS.iter().filter(|name| wanted(name));
    let fields = ordered
        .chain(ON_REQUEST.iter().filter(|name| named(name)))
        .map(|name| Field::new(*name, data_type(name), true))
        .collect::<Vec<_>>();
    Ok(Arc::new(Schema::new(fields)))
}

/// The Arrow field of a column of [`COLUMNS`] or [`ON_REQUEST`]; `None` if there is none.
pub fn column(name: &str) -> Option<Field> {
    is_known(name).then(|| Field::new(name, data_type(name), true))
}

fn is_known(name: &str) -> bool {
    COLUMNS.contains(&name) || ON_REQUEST.contains(&name)
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
