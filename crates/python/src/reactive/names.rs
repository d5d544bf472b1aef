//! Publishers by name.

use std::sync::Mutex;

use ackline::reactive::Names;
use ackline_core::locked;
use pyo3::prelude::*;

use crate::errors;

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveNames {
    names: Mutex<Names<Py<PyAny>>>,
}

#[pymethods]
impl ReactiveNames {
    #[new]
    fn new() -> Self {
        Self {
            names: Mutex::new(Names::default()),
        }
    }

    /// Adds a value under a name, a beginning of names or a pattern.
    fn add(&self, name: &str, value: Py<PyAny>) -> PyResult<()> {
        locked(&self.names)
            .add(name, value)
            .map_err(errors::refused)
    }

    /// The value for a name, if there is one.
    fn find(&self, py: Python<'_>, name: &str) -> Option<Py<PyAny>> {
        let names = locked(&self.names);
        names.find(name).map(|value| value.clone_ref(py))
    }
}
