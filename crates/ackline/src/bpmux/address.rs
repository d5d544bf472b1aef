//! URLs of this protocol in a receiver.

use ackline_link::{Endpoint, percent_decoded};
use bytes::Bytes;

use super::url::endpoint;

/// A receiver's URL: the place, and the payload that a stream is opened with there.
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
