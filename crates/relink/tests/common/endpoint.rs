//! The conversations' half of the adapter.

use ackline_testkit::vectors::Endpoint;
use serde_json::{Map, Value};

/// An endpoint for `role`.
pub(crate) fn endpoint(role: &str, _: &Map<String, Value>) -> Result<Box<dyn Endpoint>, String> {
    Err(format!("role {role}"))
}
