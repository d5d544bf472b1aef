//! Relink for Python: the bare machines, and links by readiness: `try_*` verbs that never wait, and waits
//! that take nothing.

mod frames;
mod machines;
mod options;

pub(crate) use frames::{relink_decode, relink_encode};
pub(crate) use machines::{RelinkBinder, RelinkHandshake, RelinkMachine};

const PROTOCOL: &str = "relink";
