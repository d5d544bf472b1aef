//! Elements that wait to be published.

use std::collections::VecDeque;
use std::sync::Mutex;

use ackline::reactive::{Error, Publication};
use ackline_core::locked;
use bytes::Bytes;
use pyo3::prelude::*;

use crate::payloads::{PayloadBatch, bytes_of};

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveElements {
    left: Mutex<Left>,
}

/// Those that were not published yet.
enum Left {
    Each(VecDeque<Bytes>),
    /// Elements of a fixed size, one behind the other.
    Packed(Bytes),
}

#[pymethods]
impl ReactiveElements {
    /// Elements one by one: a sequence of bytes, or an Arrow array of binary or strings.
    #[new]
    fn new(elements: &Bound<'_, PyAny>) -> PyResult<Self> {
        let batch = PayloadBatch::of(elements)?;
        let each = batch.payloads().iter().map(ackline_core::Payload::to_bytes);
        Ok(Self::of(Left::Each(each.collect())))
    }

    /// Elements of a fixed size: anything with a buffer of bytes.
    #[staticmethod]
    fn packed(elements: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::of(Left::Packed(bytes_of(elements)?)))
    }

    /// Whether all were published.
    #[getter]
    fn done(&self) -> bool {
        match &*locked(&self.left) {
            Left::Each(elements) => elements.is_empty(),
            Left::Packed(elements) => elements.is_empty(),
        }
    }
}

impl ReactiveElements {
    fn of(left: Left) -> Self {
        Self {
            left: Mutex::new(left),
        }
    }

    /// Publishes as many as there are room and demand for; how many elements, or bytes of packed ones, were published.
    pub(super) fn publish(&self, publication: &Publication) -> Result<usize, Error> {
        match &mut *locked(&self.left) {
            Left::Each(elements) => {
                let before = elements.len();
                publication.try_publish_all(elements)?;
                Ok(before.saturating_sub(elements.len()))
            }
            Left::Packed(elements) => {
                let before = elements.len();
                publication.try_publish_packed(elements)?;
                Ok(before.saturating_sub(elements.len()))
            }
        }
    }
}
