//! The checks between a listening socket and a link: which clients may connect, how many, how fast,
//! and for which client a proxy speaks.
//!
//! ```text
//! accept: allow-list → slot ─► admit (its own task): PROXY header → rate → first byte → TLS ─► a link
//!                   └────────── turned away: FIN, counted, few lines ──────────┘
//! ```
//!
//! The accept loop waits for no single connection. Each connection waits in its own task, under a
//! deadline, for the bytes that the peer must send first, and holds its slot meanwhile; a proxy's
//! connection takes its slot when its PROXY header is read. Knows no protocol.

mod admission;
mod networks;
mod options;
pub(crate) mod reason;
mod refusals;
pub(crate) mod slots;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackline_core::{ErrorKind, LimitHit, ProtocolError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use admission::PostponedCheck;
pub use admission::{Admitted, Arrived};
pub use networks::Networks;
pub use options::{AcceptorOptions, PerAddress};
pub use slots::Slot;

use crate::rate::{SenderRates, SharedRate};
use crate::tls;
use crate::units::now;
use crate::{BoundListener, End, Listener, Peer, PeerInfo, Stream};
use reason::Reason;
use refusals::{LINE_EVERY, Refusals};
use slots::{Limits, Origin, Slots};

/// Admits connections by one set of limits. Clones share them.
#[derive(Debug, Clone)]
pub struct Acceptor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: AcceptorOptions,
    slots: Arc<Slots>,
    accept_rate: Option<SharedRate>,
    origin_rates: Option<SenderRates>,
    sender_rates: Option<SenderRates>,
    refusals: Refusals,
    health_checks: AtomicU64,
    /// Limits the tasks that close refused connections in good order.
    closing: Arc<Semaphore>,
}

/// A connection that was turned away.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TurnedAway {
    /// It ended before its first byte, as TCP health checks do: no incident.
    HealthCheck,
    /// It was refused.
    Refused(Refused),
    /// The last of `times` connections that were [refused](Self::Refused) before and not logged one
    /// by one.
    Unreported(Refused),
}

/// The reason for refusing a connection: before its first byte reached a protocol, or in the
/// protocol's handshake ([`Acceptor::refuse`]).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// The refused thing in one word: `connection`, unless it is a part that a protocol carries.
    pub what: &'static str,
    /// The peer, as far as it is known.
    pub peer: Arc<str>,
    /// A stable name of the reason.
    pub code: &'static str,
    /// The reason as a sentence.
    pub message: String,
    /// The limit that was hit, if any.
    pub hit: Option<LimitHit>,
    /// The option that changes the limit.
    pub option: Option<&'static str>,
    /// Bytes of the protocol before the offending ones, if there were any.
    pub offset: Option<u64>,
    /// The number of refusals with this code that one log line reports; `None` if the line is
    /// suppressed because there were many. [`AcceptorStats::turned_away`] counts all of them.
    pub times: Option<u64>,
}

impl Refused {
    /// A refusal of `peer`'s connection; the caller sets the other known fields.
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

    /// The refusal of a connection that ended for its input; `None` for another end.
    pub fn of_end<K: ErrorKind>(peer: &PeerInfo, end: &End<K>) -> Option<Self> {
        let mut refused = Self::new(peer, "link.slow", end.to_string());
        match end {
            End::Protocol(ProtocolError { kind, offset }) => {
                (refused.code, refused.message) = (kind.code(), kind.to_string());
                (refused.hit, refused.option) = (kind.limit(), kind.option());
                refused.offset = Some(*offset);
            }
            &End::Memory {
                value,
                limit,
                option,
                offset,
                ..
            } => {
                refused.code = "link.memory";
                refused.hit = Some(LimitHit {
                    value,
                    limit,
                    option,
                });
                (refused.option, refused.offset) = (Some(option), Some(offset));
            }
            &End::Slow { option, offset, .. } => {
                (refused.option, refused.offset) = (Some(option), Some(offset));
            }
            _ => return None,
        }
        Some(refused)
    }
}

/// The counters of an acceptor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptorStats {
    /// Connections that ended before their first byte.
    pub health_checks: u64,
    /// Refused connections by code.
    pub turned_away: BTreeMap<&'static str, u64>,
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
            accept_rate: options.accept_rate.map(SharedRate::new),
            origin_rates: options.accept_rate.map(|rate| SenderRates::new(rate / 2)),
            sender_rates: options.max_bytes_per_second.map(SenderRates::new),
            refusals: Refusals::default(),
            health_checks: AtomicU64::new(0),
            closing: Arc::new(Semaphore::new(MAX_CLOSING)),
            options,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Accepts and admits connections until the socket is broken, and returns the error. `outcome`
    /// receives each connection, or the reason it was turned away. Dropping this turns away the
    /// connections that are not yet admitted.
    pub async fn run(
        &self,
        bound: &BoundListener,
        outcome: impl Fn(Result<Admitted, TurnedAway>) + Clone + Send + 'static,
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
        listener.expect(self.shared.options.max_connections);
        let mut admitting = JoinSet::new();
        let mut accepting = pin!(self.accept(listener));
        let last_reports = LastReports {
            shared: Arc::clone(&self.shared),
            outcome: outcome.clone(),
        };
        let mut lines_due = Instant::now() + LINE_EVERY;
        loop {
            while admitting.try_join_next().is_some() {}
            if Instant::now() >= lines_due {
                last_reports.report(Some(now()));
                lines_due = Instant::now() + LINE_EVERY;
            }
            let Ok(arrived) = tokio::time::timeout_at(lines_due, &mut accepting).await else {
                continue;
            };
            accepting.set(self.accept(listener));
            match arrived {
                Ok(Ok(arrived)) => {
                    let (tls, outcome) = (tls.clone(), outcome.clone());
                    admitting.spawn(async move {
                        let admitted = arrived.admit(tls.as_deref(), waits).await;
                        outcome(admitted);
                    });
                }
                Ok(Err(turned)) => outcome(Err(turned)),
                Err(error) => return error,
            }
        }
    }

    /// The next connection, which waits for the accept rate in [`Arrived::admit`], or the reason it
    /// was turned away at once. Cancel-safe.
    ///
    /// # Errors
    /// The listener itself is broken.
    pub async fn accept(&self, listener: &Listener) -> io::Result<Result<Arrived, TurnedAway>> {
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
                let turned = shared.turned_away(&peer.info().name, &why);
                shared.close(stream, why);
                Err(turned)
            }
        })
    }

    /// Counts a connection that its protocol refused in the handshake together with the connections
    /// that the acceptor turned away itself, so that a storm of them writes few log lines too.
    pub fn refuse(&self, refused: Refused) -> TurnedAway {
        TurnedAway::Refused(self.shared.refusals.count(refused, now()))
    }

    /// Open connections, including those that are not yet admitted.
    pub fn connections(&self) -> usize {
        self.shared.slots.open()
    }

    /// The counters so far.
    pub fn stats(&self) -> AcceptorStats {
        AcceptorStats {
            health_checks: self.shared.health_checks.load(Ordering::Relaxed),
            turned_away: self.shared.refusals.all(),
        }
    }
}

/// Reports refusals that were not logged: when a line is due, and at the end.
struct LastReports<F: Fn(Result<Admitted, TurnedAway>)> {
    shared: Arc<Shared>,
    outcome: F,
}

impl<F: Fn(Result<Admitted, TurnedAway>)> LastReports<F> {
    fn report(&self, now: Option<std::time::Instant>) {
        for refused in self.shared.refusals.unreported(now) {
            (self.outcome)(Err(TurnedAway::Unreported(refused)));
        }
    }
}

impl<F: Fn(Result<Admitted, TurnedAway>)> Drop for LastReports<F> {
    fn drop(&mut self) {
        self.report(None);
    }
}

impl Shared {
    /// Makes the checks that need no byte of the peer. A proxy is not a client: its clients are
    /// counted when they are known.
    fn take(self: &Arc<Self>, peer: &Peer) -> Result<Slot, Reason> {
        match peer {
            Peer::Tcp(address) if self.is_proxy(address.ip()) => self.slots.take_unclaimed(),
            Peer::Tcp(address) => {
                self.allows(address.ip())?;
                self.slots.take(Origin::of(address.ip()))
            }
            Peer::Unix(user) => self.slots.take(Origin::User(*user)),
        }
    }

    /// Waits for the rate of the slot's origin, which has half of the accept rate, and then for the
    /// rate of all, for which origins take turns.
    async fn wait_turn(&self, slot: &Slot) {
        let (Some(all), Some(rates), Some(origin)) =
            (&self.accept_rate, &self.origin_rates, slot.origin())
        else {
            return;
        };
        let origin: Arc<str> = origin.to_string().into();
        let own = rates.of(&origin, now());
        let due = own.due(now());
        // Taken before the wait, so that waiting connections do not all wake at once.
        own.take(now(), 1);
        if let Some(due) = due {
            tokio::time::sleep_until(Instant::from_std(due)).await;
        }
        all.take(&origin).await;
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.options.proxy_from.contains(address)
    }

    fn allows(&self, client: IpAddr) -> Result<(), Reason> {
        let allow = &self.options.allow;
        if allow.is_empty() || allow.contains(client) {
            return Ok(());
        }
        Err(Reason::NotAllowed)
    }

    fn turned_away(&self, peer: &Arc<str>, why: &Reason) -> TurnedAway {
        if matches!(why, Reason::HealthCheck) {
            self.health_checks.fetch_add(1, Ordering::Relaxed);
            return TurnedAway::HealthCheck;
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
        TurnedAway::Refused(self.refusals.count(refused, now()))
    }

    /// Closes a connection with FIN. The peer's bytes are read and dropped for a moment, since
    /// closing with unread bytes would reset the connection. The number of such tasks is limited:
    /// their descriptors are outside the limits.
    fn close(&self, stream: Stream, why: Reason) {
        if matches!(why, Reason::HealthCheck) {
            return;
        }
        if let Ok(permit) = Arc::clone(&self.closing).try_acquire_owned() {
            tokio::spawn(async move {
                match why {
                    Reason::Tls(_) => tls::refuse_hello(stream).await,
                    _ => tls::linger(stream).await,
                }
                drop(permit);
            });
        }
    }
}

/// Refused connections that are closed in good order at one time; further ones are closed at once.
const MAX_CLOSING: usize = 128;
