//! A listener: hands out each new link once.

use std::sync::{Arc, Mutex};

use ackline::relink::{Listener, listen};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::listeners::listened;
use crate::runtime::{self, Owned};
use crate::waits::waits;

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkListener {
    /// `None` once it is closed.
    listener: Owned<Mutex<Option<Arc<Listener>>>>,
    url: String,
    keeps: bool,
}

#[pymethods]
impl RelinkListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = options::listen(options)?;
        let keeps = options.state.is_some();
        let listener = listened(py, listen(url, options), raised)?;
        Ok(Self {
            url: listener.url().to_owned(),
            listener: Owned::new(Mutex::new(Some(Arc::new(listener)))),
            keeps,
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The next link, if one is there.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<RelinkLink>> {
        let listener = self.listener.lock()?.clone();
        let link = py.detach(|| listener.and_then(|listener| listener.try_accept()));
        Ok(link.map(|link| RelinkLink::new(link, self.keeps)))
    }

    /// Closes the socket and returns once it is closed; links that were handed out go on while their transports do.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(listener) = self.listener.lock()?.take() else {
            return Ok(());
        };
        runtime::finish(py, async move { listener.listening().end().await })
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        let listener = self.listener.lock()?;
        Ok(listener
            .as_ref()
            .is_none_or(|it| it.listening().is_closed()))
    }

    #[getter]
    fn links(&self, py: Python<'_>) -> PyResult<usize> {
        let listener = self.listener.lock()?.clone();
        Ok(py.detach(|| listener.map_or(0, |listener| listener.links())))
    }
}

impl RelinkListener {
    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let ready = self
            .listener
            .lock()?
            .as_ref()
            .map(|it| it.listening().ready());
        Ok(async move {
            if let Some(ready) = ready {
                ready.await;
            }
        })
    }
}

waits!(RelinkListener(), |it, py| it.ready());
