//! Texts of Python that are arguments.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;

/// A text argument.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'a> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = value.cast::<PyString>()?;
        text.extract().map(Self).map_err(|_: PyErr| halved(&text))
    }
}

/// The text of a `str`; one with half of a surrogate pair has no form on the wire and is refused.
pub(super) fn unicode<'a>(text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|_| halved(text))
}

fn halved(text: &Bound<'_, PyString>) -> PyErr {
    let shown = text.repr().map(|shown| shown.to_string());
    let shown = shown.unwrap_or_default();
    let text = format!("the text {shown} has half of a surrogate pair, which cannot be sent");
    errors::usage("not_unicode", &text)
}
