//! URLs of this protocol in a receiver: the place, and the topic there.

use ackline_link::tls::TlsOptions;
use ackline_link::{AddressError, Endpoint};

use super::SCHEME;
use super::url::{KEY, split};
use crate::named_url;

/// A receiver's URL.
///
/// To listen: `micromsg://host:port`, `micromsg+tls://host:port?cert=…` or `micromsg+unix:///path`. To connect:
/// `micromsg://host:port/TOPIC?filter=FILTER`, or `micromsg+unix:///path?topic=TOPIC`; topic and filter percent-encoded. A
/// topic may have slashes.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    /// The topic; none in a URL to listen on.
    pub(super) topic: Option<String>,
    /// The filter, which can be read.
    pub(super) filter: Option<String>,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// The URL is wrong; the text is a sentence that does not repeat its query, but for the filter.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let parts = split(url)?;
        let endpoint = Endpoint::parse(&parts.plain).map_err(in_own_words)?;
        Ok(Self {
            endpoint,
            topic: Some(parts.topic).filter(|topic| !topic.is_empty()),
            filter: parts.filter,
        })
    }

    /// The URL without its query, with the topic.
    pub(super) fn shown(&self) -> String {
        let place = self.endpoint.to_string();
        match &self.topic {
            // A topic's slashes stay.
            Some(topic) => named_url::url_of(&place, KEY, &named_url::escaped(topic, b"/")),
            None => place,
        }
    }
}

/// The text for a wrong URL, with the right form for this protocol.
fn in_own_words(error: AddressError) -> String {
    match error {
        AddressError::UnknownOption { url, name } => format!(
            "{url:?}: there is no option {name:?}: a URL of {SCHEME} takes topic and filter, other options of the protocol, \
             and with +tls {}",
            TlsOptions::names().join(", ")
        ),
        AddressError::HostPort(url) => {
            format!("{url:?} needs a host and a port, such as {SCHEME}://127.0.0.1:8334")
        }
        AddressError::Path(url) => {
            format!("{url:?} needs an absolute path, such as {SCHEME}+unix:///run/{SCHEME}.sock")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_place_a_topic_and_a_filter() {
        for (url, place, topic, filter) in [
            ("micromsg://a:1", "micromsg://a:1", None, None),
            ("micromsg://a:1/", "micromsg://a:1", None, None),
            (
                "micromsg://a:1/orders",
                "micromsg://a:1",
                Some("orders"),
                None,
            ),
            (
                "micromsg://[::1]:1/a/b//c/",
                "micromsg://[::1]:1",
                Some("a/b//c/"),
                None,
            ),
            (
                "micromsg://a:1/%C3%A4%20%3F%2F",
                "micromsg://a:1",
                Some("ä ?/"),
                None,
            ),
            (
                "micromsg://a:1/t?filter=age%3E%3DN18%3Bcity%26Tfal",
                "micromsg://a:1",
                Some("t"),
                Some("age>=N18;city&Tfal"),
            ),
            (
                "micromsg://a:1/t?filter=a=N1",
                "micromsg://a:1",
                Some("t"),
                Some("a=N1"),
            ),
            (
                "micromsg+tls://a:1/n?ca=x",
                "micromsg+tls://a:1",
                Some("n"),
                None,
            ),
            (
                "micromsg+unix:///run/x.sock?topic=a%2Fb&filter=a%3DTb",
                "micromsg+unix:///run/x.sock",
                Some("a/b"),
                Some("a=Tb"),
            ),
            (
                "micromsg+unix:///run/x.sock",
                "micromsg+unix:///run/x.sock",
                None,
                None,
            ),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.endpoint.to_string(), place);
            assert_eq!(
                (address.topic.as_deref(), address.filter.as_deref()),
                (topic, filter)
            );
            let again = Address::parse(&address.shown()).unwrap();
            assert_eq!(
                (again.topic.as_deref(), again.endpoint.to_string()),
                (topic, place.to_owned())
            );
        }
    }

    #[test]
    fn a_wrong_url_is_refused_by_the_name_of_what_is_wrong() {
        for (url, says) in [
            (
                "micromsg://a/n",
                "needs a host and a port, such as micromsg://127.0.0.1:8334",
            ),
            ("micromsg+unix://x.sock?topic=n", "needs an absolute path"),
            ("micromsg://a:1/%f", "the topic is not percent-encoded"),
            ("micromsg://a:1/%ff", "the topic is not percent-encoded"),
            ("micromsg://a:1/n?topic=m", "the topic is named twice"),
            ("micromsg://a:1/n,micromsg://b:1/m", "more than one URL"),
            ("micromsg://me:secret@a:1/n", "user or password"),
            (
                "micromsg://a:1/n?frob=secret",
                "there is no option \"frob\": a URL of micromsg takes topic and filter",
            ),
            ("micromsg://a:1/n?ca=secret", "option of TLS"),
            ("bpmux://a:1/n", "is of bpmux"),
            (
                "micromsg://a:1/n?filter=%f&x=secret",
                "the filter is not percent-encoded",
            ),
            ("micromsg://a:1/n?filter", "the filter is empty"),
            (
                "micromsg://a:1/n?filter=",
                "the filter \"\" cannot be read: it has no condition",
            ),
            (
                "micromsg://a:1/n?filter=a%3DN1&filter=a",
                "the filter is given twice",
            ),
            (
                "micromsg://a:1/n?filter=age%3E18&x=secret",
                "the filter \"age>18\" cannot be read: a value has no type in front",
            ),
            (
                "micromsg://a:1/n?filter=a%3C%3DTb",
                "an operator is not one for the type of its value",
            ),
        ] {
            let why = Address::parse(url).unwrap_err();
            assert!(
                why.contains(says) && !why.contains("secret"),
                "{url}: {why}"
            );
        }
    }
}
