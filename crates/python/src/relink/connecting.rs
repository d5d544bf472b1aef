//! A link that is on its way.

use ackline::relink::{Error, Link, adopt, connect};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::task::JoinHandle;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::loop_waker::{LoopWaker, Standing};
use crate::outcome::Outcome;
use crate::runtime;
use crate::runtime::Owned;

struct Dialling {
    outcome: Outcome<Result<Link, Error>>,
    task: JoinHandle<()>,
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkConnecting {
    dialling: Owned<Dialling>,
    keeps: bool,
    send_bytes: usize,
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
        let (keeps, send_bytes) = (options.state.is_some(), options.link.send_bytes);
        let outcome = Outcome::new();
        let task = runtime::handle(py)?.spawn({
            let outcome = outcome.clone();
            async move {
                let connected = match handed {
                    Some(state) => adopt(&url, options, &state).await,
                    None => connect(&url, options).await,
                };
                outcome.tell(connected);
            }
        });
        Ok(Self {
            dialling: Owned::new(Dialling { outcome, task }),
            keeps,
            send_bytes,
        })
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ready = self.ready()?;
        Ok(runtime::block_on(py, runtime::seconds("timeout", timeout)?, ready)?.is_some())
    }

    fn wait_async(&self, py: Python<'_>, waker: &LoopWaker) -> PyResult<Option<Standing>> {
        waker.wait(py, self.ready()?)
    }

    /// The link, once; raises why there is none.
    fn take(&self) -> PyResult<Option<RelinkLink>> {
        let connected = self.dialling.get()?.outcome.take();
        let link = connected.transpose().map_err(raised)?;
        Ok(link.map(|link| RelinkLink::new(link, self.keeps, self.send_bytes)))
    }
}

impl RelinkConnecting {
    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        Ok(self.dialling.get()?.outcome.clone().known())
    }
}
