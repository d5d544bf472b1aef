//! A pending operation: it is begun at once, waited for by readiness, and its result is taken once.

use std::future::Future;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

use crate::errors;
use crate::outcome::Pending;
use crate::runtime::Owned;
use crate::waits::waits;

/// Makes the result of an operation an object of Python.
type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
/// Makes an error an exception of Python.
type Raise = Box<dyn FnOnce() -> PyErr + Send>;

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct PendingOp {
    operation: Owned<Pending<Result<Convert, Raise>>>,
}

#[pymethods]
impl PendingOp {
    /// Returns the result, once; raises the error if the operation failed.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let done = self.operation.get()?.take();
        let done = done.ok_or_else(|| errors::usage("not_done", "it goes on, or was taken"))?;
        match done {
            Ok(convert) => convert(py),
            Err(raise) => Err(raise()),
        }
    }

    /// Gives the operation up, if it goes on: the traceback of a cancelled wait may keep this object for a while.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let operation = self.operation.get()?;
        py.detach(|| operation.give_up());
        Ok(())
    }
}

impl PendingOp {
    /// Begins the operation in this thread, so that calls made after it take effect after it.
    pub(crate) fn begin<R, E, F>(
        py: Python<'_>,
        raised: fn(E) -> PyErr,
        future: F,
    ) -> PyResult<Self>
    where
        R: for<'py> IntoPyObject<'py> + Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let operation = Pending::begin(py, async move {
            match future.await {
                Ok(done) => Ok(Box::new(|py: Python<'_>| done.into_py_any(py)) as Convert),
                Err(error) => Err(Box::new(move || raised(error)) as Raise),
            }
        })?;
        Ok(Self {
            operation: Owned::new(operation),
        })
    }
}

waits!(PendingOp(), |it, py| it.operation.get().map(Pending::known));
