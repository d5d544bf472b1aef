//! MicroMsg2 for Rust users: messages with properties in both directions, acknowledged if both ends agree on it, commands,
//! and frames of extensions.
//!
//! [`connect`] and [`listen`] give a [`Connection`]. Its ends are equal once the handshake has ended. A receiver that lands
//! messages in a spool is [`Receiver`](crate::Receiver).

#[cfg(feature = "spool")]
mod address;
#[cfg(feature = "spool")]
mod broker;
mod connection;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod layout;
mod listener;
mod options;
#[cfg(feature = "spool")]
mod receive;
mod relay;
#[cfg(feature = "spool")]
mod subscribe;
#[cfg(feature = "spool")]
mod subscription;
mod url;

pub use ackline_micromsg::ReceiveOptions as MicroMsgOptions;
pub use ackline_micromsg::filter::{Condition, Operator};
#[cfg(feature = "spool")]
pub use ackline_micromsg::intake::{Intake, Run};
pub use ackline_micromsg::session::Outgoing as Message;
pub use ackline_micromsg::session::{Arrival, Interest, Received, Session};
pub use ackline_micromsg::text::{
    Command, Extension, Number, Properties, Property, PropertyRef, is_field, is_name,
    read_extensions, read_properties, write_extensions, write_properties,
};
pub use ackline_micromsg::{
    AckPolicy, BUILT_IN, Codec, Codecs, Config, Connected, DotnetFrames, Error, Filter, Kind,
    Limits, Negotiation, Offer, Outbound, Proposal, Role, Subscribe, Terms,
};
#[cfg(feature = "spool")]
pub use broker::{Broker, BrokerOptions, BrokerStats, serve};
pub use connection::{Connection, Stats};
#[cfg(feature = "spool")]
pub use ingest::MessageIngest;
#[cfg(feature = "spool")]
pub use layout::MessageLayout;
pub use listener::Listener;
pub use options::{ConnectOptions, ListenOptions};
#[cfg(feature = "spool")]
pub(crate) use receive::PROTOCOL;
pub use relay::{ProxyClient, ProxyListener, listen_as_proxy};
#[cfg(feature = "spool")]
pub use subscription::split_subscription;

/// Waits of a connection that take nothing. A watch keeps the connection.
pub type Watch = crate::watch::Watch<Session>;

/// The scheme of URLs, also with `+tls` and `+unix`.
pub const SCHEME: &str = "micromsg";

/// Connects to `micromsg://host:port`, `micromsg+tls://host:port` or `micromsg+unix:///path`, and ends the handshake. Must
/// run inside a tokio runtime. Cancel-safe.
///
/// # Errors
/// [`Error::Open`]; [`Error::Failed`]: the peer refuses; [`Error::Ended`].
pub async fn connect(url: &str, options: ConnectOptions) -> Result<Connection, Error> {
    Connection::connect(url, options).await
}

/// Refuses the URLs and options that [`connect`] would refuse, without connecting.
///
/// # Errors
/// [`Error::Open`]: a wrong URL or option, or TLS that cannot be used.
pub fn check(url: &str, options: &ConnectOptions) -> Result<(), Error> {
    let endpoint = options.clone().endpoint(url)?;
    Ok(crate::dialing::has_port(&endpoint)?)
}

/// Listens on `micromsg://host:port` (port 0: any free one). Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use.
pub async fn listen(url: &str, options: ListenOptions) -> Result<Listener, Error> {
    Ok(listener::bind(url, options).await?)
}
