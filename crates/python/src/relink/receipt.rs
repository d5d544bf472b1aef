//! The progress of a message that was sent.

use ackline::relink::{Outcome, Receipt};
use pyo3::prelude::*;

use super::raised::raised;
use crate::errors;
use crate::runtime::Owned;
use crate::waits::waits;

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkReceipt {
    receipt: Owned<Receipt>,
}

impl RelinkReceipt {
    pub(super) fn new(receipt: Receipt) -> Self {
        Self {
            receipt: Owned::new(receipt),
        }
    }

    fn ready(&self, stage: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let receipt = self.receipt.get()?.clone();
        match stage {
            "kept" => receipt.check_durable().map_err(raised)?,
            "received" | "consumed" | "committed" => {}
            _ => return Err(errors::usage("stage", "there is no such stage")),
        }
        let stage = stage.to_owned();
        Ok(async move {
            // The caller takes the result afterwards, also an error.
            match &*stage {
                "kept" => drop(receipt.kept().await),
                "received" => drop(receipt.received().await),
                "consumed" => drop(receipt.consumed().await),
                _ => drop(receipt.committed().await),
            }
        })
    }
}

#[pymethods]
impl RelinkReceipt {
    #[getter]
    fn sequence(&self) -> PyResult<u32> {
        Ok(self.receipt.get()?.sequence().0)
    }

    #[getter]
    fn is_kept(&self) -> PyResult<bool> {
        Ok(self.receipt.get()?.is_kept())
    }

    #[getter]
    fn is_received(&self) -> PyResult<bool> {
        Ok(self.receipt.get()?.is_received())
    }

    #[getter]
    fn is_consumed(&self) -> PyResult<bool> {
        Ok(self.receipt.get()?.is_consumed())
    }

    /// `committed`, `uncommitted` or `rolled_back`, once that is known.
    fn outcome(&self) -> PyResult<Option<&'static str>> {
        let outcome = self.receipt.get()?.outcome().map_err(raised)?;
        Ok(outcome.map(|outcome| match outcome {
            Outcome::Committed => "committed",
            Outcome::Uncommitted => "uncommitted",
            Outcome::RolledBack => "rolled_back",
        }))
    }

    /// Raises the reason if nothing more will be heard of the message.
    fn check(&self) -> PyResult<()> {
        self.receipt
            .get()?
            .end()
            .map_or(Ok(()), |end| Err(raised(end)))
    }
}

waits!(RelinkReceipt(stage: &str), |it, py| it.ready(stage));
