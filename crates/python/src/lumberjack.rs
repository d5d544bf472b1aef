//! Lumberjack links for Python, by readiness: `try_*` verbs that never wait, and waits that take nothing.

mod listener;
mod sender;

use ackline_link::Endpoint;
use pyo3::prelude::*;

use crate::errors;

pub(crate) use listener::{LumberjackListener, LumberjackWindow};
pub(crate) use sender::{LumberjackBatch, LumberjackRoom, LumberjackSender, raised};

/// The endpoint of a URL of this protocol.
fn endpoint(url: &str) -> PyResult<Endpoint> {
    let endpoint =
        Endpoint::parse(url).map_err(|error| errors::usage("url", &error.to_string()))?;
    if endpoint.protocol == ackline::lumberjack::SCHEME {
        return Ok(endpoint);
    }
    let message = format!(
        "{endpoint}: this takes lumberjack://, lumberjack+tls:// and lumberjack+unix:// URLs"
    );
    Err(errors::usage("url", &message))
}
