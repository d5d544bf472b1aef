//! The way of one connection from its slot to a protocol: PROXY header, rate, first byte, TLS.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ackline_core::{Connection, ErrorKind};

use super::reason::{FIRST_BYTE, FirstBytes, HANDSHAKE, Reason};
use super::slots::{Origin, Slot};
use super::{Refused, Shared, TurnedAway, wire};
use crate::peer::canonical;
use crate::proxy::Source;
use crate::rate::RateLimit;
use crate::tls;
use crate::units::now;
use crate::{Driven, End, Jitter, Link, Peer, PeerInfo, Stream};

/// A connection that holds a slot and is not yet admitted.
#[derive(Debug)]
pub struct Arrived {
    pub(super) shared: Arc<Shared>,
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    pub(super) slot: Slot,
}

/// A connection that may be given to a protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Admitted {
    /// Its bytes, without any PROXY header.
    pub stream: Stream,
    /// The peer's identity.
    pub peer: PeerInfo,
    /// The slot, which is kept as long as the connection.
    pub slot: Slot,
    /// The read rate limit, for [`Link::limit_rate`](crate::Link::limit_rate).
    pub rate: Option<Arc<RateLimit>>,
    /// The age at which it is closed in good order.
    pub age: Option<Duration>,
    /// The postponed check; `None` if the first byte was awaited.
    postponed_check: Option<PostponedCheck>,
    shared: Arc<Shared>,
}

/// The check of a connection's first bytes, postponed to its protocol because the peer may wait for
/// us to speak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostponedCheck {
    is_proxied: bool,
}

impl PostponedCheck {
    /// The end of a connection that began with these bytes, if its protocol refuses them.
    pub(crate) fn foreign<K: ErrorKind>(self, bytes: &[u8]) -> Option<End<K>> {
        let first = wire::classify(bytes)?;
        let why = first.refusal(self.is_proxied)?;
        Some(End::Foreign {
            code: why.code(),
            message: why.to_string().into(),
            option: why.option(),
        })
    }
}

/// The expected beginning of a connection.
#[derive(Clone, Copy)]
struct Expected {
    is_tls: bool,
    /// The peer may wait for us to speak first.
    is_silent: bool,
}

impl Shared {
    /// Waits for a PROXY header and the first bytes. Unix sockets have no proxies, and a silent
    /// peer there is the protocol's business.
    async fn await_first_bytes(
        &self,
        stream: &Stream,
        slot: &mut Slot,
        peer: &mut PeerInfo,
        expected: Expected,
    ) -> Result<Option<PostponedCheck>, Reason> {
        let Some(stream) = stream.tcp() else {
            self.wait_turn(slot).await;
            return Ok(None);
        };
        let address = stream.peer_addr().map_err(|_| Reason::HealthCheck)?;
        let options = &self.options;
        let is_proxied = self.is_proxy(address.ip());
        let mut speaks_for_itself = false;
        let mut first = pin!(async {
            let first = within(options.first_byte_timeout, wire::first_bytes(stream));
            first.await.ok_or(Reason::Silent(FIRST_BYTE))?
        });
        let mut early_first = None;
        if is_proxied {
            let header = within(Some(options.handshake_timeout), wire::proxy_header(stream));
            let source = header.await.ok_or(Reason::Silent(HANDSHAKE))??;
            let client = match source {
                Source::Client(client) => {
                    *peer = PeerInfo::tcp(client).with("proxy", &canonical(address).to_string());
                    client
                }
                Source::Proxy => {
                    speaks_for_itself = true;
                    // A proxy's health checks end before a byte: they need no slot, and no permission.
                    let early = within(Some(options.handshake_timeout), first.as_mut());
                    early_first = early.await.transpose()?;
                    address
                }
            };
            self.allows(client.ip())?;
            slot.claim(Origin::of(client.ip()))?;
        }
        self.wait_turn(slot).await;
        // Without a deadline a connection may be silent.
        if expected.is_tls || options.first_byte_timeout.is_some() {
            slot.greets()?;
        }
        if expected.is_silent && !expected.is_tls && !speaks_for_itself {
            return Ok(Some(PostponedCheck { is_proxied }));
        }
        let first = match early_first {
            Some(first) => first,
            None => first.await?,
        };
        // The handshake reports bytes that are no TLS, to both sides.
        let passes = expected.is_tls && !matches!(first, FirstBytes::Proxy);
        let why = first.refusal(is_proxied).filter(|_| !passes);
        why.map_or(Ok(None), Err)
    }
}

impl Arrived {
    /// The socket's peer, before a PROXY header names the client that it speaks for.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Waits for the bytes that must come first: a PROXY header from a proxy, the first byte, a TLS
    /// handshake if `tls` is set. The first byte is not awaited from a plain peer that may wait for
    /// us to speak (`waits`). Each wait has its deadline; that of TLS is its server's.
    ///
    /// # Errors
    /// The connection was turned away; it is closed by then, or being closed.
    pub async fn admit(
        self,
        tls: Option<&tls::Server>,
        waits: bool,
    ) -> Result<Admitted, TurnedAway> {
        let Self {
            shared,
            stream,
            peer,
            mut slot,
        } = self;
        let mut info = peer.info();
        let watch = slot.watch();
        let expected = Expected {
            is_tls: tls.is_some(),
            is_silent: waits,
        };
        let checking = shared.await_first_bytes(&stream, &mut slot, &mut info, expected);
        let checked = watch.during(checking).await;
        let postponed_check = match checked.unwrap_or(Err(Reason::Displaced)) {
            Ok(postponed_check) => postponed_check,
            Err(why) => {
                let turned = shared.turned_away(&info.name, &why);
                shared.close(stream, why);
                return Err(turned);
            }
        };
        let stream = match tls {
            None => stream,
            // Boxed: a handshake is large, and a connection's task lives for long.
            Some(tls) => match slot.during(Box::pin(tls.accept(stream))).await {
                Some(Ok((stream, session))) => {
                    info = info.with_session(&session);
                    stream
                }
                Some(Err(error)) => return Err(shared.turned_away(&info.name, &Reason::Tls(error))),
                None => return Err(shared.turned_away(&info.name, &Reason::Displaced)),
            },
        };
        let (rates, max_age) = (
            shared.sender_rates.as_ref(),
            shared.options.max_connection_age,
        );
        Ok(Admitted {
            rate: rates.map(|rates| rates.of(&info.sender, now())),
            // Connections that began together must not end together.
            age: max_age.map(|age| Jitter::new(None).around(age)),
            stream,
            slot,
            peer: info,
            postponed_check,
            shared,
        })
    }
}

impl Admitted {
    /// Drives `link` over the connection until it ends, at its rate limit; `retire` is called once
    /// when the connection reaches its maximum age. The slot is kept until nothing of the
    /// connection is left. If the first byte was not awaited, only now it is known whether the
    /// connection should have been turned away, and it is counted with those that were.
    pub async fn drive<C: Connection + Send + 'static>(
        self,
        link: &Link<C>,
        retire: impl FnOnce(&mut C, std::time::Instant),
    ) -> (Driven<Stream, C::Kind>, Slot, Option<TurnedAway>) {
        if let Some(rate) = self.rate {
            link.limit_rate(rate);
        }
        link.postpone_check(self.postponed_check);
        self.slot.serves(link);
        let driving = link.drive_for(self.stream, self.age, retire);
        let driven = self.slot.drive(link, driving).await;
        let received = link.stats().bytes_in;
        // The application may have ended the link before its goodbye was over.
        let fault = link.known_fault();
        let turned = match fault.as_ref().unwrap_or(&driven.end) {
            End::Foreign {
                code,
                message,
                option,
            } => {
                let mut refused = Refused::new(&self.peer, code, message.to_string());
                refused.option = *option;
                Some(TurnedAway::Refused(
                    self.shared.refusals.count(refused, now()),
                ))
            }
            End::Eof | End::Io(_) if self.postponed_check.is_some() && received == 0 => Some(
                self.shared
                    .turned_away(&self.peer.name, &Reason::HealthCheck),
            ),
            End::Aborted if self.slot.is_displaced() => {
                Some(self.shared.turned_away(&self.peer.name, &Reason::Displaced))
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
