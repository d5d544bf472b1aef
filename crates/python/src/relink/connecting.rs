//! A link that is on its way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline::relink::{Error, Link, adopt, connect};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::runtime;
use crate::runtime::{Owned, Waiter};

#[derive(Default)]
struct Shared {
    result: Mutex<Option<Result<Link, Error>>>,
    known: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Link, Error>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_known(&self) {
        loop {
            let mut known = std::pin::pin!(self.known.notified());
            known.as_mut().enable();
            if self.lock().is_some() {
                return;
            }
            known.await;
        }
    }
}

struct Dialling {
    shared: Arc<Shared>,
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
        let shared = Arc::new(Shared::default());
        let task = runtime::handle(py)?.spawn({
            let shared = Arc::clone(&shared);
            async move {
                let connected = match handed {
                    Some(state) => adopt(&url, options, &state).await,
                    None => connect(&url, options).await,
                };
                *shared.lock() = Some(connected);
                shared.known.notify_waiters();
            }
        });
        Ok(Self {
            dialling: Owned::new(Dialling { shared, task }),
            keeps,
            send_bytes,
        })
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ready = self.ready()?;
        Ok(runtime::block_on(py, runtime::seconds("timeout", timeout)?, ready)?.is_some())
    }

    fn wait_async(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Waiter> {
        Waiter::spawn(py, callback, self.ready()?)
    }

    /// The link, once; raises why there is none.
    fn take(&self) -> PyResult<Option<RelinkLink>> {
        let connected = self.dialling.get()?.shared.lock().take();
        let link = connected.transpose().map_err(raised)?;
        Ok(link.map(|link| RelinkLink::new(link, self.keeps, self.send_bytes)))
    }
}

impl RelinkConnecting {
    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let shared = Arc::clone(&self.dialling.get()?.shared);
        Ok(async move { shared.until_known().await })
    }
}
