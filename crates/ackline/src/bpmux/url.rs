//! URLs of this protocol.

use ackline_link::{Endpoint, percent_decoded};
use bytes::Bytes;

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

/// A receiver's URL: where, and what a stream is opened with there.
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) stream: Option<Bytes>,
}

impl Address {
    /// `bpmux://host:port?stream=TEXT`, the text percent-encoded.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut stream, mut rest) = (None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.strip_prefix("stream=") {
                None => rest.push(pair),
                Some(_) if stream.is_some() => {
                    return Err(format!("{place:?}: stream is given twice"));
                }
                Some(text) => {
                    let text = percent_decoded(text)
                        .ok_or_else(|| format!("{place:?}: stream is not percent-encoded"))?;
                    stream = Some(Bytes::from(text));
                }
            }
        }
        let plain = if rest.is_empty() {
            place.to_owned()
        } else {
            format!("{place}?{}", rest.join("&"))
        };
        let endpoint = endpoint(&plain).map_err(|error| error.to_string())?;
        Ok(Self { endpoint, stream })
    }
}

/// Refuses files and options of TLS that cannot be used.
pub(super) fn own_tls(endpoint: &Endpoint) -> Result<(), Error> {
    let usable = endpoint.client().map(drop);
    usable.map_err(|error| Error::Tls {
        code: error.code(),
        message: error.to_string().into(),
    })
}
