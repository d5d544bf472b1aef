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

mod carrier;
mod connector;
mod error;
mod failures;
mod found;
mod ingest;
mod intake;
mod interest;
mod keeper;
mod kept;
mod landed;
mod layout;
mod link;
mod listener;
mod options;
mod receipt;
mod receive;
mod session;
mod staged;
mod state;
mod subscribe;
mod url;

pub use ackline_relink::frame::{EndpointName, Parameters};
pub use ackline_relink::{ChannelId, EndpointConfig, Kind, Limits, LinkKey, LinkStats, Payload};
pub use error::{Error, LinkLost, Unacknowledged};
pub use ingest::MessageIngest;
pub use intake::{Intake, Run};
pub use interest::Interest;
pub use layout::MessageLayout;
pub use link::Link;
pub use listener::Listener;
pub use options::{ConnectOptions, LinkOptions, ListenOptions, PARAMETERS};
pub use receipt::{Outcome, Receipt};
pub(crate) use receive::PROTOCOL;
pub use receive::RelinkOptions;
pub use session::{Decided, Event, Message, Session, Stats};
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

/// Listens on `relink://host:port/ENDPOINT` (port 0: any free one). Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use, a state directory that cannot be used.
pub async fn listen(url: &str, options: ListenOptions) -> Result<Listener, Error> {
    Listener::listen(url, options).await
}
