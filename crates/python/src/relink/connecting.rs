//! A link that is being connected.

use ackline::relink::{Error, Link, adopt, connect};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::outcome::Pending;
use crate::runtime::Owned;
use crate::waits::waits;

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkConnecting {
    connecting: Owned<Pending<Result<Link, Error>>>,
    keeps: bool,
}

#[pymethods]
impl RelinkConnecting {
    /// `handed` is the state of a link that another process has handed over.
    #[new]
    #[pyo3(signature = (url, options, handed = None))]
    fn new(
        py: Python<'_>,
        url: String,
        options: &Bound<'_, PyDict>,
        handed: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let options = options::connect(options)?;
        let keeps = options.state.is_some();
        let connecting = Pending::begin(py, async move {
            match handed {
                Some(state) => adopt(&url, options, &state).await,
                None => connect(&url, options).await,
            }
        })?;
        Ok(Self {
            connecting: Owned::new(connecting),
            keeps,
        })
    }

    /// Returns the link, once; raises the reason if there is none.
    fn take(&self) -> PyResult<Option<RelinkLink>> {
        let connected = self.connecting.get()?.take();
        let link = connected.transpose().map_err(raised)?;
        Ok(link.map(|link| RelinkLink::new(link, self.keeps)))
    }
}

waits!(RelinkConnecting(), |it, py| it
    .connecting
    .get()
    .map(Pending::known));
