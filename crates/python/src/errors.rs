//! The exceptions of `ackline.exceptions`. They are defined in Python so that they can be pickled.

use std::fmt::Display;

use ackline_core::described::Failure;
use ackline_core::options::OptionError;
use ackline_core::{ErrorKind, OpenError, ProtocolError, UsageError};
use ackline_spool::SpoolError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Makes an exception of `ackline.exceptions`, or the error that prevented it.
fn raise(name: &str, message: &str, members: &[(&str, Member<'_>)]) -> PyErr {
    Python::attach(|py| {
        let made = || -> PyResult<PyErr> {
            let kwargs = PyDict::new(py);
            for (key, member) in members {
                match member {
                    Member::Text(text) => kwargs.set_item(key, text)?,
                    Member::Number(number) => kwargs.set_item(key, number)?,
                }
            }
            let class = py.import("ackline.exceptions")?.getattr(name)?;
            Ok(PyErr::from_value(class.call((message,), Some(&kwargs))?))
        };
        made().unwrap_or_else(|error| error)
    })
}

enum Member<'a> {
    Text(&'a str),
    Number(u64),
}

/// The peer broke a rule.
pub(crate) fn protocol<K: ErrorKind>(protocol: &str, error: &ProtocolError<K>) -> PyErr {
    failed(protocol, &Failure::from(error))
}

/// The peer broke a rule of that protocol.
pub(crate) fn failed(protocol: &str, failure: &Failure) -> PyErr {
    let name = failure.option.map(in_python);
    let mut members = vec![
        ("protocol", Member::Text(protocol)),
        ("code", Member::Text(failure.code)),
        ("offset", Member::Number(failure.offset)),
    ];
    members.extend(name.as_deref().map(|name| ("option", Member::Text(name))));
    let text = as_python(&failure.message, failure.option.as_slice());
    raise("ProtocolError", &text, &members)
}

/// A text that may name these options as a command line does (`--max-frame-bytes`), with their names in Python. The
/// rest of the text is unchanged: a path of the user's may look like an option.
pub(crate) fn as_python(text: &str, options: &[&str]) -> String {
    let mut named = text.to_owned();
    for option in options {
        named = named.replace(option, &in_python(option));
    }
    named
}

/// The name in Python of an option.
fn in_python(option: &str) -> String {
    option.trim_start_matches('-').replace('-', "_")
}

/// A spool's error.
pub(crate) fn raised(error: &SpoolError) -> PyErr {
    spool(error.code(), error)
}

/// The caller broke a rule; the code is that of the state machine.
pub(crate) fn refused(error: UsageError) -> PyErr {
    usage(error.code, error.message)
}

/// The caller broke a rule.
pub(crate) fn usage(code: &str, message: &str) -> PyErr {
    raise("UsageError", message, &[("code", Member::Text(code))])
}

/// An option does not fit; `given` is its name as the caller wrote it. The code is that name, or `url` for an option in
/// the query of a URL.
pub(crate) fn option(given: &str, error: &OptionError) -> PyErr {
    let code = error.url.as_ref().map_or(given, |_| "url");
    option_as(code, given, error)
}

/// The same with a code.
pub(crate) fn option_as(code: &str, given: &str, error: &OptionError) -> PyErr {
    let name = |option: &str| {
        if option == error.option {
            given.to_owned()
        } else {
            option.to_owned()
        }
    };
    let mut members = vec![
        ("code", Member::Text(code)),
        ("option", Member::Text(given)),
    ];
    members.extend(error.other.map(|other| ("other", Member::Text(other))));
    raise("UsageError", &error.written(name), &members)
}

/// Nothing could be connected to, or listened on.
pub(crate) fn open(error: &OpenError) -> PyErr {
    match error {
        OpenError::Option(error) => option(&error.option, error),
        OpenError::Url(text) => usage("url", text),
        OpenError::Tls { code, message } => usage(code, message),
        other => transport(other),
    }
}

/// An exception that has a text alone.
pub(crate) fn plain(name: &str, message: &str) -> PyErr {
    raise(name, message, &[])
}

/// The link is over.
pub(crate) fn closed(message: &str) -> PyErr {
    raise("LinkClosed", message, &[])
}

/// The link ended with messages unacknowledged.
pub(crate) fn lost(message: &str, unacknowledged: u64) -> PyErr {
    raise(
        "LinkLost",
        message,
        &[("unacknowledged", Member::Number(unacknowledged))],
    )
}

/// The operating system refused.
pub(crate) fn transport(error: &dyn Display) -> PyErr {
    raise("TransportError", &error.to_string(), &[])
}

/// The state to be kept could not be written.
pub(crate) fn state(message: &str) -> PyErr {
    raise("StateError", message, &[])
}

/// A wait took too long.
pub(crate) fn timeout(message: &str) -> PyErr {
    raise("LinkTimeout", message, &[])
}

/// A spool cannot be used as asked.
pub(crate) fn spool(code: &str, message: &dyn Display) -> PyErr {
    raise(
        "SpoolError",
        &message.to_string(),
        &[("code", Member::Text(code))],
    )
}

/// The object belongs to the parent of this process.
pub(crate) fn forked() -> PyErr {
    raise(
        "ForkError",
        "this object was made before a fork and belongs to the parent: make a new one in the child",
        &[],
    )
}

/// A broken promise of our own.
pub(crate) fn internal(message: &dyn Display) -> PyErr {
    PyRuntimeError::new_err(message.to_string())
}
