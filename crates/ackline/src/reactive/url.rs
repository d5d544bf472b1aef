//! URLs of this protocol that name a publisher.

use ackline_core::OpenError;
use ackline_link::percent_decoded;

use super::SCHEME;

/// The URL without the publisher, and the publisher's name.
///
/// # Errors
/// [`OpenError::Url`]: the URL is of another protocol, or names no publisher.
pub fn split_url(url: &str) -> Result<(String, String), OpenError> {
    split(url).map_err(OpenError::url)
}

/// The URL without the publisher, and the publisher's name; an error is a sentence that does not repeat the query.
pub(super) fn split(url: &str) -> Result<(String, String), String> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (place, in_path) = split_name(place);
    let wrong = |why: &str| format!("{place:?}: {why}");
    if in_path.is_some_and(|name| name.contains("://")) {
        return Err(format!(
            "{:?} looks like more than one URL: give each alone, and write %3A for a colon in a publisher's name",
            url.split('?').next().unwrap_or_default()
        ));
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let (named, rest): (Vec<_>, Vec<_>) =
        pairs.partition(|pair| pair.split('=').next() == Some("publisher"));
    let named = named.iter().map(|pair| pair.split_once('=').map(|it| it.1));
    let mut names = in_path
        .into_iter()
        .chain(named.map(Option::unwrap_or_default));
    let name = percent_decoded(names.next().unwrap_or_default())
        .ok_or_else(|| wrong("the publisher's name is not percent-encoded UTF-8"))?;
    if names.next().is_some() {
        return Err(wrong("the publisher is named twice"));
    }
    let plain = if rest.is_empty() {
        place.to_owned()
    } else {
        format!("{place}?{}", rest.join("&"))
    };
    let scheme = place.split_once("://").map_or("", |(scheme, _)| scheme);
    let protocol = scheme.split('+').next().unwrap_or_default();
    if scheme.is_empty() || protocol == SCHEME && !name.is_empty() {
        return Ok((plain, name));
    }
    Err(if protocol == SCHEME {
        wrong(&format!(
            "the publisher's name is missing: write {SCHEME}://host:port/PUBLISHER or \
             {SCHEME}+unix:///path?publisher=PUBLISHER"
        ))
    } else {
        wrong(&format!("it is of {protocol}, not of {SCHEME}"))
    })
}

/// `protocol://host:port` and the text behind its slash, which the path of a Unix socket does not have.
fn split_name(place: &str) -> (&str, Option<&str>) {
    if place.contains("+unix://") {
        return (place, None);
    }
    let hosts = place.find("://").map_or(0, |at| at + "://".len());
    match place[hosts..].find('/') {
        None => (place, None),
        Some(at) => {
            let (place, name) = place.split_at(hosts + at);
            (place, Some(&name[1..]).filter(|name| !name.is_empty()))
        }
    }
}
