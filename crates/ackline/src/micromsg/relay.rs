//! Proxies: each client is joined with a connection of its own to a server, and everything passes between the two as it came.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use ackline_core::{OpenError, locked};
use ackline_link::{Admitted, Budget, End, Link, PeerInfo};
use ackline_micromsg::relay::{Books, FRAME, Passed, ROOM, Relay};
use ackline_micromsg::{Config, Error, Role};
use tokio::time::Instant;

use super::connection::{LAST_BYTES, TOO_OLD};
use super::options::{ConnectOptions, ListenOptions};
use crate::dialing;

/// Accepts the clients of a proxy.
pub type ProxyListener = dialing::Listener<ProxyClient>;

/// A client of a proxy. Its connection is ended at once when this is dropped.
pub struct ProxyClient {
    end: Side,
    peer: PeerInfo,
    /// The memory for what comes from all clients and servers of the proxy.
    budget: Budget,
}

impl std::fmt::Debug for ProxyClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyClient")
            .field("peer", &self.peer.name)
            .finish_non_exhaustive()
    }
}

/// One end of a joined pair, which ends when this is dropped.
struct Side {
    link: Link<Relay>,
    /// The role of its peer.
    peer: Role,
}

impl Drop for Side {
    fn drop(&mut self) {
        self.link.abort();
    }
}

/// Listens for clients that are passed on to a server, on URLs as [`listen`](super::listen). Of the options `memory`, which is
/// for both sides of all clients, `send_bytes`, limits and timeouts of frames, and those of connections are used: a proxy has
/// no name, extensions or acknowledgements of its own. Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use.
pub async fn listen_as_proxy(
    url: &str,
    mut options: ListenOptions,
) -> Result<ProxyListener, Error> {
    let endpoint = options.endpoint(url)?;
    let budget = Budget::new(options.memory);
    let (config, send_bytes) = (options.link, options.send_bytes);
    let made = move |admitted: Admitted| {
        let peer = admitted.peer.clone();
        let end = Side::new(
            Role::Client,
            (&config, send_bytes),
            (&budget, &admitted.peer.sender),
        );
        dialing::drive(admitted, &end.link, |relay: &mut Relay, _| {
            relay.close(Some(TOO_OLD));
        });
        ProxyClient {
            end,
            peer,
            budget: budget.clone(),
        }
    };
    Ok(ProxyListener::bind(endpoint, options.acceptor, false, made).await?)
}

impl ProxyClient {
    /// The client.
    pub const fn peer(&self) -> &PeerInfo {
        &self.peer
    }

    /// Ends the client's connection with an ERROR frame, behind everything that waits. Then the client has 1 s for its own end.
    pub async fn refuse(&self, reason: &str) {
        self.end.close(Some(reason)).await;
    }

    /// Connects to a server, and passes on everything between it and the client as it came, until both connections have ended:
    /// handshakes, messages, commands, frames of any extension, acknowledgements and errors. The proxy acknowledges nothing by
    /// itself. A side that does not read holds back the other one. Where one has ended its direction, the other one is told
    /// so when it has acknowledged everything, or after 5 s. Of the options `memory` is not used. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Open`]: the server cannot be reached, which the client was told by an ERROR frame. [`Error::Ended`]: one side broke
    /// a rule of the protocol, which both were told by an ERROR frame, or went beyond `memory`, which the other one was told.
    pub async fn pass_to(&self, url: &str, options: ConnectOptions) -> Result<(), Error> {
        let memory = (&self.budget, &self.peer.sender);
        let server = match connect(url, options, memory).await {
            Ok(server) => server,
            Err(error) => {
                self.refuse(&format!("the server cannot be reached: {error}"))
                    .await;
                return Err(error.into());
            }
        };
        let books = Mutex::default();
        let (there, back) = tokio::join!(
            one_way(&self.end, &server, &books),
            one_way(&server, &self.end, &books),
        );
        there.and(back)
    }
}

async fn connect(
    url: &str,
    mut options: ConnectOptions,
    memory: (&Budget, &Arc<str>),
) -> Result<Side, OpenError> {
    let endpoint = options.endpoint(url)?;
    let settings = (&options.link, options.send_bytes);
    let made = || Side::link(Role::Server, settings, memory);
    let link = dialing::dial(&endpoint, options.connect_timeout, made).await?;
    Ok(Side {
        link,
        peer: Role::Server,
    })
}

impl Side {
    fn new(peer: Role, settings: (&Config, usize), memory: (&Budget, &Arc<str>)) -> Self {
        let link = Self::link(peer, settings, memory);
        Self { link, peer }
    }

    fn link(
        peer: Role,
        (config, send_bytes): (&Config, usize),
        (budget, sender): (&Budget, &Arc<str>),
    ) -> Link<Relay> {
        let now = Instant::now().into_std();
        let relay = Relay::new(now, peer, config, send_bytes);
        Link::of_sender(relay, budget.clone(), sender)
    }

    /// The next frame; `None` once the peer has ended its direction, or its transport has failed: the other side then sees an
    /// end without a reason, as it would without a proxy.
    async fn take(&self) -> Result<Option<Passed>, Error> {
        let take = |relay: &mut Relay, _| tried(relay.take());
        self.link.when(FRAME, take).await?
    }

    /// The rule or limit that the peer broke.
    fn fault(&self) -> Option<Error> {
        // It is known before the link has ended.
        let end = self.link.known_fault().or_else(|| self.link.end())?;
        let is_fault = matches!(
            end,
            End::Protocol(_) | End::Memory { .. } | End::Slow { .. } | End::Foreign { .. }
        );
        is_fault.then_some(Error::Ended(end))
    }

    /// Sends a frame; returns whether the connection goes on.
    async fn put(&self, passed: &Passed) -> bool {
        let put = |relay: &mut Relay, now| tried(relay.put(now, &passed.bytes));
        matches!(self.link.when(ROOM, put).await, Ok(Ok(())))
    }

    /// Ends the connection behind everything that waits.
    async fn close(&self, error: Option<&str>) {
        self.link.call(|relay, _| relay.close(error));
        self.link.close_within(LAST_BYTES);
        let never = |_: &mut Relay, _| Poll::<()>::Pending;
        let _ = self.link.when(u64::MAX, never).await;
    }
}

fn tried<R>(done: Result<R, Error>) -> Poll<Result<R, Error>> {
    match done {
        Err(Error::Blocked) => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// Passes on what one side sends, and its end.
async fn one_way(from: &Side, to: &Side, books: &Mutex<Books>) -> Result<(), Error> {
    loop {
        let Ok(Some(passed)) = from.take().await else {
            break;
        };
        locked(books).note(from.peer, &passed);
        // It may be what the end of the other side waits for.
        to.link.wake(FRAME);
        if !to.put(&passed).await {
            // The other half tells this side.
            return Ok(());
        }
    }
    if let Some(fault) = from.fault() {
        to.close(Some(&format!("the other end of the proxy: {fault}")))
            .await;
        return Err(fault);
    }
    // Its messages may still be acknowledged, for a while.
    let settled = |_: &mut Relay, _| {
        if locked(books).waits(from.peer) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    };
    let _ = from.link.when(FRAME, settled).await;
    to.close(None).await;
    Ok(())
}
