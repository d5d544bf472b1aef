//! The address that a link connects to or listens on, as written in a URL, and the URL's TLS
//! options.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::tls::{self, TlsError, TlsOptions};

/// An address to listen on or to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address without brackets, and a port; port 0 lets the system choose.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The parts of a URL: a protocol, its addresses, and whether it runs over TLS.
///
/// `protocol://host:port`, `protocol+tls://host:port[,host:port…]?ca=…&cert=…` or
/// `protocol+unix:///path`. Values of the query are percent-encoded.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The protocol, such as `lumberjack`.
    pub protocol: String,
    /// One address or more: a client may have several, a listener has one.
    pub addresses: Vec<Address>,
    /// The options of a `+tls` URL; `None` is plain.
    pub tls: Option<TlsOptions>,
    /// Shared by clones, so that the files are read once.
    client: Arc<Mutex<Option<Made>>>,
}

/// The TLS client of these options.
type Made = (TlsOptions, Arc<tls::Client>);

/// The reason a URL names no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The URL has no `protocol://`.
    #[error("{0:?} is not a URL: write protocol://host:port or protocol+unix:///path")]
    NoScheme(String),
    /// A user or password: no protocol of ours takes one, and logs would show it. The text leaves
    /// it out.
    #[error(
        "a URL with a user or password in it is refused: write protocol://host:port (and %40 for an @)"
    )]
    Credentials,
    /// Something other than `+tls` or `+unix` after the protocol.
    #[error(
        "{0:?} names an unknown transport: write protocol:// for TCP, protocol+tls:// or protocol+unix://"
    )]
    Transport(String),
    /// A port above 65535.
    #[error("the port of {0:?} is out of range: ports go from 0 to 65535")]
    Port(String),
    /// The host or the port is missing.
    #[error("{0:?} needs a host and a port, such as protocol://127.0.0.1:5044")]
    HostPort(String),
    /// The path is not absolute.
    #[error("{0:?} needs an absolute path, such as protocol+unix:///run/protocol.sock")]
    Path(String),
    /// An option in the query that does not exist, has a wrong value, or needs TLS.
    #[error("{url:?}: {why}")]
    Option {
        /// The URL without its query.
        url: String,
        /// The reason, with the option's name.
        why: String,
    },
    /// An unknown option in the query.
    #[error("{url:?}: there is no option {name:?}: a URL takes options of its protocol, and with +tls {}", TlsOptions::names().join(", "))]
    UnknownOption {
        /// The URL without its query.
        url: String,
        /// The option's name.
        name: String,
    },
    /// A TLS option although all URLs are plain.
    #[error("{0} is an option of TLS, and no URL is +tls")]
    NoTls(&'static str),
    /// Several hosts where one is expected.
    #[error("{0:?} names several hosts: one can be listened on")]
    Several(String),
}

impl Address {
    /// The URL of this address for `protocol`, which is `lumberjack` or, over TLS, `lumberjack+tls`.
    pub fn url(&self, protocol: &str) -> String {
        match self {
            Self::Tcp(..) => format!("{protocol}://{self}"),
            Self::Unix(_) => format!("{protocol}+unix://{self}"),
        }
    }
}

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    /// The URL names no address of a supported transport, or an option that does not exist. Texts
    /// never repeat the query: it may hold a secret.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let is_path = url
            .split_once("+unix://")
            .is_some_and(|(scheme, path)| path.starts_with('/') && !scheme.contains('@'));
        if url.contains('@') && !is_path {
            return Err(AddressError::Credentials);
        }
        let shown = || shown(url);
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| AddressError::NoScheme(shown()))?;
        let (protocol, transport) = scheme.split_once('+').unwrap_or((scheme, "tcp"));
        if protocol.is_empty() {
            return Err(AddressError::NoScheme(shown()));
        }
        let (addresses, tls) = match transport {
            "unix" if rest.starts_with('/') => (vec![Address::Unix(rest.into())], None),
            "unix" => return Err(AddressError::Path(shown())),
            "tcp" | "tls" => {
                let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
                let addresses = parse_hosts(hosts).map_err(|error| error(shown()))?;
                let tls = parse_query(&shown(), query, transport == "tls")?;
                (addresses, tls)
            }
            _ => return Err(AddressError::Transport(shown())),
        };
        Ok(Self::new(protocol, addresses, tls))
    }

    /// The URLs of a text that separates them with commas. A comma before a host without `protocol://`
    /// belongs to the URL before it.
    pub fn split(urls: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let (mut begin, mut looked_at) = (0, 0);
        while let Some(at) = urls[looked_at..].find("://") {
            let scheme_end = looked_at + at;
            let is_scheme = |char: char| char.is_ascii_alphanumeric() || char == '+';
            let before = urls[begin..scheme_end].trim_end_matches(is_scheme);
            if let Some(url) = before.strip_suffix(',').filter(|url| url.contains("://")) {
                found.push(url);
                begin += before.len();
            }
            looked_at = scheme_end + "://".len();
        }
        found.push(&urls[begin..]);
        found
    }

    /// An endpoint of these parts.
    pub fn new(protocol: &str, addresses: Vec<Address>, tls: Option<TlsOptions>) -> Self {
        Self {
            protocol: protocol.to_owned(),
            addresses,
            tls,
            client: Arc::default(),
        }
    }

    /// Takes the TLS options that the URLs leave open from `options`; a plain endpoint stays as it
    /// is.
    ///
    /// # Errors
    /// An option is set, and none of the endpoints is over TLS.
    pub fn fill(endpoints: &mut [Self], options: &TlsOptions) -> Result<(), AddressError> {
        let mut secured = endpoints.iter_mut().filter_map(|one| one.tls.as_mut());
        match (secured.next(), options.first_set()) {
            (None, Some(option)) => return Err(AddressError::NoTls(option)),
            (first, _) => first
                .into_iter()
                .chain(secured)
                .for_each(|tls| tls.fill(options)),
        }
        Ok(())
    }

    /// The one address to listen on.
    ///
    /// # Errors
    /// There are several addresses.
    pub fn address(&self) -> Result<&Address, AddressError> {
        match &self.addresses[..] {
            [one] => Ok(one),
            _ => Err(AddressError::Several(self.to_string())),
        }
    }

    /// One endpoint per address; they share the TLS files that were read.
    pub fn each(&self) -> Vec<Self> {
        let one = |address: &Address| Self {
            addresses: vec![address.clone()],
            ..self.clone()
        };
        self.addresses.iter().map(one).collect()
    }

    /// The scheme of its URL, such as `lumberjack+tls` (without `+unix`).
    pub fn scheme(&self) -> String {
        let suffix = if self.tls.is_some() { "+tls" } else { "" };
        format!("{}{suffix}", self.protocol)
    }

    /// The TLS client, with its files read; `None` for a plain endpoint. Call it before the first
    /// connection, so that a wrong option is reported at once.
    ///
    /// # Errors
    /// A file cannot be read or used, or options do not fit together.
    pub fn client(&self) -> Result<Option<Arc<tls::Client>>, TlsError> {
        let Some(options) = &self.tls else {
            return Ok(None);
        };
        let mut made = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((with, client)) = &*made
            && with == options
        {
            return Ok(Some(Arc::clone(client)));
        }
        let client = Arc::new(tls::Client::new(options)?);
        *made = Some((options.clone(), Arc::clone(&client)));
        Ok(Some(client))
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        (&self.protocol, &self.addresses, &self.tls)
            == (&other.protocol, &other.addresses, &other.tls)
    }
}

impl Eq for Endpoint {}

/// Its URL without the query.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.addresses.split_first() else {
            return write!(f, "{}://", self.scheme());
        };
        f.write_str(&first.url(&self.scheme()))?;
        others.iter().try_for_each(|other| write!(f, ",{other}"))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        Endpoint::parse(url)?.address().cloned()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A URL without its query.
fn shown(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) => format!("{before}?…"),
        None => url.to_owned(),
    }
}

fn parse_hosts(hosts: &str) -> Result<Vec<Address>, fn(String) -> AddressError> {
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    hosts.split(',').map(parse_tcp).collect()
}

fn parse_tcp(place: &str) -> Result<Address, fn(String) -> AddressError> {
    let (host, port) = place
        .rsplit_once(':')
        .ok_or(AddressError::HostPort as fn(String) -> _)?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    let is_plain = bracketed.is_some() || !host.contains(':');
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '[', ']']);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || !is_host || !is_number {
        return Err(AddressError::HostPort);
    }
    let port = port
        .parse()
        .map_err(|_| AddressError::Port as fn(String) -> _)?;
    Ok(Address::Tcp(host.to_owned(), port))
}

/// The options of the query of this URL, `None` for a plain one.
fn parse_query(shown: &str, query: &str, is_tls: bool) -> Result<Option<TlsOptions>, AddressError> {
    let wrong = |why: String| AddressError::Option {
        url: shown.to_owned(),
        why,
    };
    let mut options = TlsOptions::default();
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| wrong("options are written name=value".to_owned()))?;
        let value = percent_decoded(value)
            .ok_or_else(|| wrong(format!("{name} is not percent-encoded")))?;
        if !options
            .set_text(name, &value)
            .map_err(|error| wrong(error.to_string()))?
        {
            return Err(AddressError::UnknownOption {
                url: shown.to_owned(),
                name: name.to_owned(),
            });
        }
        if seen.contains(&name) {
            return Err(wrong(format!("{name} is given twice")));
        }
        seen.push(name);
    }
    match (is_tls, seen.first()) {
        (true, _) => Ok(Some(options)),
        (false, Some(name)) => Err(wrong(format!(
            "{name} is an option of TLS: write protocol+tls://"
        ))),
        (false, None) => Ok(None),
    }
}

/// A part of a URL without its percent-encoding; `None` if the encoding is wrong or the result is
/// not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_protocol_and_an_address() {
        let tcp = |host: &str, port| Address::Tcp(host.into(), port);
        for (url, address) in [
            ("lumberjack://localhost:5044", tcp("localhost", 5044)),
            ("lumberjack://[::1]:0", tcp("::1", 0)),
            (
                "lumberjack+unix:///run/x.sock",
                Address::Unix("/run/x.sock".into()),
            ),
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!(endpoint, Endpoint::new("lumberjack", vec![address], None));
            assert_eq!(endpoint.address().unwrap().url("lumberjack"), url);
            assert_eq!(endpoint.to_string(), url);
        }
    }

    #[test]
    fn several_urls_are_separated_by_commas_and_each_keeps_its_hosts() {
        for urls in [
            &["lumberjack://a:1"][..],
            &["lumberjack://a:1", "lumberjack://b:2"],
            &[
                "lumberjack://a:1,b:2",
                "lumberjack+tls://c:3,[::1]:4?ca=/x,y.pem",
                "lumberjack://d:5",
            ],
            &[
                "lumberjack+unix:///run/a,b.sock",
                "lumberjack+unix:///run/ä.sock",
            ],
            &["nonsense"],
            &[",lumberjack://a:1"],
            &["lumberjack://a:1,"],
            &[""],
        ] {
            assert_eq!(Endpoint::split(&urls.join(",")), urls);
        }
    }

    #[test]
    fn a_url_of_tls_carries_its_options_percent_encoded() {
        let endpoint = Endpoint::parse(
            "lumberjack+tls://a:1,[::1]:2/?ca=/etc/my%20ca.pem&cert=c&key=k&server_name=%C3%A4&client_auth=optional&crl=l&identity=san&token_file=t&tokens_file=ts",
        )
        .unwrap();
        let options = TlsOptions {
            ca: Some("/etc/my ca.pem".into()),
            cert: Some("c".into()),
            key: Some("k".into()),
            server_name: Some("ä".into()),
            client_auth: Some(tls::ClientAuth::Optional),
            crl: Some("l".into()),
            identity: Some(tls::IdentityBy::San),
            token_file: Some("t".into()),
            tokens_file: Some("ts".into()),
        };
        assert_eq!(endpoint.tls, Some(options));
        assert_eq!(endpoint.scheme(), "lumberjack+tls");
        assert_eq!(endpoint.to_string(), "lumberjack+tls://a:1,[::1]:2");
        let each: Vec<_> = endpoint.each().iter().map(ToString::to_string).collect();
        assert_eq!(each, ["lumberjack+tls://a:1", "lumberjack+tls://[::1]:2"]);
        let several = endpoint.address().unwrap_err().to_string();
        assert!(several.contains("several hosts"), "{several}");
    }

    #[test]
    fn options_fill_the_gaps_of_a_tls_url() {
        let mut options = TlsOptions::default();
        assert!(options.set_text("ca", "other").unwrap() && options.set_text("key", "k").unwrap());
        let parsed = |url| Endpoint::parse(url).unwrap();
        let mut mixed = ["x://a:1", "x+tls://b:1?ca=mine", "x+tls://c:1"].map(parsed);
        Endpoint::fill(&mut mixed, &options).unwrap();
        let [plain, first, second] = mixed.map(|one| one.tls.map(|tls| (tls.ca, tls.key)));
        assert_eq!(plain, None);
        assert_eq!(first, Some((Some("mine".into()), Some("k".into()))));
        assert_eq!(second, Some((Some("other".into()), Some("k".into()))));
    }

    #[test]
    fn options_of_tls_need_a_url_of_tls() {
        let mut plain = ["x://a:1", "x+unix:///b"].map(|url| Endpoint::parse(url).unwrap());
        Endpoint::fill(&mut plain, &TlsOptions::default()).unwrap();
        let mut options = TlsOptions::default();
        options.set_text("key", "k").unwrap();
        let error = Endpoint::fill(&mut plain, &options).unwrap_err();
        assert_eq!(error, AddressError::NoTls("key"));
        assert_eq!(
            error.to_string(),
            "key is an option of TLS, and no URL is +tls"
        );
    }

    #[test]
    fn a_wrong_url_is_refused_with_the_right_form() {
        for (url, error) in [
            ("localhost:5044", "is not a URL"),
            ("://localhost:5044", "is not a URL"),
            ("lumberjack+quic://localhost:5044", "unknown transport"),
            ("lumberjack://localhost", "needs a host and a port"),
            ("lumberjack://:5044", "needs a host and a port"),
            ("lumberjack://::1:5044", "needs a host and a port"),
            ("lumberjack://localhost:x", "needs a host and a port"),
            ("lumberjack://localhost:-1", "needs a host and a port"),
            ("lumberjack://a:1,", "needs a host and a port"),
            (
                "lumberjack://localhost:65536",
                "port of \"lumberjack://localhost:65536\" is out of range",
            ),
            ("lumberjack://[::1]:99999", "out of range"),
            ("lumberjack+unix://run/x.sock", "needs an absolute path"),
            ("x+tls://a:1?crt=y", "there is no option \"crt\""),
            ("x+tls://a:1?ca", "name=value"),
            ("x+tls://a:1?ca=", "ca is empty"),
            ("x+tls://a:1?ca=%2", "ca is not percent-encoded"),
            ("x+tls://a:1?ca=%+1", "ca is not percent-encoded"),
            ("x+tls://a:1?ca=%ff", "ca is not percent-encoded"),
            ("x+tls://a:1?ca=a&ca=b", "ca is given twice"),
            (
                "x+tls://a:1?client_auth=yes",
                "client_auth is yes; it is \"none\", \"optional\" or \"required\"",
            ),
            ("x://a:1?ca=y", "ca is an option of TLS"),
        ] {
            let message = Endpoint::parse(url).unwrap_err().to_string();
            assert!(message.contains(error), "{url}: {message}");
        }
    }

    #[test]
    fn a_user_or_password_is_refused_and_not_repeated() {
        for url in [
            "lumberjack://me:secret@localhost:5044",
            "lumberjack://secret@localhost:5044",
            "lumberjack://me:sec/ret@localhost:5044",
            "lumberjack://me:sec?ret@localhost:5044",
            "me:secret@localhost:5044",
            "me:secret@x+unix:///run/x.sock",
            "lumberjack+unix://me:secret@/run/x.sock",
            "lumberjack+tls://me:secret@localhost:5044",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert_eq!(error, AddressError::Credentials, "{url}");
            assert!(!error.to_string().contains("secret"));
        }
        let path: Address = "lumberjack+unix:///run/a@b.sock".parse().unwrap();
        assert_eq!(path, Address::Unix("/run/a@b.sock".into()));
    }

    #[test]
    fn a_query_is_never_repeated() {
        for url in [
            "lumberjack://h:1?password=secret",
            "lumberjack://h:1/?p=secret",
            "lumberjack+tls://h:1?p=secret",
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(!text.contains("secret"), "{text}");
            assert!(text.contains("://h:1"), "{text}");
        }
    }
}
