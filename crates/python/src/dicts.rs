//! Dicts for Python with the fields of a struct as members, by their names.

use ackline_link::PeerInfo;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyDict};

/// Sets members of a dict to the fields of a value that have their names.
macro_rules! set_fields {
    ($dict:expr, $of:expr, $($field:ident),+ $(,)?) => {
        $($dict.set_item(stringify!($field), &$of.$field)?;)+
    };
}
pub(crate) use set_fields;

/// The attributes of a peer.
pub(crate) fn attributes<'py>(py: Python<'py>, peer: &PeerInfo) -> PyResult<Bound<'py, PyDict>> {
    let pairs = peer.attributes.iter();
    pairs
        .map(|(name, value)| (&**name, &**value))
        .into_py_dict(py)
}
