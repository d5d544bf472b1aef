//! A listener: hands out each new link once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline::relink::{Link, Listener, listen};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::raised::raised;
use super::{RelinkLink, options};
use crate::runtime::{Owned, Waiter};
use crate::{errors, runtime};

#[derive(Default)]
struct State {
    ready: VecDeque<Link>,
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

    fn links(&self) -> usize {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().map_or(0, |listener| listener.links())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.close();
    }
}

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkListener {
    serving: Owned<Serving>,
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
        let (hub, listener) = (Arc::<Hub>::default(), Arc::new(listener));
        let accepting = runtime::handle(py)?.spawn({
            let (hub, listener) = (Arc::clone(&hub), Arc::clone(&listener));
            async move {
                while let Ok(link) = listener.accept().await {
                    hub.change(|state| state.ready.push_back(link));
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
        let serving = self.serving.get()?;
        let link = py.detach(|| serving.hub.lock().ready.pop_front());
        Ok(link.map(|link| RelinkLink::new(link, self.keeps, self.send_bytes)))
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ready = self.ready()?;
        Ok(runtime::block_on(py, runtime::seconds("timeout", timeout)?, ready)?.is_some())
    }

    fn wait_async(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Waiter> {
        Waiter::spawn(py, callback, self.ready()?)
    }

    /// Closes the socket, which is closed when this returns; links that were handed out go on while their transports do.
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

    #[getter]
    fn links(&self, py: Python<'_>) -> PyResult<usize> {
        let serving = self.serving.get()?;
        Ok(py.detach(|| serving.links()))
    }
}

impl RelinkListener {
    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let hub = Arc::clone(&self.serving.get()?.hub);
        Ok(async move { hub.until_ready().await })
    }
}
