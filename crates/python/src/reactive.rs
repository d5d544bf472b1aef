//! The Reactive Streams network protocol for Python: connections by readiness.

mod connection;
mod elements;
mod listener;
mod names;
mod publication;
mod raised;
mod subscription;

pub(crate) use connection::{ReactiveConnection, reactive_connect, reactive_split};
pub(crate) use elements::ReactiveElements;
pub(crate) use listener::ReactiveListener;
pub(crate) use names::ReactiveNames;
pub(crate) use publication::{ReactivePublication, ReactiveRequest};
pub(crate) use raised::raised;
pub(crate) use subscription::ReactiveSubscription;

const PROTOCOL: &str = "reactive";
