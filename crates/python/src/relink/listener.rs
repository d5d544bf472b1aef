//! A listener: hands out each new link once.

use std::sync::Arc;

use ackline::relink::{Link, Listener, listen};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::accepting::Accepting;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, runtime};

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkListener {
    accepting: Owned<Accepting<Link, Listener>>,
    url: String,
    keeps: bool,
    send_bytes: usize,
}

#[pymethods]
impl RelinkListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = options::listen(options)?;
        let (keeps, send_bytes) = (options.state.is_some(), options.link.send_bytes);
        let listening = runtime::block_on(py, None, listen(url, options))?;
        let listener = listening
            .ok_or_else(|| errors::timeout("listening took too long"))?
            .map_err(raised)?;
        let url = listener.url().to_owned();
        let next = async |listener: Arc<Listener>| listener.accept().await.ok();
        let accepting = Accepting::start(py, listener, next)?;
        Ok(Self {
            accepting: Owned::new(accepting),
            url,
            keeps,
            send_bytes,
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The next link, if one is there.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<RelinkLink>> {
        let link = self.accepting.get()?.pop(py);
        Ok(link.map(|link| RelinkLink::new(link, self.keeps, self.send_bytes)))
    }

    /// Closes the socket, which is closed when this returns; links that were handed out go on while their transports do.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let close = async |listener: Arc<Listener>| listener.close().await;
        self.accepting.get()?.close(py, close)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.accepting.get()?.is_closed())
    }

    #[getter]
    fn links(&self, py: Python<'_>) -> PyResult<usize> {
        let links = self.accepting.get()?.with(py, Listener::links);
        Ok(links.unwrap_or_default())
    }
}

waits!(RelinkListener(), |it, py| it
    .accepting
    .get()
    .map(Accepting::ready));
