//! A pending operation: it is begun at once, waited for by readiness, and its result is taken once.

use std::future::Future;

use ackline::bpmux::Error;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

use super::raised::raised;
use crate::errors;
use crate::outcome::Pending;
use crate::runtime::Owned;
use crate::waits::waits;

/// Makes the result of an operation an object of Python.
type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct PendingOp {
    operation: Owned<Pending<Result<Convert, Error>>>,
}

#[pymethods]
impl PendingOp {
    /// Returns the result, once; raises the error if the operation failed.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let done = self.operation.get()?.take();
        let done = done.ok_or_else(|| errors::usage("not_done", "it goes on, or was taken"))?;
        done.map_err(raised)?(py)
    }
}

impl PendingOp {
    /// Begins the operation in this thread, so that calls made after it take effect after it.
    pub(super) fn begin<R, F>(py: Python<'_>, future: F) -> PyResult<Self>
    where
        R: for<'py> IntoPyObject<'py> + Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let operation = Pending::begin(py, async move {
            let done = future.await?;
            let convert: Convert = Box::new(|py| done.into_py_any(py));
            Ok(convert)
        })?;
        Ok(Self {
            operation: Owned::new(operation),
        })
    }
}

waits!(PendingOp(), |it, py| it.operation.get().map(Pending::known));
