//! bpmux/rel for Rust users: requests, sinks, streams and duplexes over one connection, each with credit of
//! its own.
//!
//! Both ends of a [`Connection`] are equal, no matter which one connected. [`Connection::accept`]
//! hands out the entities and requests that the peer begins; an entity that this end opens is a
//! [`Sink`], a [`Stream`] or both. A dropped handle ends the entity or request that it stands for.

#[cfg(feature = "spool")]
mod address;
mod beginning;
mod connecting;
mod connection;
mod halves;
mod held;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod layout;
mod listener;
mod options;
#[cfg(feature = "spool")]
mod receive;
mod requests;
#[cfg(feature = "spool")]
mod subscribe;
mod url;
mod watch;

#[cfg(feature = "spool")]
pub use ackline_bpmux::intake::{Intake, IntakeKind, Run};
pub use ackline_bpmux::session::{Interest, MOST_AT_ONCE, Part};
pub use ackline_bpmux::{
    Config, Credit, CreditPolicy, Crediting, EntityKind, Error, Kind, Limits, LinkOptions,
    ReceiveOptions as BpmuxOptions, Stats, Target,
};
pub use ackline_core::Payload;
pub use connecting::{Retry, check, connect_within};
pub use connection::{Connection, Incoming};
pub use halves::{Sink, Stream};
pub use held::HeldClose;
#[cfg(feature = "spool")]
pub use ingest::MessageIngest;
#[cfg(feature = "spool")]
pub use layout::MessageLayout;
pub use listener::Listener;
pub use options::{ConnectOptions, ListenOptions};
#[cfg(feature = "spool")]
pub(crate) use receive::PROTOCOL;
pub use requests::{Request, Response};
pub use watch::Watch;

/// The machine of a connection, which its link drives.
pub type Session = ackline_bpmux::session::Session<ackline_link::AnswerShare>;

/// The scheme of URLs, also with `+tls` and `+unix`.
pub const SCHEME: &str = "bpmux";

/// Connects to `bpmux://host:port`, `bpmux+tls://host:port` or `bpmux+unix:///path`. Must run inside a tokio
/// runtime.
///
/// # Errors
/// [`Error::Open`].
pub async fn connect(url: &str, options: ConnectOptions) -> Result<Connection, Error> {
    Connection::connect(url, options).await
}

/// Listens on `bpmux://host:port` (port 0: any free one). Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use.
pub async fn listen(url: &str, options: ListenOptions) -> Result<Listener, Error> {
    Ok(listener::bind(url, options).await?)
}
