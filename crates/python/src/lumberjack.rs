//! Lumberjack links for Python, by readiness: `try_*` verbs that never wait, and waits that take nothing.

mod client;
mod listener;

use ackline_link::Address;
use pyo3::prelude::*;

use crate::errors;

pub(crate) use client::LumberjackClient;
pub(crate) use listener::{LumberjackListener, LumberjackWindow};

/// The address behind a URL of this protocol.
fn address(url: &str) -> PyResult<Address> {
    let (scheme, address) =
        Address::parse(url).map_err(|error| errors::usage("url", &error.to_string()))?;
    if scheme == ackline::lumberjack::SCHEME {
        return Ok(address);
    }
    let message = format!("{url}: this takes lumberjack:// and lumberjack+unix:// URLs");
    Err(errors::usage("url", &message))
}
