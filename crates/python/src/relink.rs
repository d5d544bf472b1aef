//! Relink for Python: the bare machines, and links by readiness: `try_*` verbs that never wait, and waits
//! that take nothing.

mod connecting;
mod frames;
mod link;
mod listener;
mod machines;
mod options;
mod payload;
mod raised;
mod receipt;

pub(crate) use connecting::RelinkConnecting;
pub(crate) use frames::{relink_decode, relink_encode};
pub(crate) use link::RelinkLink;
pub(crate) use listener::RelinkListener;
pub(crate) use machines::{RelinkBinder, RelinkHandshake, RelinkMachine};
pub(crate) use payload::{RelinkMessage, RelinkPart};
pub(crate) use raised::raised;
pub(crate) use receipt::RelinkReceipt;

const PROTOCOL: &str = "relink";
