//! Options of a protocol in the query of a URL.

use ackline_core::options::{OptionError, OptionValue, Options, Uses, spec_of};
use ackline_link::percent_decoded;

/// A URL without the options that were taken out of it.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) url: String,
    /// The options that were taken, as written, in order of their names.
    #[cfg_attr(not(feature = "spool"), allow(dead_code))]
    // a receiver compares those of its URLs
    pub(crate) taken: Vec<String>,
}

/// Sets the options in the query of `url` that `options` has.
///
/// # Errors
/// One is given twice, is not percent-encoded, or does not fit; the text never repeats the rest of the query.
pub(crate) fn take(url: &str, options: &mut [&mut dyn Options]) -> Result<Plain, OptionError> {
    let Some((place, query)) = url.split_once('?') else {
        return Ok(Plain {
            url: url.to_owned(),
            taken: Vec::new(),
        });
    };
    let (mut rest, mut taken, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_ours = options
            .iter()
            .any(|one| spec_of(*one, Uses::URL, name).is_some());
        if !is_ours {
            rest.push(pair);
            continue;
        }
        let wrong = |why: &str| OptionError::new(name, why).in_url(place);
        if seen.contains(&name) {
            return Err(wrong("is given twice"));
        }
        seen.push(name);
        let value = percent_decoded(value).ok_or_else(|| wrong("is not percent-encoded"))?;
        let value = OptionValue::Text(value);
        for one in &mut *options {
            one.set(Uses::URL, name, &value)
                .map_err(|error| error.in_url(place))?;
        }
        taken.push(pair.to_owned());
    }
    taken.sort();
    let url = if rest.is_empty() {
        place.to_owned()
    } else {
        format!("{place}?{}", rest.join("&"))
    };
    Ok(Plain { url, taken })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ackline_core::options::{bytes, time};

    use super::*;

    ackline_core::options! {
        /// A protocol's options.
        struct LinkOptions {
            options {
                /// A time.
                ping_after: Option<Duration> = None, time(), URL;
                /// A size.
                max_payload_bytes: u64 = 7, bytes(1..=u64::MAX), URL;
                /// An option that no URL sets.
                send_bytes: u64 = 7, bytes(1..=u64::MAX), CONNECT;
            }
        }
    }

    #[test]
    fn options_of_the_protocol_are_taken_out_of_the_query() {
        let mut options = LinkOptions::default();
        let url = "toy+tls://a:1?ca=x&ping_after=5s&max_payload_bytes=1MiB&key=y&send_bytes=1";
        let plain = take(url, &mut [&mut options]).unwrap();
        assert_eq!(plain.url, "toy+tls://a:1?ca=x&key=y&send_bytes=1");
        assert_eq!(plain.taken, ["max_payload_bytes=1MiB", "ping_after=5s"]);
        assert_eq!(options.ping_after.unwrap().as_secs(), 5);
        assert_eq!(options.max_payload_bytes, 1 << 20);
        for plain in ["toy://a:1", "toy://a:1?secret=ping_after"] {
            assert_eq!(take(plain, &mut [&mut options]).unwrap().url, plain);
        }
    }

    #[test]
    fn wrong_options_are_named_and_nothing_else_of_the_query_is() {
        for (query, says) in [
            ("ping_after=5s&ping_after=6s", "ping_after is given twice"),
            ("ping_after=%f", "ping_after is not percent-encoded"),
            (
                "ping_after=soon",
                "ping_after is soon; it is a time such as",
            ),
            ("ping_after", "ping_after is empty; it is a time such as"),
        ] {
            let url = format!("toy://a:1?token=secret&{query}");
            let error = take(&url, &mut [&mut LinkOptions::default()]).unwrap_err();
            assert_eq!(error.option, "ping_after");
            let error = error.to_string();
            assert!(error.starts_with("\"toy://a:1\": "), "{error}");
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }
}
