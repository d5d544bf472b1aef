//! URLs of this protocol.

use std::slice::from_mut;

use ackline_bpmux::Error;
use ackline_link::Endpoint;
use ackline_link::tls::TlsOptions;

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

/// The same, with options of TLS where the URL leaves them open.
pub(super) fn filled(url: &str, tls: &TlsOptions) -> Result<Endpoint, Error> {
    let mut endpoint = endpoint(url)?;
    Endpoint::fill(from_mut(&mut endpoint), tls).map_err(Error::url)?;
    Ok(endpoint)
}

/// Refuses files and options of TLS that a connecting end cannot use.
pub(super) fn usable(endpoint: Endpoint) -> Result<Endpoint, Error> {
    match endpoint.client() {
        Ok(_) => Ok(endpoint),
        Err(error) => Err(Error::Tls {
            code: error.code(),
            message: error.to_string().into(),
        }),
    }
}
