//! The Reactive Streams network protocol for Rust users: publishers and subscribers over one connection, each stream held
//! back by demand.
//!
//! Both ends of a [`Connection`] may publish and subscribe, no matter which one connected. [`Connection::subscribe`] gives a
//! [`Subscription`], which is a stream of elements; [`Connection::accept`] hands out the subscriptions of the peer, and
//! [`Publishers`] serves them by name. A dropped handle ends its stream alone.

#[cfg(feature = "spool")]
mod address;
mod connection;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod layout;
mod listener;
mod options;
mod publication;
mod publishers;
#[cfg(feature = "spool")]
mod receive;
#[cfg(feature = "spool")]
mod subscribe;
mod subscription;
mod url;

pub use ackline_core::Payload;
pub use ackline_reactive::Extensions;
#[cfg(feature = "spool")]
pub use ackline_reactive::intake::{ALL_ENDED, Intake, Run};
pub use ackline_reactive::message::{ExtensionMessage, Field, FieldKind};
pub use ackline_reactive::session::{Demand, Interest, MOST_AT_ONCE, NO_REASON, Part, Session};
pub use ackline_reactive::{
    Config, Error, Kind, Limits, Names, ReceiveOptions as ReactiveOptions, Role, UNBOUNDED,
};
pub use connection::{Connection, Stats};
#[cfg(feature = "spool")]
pub use ingest::ElementIngest;
#[cfg(feature = "spool")]
pub use layout::ElementLayout;
pub use listener::Listener;
pub use options::{ConnectOptions, ListenOptions};
pub use publication::{Publication, SubscribeRequest};
pub use publishers::{Elements, Published, Publishers};
#[cfg(feature = "spool")]
pub(crate) use receive::PROTOCOL;
pub use subscription::Subscription;
pub use url::split_url;

/// Waits on the subject of a handle. A watch does not keep the subject open, but keeps the connection.
pub type Watch = crate::watch::Watch<Session>;

/// The scheme of URLs, also with `+tls` and `+unix`.
pub const SCHEME: &str = "reactive";

/// Connects to `reactive://host:port`, `reactive+tls://host:port` or `reactive+unix:///path`. Must run inside a tokio
/// runtime.
///
/// # Errors
/// [`Error::Open`].
pub async fn connect(url: &str, options: ConnectOptions) -> Result<Connection, Error> {
    Connection::connect(url, options).await
}

/// Refuses the URLs and options that [`connect`] would refuse, without connecting.
///
/// # Errors
/// [`Error::Open`]: a wrong URL, or TLS that cannot be used.
pub fn check(url: &str, options: &ConnectOptions) -> Result<(), Error> {
    let endpoint = options.clone().endpoint(url)?;
    Ok(crate::dialing::has_port(&endpoint)?)
}

/// Listens on `reactive://host:port` (port 0: any free one). Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use.
pub async fn listen(url: &str, options: ListenOptions) -> Result<Listener, Error> {
    Ok(listener::bind(url, options).await?)
}
