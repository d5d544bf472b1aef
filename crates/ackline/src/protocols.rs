//! The one table of protocols: a new one adds its entry, and nothing else changes here.

use ackline_link::Endpoint;

use crate::protocol::Protocol;
use crate::{lumberjack, relink};

/// Every protocol that is built.
pub(crate) const PROTOCOLS: &[Protocol] = &[lumberjack::PROTOCOL, relink::PROTOCOL];

/// The protocol and the endpoint of a URL.
///
/// # Errors
/// What is wrong with the URL, in a sentence.
pub(crate) fn of(url: &str) -> Result<(&'static Protocol, Endpoint), String> {
    let scheme = url.split("://").next().unwrap_or_default();
    let scheme = scheme.split('+').next().unwrap_or_default();
    if let Some(protocol) = PROTOCOLS.iter().find(|one| one.scheme == scheme) {
        return Ok((protocol, (protocol.endpoint)(url)?));
    }
    let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
    let scheme = &endpoint.protocol;
    let built: Vec<_> = PROTOCOLS.iter().map(|one| one.scheme).collect();
    let built = built.join(", ");
    Err(format!(
        "{endpoint}: there is no protocol {scheme:?}; built are: {built}"
    ))
}
