//! Relink for Python: links by readiness: `try_*` verbs that never wait, and waits
//! that take nothing.

mod connecting;
mod link;
mod listener;
mod options;
mod payload;
mod raised;
mod receipt;

pub(crate) use connecting::RelinkConnecting;
pub(crate) use link::RelinkLink;
pub(crate) use listener::RelinkListener;
pub(crate) use payload::{RelinkMessage, RelinkPart};
pub(crate) use raised::raised;
pub(crate) use receipt::RelinkReceipt;
