//! Listeners as native classes: each class has its own constructor, and the other methods from here.

use std::future::Future;

use pyo3::prelude::*;

use crate::{errors, runtime};

/// Listens in this thread.
pub(crate) fn listened<L: Send, E: Send>(
    py: Python<'_>,
    listening: impl Future<Output = Result<L, E>> + Send,
    raised: impl FnOnce(E) -> PyErr,
) -> PyResult<L> {
    runtime::block_on(py, None, listening)?
        .ok_or_else(|| errors::timeout("listening took too long"))?
        .map_err(raised)
}

/// A native class of a listener that hands out each connection once, as a `$connection`. Its constructor is written
/// beside it.
macro_rules! listener {
    ($(#[$attribute:meta])* $class:ident($listener:ty), $connection:ident) => {
        $(#[$attribute])*
        #[pyclass(frozen, module = "ackline._core")]
        pub(crate) struct $class {
            listener: $crate::runtime::Owned<$listener>,
            url: String,
        }

        impl From<$listener> for $class {
            fn from(listener: $listener) -> Self {
                Self {
                    url: listener.url().to_owned(),
                    listener: $crate::runtime::Owned::new(listener),
                }
            }
        }

        #[pymethods]
        impl $class {
            #[getter]
            fn url(&self) -> &str {
                &self.url
            }

            /// Returns the next connection, if there is one.
            fn try_accept(&self, py: Python<'_>) -> PyResult<Option<$connection>> {
                let listener = self.listener.get()?;
                let connection = py.detach(|| listener.try_accept());
                Ok(connection.map($connection::new))
            }

            /// Closes the socket and returns once it is closed; connections that were handed out go on.
            fn close(&self, py: Python<'_>) -> PyResult<()> {
                $crate::runtime::finish(py, self.listener.get()?.listening().end())
            }

            #[getter]
            fn closed(&self) -> PyResult<bool> {
                Ok(self.listener.get()?.listening().is_closed())
            }

            /// Health checks, and connections that were turned away by the reason's code.
            fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
                let stats = self.listener.get()?.stats();
                let dict = pyo3::types::PyDict::new(py);
                $crate::dicts::set_fields!(dict, stats, health_checks, turned_away);
                Ok(dict)
            }
        }

        $crate::waits::waits!($class(), |it, py| it
            .listener
            .get()
            .map(|it| it.listening().ready()));
    };
}
pub(crate) use listener;
