//! A listener for applications: hands out each connection once.

use ackline_bpmux::Error;
use ackline_core::OpenError;
use ackline_link::{Acceptor, AcceptorStats, Budget, ListenSpec};

use super::connection::Connection;
use super::options::ListenOptions;
use crate::listening::Listening;

/// Accepts connections. Dropping it closes the socket; connections that were handed out go on.
pub struct Listener {
    listening: Listening<Connection>,
}

impl Listener {
    pub(super) async fn listen(url: &str, mut options: ListenOptions) -> Result<Self, Error> {
        let endpoint = options.endpoint(url)?;
        let spec = ListenSpec::new(endpoint, options.acceptor.handshake_timeout)
            .map_err(OpenError::url)?;
        let broken = |error| OpenError::listen(format!("{spec}: {error}"));
        let listener = spec.bind().await.map_err(broken)?;
        let budget = Budget::new(options.memory);
        let link = options.link;
        // A peer may wait for credit before it says anything.
        let listener = listener.speaking_first(true);
        let acceptor = Acceptor::new(options.acceptor);
        let listening = Listening::start(listener, acceptor, "receiver.accept", |made, _| {
            move |admitted| made.put(Connection::admitted(admitted, &link, budget.clone()))
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
    pub async fn accept(&self) -> Result<Connection, Error> {
        let next = self.listening.next().await;
        next.ok_or_else(|| OpenError::listen("the listener is broken").into())
    }

    /// The next connection, if one is there now.
    pub fn try_accept(&self) -> Option<Connection> {
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
    pub fn listening(&self) -> &Listening<Connection> {
        &self.listening
    }
}
