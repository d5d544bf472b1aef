//! Filters of subscriptions.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ackline::micromsg::{Condition, Filter, Operator, Properties};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::message::MicroMsgMessage;
use super::properties::{micromsg_write_properties, property};
use super::raised::unreadable;
use super::text::{Text, unicode};
use crate::errors;

/// See `_micromsg_core.pyi`.
#[pyclass(frozen, eq, module = "ackline._core")]
#[derive(PartialEq)]
pub(crate) struct MicroMsgFilter {
    filter: Arc<Filter>,
}

#[pymethods]
impl MicroMsgFilter {
    #[new]
    fn new(text: Text<'_>) -> PyResult<Self> {
        let filter = Filter::read(text.0.as_bytes()).map_err(|kind| unreadable(&kind))?;
        Ok(Self::of(Arc::new(filter)))
    }

    /// A filter of one condition.
    #[staticmethod]
    fn condition(name: Text<'_>, operator: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let value = property(value, name.0)?;
        let operator = Operator::read(operator)
            .ok_or_else(|| errors::usage("invalid_filter", "there is no such operator"))?;
        let condition = Condition::new(name.0.to_owned(), operator, value);
        let conditions = vec![condition.map_err(errors::refused)?];
        Self::made(conditions)
    }

    /// A filter of the conditions of both.
    fn __and__(&self, other: &Self) -> PyResult<Self> {
        let both = self
            .filter
            .conditions()
            .iter()
            .chain(other.filter.conditions());
        Self::made(both.cloned().collect())
    }

    /// A filter is no condition of Python: `and` and chains of comparisons would drop a part of it in silence.
    #[allow(clippy::unused_self)] // as Python calls it
    fn __bool__(&self) -> PyResult<bool> {
        let text = "a filter is neither true nor false: join conditions by &, each in parentheses";
        Err(PyTypeError::new_err(text))
    }

    /// The canonical text.
    fn __str__(&self) -> String {
        self.filter.write()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = PyString::new(py, &self.filter.write());
        Ok(format!("Filter({})", text.repr()?))
    }

    /// Whether all conditions hold for the properties of a message: the message, a text as on the wire, or a mapping.
    fn matches(&self, of: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(raw) = of.cast::<PyString>() {
            return Ok(self.holds(unicode(raw)?));
        }
        if let Ok(message) = of.cast::<MicroMsgMessage>() {
            return Ok(self.holds(message.get().raw_properties(of.py()).to_str()?));
        }
        Ok(self.holds(&micromsg_write_properties(of)?))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.filter.write().hash(&mut hasher);
        hasher.finish()
    }
}

impl MicroMsgFilter {
    pub(super) const fn of(filter: Arc<Filter>) -> Self {
        Self { filter }
    }

    fn made(conditions: Vec<Condition>) -> PyResult<Self> {
        let filter = Filter::new(conditions).map_err(errors::refused)?;
        Ok(Self::of(Arc::new(filter)))
    }

    fn holds(&self, raw: &str) -> bool {
        self.filter.matches(&Properties::new(raw.as_bytes()))
    }
}
