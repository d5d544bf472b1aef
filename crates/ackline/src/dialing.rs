//! Connections of protocols whose links end with them: how a URL is read, how one is made, and how they are
//! accepted.

use std::slice::from_mut;
use std::time::{Duration, Instant};

use ackline_core::{Connection, OpenError};
use ackline_link::tls::{TlsError, TlsOptions};
use ackline_link::{
    Acceptor, AcceptorOptions, AcceptorStats, Address, Admitted, Endpoint, Link, ListenSpec,
};

use crate::listening::{Listening, log_refusal};

/// The endpoint of a URL of the protocol with this scheme.
pub(crate) fn endpoint(scheme: &str, url: &str) -> Result<Endpoint, OpenError> {
    let place = url.split('?').next().unwrap_or_default();
    let found = place.split_once("://").map(|(scheme, _)| scheme);
    if let Some(protocol) = found.and_then(|found| found.split('+').next())
        && protocol != scheme
    {
        return Err(OpenError::url(format!(
            "{place} is of {protocol}, not of {scheme}"
        )));
    }
    if let Some((first, _)) = place.split_once(&format!(",{scheme}")) {
        return Err(OpenError::url(format!(
            "{first} and more: one URL at a time is connected to"
        )));
    }
    Endpoint::parse(url).map_err(OpenError::url)
}

/// The same, with options of TLS where the URL leaves them open.
pub(crate) fn filled(mut endpoint: Endpoint, tls: &TlsOptions) -> Result<Endpoint, OpenError> {
    Endpoint::fill(from_mut(&mut endpoint), tls).map_err(OpenError::url)?;
    Ok(endpoint)
}

/// Refuses files and options of TLS that a connecting end cannot use.
pub(crate) fn usable(endpoint: Endpoint) -> Result<Endpoint, OpenError> {
    match endpoint.client() {
        Ok(_) => Ok(endpoint),
        Err(error) => Err(OpenError::Tls {
            code: error.code(),
            message: error.to_string().into(),
        }),
    }
}

/// Refuses port 0.
pub(crate) fn has_port(endpoint: &Endpoint) -> Result<(), OpenError> {
    let mut addresses = endpoint.addresses.iter();
    if addresses.any(|it| matches!(it, Address::Tcp(_, 0))) {
        let text = "has port 0, on which nobody listens: give the listener's port";
        return Err(OpenError::url(format!("{endpoint} {text}")));
    }
    Ok(())
}

/// Connects, and drives `link` on the connection in a task of its own.
pub(crate) async fn dial<C>(
    endpoint: &Endpoint,
    timeout: Duration,
    link: impl FnOnce() -> Link<C>,
) -> Result<Link<C>, OpenError>
where
    C: Connection<Kind: Send + Sync> + Send + 'static,
{
    let stream = ackline_link::connect(endpoint, timeout).await;
    let stream = stream.map_err(|error| match TlsError::of(&error) {
        Some(tls) => OpenError::Handshake {
            code: tls.code(),
            message: format!("{endpoint}: {error}").into(),
        },
        None => OpenError::Connect(format!("{endpoint}: {error}").into()),
    })?;
    let link = link();
    tokio::spawn({
        let link = link.clone();
        async move {
            link.drive_socket(stream).await;
        }
    });
    Ok(link)
}

/// Drives `link` on an accepted connection in a task of its own; `retire` is called when the connection is too old.
pub(crate) fn drive<C>(
    admitted: Admitted,
    link: &Link<C>,
    retire: impl FnOnce(&mut C, Instant) + Send + 'static,
) where
    C: Connection<Kind: Send + Sync> + Send + 'static,
{
    let link = link.clone();
    tokio::spawn(async move {
        let (driven, slot, turned) = admitted.drive(&link, retire).await;
        if let Some(turned) = turned {
            log_refusal(&turned);
        }
        drop((driven, slot));
    });
}

/// A listener for applications: hands out each connection once. Dropping it closes the socket; connections that were handed
/// out go on.
pub struct Listener<C> {
    listening: Listening<C>,
}

impl<C: Send + 'static> Listener<C> {
    /// Listens at an endpoint; `made` makes the connections. A protocol whose peer may wait for this end is `speaking_first`.
    pub(crate) async fn bind(
        endpoint: Endpoint,
        options: AcceptorOptions,
        speaking_first: bool,
        made: impl Fn(Admitted) -> C + Clone + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let spec = ListenSpec::new(endpoint, options.handshake_timeout).map_err(OpenError::url)?;
        let broken = |error| OpenError::listen(format!("{spec}: {error}"));
        let listener = spec.bind().await.map_err(broken)?;
        let listener = listener.speaking_first(speaking_first);
        let acceptor = Acceptor::new(options);
        let listening = Listening::start(listener, acceptor, "receiver.accept", |ready, _| {
            move |admitted| ready.put(made(admitted))
        });
        Ok(Self { listening })
    }

    /// The URL listened on, with the port that was chosen.
    pub fn url(&self) -> &str {
        self.listening.url()
    }

    /// The next connection. Cancel-safe.
    ///
    /// # Errors
    /// The listening socket itself is broken.
    pub async fn accept(&self) -> Result<C, OpenError> {
        let next = self.listening.next().await;
        next.ok_or_else(|| OpenError::listen("the listener is broken"))
    }

    /// The next connection, if one is there now.
    pub fn try_accept(&self) -> Option<C> {
        self.listening.try_next()
    }

    /// Accepts no more: when this returns, the socket is closed and its address is free. Connections that
    /// were handed out go on. Cancel-safe.
    pub async fn close(&self) {
        self.listening.close().await;
    }

    /// Counts of refused connections and of health checks.
    pub fn stats(&self) -> AcceptorStats {
        self.listening.stats()
    }

    /// Its waits that take nothing.
    pub fn listening(&self) -> &Listening<C> {
        &self.listening
    }
}
