//! The specification of a listener: an endpoint with its TLS files read, then its socket.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::{self, TlsError};
use crate::{Address, AddressError, Endpoint, Listener, Networks};

/// An endpoint to accept connections at, with its certificates read.
#[derive(Debug)]
pub struct ListenSpec {
    endpoint: Endpoint,
    address: Address,
    tls: Option<Arc<tls::Server>>,
}

/// An error in the specification of a socket to listen on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ListenSpecError {
    /// The URL names several hosts.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A TLS option or file cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ListenSpecError {
    /// `url`, or the TLS error's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => "url",
            Self::Tls(error) => error.code(),
        }
    }
}

impl ListenSpec {
    /// The specification of an endpoint, whose TLS handshakes have `handshake_timeout`.
    ///
    /// # Errors
    /// The endpoint names several hosts, or its TLS options or files cannot be used.
    pub fn new(endpoint: Endpoint, handshake_timeout: Duration) -> Result<Self, ListenSpecError> {
        let address = endpoint.address()?.clone();
        let tls = endpoint.tls.as_ref().map(tls::Server::new).transpose()?;
        Ok(Self {
            endpoint,
            address,
            tls: tls.map(|tls| Arc::new(tls.within(handshake_timeout))),
        })
    }

    /// Listens at the endpoint.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn bind(&self) -> io::Result<BoundListener> {
        let listener = Listener::bind(&self.address).await?;
        let url = listener.local()?.url(&self.endpoint.scheme());
        let tls = self.tls.clone();
        let waits = false;
        Ok(BoundListener {
            listener,
            tls,
            waits,
            url,
        })
    }
}

/// The URL as given, without its query.
impl fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// A listening socket and its TLS, for [`Acceptor::run`](crate::Acceptor::run). Dropping it closes the socket.
#[derive(Debug)]
pub struct BoundListener {
    pub(crate) listener: Listener,
    pub(crate) tls: Option<Arc<tls::Server>>,
    /// Whether a peer may wait for us to speak first.
    pub(crate) waits: bool,
    url: String,
}

impl BoundListener {
    /// The same for a protocol whose peers may wait for us to speak: no first byte is awaited.
    /// Another protocol is recognized by its first bytes once the machine has refused them, and a
    /// peer that leaves without a byte still counts as a health check. With TLS the client speaks
    /// first anyway.
    #[must_use]
    pub fn speaking_first(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Whether every host of a network may connect without proving its identity: the address is not
    /// a loopback address, no certificate is required, and `allow` names no networks.
    pub fn is_exposed(&self, allow: &Networks) -> bool {
        let is_open = match self.listener.local() {
            Ok(Address::Tcp(host, _)) => host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| !address.to_canonical().is_loopback()),
            _ => false,
        };
        let is_proven = self.tls.as_ref().is_some_and(|tls| tls.needs_proof());
        is_open && !is_proven && allow.is_empty()
    }

    /// Its URL with the chosen port and without a query.
    pub fn url(&self) -> &str {
        &self.url
    }
}
