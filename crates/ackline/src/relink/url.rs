//! A URL of this protocol: the place, the endpoint there, and the parameters of its channels.

use ackline_core::options::Options as _;
use ackline_link::tls::TlsOptions;
use ackline_link::{AddressError, Endpoint};
use ackline_relink::frame::Parameters;

use super::SCHEME;
use super::options::PARAMETERS;
use crate::named_url::{self, WrongName};
use crate::query;

/// The parts of a URL.
///
/// `relink://host:port/ENDPOINT`, `relink+tls://host:port/ENDPOINT?ca=…` or
/// `relink+unix:///path?endpoint=ENDPOINT`, each with any of `connector_channel_id_size`,
/// `listener_channel_id_size`, `connector_transactions` and `listener_transactions` (`true` or `false`) in
/// its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The address, and its kind of transport.
    pub endpoint: Endpoint,
    /// The name of the endpoint: up to 255 bytes, empty if the URL has none.
    pub name: String,
    /// The parameters that the URL sets.
    pub wanted: Wanted,
}

/// Parameters that a URL sets; the others are those of the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted(String);

/// The URL of an endpoint at a place that is bound.
pub(super) fn url_of(place: &str, name: &str) -> String {
    named_url::url_of(place, KEY, &escaped(name))
}

/// Percent-encoded, but for letters, digits, `-`, `_`, `.` and `~`.
pub(super) fn escaped(name: &str) -> String {
    named_url::escaped(name, b"")
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// The URL is wrong; the text is a sentence that does not repeat its query.
    pub fn parse(url: &str) -> Result<Self, String> {
        let taken = query::take(url, &mut [&mut PARAMETERS.clone()]);
        let query::Plain { url: rest, taken } = taken.map_err(|error| error.to_string())?;
        let named = named_url::split(&rest, KEY).map_err(|wrong| {
            let place = rest.split('?').next().unwrap_or_default();
            let why = match wrong {
                WrongName::SeveralUrls => {
                    let place = url.split('?').next().unwrap_or_default();
                    return format!(
                        "{place:?} is more than one URL: a link lives at one listener, give that one alone"
                    );
                }
                WrongName::NotEncoded => "the endpoint's name is not percent-encoded",
                WrongName::Twice => "the endpoint is named twice",
            };
            format!("{place:?}: {why}")
        })?;
        let target = Self {
            endpoint: Endpoint::parse(&named.plain).map_err(in_own_words)?,
            name: named.name,
            wanted: Wanted(format!("?{}", taken.join("&"))),
        };
        target.check(&named.place)?;
        Ok(target)
    }

    fn check(&self, place: &str) -> Result<(), String> {
        if self.endpoint.protocol != SCHEME {
            let protocol = &self.endpoint.protocol;
            return Err(format!("{place:?} is of {protocol}, not of {SCHEME}"));
        }
        let hosts = self.endpoint.addresses.len();
        if hosts > 1 {
            return Err(format!(
                "{place:?} names {hosts} hosts: a link lives at one listener, name that one alone"
            ));
        }
        let bytes = self.name.len();
        if bytes > MAX_NAME_BYTES {
            return Err(format!(
                "{place:?}: the endpoint's name has {bytes} bytes; at most {MAX_NAME_BYTES} fit"
            ));
        }
        Ok(())
    }

    /// The URL without its query, with the endpoint's name.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.endpoint, self.name)
    }
}

impl Wanted {
    /// `parameters`, with those of the URL in their place.
    #[must_use]
    pub fn over(&self, mut parameters: Parameters) -> Parameters {
        // They were read once before.
        let _ = query::take(&self.0, &mut [&mut parameters]);
        parameters
    }

    /// As [`over`](Self::over), where an option that is not the default must not contradict the URL.
    ///
    /// # Errors
    /// The first that does, with both values.
    pub fn with(&self, options: Parameters) -> Result<Parameters, String> {
        let made = self.over(options);
        let (made_rows, given, defaults) = (made.rows(), options.rows(), PARAMETERS.rows());
        let mut each = made_rows.iter().zip(&given).zip(&defaults);
        match each.find(|((url, option), default)| {
            option.value != url.value && option.value != default.value
        }) {
            Some(((url, option), _)) => Err(format!(
                "{} is {} in the URL and {} among the options",
                url.spec.name, url.value, option.value
            )),
            None => Ok(made),
        }
    }
}

/// The name's key in the query.
const KEY: &str = "endpoint";

/// The length of a name is one byte on the wire.
const MAX_NAME_BYTES: usize = 255;

/// The text for a wrong URL, with the right form for this protocol.
fn in_own_words(error: AddressError) -> String {
    match error {
        AddressError::UnknownOption { url, name } => format!(
            "{url:?}: there is no option {name:?}: a URL of {SCHEME} takes endpoint, {}, other options of the protocol, and with +tls {}",
            PARAMETERS
                .rows()
                .iter()
                .map(|row| row.spec.name)
                .collect::<Vec<_>>()
                .join(", "),
            TlsOptions::names().join(", ")
        ),
        AddressError::HostPort(url) => {
            format!("{url:?} needs a host and a port, such as {SCHEME}://127.0.0.1:5100/NAME")
        }
        AddressError::Path(url) => format!(
            "{url:?} needs an absolute path, such as {SCHEME}+unix:///run/{SCHEME}.sock?endpoint=NAME"
        ),
        AddressError::NoScheme(url) => format!(
            "{url:?} is not a URL: write {SCHEME}://host:port/NAME or {SCHEME}+unix:///path?endpoint=NAME"
        ),
        AddressError::Credentials => format!(
            "a URL with a user or password in it is refused: write {SCHEME}://host:port/NAME (and %40 for an @)"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ackline_link::Address;

    use super::*;

    fn parsed(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    #[test]
    fn a_url_names_a_place_an_endpoint_and_parameters() {
        let tcp = parsed(
            "relink://[::1]:0/a%2Fb%20c?connector_channel_id_size=2&listener_transactions=true",
        );
        assert_eq!(tcp.endpoint.addresses, [Address::Tcp("::1".into(), 0)]);
        assert_eq!(tcp.name, "a/b c");
        let own = Parameters {
            connector_transactions: true,
            ..Parameters::default()
        };
        let all = tcp.wanted.over(own);
        assert_eq!(all.connector_channel_id_size, 2);
        assert_eq!(all.listener_channel_id_size, own.listener_channel_id_size);
        assert!(all.connector_transactions && all.listener_transactions);

        let unix = parsed("relink+unix:///run/x.sock?endpoint=orders");
        assert_eq!(
            unix.endpoint.addresses,
            [Address::Unix("/run/x.sock".into())]
        );
        assert_eq!(unix.name, "orders");
        let tls = parsed("relink+tls://a:1/n?ca=x.pem&listener_channel_id_size=0");
        assert_eq!(
            tls.endpoint.tls.as_ref().unwrap().ca.as_deref(),
            Some("x.pem".as_ref())
        );
        assert_eq!((tls.endpoint.addresses.len(), &*tls.name), (1, "n"));
        assert_eq!(tls.shown(), "relink+tls://a:1/n");
        for nameless in ["relink://a:1", "relink://a:1/"] {
            assert_eq!(parsed(nameless).name, "");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_by_the_name_of_what_is_wrong() {
        let long = format!("relink://a:1/{}", "x".repeat(256));
        for (url, says) in [
            (
                "relink://a/n",
                "\"relink://a\" needs a host and a port, such as relink://127.0.0.1:5100/NAME",
            ),
            (
                "relink+unix://x.sock",
                "needs an absolute path, such as relink+unix:///run/relink.sock?endpoint=NAME",
            ),
            ("a:1", "is not a URL: write relink://host:port/NAME"),
            (
                "relink://me:secret@a:1/n",
                "write relink://host:port/NAME (and",
            ),
            ("lumberjack://a:1/n", "is of lumberjack"),
            ("relink://a:1/%f", "name is not percent-encoded"),
            ("relink://a:1/n?endpoint=m", "named twice"),
            (
                "relink://a:1/n?connector_channel_id_size=256",
                "from 0 to 255",
            ),
            ("relink://a:1/n?listener_transactions=1", "is true or false"),
            (
                "relink://a:1/n?listener_transactions=true&listener_transactions=true",
                "listener_transactions is given twice",
            ),
            ("relink://a:1/n?ca=secret", "ca is an option of TLS"),
            (&long, "at most 255 fit"),
            (
                "relink://a:1,b:2/n",
                "\"relink://a:1,b:2\" names 2 hosts: a link lives at one listener",
            ),
            ("relink+tls://a:1,[::1]:2/n?ca=secret", "names 2 hosts"),
            ("relink://a:1/n,relink://b:1/n", "is more than one URL"),
            (
                "relink://a:1/n?frob=secret",
                "there is no option \"frob\": a URL of relink takes endpoint, connector_channel_id_size, \
                 listener_channel_id_size, connector_transactions, listener_transactions, other options of the protocol, \
                 and with +tls ca,",
            ),
            ("relink://a:1/n?send_window=7", "no option \"send_window\""),
        ] {
            let why = Target::parse(url).unwrap_err();
            assert!(
                why.contains(says) && !why.contains("secret"),
                "{url}: {why}"
            );
        }
    }
}
