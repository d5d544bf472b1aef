//! URLs that name something at a place: `protocol://host:port/NAME`, or `protocol+unix:///path?KEY=NAME`.

use ackline_link::percent_decoded;

/// A URL without the name in it.
#[derive(Debug)]
pub(crate) struct Named {
    /// The place with the rest of the query.
    pub(crate) plain: String,
    /// The place alone.
    pub(crate) place: String,
    /// The name, decoded; empty if the URL has none.
    pub(crate) name: String,
}

/// The fault of the name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WrongName {
    /// The path has another URL in it.
    SeveralUrls,
    /// It is not percent-encoded UTF-8.
    NotEncoded,
    /// It is named twice.
    Twice,
}

/// Takes the name out of a URL: from its path, or from the query by its key.
pub(crate) fn split(url: &str, key: &str) -> Result<Named, WrongName> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (place, in_path) = split_path(place);
    if in_path.is_some_and(|name| name.contains("://")) {
        return Err(WrongName::SeveralUrls);
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let (named, rest): (Vec<_>, Vec<_>) =
        pairs.partition(|pair| pair.split('=').next() == Some(key));
    let named = named.iter().map(|pair| pair.split_once('=').map(|it| it.1));
    let mut names = in_path
        .into_iter()
        .chain(named.map(Option::unwrap_or_default));
    let name = percent_decoded(names.next().unwrap_or_default()).ok_or(WrongName::NotEncoded)?;
    if names.next().is_some() {
        return Err(WrongName::Twice);
    }
    let plain = if rest.is_empty() {
        place.to_owned()
    } else {
        format!("{place}?{}", rest.join("&"))
    };
    Ok(Named {
        plain,
        place: place.to_owned(),
        name,
    })
}

/// The URL of a name, which is [`escaped`], at a place that is bound.
#[cfg_attr(not(any(feature = "relink", feature = "spool")), allow(dead_code))]
// those that listen by name need it
pub(crate) fn url_of(place: &str, key: &str, name: &str) -> String {
    if place.contains("+unix://") {
        format!("{place}?{key}={name}")
    } else {
        format!("{place}/{name}")
    }
}

/// Percent-encoded, but for letters, digits, `-`, `_`, `.`, `~` and the characters of `plain`.
#[cfg_attr(not(any(feature = "relink", feature = "spool")), allow(dead_code))]
// likewise
pub(crate) fn escaped(name: &str, plain: &[u8]) -> String {
    let stays =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || plain.contains(&byte);
    let escape = |byte: u8| {
        if stays(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    name.bytes().map(escape).collect()
}

/// `protocol://host:port` and the text behind its slash, which the path of a Unix socket does not have.
fn split_path(place: &str) -> (&str, Option<&str>) {
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
