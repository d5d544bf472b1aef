//! The one table of protocols: a new one adds its entry, and nothing else changes here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ackline_link::{Door, Endpoint};
use ackline_spool::Layout;

use crate::ReceiverOptions;
use crate::receiver::Shared;

/// A running acceptor of a receiver.
pub(crate) type Accepting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the rest of the crate knows of a protocol.
pub(crate) struct Protocol {
    /// The scheme of its URLs, also with `+unix`.
    pub(crate) scheme: &'static str,
    /// How its blocks become event rows again.
    pub(crate) layouts: fn() -> Vec<Arc<dyn Layout>>,
    /// Accepts its connections and lands what they send.
    pub(crate) accept: fn(Door, Arc<Shared>, &ReceiverOptions) -> Accepting,
}

/// Every protocol that is built.
pub(crate) const PROTOCOLS: &[Protocol] = &[crate::lumberjack::PROTOCOL];

/// The protocol and the endpoint of a URL.
///
/// # Errors
/// What is wrong with the URL, in a sentence.
pub(crate) fn of(url: &str) -> Result<(&'static Protocol, Endpoint), String> {
    let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
    let scheme = &endpoint.protocol;
    if let Some(protocol) = PROTOCOLS.iter().find(|one| one.scheme == scheme) {
        return Ok((protocol, endpoint));
    }
    let built: Vec<_> = PROTOCOLS.iter().map(|one| one.scheme).collect();
    let built = built.join(", ");
    Err(format!(
        "{endpoint}: there is no protocol {scheme:?}; built are: {built}"
    ))
}
