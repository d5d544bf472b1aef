//! The exceptions of a connection's errors.

use ackline::micromsg::{Error, Kind};
use ackline_core::ErrorKind as _;
use ackline_link::End;
use pyo3::prelude::*;

use super::PROTOCOL;
use crate::errors;

/// The exception of an error.
pub(crate) fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Usage(error) => errors::refused(error),
        Error::Open(error) => errors::open(&error),
        Error::Blocked | Error::Timeout => errors::timeout(&text),
        Error::Failed(why) => errors::plain("PeerFailed", &why),
        Error::Unacknowledged(count) => errors::lost(&text, count),
        Error::Ended(End::Protocol(error)) => errors::protocol(PROTOCOL, &error),
        Error::Ended(End::Io(_) | End::Memory { .. }) => errors::transport(&text),
        Error::Ended(_) => errors::closed(&text),
        _ => errors::transport(&text),
    }
}

/// The result of a call; `None` where it is blocked.
pub(super) fn unless_blocked<R>(result: Result<R, Error>) -> PyResult<Option<R>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::Blocked) => Ok(None),
        Err(error) => Err(raised(error)),
    }
}

/// A text of the caller's that cannot be read.
pub(super) fn unreadable(kind: &Kind) -> PyErr {
    let code = kind.code();
    let code = code.strip_prefix("micromsg.").unwrap_or(code);
    errors::usage(code, &kind.to_string())
}
