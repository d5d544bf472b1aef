//! URLs of this protocol in a receiver: the place, and the publisher there.

use ackline_link::tls::TlsOptions;
use ackline_link::{AddressError, Endpoint};

use super::SCHEME;
use super::url::{KEY, split};
use crate::named_url;

/// A receiver's URL.
///
/// `reactive://host:port/PUBLISHER`, `reactive+tls://host:port/PUBLISHER?ca=…` or
/// `reactive+unix:///path?publisher=PUBLISHER`, the name percent-encoded. A name may have slashes.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    /// The publisher's name.
    pub(super) publisher: String,
}

/// The URL of a publisher at a place that is bound; a name's slashes stay.
pub(super) fn url_of(place: &str, publisher: &str) -> String {
    named_url::url_of(place, KEY, &named_url::escaped(publisher, b"/"))
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// The URL is wrong, or names no publisher; the text is a sentence that does not repeat its query.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (plain, publisher) = split(url)?;
        let endpoint = Endpoint::parse(&plain).map_err(in_own_words)?;
        Ok(Self {
            endpoint,
            publisher,
        })
    }

    /// The URL without its query, with the publisher's name.
    pub(super) fn shown(&self) -> String {
        url_of(&self.endpoint.to_string(), &self.publisher)
    }
}

/// The text for a wrong URL, with the right form for this protocol.
fn in_own_words(error: AddressError) -> String {
    match error {
        AddressError::UnknownOption { url, name } => format!(
            "{url:?}: there is no option {name:?}: a URL of {SCHEME} takes publisher, other options of the protocol, \
             and with +tls {}",
            TlsOptions::names().join(", ")
        ),
        AddressError::HostPort(url) => {
            format!("{url:?} needs a host and a port, such as {SCHEME}://127.0.0.1:5200/PUBLISHER")
        }
        AddressError::Path(url) => format!(
            "{url:?} needs an absolute path, such as {SCHEME}+unix:///run/{SCHEME}.sock?publisher=PUBLISHER"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_place_and_a_publisher() {
        for (url, place, publisher) in [
            ("reactive://a:1/orders", "reactive://a:1", "orders"),
            (
                "reactive://[::1]:1/a/b//c/",
                "reactive://[::1]:1",
                "a/b//c/",
            ),
            ("reactive://a:1/%C3%A4%20%3F%2F", "reactive://a:1", "ä ?/"),
            ("reactive://a:1/x@y", "reactive://a:1", "x@y"),
            ("reactive://a:1?publisher=a%2Fb", "reactive://a:1", "a/b"),
            ("reactive+tls://a:1/n?ca=x", "reactive+tls://a:1", "n"),
            (
                "reactive+unix:///run/x.sock?publisher=n",
                "reactive+unix:///run/x.sock",
                "n",
            ),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.endpoint.to_string(), place);
            assert_eq!(address.publisher, publisher);
            let bound = Address::parse(&url_of(place, publisher)).unwrap();
            assert_eq!(bound.publisher, publisher);
            assert_eq!(bound.endpoint.to_string(), place);
        }
    }

    #[test]
    fn a_wrong_url_is_refused_by_the_name_of_what_is_wrong() {
        for (url, says) in [
            (
                "reactive://a:1",
                "the publisher's name is missing: write reactive://host:port/PUBLISHER",
            ),
            ("reactive://a:1/", "name is missing"),
            ("reactive://a:1/?publisher=", "name is missing"),
            ("reactive+unix:///run/x.sock", "name is missing"),
            (
                "reactive://a/n",
                "needs a host and a port, such as reactive://127.0.0.1:5200/PUBLISHER",
            ),
            (
                "reactive+unix://x.sock?publisher=n",
                "needs an absolute path",
            ),
            ("reactive://a:1/%f", "not percent-encoded"),
            ("reactive://a:1/%ff", "not percent-encoded"),
            ("reactive://a:1/n?publisher=m", "named twice"),
            ("reactive://a:1?publisher=n&publisher=m", "named twice"),
            ("reactive://a:1/n,reactive://b:1/m", "more than one URL"),
            ("reactive://me:secret@a:1/n", "user or password"),
            (
                "reactive://a:1/n?frob=secret",
                "there is no option \"frob\": a URL of reactive takes publisher",
            ),
            ("reactive://a:1/n?ca=secret", "option of TLS"),
            ("bpmux://a:1/n", "is of bpmux"),
        ] {
            let why = Address::parse(url).unwrap_err();
            assert!(
                why.contains(says) && !why.contains("secret"),
                "{url}: {why}"
            );
        }
    }
}
