//! Relink for Rust users: links that survive their connections, and, if they are kept on disk, their
//! processes.
//!
//! ```no_run
//! use ackline::relink::{self, ChannelId, ConnectOptions, ListenOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = relink::listen("relink://127.0.0.1:0/orders", ListenOptions::default()).await?;
//! let sending = relink::connect(listener.url(), ConnectOptions::default()).await?;
//! let receipt = sending.send(&ChannelId::from(7_u32), b"one".as_slice(), None).await?;
//!
//! let receiving = listener.accept().await?;
//! if let Some(message) = receiving.receive().await? {
//!     receiving.consume(&message.channel, message.sequence)?;
//! }
//! receipt.consumed().await?;
//! # Ok(())
//! # }
//! ```

mod connector;
#[cfg(feature = "spool")]
mod found;
mod handover;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod intake;
mod interest;
#[cfg(feature = "spool")]
mod kept;
#[cfg(feature = "spool")]
mod landed;
#[cfg(feature = "spool")]
mod layout;
mod link;
mod link_host;
mod listener;
mod naming;
mod options;
mod prepared;
mod receipt;
#[cfg(feature = "spool")]
mod receive;
mod registry;
mod session;
#[cfg(feature = "spool")]
mod staged;
mod state;
#[cfg(feature = "spool")]
mod subscribe;
mod url;

pub use ackline_relink::frame::{EndpointName, MESSAGE_BYTES, Parameters};
pub use ackline_relink::{
    ChannelId, EndpointConfig, Error, KeepOptions, Kind, Limits, LinkConfig, LinkKey, LinkLost,
    LinkOptions, LinkStats, Outcome, Payload, Reason, ReceiveOptions as RelinkOptions,
    ReconnectOptions, Told, Unacknowledged,
};
pub use handover::state_key;
#[cfg(feature = "spool")]
pub use ingest::MessageIngest;
#[cfg(feature = "spool")]
pub use intake::{Intake, Run};
pub use interest::Interest;
#[cfg(feature = "spool")]
pub use layout::MessageLayout;
pub use link::Link;
pub use listener::Listener;
pub use naming::{Mark, Marks};
pub use options::{ConnectOptions, ListenOptions, PARAMETERS};
pub use prepared::{Fate, GOODBYE, commit_all, roll_back, roll_back_all};
pub use receipt::{Receipt, Receipts};
#[cfg(feature = "spool")]
pub(crate) use receive::PROTOCOL;
pub use session::{Decided, Event, Message, Ping, Session, Stats};
pub use url::{Target, Wanted};

/// The scheme of URLs, also with `+tls` and `+unix`.
pub const SCHEME: &str = "relink";

/// Makes a link to `relink://host:port/ENDPOINT` and keeps it connected. Answers when the listener has
/// agreed; for a link that is kept in [`ConnectOptions::state`], at once. Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option; nobody can be reached there, or the listener ended the handshake; the state
/// directory cannot be used.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<Link, Error> {
    Link::connect(url, options).await
}

/// Reads the URL and the options as [`connect`] does, and the files of TLS; connects to nobody.
///
/// # Errors
/// A wrong URL or option.
pub fn check(url: &str, options: ConnectOptions) -> Result<(), Error> {
    connector::Connector::new(url, options).map(drop)
}

/// Goes on with a link that another process has [handed over](Link::hand_over), whose `state` this is. The
/// options are a connector's, but [`ConnectOptions::parameters`] are the link's own. Answers when the listener
/// has said that it still has the link and its messages; these can be decided on, and nothing can be sent on
/// their channels before they are consumed. One process at a time may go on with a link: of two the listener
/// serves the one that has come last. Must run inside a tokio runtime.
///
/// # Errors
/// As [`connect`]; [`Error::Lost`]: the listener does not know the link or its messages any more;
/// [`Error::Usage`]: `wrong_state`, `other_endpoint`, or the options name a directory (`journaled`).
pub async fn adopt(url: &str, options: ConnectOptions, state: &[u8]) -> Result<Link, Error> {
    Link::adopt(url, options, state).await
}

/// Listens on `relink://host:port/ENDPOINT` (port 0: any free one). Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use, a state directory that cannot be used.
pub async fn listen(url: &str, options: ListenOptions) -> Result<Listener, Error> {
    Listener::listen(url, options).await
}
