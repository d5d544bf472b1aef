//! Payloads between Python and Rust: sent ones are copied, once for a batch.

use ackline::core::Payload;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bytes::{Bytes, BytesMut};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyString};
use pyo3::{PyClass, PyClassInitializer, ffi};

use crate::{arrow_in, errors};

/// See `_relink_core.pyi`.
#[pyclass(name = "RelinkBatch", frozen, module = "ackline._core")]
pub(crate) struct PayloadBatch {
    payloads: Vec<Payload>,
}

#[pymethods]
impl PayloadBatch {
    #[new]
    fn new(payloads: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(payloads)
    }

    /// Bytes of one of them.
    fn size(&self, index: usize) -> usize {
        self.payloads.get(index).map_or(0, Payload::bytes)
    }

    fn __len__(&self) -> usize {
        self.payloads.len()
    }
}

impl PayloadBatch {
    /// The messages of a sequence of bytes, or of an Arrow array of binary or strings.
    pub(crate) fn of(payloads: &Bound<'_, PyAny>) -> PyResult<Self> {
        let payloads = if payloads.hasattr("__arrow_c_array__")? {
            column(payloads)?
        } else if let Some(list) = payloads.cast::<PyList>().ok()
            && let Some(payloads) = bytes_alone(list)
        {
            payloads
        } else if is_bytes_like(payloads) || payloads.is_instance_of::<PyString>() {
            let text = "payloads are a sequence; one message alone goes by send";
            return Err(errors::usage("payloads", text));
        } else {
            let each = payloads.try_iter()?.map(|one| payload(&one?));
            each.collect::<PyResult<_>>()?
        };
        Ok(Self { payloads })
    }

    pub(crate) fn payloads(&self) -> &[Payload] {
        &self.payloads
    }
}

/// The messages of a list of bytes alone, in one piece of memory.
fn bytes_alone(list: &Bound<'_, PyList>) -> Option<Vec<Payload>> {
    let mut total: usize = 0;
    for one in list {
        total = total.checked_add(one.cast::<PyBytes>().ok()?.as_bytes().len())?;
    }
    let mut buffer = BytesMut::with_capacity(total);
    let mut payloads = Vec::with_capacity(list.len());
    for one in list {
        buffer.extend_from_slice(one.cast::<PyBytes>().ok()?.as_bytes());
        payloads.push(Payload::from(buffer.split().freeze()));
    }
    Some(payloads)
}

/// The messages of an Arrow array of binary or strings.
fn column(array: &Bound<'_, PyAny>) -> PyResult<Vec<Payload>> {
    let column = arrow_in::column(array)?;
    let column: &ArrayRef = column.column(0);
    if column.null_count() > 0 {
        return Err(errors::usage("payloads", "a message is not null"));
    }
    let each = |value: &[u8]| Payload::from(Bytes::copy_from_slice(value));
    let every = 0..column.len();
    Ok(match column.data_type() {
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            every.map(|row| each(values.value(row))).collect()
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            every.map(|row| each(values.value(row))).collect()
        }
        DataType::BinaryView => {
            let values = column.as_binary_view();
            every.map(|row| each(values.value(row))).collect()
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            every
                .map(|row| each(values.value(row).as_bytes()))
                .collect()
        }
        DataType::Utf8View => {
            let values = column.as_string_view();
            every
                .map(|row| each(values.value(row).as_bytes()))
                .collect()
        }
        DataType::LargeUtf8 => {
            let values = column.as_string::<i64>();
            every
                .map(|row| each(values.value(row).as_bytes()))
                .collect()
        }
        other => {
            let text = format!("an array of {other} has no messages; binary and string have");
            return Err(errors::usage("payloads", &text));
        }
    })
}

fn is_bytes_like(value: &Bound<'_, PyAny>) -> bool {
    PyBuffer::<u8>::get(value).is_ok()
}

/// One part: bytes, or anything else with a buffer of bytes.
pub(crate) fn part(value: &Bound<'_, PyAny>) -> PyResult<Option<Bytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(Bytes::copy_from_slice(bytes.as_bytes())));
    }
    match PyBuffer::<u8>::get(value) {
        Ok(buffer) => Ok(Some(buffer.to_vec(value.py())?.into())),
        Err(_) => Ok(None),
    }
}

/// A message: bytes-like for one part, else a sequence of such.
fn payload(value: &Bound<'_, PyAny>) -> PyResult<Payload> {
    if let Some(part) = part(value)? {
        return Ok(Payload::from(part));
    }
    let wrong = || errors::usage("payload", "a message is bytes, or a sequence of bytes");
    // A collection without an order is no message, and an iterator could be read only once.
    let is_sequence = value.is_instance_of::<PyList>() || value.cast::<PySequence>().is_ok();
    if value.is_instance_of::<PyString>() || !is_sequence {
        return Err(wrong());
    }
    let parts = value.try_iter().map_err(|_| wrong())?;
    parts
        .map(|one| part(&one?)?.ok_or_else(wrong))
        .collect::<PyResult<Payload>>()
}

/// A payload that is sent: bytes, or anything else with a buffer of bytes.
pub(crate) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let text = "a payload is bytes, or has a buffer of bytes";
    part(value)?.ok_or_else(|| errors::usage("payload", text))
}

/// A received message, in one piece.
pub(crate) fn joined<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyBytes>> {
    if let [part] = payload.as_slice() {
        return Ok(PyBytes::new(py, part));
    }
    PyBytes::new_with(py, payload.bytes(), |whole| {
        let mut rest = whole;
        for part in payload.as_slice() {
            let Some((head, tail)) = rest.split_at_mut_checked(part.len()) else {
                break;
            };
            head.copy_from_slice(part);
            rest = tail;
        }
        Ok(())
    })
}

/// Makes an object that Python's collector does not know: it would look at each message of a batch several times, and could
/// free none, because it sees none of the fields of a class of Rust.
#[allow(unsafe_code)] // there is no safe form
pub(crate) fn untracked<T: PyClass>(
    py: Python<'_>,
    value: impl Into<PyClassInitializer<T>>,
) -> PyResult<Bound<'_, T>> {
    let object = Bound::new(py, value)?;
    // SAFETY: a living object of a type with a collector's head, as each class made here has; untracking is
    // allowed at any time, and freeing does not ask for it.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
    Ok(object)
}
