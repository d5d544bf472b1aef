//! URLs of this protocol that name a publisher.

use ackline_core::OpenError;

use super::SCHEME;
use crate::named_url::{self, WrongName};

/// The publisher's key in the query.
pub(super) const KEY: &str = "publisher";

/// The URL without the publisher, and the publisher's name.
///
/// # Errors
/// [`OpenError::Url`]: the URL is of another protocol, or names no publisher.
pub fn split_url(url: &str) -> Result<(String, String), OpenError> {
    split(url).map_err(OpenError::url)
}

/// The URL without the publisher, and the publisher's name; an error is a sentence that does not repeat the query.
pub(super) fn split(url: &str) -> Result<(String, String), String> {
    let place = url.split('?').next().unwrap_or_default();
    let named = named_url::split(url, KEY).map_err(|wrong| {
        let why = match wrong {
            WrongName::SeveralUrls => {
                "it looks like more than one URL: give each alone, and write %3A for a colon in a publisher's name"
            }
            WrongName::NotEncoded => "the publisher's name is not percent-encoded UTF-8",
            WrongName::Twice => "the publisher is named twice",
        };
        format!("{place:?}: {why}")
    })?;
    let (place, name) = (named.place, named.name);
    let scheme = place.split_once("://").map_or("", |(scheme, _)| scheme);
    let protocol = scheme.split('+').next().unwrap_or_default();
    if scheme.is_empty() || protocol == SCHEME && !name.is_empty() {
        return Ok((named.plain, name));
    }
    Err(if protocol == SCHEME {
        format!(
            "{place:?}: the publisher's name is missing: write {SCHEME}://host:port/PUBLISHER or \
             {SCHEME}+unix:///path?publisher=PUBLISHER"
        )
    } else {
        format!("{place:?}: it is of {protocol}, not of {SCHEME}")
    })
}
