//! URLs of this protocol that name a topic.

use ackline_core::OpenError;
use ackline_link::{Endpoint, percent_decoded};
use ackline_micromsg::Filter;

use super::SCHEME;
use crate::dialing;
use crate::named_url::{self, WrongName};

/// The topic's key in the query.
pub(super) const KEY: &str = "topic";
/// The filter's key in the query.
const FILTER: &str = "filter";

/// A URL, apart.
pub(super) struct Parts {
    /// The URL without topic and filter.
    pub(super) plain: String,
    /// The topic; empty without one.
    pub(super) topic: String,
    #[cfg_attr(not(feature = "spool"), allow(dead_code))] // a receiver subscribes with it
    pub(super) filter: Option<String>,
}

/// Takes topic and filter out of a URL; an error is a sentence that repeats nothing else of the query.
pub(super) fn split(url: &str) -> Result<Parts, String> {
    let place = url.split('?').next().unwrap_or_default();
    let named = named_url::split(url, KEY).map_err(|wrong| {
        let why = match wrong {
            WrongName::SeveralUrls => {
                "it looks like more than one URL: give each alone, and write %3A for a colon in a topic"
            }
            WrongName::NotEncoded => "the topic is not percent-encoded UTF-8",
            WrongName::Twice => "the topic is named twice",
        };
        format!("{place:?}: {why}")
    })?;
    let scheme = named
        .place
        .split_once("://")
        .map_or("", |(scheme, _)| scheme);
    let protocol = scheme.split('+').next().unwrap_or_default();
    if !scheme.is_empty() && protocol != SCHEME {
        return Err(format!(
            "{:?}: it is of {protocol}, not of {SCHEME}",
            named.place
        ));
    }
    let (plain, filter) = take_filter(&named.plain).map_err(|why| format!("{place:?}: {why}"))?;
    Ok(Parts {
        plain,
        topic: named.name,
        filter,
    })
}

/// The endpoint of a URL of a connection, a listener or a broker: it names no topic.
pub(super) fn endpoint(url: &str) -> Result<Endpoint, OpenError> {
    if let Ok(Parts { plain, topic, .. }) = split(url)
        && !topic.is_empty()
    {
        let place = plain.split('?').next().unwrap_or_default();
        return Err(OpenError::url(format!(
            "{place}: the URL names the topic {topic:?}; leave it out: calls that send and subscribe name topics"
        )));
    }
    dialing::endpoint(SCHEME, url)
}

/// Takes the filter out of a URL, and refuses one that cannot be read.
fn take_filter(url: &str) -> Result<(String, Option<String>), String> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut filter, mut rest) = (None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((FILTER, _)) if filter.is_some() => {
                return Err("the filter is given twice".to_owned());
            }
            Some((FILTER, text)) => filter = Some(text),
            None if pair == FILTER => return Err("the filter is empty".to_owned()),
            _ => rest.push(pair),
        }
    }
    let plain = if rest.is_empty() {
        place.to_owned()
    } else {
        format!("{place}?{}", rest.join("&"))
    };
    let Some(filter) = filter else {
        return Ok((plain, None));
    };
    let text = percent_decoded(filter).ok_or("the filter is not percent-encoded UTF-8")?;
    Filter::read(text.as_bytes()).map_err(|wrong| wrong.to_string())?;
    Ok((plain, Some(text)))
}
