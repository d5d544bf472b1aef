//! What a listener accepts, kept until it is taken: readiness for threads and for asyncio.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::runtime;

struct State<T> {
    ready: VecDeque<T>,
    is_closed: bool,
}

struct Hub<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

impl<T> Hub<T> {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                is_closed: false,
            }),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State<T>)) {
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

/// A listener `L` that goes on accepting, and the links `T` that nobody has taken. Dropped, it is closed.
pub(crate) struct Accepting<T, L> {
    hub: Arc<Hub<T>>,
    listener: Mutex<Option<Arc<L>>>,
    task: JoinHandle<()>,
}

impl<T: Send + 'static, L: Send + Sync + 'static> Accepting<T, L> {
    /// Accepts what `next` finds, until there is nothing more.
    pub(crate) fn start<F>(
        py: Python<'_>,
        listener: L,
        next: impl Fn(Arc<L>) -> F + Send + 'static,
    ) -> PyResult<Self>
    where
        F: Future<Output = Option<T>> + Send,
    {
        let (hub, listener) = (Arc::new(Hub::new()), Arc::new(listener));
        let task = runtime::handle(py)?.spawn({
            let (hub, listener) = (Arc::clone(&hub), Arc::clone(&listener));
            async move {
                while let Some(link) = next(Arc::clone(&listener)).await {
                    hub.change(|state| state.ready.push_back(link));
                }
                hub.change(|state| state.is_closed = true);
            }
        });
        Ok(Self {
            hub,
            listener: Mutex::new(Some(listener)),
            task,
        })
    }

    /// The next link, if one is there.
    pub(crate) fn pop(&self, py: Python<'_>) -> Option<T> {
        py.detach(|| self.hub.lock().ready.pop_front())
    }

    /// Ready when a link is there, or none will be.
    pub(crate) fn ready(&self) -> impl Future<Output = ()> + Send + use<T, L> {
        let hub = Arc::clone(&self.hub);
        async move { hub.until_ready().await }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.hub.lock().is_closed
    }

    /// Looks at the listener; `None` once it is closed.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&L) -> R + Send,
    ) -> Option<R> {
        py.detach(|| {
            let listener = self.listener.lock();
            let listener = listener.unwrap_or_else(PoisonError::into_inner);
            listener.as_deref().map(look)
        })
    }

    /// Accepts no more, ends what nobody has taken, and waits until `close` has closed the listener.
    pub(crate) fn close<F: Future<Output = ()>>(
        &self,
        py: Python<'_>,
        close: impl FnOnce(Arc<L>) -> F + Send,
    ) -> PyResult<()> {
        let handle = runtime::handle(py)?;
        py.detach(|| {
            let _inside = handle.enter();
            if let Some(listener) = self.stop() {
                handle.block_on(close(listener));
            }
        });
        Ok(())
    }
}

impl<T, L> Accepting<T, L> {
    fn stop(&self) -> Option<Arc<L>> {
        self.task.abort();
        let listener = self.listener.lock();
        let listener = listener.unwrap_or_else(PoisonError::into_inner).take();
        let mut left = VecDeque::new();
        self.hub.change(|state| {
            state.is_closed = true;
            left = std::mem::take(&mut state.ready);
        });
        drop(left);
        listener
    }
}

impl<T, L> Drop for Accepting<T, L> {
    fn drop(&mut self) {
        self.stop();
    }
}
