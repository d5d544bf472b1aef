//! Extensions: their ids, and the fields of their messages.

use ackline::reactive::{Config, ExtensionMessage, Extensions, Field, FieldKind};
use bytes::Bytes;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors;
use crate::payloads::bytes_of;

/// Extensions by their ids, with their messages by their types, and the kinds of the fields of each.
pub(super) type Given = Vec<(u64, Vec<(u64, Vec<String>)>)>;

/// Puts them into the settings of a connection.
pub(super) fn configure(config: &mut Config, given: Given) -> PyResult<()> {
    // The values are Python's: messages go and come with their fields.
    let mut extensions = Extensions::<()>::default();
    for (extension, messages) in given {
        extensions.support(extension);
        for (message_type, kinds) in messages {
            let fields = kinds.iter().map(|kind| kind_of(kind));
            let message = ExtensionMessage {
                message_type,
                extension,
                fields: fields.collect::<PyResult<_>>()?,
            };
            let added = extensions.message(message, |_| Ok(()), |()| None);
            added.map_err(errors::refused)?;
        }
    }
    extensions.configure(config);
    Ok(())
}

fn kind_of(kind: &str) -> PyResult<FieldKind> {
    match kind {
        "varint" => Ok(FieldKind::Varint),
        "string" => Ok(FieldKind::String),
        "bytes" => Ok(FieldKind::Bytes),
        _ => {
            let text = format!("a field is {kind:?}; it is \"varint\", \"string\" or \"bytes\"");
            Err(errors::usage("extensions", &text))
        }
    }
}

/// The fields of a message: whole numbers, texts and bytes.
pub(super) fn fields_of(fields: &Bound<'_, PyAny>) -> PyResult<Vec<Field>> {
    let each = fields.try_iter()?.map(|field| {
        let field = field?;
        if let Ok(text) = field.cast::<PyString>() {
            return Ok(Field::String(text.to_str()?.to_owned()));
        }
        match field.extract::<u64>() {
            Ok(number) => Ok(Field::Varint(number)),
            Err(_) => bytes_of(&field).map(Field::Bytes),
        }
    });
    each.collect()
}

/// The fields for Python.
pub(super) fn told(py: Python<'_>, fields: &[Field]) -> PyResult<Vec<Py<PyAny>>> {
    let each = fields.iter().map(|field| match field {
        Field::Varint(number) => number.into_py_any(py),
        Field::String(text) => text.into_py_any(py),
        Field::Bytes(bytes) => told_bytes(py, bytes),
    });
    each.collect()
}

fn told_bytes(py: Python<'_>, bytes: &Bytes) -> PyResult<Py<PyAny>> {
    PyBytes::new(py, bytes).into_py_any(py)
}
