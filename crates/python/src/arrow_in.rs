//! Record batches and schemas from objects with Arrow's `PyCapsule` interface.

use std::ffi::CStr;
use std::ptr::NonNull;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_schema::{ArrowError, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::errors;

/// The schema of an object that has `__arrow_c_schema__`.
pub(crate) fn schema(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = object.call_method0("__arrow_c_schema__")?;
    let schema = take_schema(&capsule)?;
    Schema::try_from(&schema).map_err(|error| refused(&error))
}

/// The batch of an object that has `__arrow_c_array__`; its buffers are shared, not copied.
pub(crate) fn batch(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let rows = array(object)?;
    if rows.null_count() > 0 {
        return Err(errors::usage(
            "arrow",
            "a record batch has no rows that are null",
        ));
    }
    let rows = rows
        .as_struct_opt()
        .ok_or_else(|| errors::usage("arrow", "this is no record batch"))?;
    Ok(RecordBatch::from(rows))
}

/// The one column `payload` of an array that has `__arrow_c_array__`; its buffers are shared, not copied.
pub(crate) fn column(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let array = array(object)?;
    RecordBatch::try_from_iter([("payload", array)]).map_err(|error| refused(&error))
}

fn array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let pair = object.call_method0("__arrow_c_array__")?;
    let pair = pair.cast::<PyTuple>()?;
    let schema = take_schema(&pair.get_item(0)?)?;
    let array = take_array(&pair.get_item(1)?)?;
    // SAFETY: the capsules' names state their content, and their producer keeps the C interface's rules.
    #[allow(unsafe_code)] // the C interface has no safe form
    let data = unsafe { from_ffi(array, &schema) };
    data.map(make_array).map_err(|error| refused(&error))
}

fn take_schema(capsule: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowSchema> {
    let pointer = pointer(capsule, c"arrow_schema")?.cast();
    // SAFETY: the name states the pointer's type; the struct left behind is released already.
    #[allow(unsafe_code)] // as above
    Ok(unsafe { FFI_ArrowSchema::from_raw(pointer.as_ptr()) })
}

fn take_array(capsule: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowArray> {
    let pointer = pointer(capsule, c"arrow_array")?.cast();
    // SAFETY: as in `take_schema`.
    #[allow(unsafe_code)] // as above
    Ok(unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) })
}

fn pointer(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<NonNull<std::ffi::c_void>> {
    capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))
}

fn refused(error: &ArrowError) -> PyErr {
    errors::usage("arrow", &error.to_string())
}
