//! The subscriptions of the peer, at the publisher's end, by readiness.

use std::sync::{Mutex, PoisonError};

use ackline::reactive::{Error, Interest, Publication, SubscribeRequest};
use pyo3::prelude::*;

use super::elements::ReactiveElements;
use super::raised::{raised, unless_blocked};
use crate::errors;
use crate::runtime::Owned;
use crate::waits::waits;

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveRequest {
    /// It is answered once.
    request: Owned<Mutex<Option<SubscribeRequest>>>,
}

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactivePublication {
    publication: Owned<Publication>,
}

#[pymethods]
impl ReactiveRequest {
    /// Accepts it.
    fn accept(&self, py: Python<'_>, element_size: u64) -> PyResult<ReactivePublication> {
        let request = self.take()?;
        let accepted = py.detach(|| request.accept(element_size));
        let publication = accepted.map_err(raised)?;
        Ok(ReactivePublication {
            publication: Owned::new(publication),
        })
    }

    /// Rejects it, with a reason.
    fn reject(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let request = self.take()?;
        py.detach(|| request.reject(reason)).map_err(raised)
    }
}

impl ReactiveRequest {
    pub(super) fn new(request: SubscribeRequest) -> Self {
        Self {
            request: Owned::new(Mutex::new(Some(request))),
        }
    }

    fn take(&self) -> PyResult<SubscribeRequest> {
        let request = self.request.get()?.lock();
        let request = request.unwrap_or_else(PoisonError::into_inner).take();
        request.ok_or_else(|| errors::usage("already_answered", "it was answered before"))
    }
}

#[pymethods]
impl ReactivePublication {
    /// Publishes as many of the elements as there are room and demand for; how many were published.
    fn try_publish(&self, py: Python<'_>, elements: &ReactiveElements) -> PyResult<usize> {
        let publication = self.publication.get()?;
        match py.detach(|| elements.publish(publication)) {
            Err(Error::Blocked) => Ok(0),
            published => published.map_err(raised),
        }
    }

    /// Elements that would be taken now; 0 where there is no demand or no room.
    #[getter]
    fn room(&self, py: Python<'_>) -> PyResult<u64> {
        let publication = self.publication.get()?;
        let room = unless_blocked(py.detach(|| publication.try_room()))?;
        Ok(room.unwrap_or(0))
    }

    /// Completes the stream.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let publication = self.publication.get()?;
        py.detach(|| publication.complete()).map_err(raised)
    }

    /// Ends the stream with an error.
    fn fail(&self, py: Python<'_>, error: &str) -> PyResult<()> {
        let publication = self.publication.get()?;
        py.detach(|| publication.fail(error)).map_err(raised)
    }

    /// Whether the subscriber has cancelled it, or its connection is over.
    #[getter]
    fn cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        let publication = self.publication.get()?;
        Ok(py.detach(|| publication.is_cancelled()))
    }
}

impl ReactivePublication {
    fn ready(&self, interest: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.publication.get()?.watch();
        let interest = match interest {
            "room" => Interest::Room,
            "cancelled" => Interest::Cancelled,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move { watch.ready(interest).await })
    }
}

waits!(ReactivePublication(interest: &str), |it, py| it.ready(interest));
