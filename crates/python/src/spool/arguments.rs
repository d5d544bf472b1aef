//! The keywords of the calls that read a spool.

use ackline_spool::{Access, LEAST_MEMORY, OnLoss, ReadOptions};
use pyo3::prelude::*;

use crate::options::argument;

/// The keyword `skip_losses`.
#[derive(Clone, Copy)]
pub(crate) struct Losses(pub(crate) OnLoss);

impl Default for Losses {
    fn default() -> Self {
        Self(OnLoss::Fail)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Losses {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let is_skipped = value.extract::<bool>()?;
        Ok(Self(if is_skipped {
            OnLoss::Skip
        } else {
            OnLoss::Fail
        }))
    }
}

/// The keyword `group`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Group(pub(crate) Access);

impl<'a, 'py> FromPyObject<'a, 'py> for Group {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let group = value.extract()?;
        Ok(Self(Access { group }))
    }
}

argument! {
    /// Threads that expand blocks.
    Threads(usize), "threads", 1, usize::MAX
}

argument! {
    /// Events in a record batch at the most.
    BatchRows(usize), "batch_rows", 1, usize::MAX
}

argument! {
    /// Bytes that a reader holds at once.
    Memory(u64), "memory", LEAST_MEMORY, u64::MAX
}

impl Default for Memory {
    fn default() -> Self {
        Self(ReadOptions::default().memory)
    }
}
