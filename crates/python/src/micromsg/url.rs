//! URLs that name a topic.

use ackline::micromsg::split_subscription;
use pyo3::prelude::*;

use crate::errors;

/// The URL without topic and filter, the topic or an empty text, and the filter.
#[pyfunction]
pub(crate) fn micromsg_split(url: &str) -> PyResult<(String, String, Option<String>)> {
    split_subscription(url).map_err(|error| errors::open(&error))
}
