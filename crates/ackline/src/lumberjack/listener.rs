//! A listener for Rust applications: connections that hand out windows and acknowledge them.

use std::sync::Arc;
use std::task::Poll;

use ackline_core::{Connection as _, UsageError};
use ackline_link::{Budget, End, Link, tls};
use tokio::task::JoinHandle;

use crate::receiver::secured;

use super::{Event, Kind, Reader, ReaderConfig, Window, endpoint, within};

/// Listens on a URL such as `lumberjack://127.0.0.1:5044` (port 0: any free one).
///
/// # Errors
/// A URL that is not one of ours, or an address that cannot be bound.
pub async fn listen(url: &str, config: ReaderConfig, budget: Budget) -> std::io::Result<Listener> {
    let wrong = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    let endpoint = endpoint(url).map_err(wrong)?;
    let address = endpoint
        .address()
        .map_err(|error| wrong(error.to_string()))?;
    let tls = endpoint.tls.as_ref().map(tls::Server::new).transpose();
    let tls = tls.map_err(|error| wrong(error.to_string()))?.map(Arc::new);
    let inner = ackline_link::Listener::bind(address).await?;
    let config = within(config, &budget);
    Ok(Listener {
        inner,
        tls,
        scheme: endpoint.scheme(),
        config,
        budget,
    })
}

/// Accepts senders. All connections share one memory budget.
pub struct Listener {
    inner: ackline_link::Listener,
    tls: Option<Arc<tls::Server>>,
    scheme: String,
    config: ReaderConfig,
    budget: Budget,
}

impl Listener {
    /// The URL listened on, with the port that was chosen.
    ///
    /// # Errors
    /// The system does not tell the socket's address.
    pub fn url(&self) -> std::io::Result<String> {
        Ok(self.inner.local()?.url(&self.scheme))
    }

    /// The next sender. Passing errors (out of descriptors, an aborted handshake) are logged and survived.
    ///
    /// # Errors
    /// The listening socket itself is broken.
    pub async fn accept(&self) -> std::io::Result<Connection> {
        let (stream, peer) = self.inner.accept().await?;
        let link = Link::with_budget(Reader::new(self.config.clone()), self.budget.clone());
        let driver = tokio::spawn({
            let (link, tls, peer) = (link.clone(), self.tls.clone(), peer.info());
            async move {
                match secured(tls.as_deref(), stream, peer).await {
                    Ok((stream, _)) => drop(link.drive(stream).await),
                    Err((peer, error)) => {
                        let (code, peer) = (error.code(), &*peer.name);
                        tracing::warn!(code, peer, why = %error, "connection refused");
                        link.abort();
                        drop(link.drive(tokio::io::empty()).await);
                    }
                }
            }
        });
        Ok(Connection {
            link,
            peer: peer.to_string(),
            driver,
        })
    }
}

/// One sender's connection. Dropping it ends it; what was not acknowledged the sender sends again.
pub struct Connection {
    link: Link<Reader>,
    peer: String,
    driver: JoinHandle<()>,
}

impl Connection {
    /// The sender's address.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The link itself, for waits and verbs of one's own.
    pub fn link(&self) -> &Link<Reader> {
        &self.link
    }

    /// The next complete window. Cancel-safe: a window is handed out once or stays.
    ///
    /// # Errors
    /// The connection has ended and every window was handed out.
    pub async fn window(&self) -> Result<Window, End<Kind>> {
        self.link
            .when(0, |reader, now| match reader.poll_event() {
                Some(Event::Window(window)) => Poll::Ready(window),
                Some(Event::Invalid(invalid)) => {
                    // There is no place here to keep it in.
                    let _ = reader.refuse(now, invalid.id);
                    Poll::Pending
                }
                None => Poll::Pending,
            })
            .await
    }

    /// Acknowledges a window by its `id`. Acknowledgements leave in the order of the windows.
    ///
    /// # Errors
    /// `unknown_window`: it was acknowledged already or never handed out; `closed`: too late.
    pub fn ack(&self, window: u64) -> Result<(), UsageError> {
        self.link.call(|reader, now| reader.ack(now, window))
    }

    /// Reads no more; what was handed out can still be acknowledged, then the connection ends.
    pub fn stop(&self) {
        self.link.call(Reader::stop);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.abort();
        self.driver.abort();
    }
}
