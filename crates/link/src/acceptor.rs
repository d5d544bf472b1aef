//! What stands between a listening socket and a link: who may connect, how many, how fast, and for whom a
//! proxy speaks.
//!
//! ```text
//! accept: allow-list → slot ─► admit (its own task): PROXY header → rate → first byte → TLS ─► a link
//!                   └────────── turned away: FIN, counted, few lines ──────────┘
//! ```
//!
//! The accept loop waits for no single connection: what a peer must send first is awaited in the
//! connection's own task, under a deadline, and its slot is held meanwhile; a connection of a proxy takes
//! its slot when its PROXY header is read. Knows no protocol.

mod networks;
mod options;
pub(crate) mod slots;
mod tally;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ackline_core::{Connection, ErrorKind, LimitHit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use networks::Networks;
pub use options::{AcceptorOptions, PerAddress};
pub use slots::Slot;

use crate::link::now;
use crate::pace::{Pace, Paces, SharedPace};
use crate::peer::canonical;
use crate::proxy::{self, Source};
use crate::tls::{self, TlsError};
use crate::{BoundListener, Driven, End, Jitter, Link, Listener, Peer, PeerInfo, Stream};
use slots::{Limits, Origin, Slots};
use tally::{LINE_EVERY, Tally};

/// Admits connections by one set of limits. Clones share them.
#[derive(Debug, Clone)]
pub struct Acceptor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: AcceptorOptions,
    slots: Arc<Slots>,
    accepting: Option<SharedPace>,
    accepting_of: Option<Paces>,
    paces: Option<Paces>,
    tally: Tally,
    health_checks: AtomicU64,
    /// Of those who take their leave of turned-away peers.
    leaving: Arc<Semaphore>,
}

/// A connection that may not go on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Turned {
    /// It ended before its first byte, which is what TCP health checks do: no incident.
    HealthCheck,
    /// It was refused.
    Refused(Refused),
    /// The line of so many (`times`) that were [refused](Self::Refused) before without one: of the last of
    /// them.
    Untold(Refused),
}

/// Why a connection was refused: before its first byte reached a protocol, or as its protocol's handshake
/// says ([`Acceptor::refuse`]).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// What was refused, in a word: `connection`, if it is not a part of what a protocol carries.
    pub what: &'static str,
    /// The peer, as far as it was known.
    pub peer: Arc<str>,
    /// A stable name of the reason.
    pub code: &'static str,
    /// The reason as a sentence.
    pub message: String,
    /// The limit that was hit, if one was.
    pub hit: Option<LimitHit>,
    /// The option that changes it.
    pub option: Option<&'static str>,
    /// Bytes of the protocol before what was wrong, where it had any.
    pub offset: Option<u64>,
    /// Of how many refusals with this code a line may tell now: `None` is none, since there were many
    /// lines already. All of them are in [`AcceptorStats::turned_away`].
    pub times: Option<u64>,
}

impl Refused {
    /// A refusal of `peer`'s connection; what else is known of it is set beside.
    pub fn new(peer: &PeerInfo, code: &'static str, message: String) -> Self {
        Self {
            what: "connection",
            peer: Arc::clone(&peer.name),
            code,
            message,
            hit: None,
            option: None,
            offset: None,
            times: None,
        }
    }
}

/// What an acceptor has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptorStats {
    /// Connections that ended before their first byte.
    pub health_checks: u64,
    /// Refused connections by code.
    pub turned_away: BTreeMap<&'static str, u64>,
}

/// A connection that holds a slot and has still to be admitted.
#[derive(Debug)]
pub struct Arrived {
    shared: Arc<Shared>,
    stream: Stream,
    peer: Peer,
    slot: Slot,
}

/// A connection that a protocol may have.
#[derive(Debug)]
#[non_exhaustive]
pub struct Admitted {
    /// Its bytes, without any PROXY header.
    pub stream: Stream,
    /// Who it is.
    pub peer: PeerInfo,
    /// To be kept as long as the connection.
    pub slot: Slot,
    /// How fast it may be read, for [`Link::pace`](crate::Link::pace).
    pub pace: Option<Arc<Pace>>,
    /// When it is to be ended in good order.
    pub age: Option<Duration>,
    /// `None` if its first byte was awaited.
    unheard: Option<Unheard>,
    shared: Arc<Shared>,
}

/// What is known of a connection whose first byte was not awaited: its peer may wait for us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unheard {
    is_proxied: bool,
}

impl Unheard {
    /// The end of a connection that has begun with these bytes, should its protocol refuse them.
    pub(crate) fn foreign<K: ErrorKind>(self, bytes: &[u8]) -> Option<End<K>> {
        let first = wire::told(bytes)?;
        let why = first.refusal(self.is_proxied)?;
        Some(End::Foreign {
            code: why.code(),
            message: why.to_string().into(),
            option: why.option(),
        })
    }
}

impl Acceptor {
    /// An acceptor with these limits and no connection.
    pub fn new(options: AcceptorOptions) -> Self {
        let limits = Limits::new(
            options.max_connections,
            options.max_connections_per_address.limit(),
        );
        let shared = Shared {
            slots: Arc::new(Slots::new(limits)),
            accepting: options.accept_rate.map(SharedPace::new),
            accepting_of: options.accept_rate.map(|rate| Paces::new(rate / 2)),
            paces: options.max_bytes_per_second.map(Paces::new),
            tally: Tally::default(),
            health_checks: AtomicU64::new(0),
            leaving: Arc::new(Semaphore::new(MAX_LEAVING)),
            options,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Accepts and admits until the socket is broken: answers why. `told` gets each connection, or why it
    /// was turned away. Dropping it turns away who is still to be admitted.
    pub async fn run(
        &self,
        bound: &BoundListener,
        told: impl Fn(Result<Admitted, Turned>) + Clone + Send + 'static,
    ) -> io::Error {
        if bound.is_exposed(&self.shared.options.allow) {
            tracing::warn!(
                code = "link.exposed",
                url = bound.url(),
                "every host that reaches this address may connect: require certificates (+tls with ca), or name \
                 networks (allow)"
            );
        }
        let (listener, tls, waits) = (&bound.listener, &bound.tls, bound.waits);
        let mut admitting = JoinSet::new();
        let mut accepting = pin!(self.accept(listener));
        let last_lines = LastLines {
            shared: Arc::clone(&self.shared),
            told: told.clone(),
        };
        let mut lines_due = Instant::now() + LINE_EVERY;
        loop {
            while admitting.try_join_next().is_some() {}
            if Instant::now() >= lines_due {
                last_lines.tell(Some(now()));
                lines_due = Instant::now() + LINE_EVERY;
            }
            // Kept over the turns: it may be in a pause for want of descriptors.
            let Ok(arrived) = tokio::time::timeout_at(lines_due, &mut accepting).await else {
                continue;
            };
            accepting.set(self.accept(listener));
            match arrived {
                Ok(Ok(arrived)) => {
                    let (tls, told) = (tls.clone(), told.clone());
                    admitting.spawn(async move {
                        let admitted = arrived.admit(tls.as_deref(), waits).await;
                        told(admitted);
                    });
                }
                Ok(Err(turned)) => told(Err(turned)),
                Err(error) => return error,
            }
        }
    }

    /// The next connection, which waits for the accept rate in [`Arrived::admit`], or why it was turned away at once.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The listener itself is broken.
    pub async fn accept(&self, listener: &Listener) -> io::Result<Result<Arrived, Turned>> {
        let shared = &self.shared;
        let (stream, peer) = listener.accept().await?;
        let taken = shared.take(&peer);
        Ok(match taken {
            Ok(slot) => Ok(Arrived {
                shared: Arc::clone(shared),
                stream,
                peer,
                slot,
            }),
            Err(why) => {
                let turned = shared.turned(&peer.info().name, &why);
                shared.leave(stream, why);
                Err(turned)
            }
        })
    }

    /// Counts a connection that its protocol refused before it was of any use, with those that the acceptor turned
    /// away itself: a storm of them has few lines too.
    pub fn refuse(&self, refused: Refused) -> Turned {
        Turned::Refused(self.shared.tally.count(refused, now()))
    }

    /// Connections that are open now, also those that are still to be admitted.
    pub fn connections(&self) -> usize {
        self.shared.slots.open()
    }

    /// What was counted so far.
    pub fn stats(&self) -> AcceptorStats {
        AcceptorStats {
            health_checks: self.shared.health_checks.load(Ordering::Relaxed),
            turned_away: self.shared.tally.all(),
        }
    }
}

/// Tells, when it is due and at the latest at the end, of what was refused without a line.
struct LastLines<F: Fn(Result<Admitted, Turned>)> {
    shared: Arc<Shared>,
    told: F,
}

impl<F: Fn(Result<Admitted, Turned>)> LastLines<F> {
    fn tell(&self, now: Option<std::time::Instant>) {
        for refused in self.shared.tally.untold(now) {
            (self.told)(Err(Turned::Untold(refused)));
        }
    }
}

impl<F: Fn(Result<Admitted, Turned>)> Drop for LastLines<F> {
    fn drop(&mut self) {
        self.tell(None);
    }
}

impl Shared {
    /// What needs no byte of the peer. A proxy is no client: its clients are counted once they are known.
    fn take(self: &Arc<Self>, peer: &Peer) -> Result<Slot, Why> {
        match peer {
            Peer::Tcp(address) if self.is_proxy(address.ip()) => self.slots.take_unclaimed(),
            Peer::Tcp(address) => {
                self.allows(address.ip())?;
                self.slots.take(Origin::of(address.ip()))
            }
            Peer::Unix(user) => self.slots.take(Origin::User(*user)),
        }
    }

    /// Waits for the turn of the slot's place, which has half of the accept rate, and then for the rate of all, for which
    /// places take turns.
    async fn wait_turn(&self, slot: &Slot) {
        let (Some(all), Some(paces), Some(place)) =
            (&self.accepting, &self.accepting_of, slot.origin())
        else {
            return;
        };
        let place: Arc<str> = place.to_string().into();
        let own = paces.of(&place, now());
        let due = own.due(now());
        // Each has a turn of its own: they do not all wake at the next one.
        own.take(now(), 1);
        if let Some(due) = due {
            tokio::time::sleep_until(Instant::from_std(due)).await;
        }
        all.take(&place).await;
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.options.proxy_from.contains(address)
    }

    fn allows(&self, client: IpAddr) -> Result<(), Why> {
        let allow = &self.options.allow;
        if allow.is_empty() || allow.contains(client) {
            return Ok(());
        }
        Err(Why::NotAllowed)
    }

    fn turned(&self, peer: &Arc<str>, why: &Why) -> Turned {
        if matches!(why, Why::HealthCheck) {
            self.health_checks.fetch_add(1, Ordering::Relaxed);
            return Turned::HealthCheck;
        }
        let code = why.code();
        let refused = Refused {
            what: "connection",
            peer: Arc::clone(peer),
            code,
            message: why.to_string(),
            hit: why.hit(),
            option: why.option(),
            offset: None,
            times: None,
        };
        Turned::Refused(self.tally.count(refused, now()))
    }

    /// Ends a connection with FIN: what the peer has sent is read and dropped for a moment, since closing
    /// on top of it would reset. Only so many at once: their descriptors are outside the limits.
    fn leave(&self, stream: Stream, why: Why) {
        if matches!(why, Why::HealthCheck) {
            return;
        }
        if let Ok(permit) = Arc::clone(&self.leaving).try_acquire_owned() {
            tokio::spawn(async move {
                match why {
                    Why::Tls(_) => tls::refuse_hello(stream).await,
                    _ => tls::linger(stream).await,
                }
                drop(permit);
            });
        }
    }

    /// Unix sockets have no proxies, and what is silent there its protocol notices.
    async fn greet(
        &self,
        stream: &Stream,
        slot: &mut Slot,
        peer: &mut PeerInfo,
        (is_tls, waits): (bool, bool),
    ) -> Result<Option<Unheard>, Why> {
        let Some(stream) = stream.tcp() else {
            self.wait_turn(slot).await;
            return Ok(None);
        };
        let address = stream.peer_addr().map_err(|_| Why::HealthCheck)?;
        let options = &self.options;
        let is_proxied = self.is_proxy(address.ip());
        let mut speaks_for_itself = false;
        let mut first = pin!(async {
            let first = within(options.first_byte_timeout, wire::first_bytes(stream));
            first.await.ok_or(Why::Silent(FIRST_BYTE))?
        });
        let mut heard = None;
        if is_proxied {
            let header = within(Some(options.handshake_timeout), wire::proxy_header(stream));
            let source = header.await.ok_or(Why::Silent(HANDSHAKE))??;
            let client = match source {
                Source::Client(client) => {
                    *peer = PeerInfo::tcp(client).with("proxy", &canonical(address).to_string());
                    client
                }
                Source::Proxy => {
                    speaks_for_itself = true;
                    // Its health checks end before a byte: they need no slot, and no right.
                    let early = within(Some(options.handshake_timeout), first.as_mut());
                    heard = early.await.transpose()?;
                    address
                }
            };
            self.allows(client.ip())?;
            slot.claim(Origin::of(client.ip()))?;
        }
        self.wait_turn(slot).await;
        // Where nothing is awaited for a limited time a connection may be silent.
        if is_tls || options.first_byte_timeout.is_some() {
            slot.greets()?;
        }
        if waits && !is_tls && !speaks_for_itself {
            return Ok(Some(Unheard { is_proxied }));
        }
        let first = match heard {
            Some(first) => first,
            None => first.await?,
        };
        // What is no TLS there the handshake says, to both sides.
        let passes = is_tls && !matches!(first, First::Proxy);
        let why = first.refusal(is_proxied).filter(|_| !passes);
        why.map_or(Ok(None), Err)
    }
}

impl Arrived {
    /// Who connected, before anything is known of whom it speaks for.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Awaits what must come first: a PROXY header from a proxy, the first byte, a handshake of TLS where
    /// `tls` is; no first byte where a plain peer may be one that `waits` for us. Each has its deadline; that
    /// of TLS is its server's.
    ///
    /// # Errors
    /// Why the connection was turned away; it is ended by then, or is being ended.
    pub async fn admit(self, tls: Option<&tls::Server>, waits: bool) -> Result<Admitted, Turned> {
        let Self {
            shared,
            stream,
            peer,
            mut slot,
        } = self;
        let mut info = peer.info();
        let watch = slot.watch();
        let greeting = shared.greet(&stream, &mut slot, &mut info, (tls.is_some(), waits));
        let greeted = watch.during(greeting).await;
        let unheard = match greeted.unwrap_or(Err(Why::Displaced)) {
            Ok(unheard) => unheard,
            Err(why) => {
                let turned = shared.turned(&info.name, &why);
                shared.leave(stream, why);
                return Err(turned);
            }
        };
        let stream = match tls {
            None => stream,
            // Boxed: a handshake is large, and the task of a connection lives for long.
            Some(tls) => match slot.during(Box::pin(tls.accept(stream))).await {
                Some(Ok((stream, session))) => {
                    info = info.with_session(&session);
                    stream
                }
                Some(Err(error)) => return Err(shared.turned(&info.name, &Why::Tls(error))),
                None => return Err(shared.turned(&info.name, &Why::Displaced)),
            },
        };
        let (paces, max_age) = (shared.paces.as_ref(), shared.options.max_connection_age);
        Ok(Admitted {
            pace: paces.map(|paces| paces.of(&info.sender, now())),
            // Those that began together do not end together.
            age: max_age.map(|age| Jitter::new(None).around(age)),
            stream,
            slot,
            peer: info,
            unheard,
            shared,
        })
    }
}

impl Admitted {
    /// Drives `link` over the connection until it ends, at its pace; `retire` is called once when it is as old
    /// as it may become. The slot is to be kept until nothing of the connection is left. Where no first byte was
    /// awaited, it is known only now whether it should have been turned away, and counted with those that were.
    pub async fn drive<C: Connection + Send + 'static>(
        self,
        link: &Link<C>,
        retire: impl FnOnce(&mut C, std::time::Instant),
    ) -> (Driven<Stream, C::Kind>, Slot, Option<Turned>) {
        if let Some(pace) = self.pace {
            link.pace(pace);
        }
        link.hear(self.unheard);
        self.slot.serves(link);
        let driving = link.drive_for(self.stream, self.age, retire);
        let driven = self.slot.drive(link, driving).await;
        let heard = link.stats().bytes_in;
        // Who hears of it may have ended the link before its goodbye was over.
        let fault = link.known_fault();
        let turned = match fault.as_ref().unwrap_or(&driven.end) {
            End::Foreign {
                code,
                message,
                option,
            } => {
                let mut refused = Refused::new(&self.peer, code, message.to_string());
                refused.option = *option;
                Some(Turned::Refused(self.shared.tally.count(refused, now())))
            }
            End::Eof | End::Io(_) if self.unheard.is_some() && heard == 0 => {
                Some(self.shared.turned(&self.peer.name, &Why::HealthCheck))
            }
            End::Aborted if self.slot.is_displaced() => {
                Some(self.shared.turned(&self.peer.name, &Why::Displaced))
            }
            _ => None,
        };
        (driven, self.slot, turned)
    }
}

async fn within<T>(timeout: Option<Duration>, what: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, what).await.ok(),
        None => Some(what.await),
    }
}

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Tls,
    Http,
    Proxy,
    Other,
}

impl First {
    /// Why it is turned away on a port without TLS.
    fn refusal(self, is_proxied: bool) -> Option<Why> {
        match self {
            Self::Proxy if is_proxied => Some(Why::Twice),
            Self::Proxy => Some(Why::Untrusted),
            Self::Tls => Some(Why::Tls(TlsError::Unexpected(HELLO.to_owned()))),
            Self::Http => Some(Why::Http),
            Self::Other => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    #[error("it ended before its first byte")]
    HealthCheck,
    #[error("its address is in no network of --allow")]
    NotAllowed,
    #[error("{} connections would be above {} ({})", .0.value, .0.limit, .0.option)]
    Limit(LimitHit),
    #[error(
        "{} connections of one address that are not admitted yet would be above {}, a tenth of {} or 64",
        .0.value, .0.limit, .0.option
    )]
    Greeting(LimitHit),
    #[error(
        "{} connections would be above {}: {}, and a tenth of it or 64 for connections of proxies that wait \
         for their PROXY header",
        .0.value, .0.limit, .0.option
    )]
    Unclaimed(LimitHit),
    #[error(
        "all of --max-connections are taken, its address (or local user) has the most of them, and it was \
         the least useful"
    )]
    Displaced,
    #[error("{0}; --proxy-from names its address: every connection of it must begin with one")]
    Header(proxy::ProxyError),
    #[error("it ended inside its PROXY header")]
    HeaderCut,
    #[error("a PROXY header from an address that --proxy-from does not name: add the proxy's")]
    Untrusted,
    #[error("a second PROXY header: only the last proxy may send one")]
    Twice,
    #[error("{0}")]
    Tls(TlsError),
    #[error("an HTTP request: this port speaks another protocol")]
    Http,
    #[error("it was silent too long ({0})")]
    Silent(&'static str),
}

impl Why {
    fn code(&self) -> &'static str {
        match self {
            Self::HealthCheck => NOT_TOLD,
            Self::NotAllowed => "link.not_allowed",
            Self::Limit(_) | Self::Greeting(_) | Self::Unclaimed(_) => "link.too_many_connections",
            Self::Displaced => "link.displaced",
            Self::Header(proxy::ProxyError::Missing(_)) => "proxy.missing",
            Self::Header(_) | Self::HeaderCut => "proxy.malformed",
            Self::Untrusted => "proxy.untrusted",
            Self::Twice => "proxy.twice",
            Self::Tls(error) => error.code(),
            Self::Http => "link.http",
            Self::Silent(_) => "link.timeout",
        }
    }

    fn option(&self) -> Option<&'static str> {
        match self {
            Self::NotAllowed => Some("--allow"),
            Self::Limit(hit) | Self::Greeting(hit) | Self::Unclaimed(hit) => Some(hit.option),
            Self::Displaced => Some("--max-connections"),
            Self::Header(_) | Self::Untrusted => Some("--proxy-from"),
            Self::Silent(option) => Some(option),
            _ => None,
        }
    }

    fn hit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(hit) | Self::Greeting(hit) | Self::Unclaimed(hit) => Some(*hit),
            _ => None,
        }
    }
}

/// What has no line has no code.
const NOT_TOLD: &str = "";
const HANDSHAKE: &str = "--handshake-timeout";
const FIRST_BYTE: &str = "--first-byte-timeout";
/// Peers that are turned away at one time with a leave of their own; further ones are closed at once.
const MAX_LEAVING: usize = 128;
const HELLO: &str =
    "a TLS client hello on a port without TLS: turn TLS off at the sender, or listen on +tls";
