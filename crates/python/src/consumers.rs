//! Consumers of a spool for Python: their state, and the lease under which a mark moves.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ackline_spool::{Consumer, SpoolError, now_us, rfc3339};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::dicts::set_fields;
use crate::errors::raised;
use crate::runtime::Owned;
use crate::{errors, runtime};

/// A consumer held by this process. A forked child cannot use it and does not let go of it.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Lease {
    name: String,
    generation: u64,
    held: Owned<Mutex<Option<ackline_spool::Lease>>>,
}

impl Lease {
    pub(crate) fn take(
        py: Python<'_>,
        spool: &ackline_spool::Spool,
        (name, holder): (&str, &str),
        wait: f64,
        create_at: Option<u64>,
    ) -> PyResult<Self> {
        let wait = runtime::seconds("wait", Some(wait))?.unwrap_or_default();
        let mut busy = None;
        let taken = runtime::in_slices(py, Some(wait), |slice| {
            match spool.lease(name, holder, slice, create_at) {
                Err(error @ SpoolError::ConsumerBusy { .. }) => {
                    busy = Some(Err(error));
                    None
                }
                taken => Some(taken),
            }
        })?;
        let taken = taken.or(busy);
        let taken = taken.ok_or_else(|| errors::internal(&"a lease was not asked for"))?;
        let lease = taken.map_err(|error| raised(&error))?;
        Ok(Self {
            name: name.to_owned(),
            generation: lease.generation(),
            held: Owned::new(Mutex::new(Some(lease))),
        })
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&ackline_spool::Lease) -> Result<T, SpoolError> + Send,
    ) -> PyResult<T> {
        let lease = self.held.get()?;
        let done = py.detach(|| {
            let lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
            lease.as_ref().map(work)
        });
        match done {
            Some(done) => done.map_err(|error| raised(&error)),
            None => Err(errors::usage(
                "spool.lease_released",
                &format!("the lease of consumer {:?} was released", self.name),
            )),
        }
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.generation
    }

    /// The mark; `None` while the consumer has no file.
    fn committed(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, ackline_spool::Lease::committed)
    }

    fn commit(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = crate::spool::position("position", position)?;
        self.with(py, |lease| lease.commit(position))
    }

    /// Records that the reader is alive.
    fn seen(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, ackline_spool::Lease::seen)
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let lease = self.held.get()?;
        py.detach(|| {
            let taken = lease.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(taken);
        });
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self) -> String {
        format!("<Lease {} generation {}>", self.name, self.generation)
    }
}

/// The state of a consumer, with all members.
pub(crate) fn dict<'py>(py: Python<'py>, consumer: &Consumer) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    set_fields!(dict, consumer, name, committed, generation);
    dict.set_item("updated", rfc3339(consumer.updated_us))?;
    dict.set_item("seen", rfc3339(consumer.seen_us))?;
    dict.set_item("live", consumer.live)?;
    dict.set_item("state", consumer.state().as_str())?;
    let seen_ago = now_us().saturating_sub(consumer.seen_us).max(0);
    dict.set_item(
        "last_seen_s",
        Duration::from_micros(seen_ago.unsigned_abs()).as_secs_f64(),
    )?;
    let holder = match &consumer.holder {
        None => None,
        Some(holder) => {
            let of = PyDict::new(py);
            set_fields!(of, holder, pid, host);
            of.set_item("since", rfc3339(holder.since_us))?;
            of.set_item("what", &holder.what)?;
            Some(of)
        }
    };
    dict.set_item("holder", holder)?;
    Ok(dict)
}
