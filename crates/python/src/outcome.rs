//! A pending operation: it is begun at once, waited for by readiness, and its outcome is taken once.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ackline_link::Watched;
use pyo3::prelude::*;
use tokio::task::JoinHandle;

use crate::runtime;

/// An operation and its outcome. Dropped, the operation is given up.
pub(crate) struct Pending<R> {
    outcome: Arc<Watched<Option<R>>>,
    /// The task that goes on with it; `None` if it was done at once.
    task: Option<JoinHandle<()>>,
}

impl<R: Send + 'static> Pending<R> {
    /// Begins it in this thread, so that calls made after it come after it.
    pub(crate) fn begin<F>(py: Python<'_>, operation: F) -> PyResult<Self>
    where
        F: Future<Output = R> + Send + 'static,
    {
        let handle = runtime::handle(py)?;
        let mut operation = Box::pin(operation);
        let first = py.detach(|| {
            let _inside = handle.enter();
            polled(operation.as_mut())
        });
        let is_done = first.is_some();
        let outcome = Arc::new(Watched::new(first));
        let task = (!is_done).then(|| {
            let outcome = Arc::clone(&outcome);
            handle.spawn(async move {
                let done = operation.await;
                outcome.change(|known| *known = Some(done));
            })
        });
        Ok(Self { outcome, task })
    }

    /// The outcome, once, if it is known.
    pub(crate) fn take(&self) -> Option<R> {
        self.outcome.lock().take()
    }

    /// Waits until the outcome is known.
    pub(crate) fn known(&self) -> impl Future<Output = ()> + Send + use<R> {
        let outcome = Arc::clone(&self.outcome);
        async move { outcome.until(|known| known.is_some().then_some(())).await }
    }
}

impl<R> Pending<R> {
    /// Gives the operation up, if it goes on.
    pub(crate) fn give_up(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The output of a future if it is there now: for futures that can be dropped without a loss.
pub(crate) fn polled<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
