//! A listener: hands out each connection once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline::bpmux::{Connection, Listener, listen};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::connection::BpmuxConnection;
use super::options;
use super::raised::raised;
use crate::runtime::{Owned, Waiter};
use crate::{errors, runtime};

#[derive(Default)]
struct State {
    ready: VecDeque<Connection>,
    is_closed: bool,
}

#[derive(Default)]
struct Hub {
    state: Mutex<State>,
    changed: Notify,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_waiters();
    }

    async fn until_ready(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.lock();
                if !state.ready.is_empty() || state.is_closed {
                    return;
                }
            }
            changed.await;
        }
    }
}

struct Serving {
    hub: Arc<Hub>,
    listener: Mutex<Option<Arc<Listener>>>,
    accepting: JoinHandle<()>,
}

impl Serving {
    fn close(&self) -> Option<Arc<Listener>> {
        self.accepting.abort();
        let listener = self
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut left = VecDeque::new();
        self.hub.change(|state| {
            state.is_closed = true;
            left = std::mem::take(&mut state.ready);
        });
        drop(left);
        listener
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.close();
    }
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxListener {
    serving: Owned<Serving>,
    url: String,
}

#[pymethods]
impl BpmuxListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = options::listen(options)?;
        let listening = runtime::block_on(py, None, listen(url, options))?;
        let listener = listening
            .ok_or_else(|| errors::timeout("listening took too long"))?
            .map_err(raised)?;
        let url = listener.url().to_owned();
        let (hub, listener) = (Arc::<Hub>::default(), Arc::new(listener));
        let accepting = runtime::handle(py)?.spawn({
            let (hub, listener) = (Arc::clone(&hub), Arc::clone(&listener));
            async move {
                while let Ok(connection) = listener.accept().await {
                    hub.change(|state| state.ready.push_back(connection));
                }
                hub.change(|state| state.is_closed = true);
            }
        });
        let serving = Serving {
            hub,
            listener: Mutex::new(Some(listener)),
            accepting,
        };
        Ok(Self {
            serving: Owned::new(serving),
            url,
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The next connection, if one is there.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<BpmuxConnection>> {
        let serving = self.serving.get()?;
        let connection = py.detach(|| serving.hub.lock().ready.pop_front());
        Ok(connection.map(BpmuxConnection::new))
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ready = self.ready()?;
        Ok(runtime::block_on(py, runtime::seconds("timeout", timeout)?, ready)?.is_some())
    }

    fn wait_async(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Waiter> {
        Waiter::spawn(py, callback, self.ready()?)
    }

    /// Closes the socket, which is closed when this returns; connections that were handed out go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let serving = self.serving.get()?;
        let handle = runtime::handle(py)?;
        py.detach(|| {
            let _inside = handle.enter();
            if let Some(listener) = serving.close() {
                handle.block_on(listener.close());
            }
        });
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.serving.get()?.hub.lock().is_closed)
    }

    /// Health checks, and connections that were turned away by the reason's code.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let serving = self.serving.get()?;
        let stats = py.detach(|| {
            let listener = serving
                .listener
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            listener.as_ref().map(|listener| listener.stats())
        });
        let dict = PyDict::new(py);
        let stats = stats.unwrap_or_default();
        dict.set_item("health_checks", stats.health_checks)?;
        dict.set_item("turned_away", stats.turned_away)?;
        Ok(dict)
    }
}

impl BpmuxListener {
    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let hub = Arc::clone(&self.serving.get()?.hub);
        Ok(async move { hub.until_ready().await })
    }
}
