//! A subscription of this end by readiness.

use ackline::reactive::{Error, Interest, Subscription};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::raised::raised;
use crate::errors;
use crate::payloads::joined;
use crate::runtime::Owned;
use crate::waits::waits;

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveSubscription {
    subscription: Owned<Subscription>,
}

/// The number of an element or `None` if it came whole, a part of it, and whether that is the last one.
type Taken<'py> = (Option<u64>, Bound<'py, PyBytes>, bool);

#[pymethods]
impl ReactiveSubscription {
    /// The size of every element, or 0; `None` before the publisher has accepted it.
    fn try_accepted(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let subscription = self.subscription.get()?;
        match py.detach(|| subscription.try_accepted()) {
            Err(Error::Blocked) => Ok(None),
            accepted => accepted.map(Some).map_err(failed),
        }
    }

    /// Elements that are there, up to `most`; `None` when the stream is complete.
    fn try_receive<'py>(
        &self,
        py: Python<'py>,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let subscription = self.subscription.get()?;
        match py.detach(|| subscription.try_receive_many(most)) {
            Err(Error::Blocked) => Ok(Some(PyList::empty(py))),
            Err(error) => Err(failed(error)),
            Ok(elements) if elements.is_empty() => Ok(None),
            Ok(elements) => {
                let each = elements.iter().map(|element| joined(py, element));
                let each = each.collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, each).map(Some)
            }
        }
    }

    /// Elements of a fixed size that are there, in one piece of up to `most` bytes, and at least one; empty if none are
    /// there, and `None` when the stream is complete.
    fn try_receive_packed<'py>(
        &self,
        py: Python<'py>,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let subscription = self.subscription.get()?;
        let taken = py.detach(|| {
            let (mut pieces, mut left) = (Vec::new(), most);
            loop {
                match subscription.try_receive_packed(left) {
                    Ok(Some(piece)) => {
                        left = left.saturating_sub(piece.len());
                        pieces.push(piece);
                        if left == 0 {
                            return Ok(Some(pieces));
                        }
                    }
                    Ok(None) if pieces.is_empty() => return Ok(None),
                    Err(error) if pieces.is_empty() && !matches!(error, Error::Blocked) => {
                        return Err(error);
                    }
                    // The next call tells the end.
                    _ => return Ok(Some(pieces)),
                }
            }
        });
        match taken.map_err(failed)? {
            None => Ok(None),
            Some(pieces) => {
                let payload = ackline::reactive::Payload::from_parts(pieces);
                joined(py, &payload).map(Some)
            }
        }
    }

    /// The next part of an element; `None` before it comes, and false when the stream is complete.
    fn try_receive_part<'py>(&self, py: Python<'py>) -> PyResult<Option<Parted<'py>>> {
        let subscription = self.subscription.get()?;
        match py.detach(|| subscription.try_receive_part()) {
            Err(Error::Blocked) => Ok(None),
            Err(error) => Err(failed(error)),
            Ok(None) => Ok(Some(Parted::Over(false))),
            Ok(Some(part)) => {
                let data = joined(py, &part.data)?;
                Ok(Some(Parted::Part((part.element, data, part.is_last))))
            }
        }
    }

    /// Requests more elements.
    fn request(&self, py: Python<'_>, count: u64) -> PyResult<()> {
        let subscription = self.subscription.get()?;
        py.detach(|| subscription.request(count)).map_err(raised)
    }

    /// Elements that are requested and have not come.
    #[getter]
    fn requested(&self, py: Python<'_>) -> PyResult<u64> {
        let subscription = self.subscription.get()?;
        py.detach(|| subscription.requested()).map_err(raised)
    }

    /// Cancels it; nothing happens where it has ended.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let subscription = self.subscription.get()?;
        match py.detach(|| subscription.cancel()) {
            Err(Error::Usage(_) | Error::Ended(_)) | Ok(()) => Ok(()),
            Err(error) => Err(raised(error)),
        }
    }
}

/// The exception of an error of a subscription of this end, which only this end cancels.
fn failed(error: Error) -> PyErr {
    match error {
        Error::Cancelled => errors::usage("cancelled", "this end has cancelled the subscription"),
        error => raised(error),
    }
}

/// The result of `try_receive_part`.
#[derive(IntoPyObject)]
pub(crate) enum Parted<'py> {
    Part(Taken<'py>),
    Over(bool),
}

impl ReactiveSubscription {
    pub(super) fn new(subscription: Subscription) -> Self {
        Self {
            subscription: Owned::new(subscription),
        }
    }

    fn ready(&self, interest: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.subscription.get()?.watch();
        let interest = match interest {
            "accepted" => Interest::Accepted,
            "element" => Interest::Element,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move { watch.ready(interest).await })
    }
}

waits!(ReactiveSubscription(interest: &str), |it, py| it.ready(interest));
