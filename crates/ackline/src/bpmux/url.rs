//! URLs of this protocol.

use ackline_link::Endpoint;

use super::error::Error;

/// The endpoint of a URL of this protocol.
pub(super) fn endpoint(url: &str) -> Result<Endpoint, Error> {
    let place = url.split('?').next().unwrap_or_default();
    let scheme = place.split_once("://").map(|(scheme, _)| scheme);
    if let Some(protocol) = scheme.and_then(|scheme| scheme.split('+').next())
        && protocol != super::SCHEME
    {
        return Err(Error::url(format!(
            "{place} is of {protocol}, not of {}",
            super::SCHEME
        )));
    }
    if let Some((first, _)) = place.split_once(",bpmux") {
        return Err(Error::url(format!(
            "{first} and more: one URL at a time is connected to"
        )));
    }
    Endpoint::parse(url).map_err(Error::url)
}

/// Refuses files and options of TLS that cannot be used.
pub(super) fn own_tls(endpoint: &Endpoint) -> Result<(), Error> {
    let usable = endpoint.client().map(drop);
    usable.map_err(|error| Error::Tls {
        code: error.code(),
        message: error.to_string().into(),
    })
}
