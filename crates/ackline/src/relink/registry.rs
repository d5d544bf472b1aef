//! A listener's links: each transport's handshake, the link that it goes on with, and the fate of a link
//! without a transport.
//!
//! ```text
//! admitted ─► handshake ─► decided ─► a new link: told once ─┐
//!                 │           ├─────► a known one ───────────┴─► attached ─► transport gone ─► orphan
//!                 ▼           ▼                                     ▲                            │ │
//!              refused     unknown: link id 0                       └──── a newer transport ─────┘ ▼
//!                          another identity: refused                                              lost
//! ```
//!
//! It decides that the newest transport wins, in the order of the decisions; how long an orphan is kept; and
//! the owner of a link. The [`Binder`] decides which link a connector gets.
//!
//! Its rules: R-REL-36.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, ProtocolError};
use ackline_link::{Admitted, Budget, Driven, End, Link, PeerInfo, Refused, Slot, Stream};
use ackline_relink::frame::{EndpointBlock, EndpointName};
use ackline_relink::{
    self as machine, Attach, Binder, Decision, EndpointConfig, Error, Failures, Handshake,
    HandshakeEvent, KeepOptions, Kind, LinkKey, LinkOptions, LinkState, ListenerConfig, Orphans,
};
use tokio::time::timeout;

use super::link_host::{LinkHost, counted_from, ready, violation};
use super::state::{Carried, Journal, ListenerState, Origin, Restored, epoch_now};

/// The options of a registry.
#[derive(Clone)]
pub(crate) struct LinkRegistryOptions {
    pub(crate) endpoints: Vec<EndpointConfig>,
    pub(crate) link: LinkOptions,
    pub(crate) handshake_timeout: Duration,
    pub(crate) keep: KeepOptions,
    pub(crate) budget: Budget,
}

/// A report of a registry.
pub(crate) enum Told<M: LinkHost> {
    /// A link that was not told of before.
    Made(Made<M>),
    /// A transport was ended because of an action of its peer.
    Ended(PeerInfo, End<Kind>),
    /// A connector got no link.
    Refused(PeerInfo, Refusal),
}

/// A link of a registry.
pub(crate) struct Made<M: LinkHost> {
    pub(crate) link: Link<M>,
    pub(crate) key: LinkKey,
    pub(crate) endpoint_name: EndpointName,
    /// The peer that made it; for a link from an earlier process, the peer that carried it last.
    pub(crate) peer: PeerInfo,
}

/// Keeps the links of one listener. Clones are the same.
pub(crate) struct LinkRegistry<M: LinkHost> {
    shared: Arc<Shared<M>>,
}

struct Shared<M: LinkHost> {
    options: LinkRegistryOptions,
    make: Box<dyn Fn(machine::Link) -> M + Send + Sync>,
    book: Mutex<Book<M>>,
    state: Option<Arc<ListenerState>>,
}

struct Book<M: LinkHost> {
    binder: Binder,
    held: HashMap<u64, Held<M>>,
    orphans: Orphans,
    /// Counts decisions.
    turn: u64,
}

struct Held<M: LinkHost> {
    link: Link<M>,
    endpoint_name: EndpointName,
    /// The identity of TLS that the link belongs to.
    owner: Option<Arc<str>>,
    was_told: bool,
    /// The last decision that gave it a transport.
    turn: u64,
    failures: Failures,
    /// Until the link has its first transport.
    journal: Option<Journal>,
    /// The note of the peer that carries it, if it is kept.
    carried: Option<Carried>,
}

/// A transport whose handshake is done.
struct Agreed {
    driven: Driven<Stream, Kind>,
    /// Bytes of it that the handshake took.
    bytes: u64,
    slot: Slot,
}

/// A transport whose connector is to get a link.
struct Taken {
    key: LinkKey,
    is_new: bool,
    wants_hints: bool,
    turn: u64,
}

impl<M: LinkHost> Clone for LinkRegistry<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M: LinkHost> LinkRegistry<M> {
    /// A registry without links, or with those of an earlier process, which are told of by
    /// [`restored`](Self::restored).
    pub(crate) fn new(
        options: LinkRegistryOptions,
        state: Option<(ListenerState, Vec<Restored>)>,
        make: impl Fn(machine::Link) -> M + Send + Sync + 'static,
    ) -> Self {
        let (state, restored) = state.map_or((None, Vec::new()), |(state, restored)| {
            (Some(Arc::new(state)), restored)
        });
        let epoch = state.as_ref().map_or_else(epoch_now, |state| state.epoch());
        let mut book = Book {
            binder: Binder::new(epoch, 1, options.endpoints.clone()),
            held: HashMap::new(),
            orphans: Orphans::default(),
            turn: 0,
        };
        for mut one in restored {
            one.machine.share(options.budget.quota());
            let (origin, key) = (one.journal.origin().clone(), one.machine.key());
            let carried = Some(one.journal.carried());
            book.binder
                .restore(origin.endpoint_name.clone(), key.link_id);
            let sender = carried.as_ref().and_then(Carried::peer);
            let sender = sender.unwrap_or_else(|| PeerInfo::unix(None)).sender;
            let budget = options.budget.clone();
            let link = Link::of_sender(make(one.machine), budget, &sender);
            one.journal.keep(link.clone());
            book.orphans.add(key.link_id, sender, false);
            let held = Held {
                link,
                endpoint_name: origin.endpoint_name,
                owner: origin.owner,
                was_told: false,
                turn: 0,
                failures: Failures::default(),
                journal: None,
                carried,
            };
            book.held.insert(key.link_id, held);
        }
        let shared = Shared {
            options,
            make: Box::new(make),
            book: Mutex::new(book),
            state,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Tells of the links of an earlier process; each is an orphan until its connector comes. To be called
    /// once.
    pub(crate) fn restored(&self, told: &impl Fn(Told<M>)) {
        let mut book = self.lock();
        let mut made = Vec::new();
        let epoch = book.binder.epoch();
        for (link_id, held) in &mut book.held {
            held.was_told = true;
            made.push(Made {
                link: held.link.clone(),
                key: LinkKey {
                    epoch,
                    link_id: *link_id,
                },
                endpoint_name: held.endpoint_name.clone(),
                peer: held
                    .carried
                    .as_ref()
                    .and_then(Carried::peer)
                    .unwrap_or_else(|| PeerInfo::unix(None)),
            });
        }
        drop(book);
        made.sort_by_key(|one| one.key);
        for one in made {
            let (registry, link, key) = (self.clone(), one.link.clone(), one.key);
            tokio::spawn(async move { registry.orphaned(key, &link).await });
            told(Told::Made(one));
        }
    }

    /// Serves one transport to its end, and its link until that has another one or is over.
    pub(crate) async fn serve(&self, admitted: Admitted, told: &(impl Fn(Told<M>) + Sync)) {
        let peer = admitted.peer.clone();
        let (rate, age) = (admitted.rate.clone(), admitted.age);
        let Some((
            Agreed {
                driven,
                bytes,
                slot,
            },
            taken,
        )) = self.shake_hands(admitted, told).await
        else {
            return;
        };
        let key = taken.key;
        let Some(link) = self.link_of(key) else {
            return;
        };
        let Some(driving) = self.begin(&taken, &link, driven, (&peer, told)) else {
            return;
        };
        if let Some(rate) = rate {
            link.limit_rate(rate);
        }
        slot.serves(&link);
        let before = resumes(&link);
        let end = match age {
            // Its connector comes back.
            Some(age) => timeout(age, slot.during(driving))
                .await
                .ok()
                .flatten()
                .map_or(End::Dropped, |driven| driven.end),
            None => slot
                .during(driving)
                .await
                .map_or(End::Dropped, |driven| driven.end),
        };
        let end = counted_from(bytes, end);
        if slot.is_displaced() {
            told(Told::Refused(peer.clone(), Refusal::Displaced));
        }
        drop(slot);
        let has_resumed = resumes(&link) > before || taken.is_new;
        self.ended(key, &link, &end, has_resumed);
        self.add_orphan(key, &link, &peer);
        told(Told::Ended(peer, end));
        self.orphaned(key, &link).await;
    }

    /// The handshake of one transport; `None` where it gets no link.
    async fn shake_hands(
        &self,
        admitted: Admitted,
        told: &(impl Fn(Told<M>) + Sync),
    ) -> Option<(Agreed, Taken)> {
        let Admitted {
            stream, peer, slot, ..
        } = admitted;
        let config = ListenerConfig {
            handshake_timeout: Some(self.shared.options.handshake_timeout),
        };
        let now = tokio::time::Instant::now().into_std();
        let handshake = Link::new(Handshake::listener(now, config));
        let (driven, taken) = tokio::join!(
            slot.drive(&handshake, handshake.drive(stream)),
            self.answer(&handshake, &peer, told)
        );
        let taken = match (&driven.end, taken) {
            (End::Handover, Some(taken)) => taken,
            (_, taken) => {
                if let Some(taken) = taken {
                    self.unmake(&taken);
                }
                told(match driven.end {
                    _ if slot.is_displaced() => Told::Refused(peer, Refusal::Displaced),
                    End::Protocol(error) => Told::Refused(peer, Refusal::Handshake(error)),
                    end => Told::Ended(peer, end),
                });
                return None;
            }
        };
        let bytes = handshake.call(|handshake, _| handshake.taken());
        Some((
            Agreed {
                driven,
                bytes,
                slot,
            },
            taken,
        ))
    }

    /// Answers the connector's request with a link, or not.
    async fn answer(
        &self,
        handshake: &Link<Handshake>,
        peer: &PeerInfo,
        told: &(impl Fn(Told<M>) + Sync),
    ) -> Option<Taken> {
        let asked = handshake.when(0, |handshake, _| match handshake.poll_event() {
            Some(HandshakeEvent::Requested(asked)) => Poll::Ready(asked),
            _ => Poll::Pending,
        });
        let asked = asked.await.ok()?;
        let decided = self.decide(&asked, peer);
        let (decision, turn) = match decided {
            Ok(decided) => decided,
            Err(Refusal::Kind(kind)) => {
                // It was asked just now.
                let _ = handshake.call(|handshake, now| handshake.refuse(now, kind));
                return None;
            }
            Err(other) => {
                handshake.abort();
                told(Told::Refused(peer.clone(), other));
                return None;
            }
        };
        let ident = self.lock().binder.ident(decision);
        let taken = match decision {
            Decision::New(key) | Decision::Old(key) => {
                let is_new = matches!(decision, Decision::New(_));
                let wants_hints = asked.wants_hints;
                Some(Taken {
                    key,
                    is_new,
                    wants_hints,
                    turn,
                })
            }
            Decision::Lost => None,
        };
        if let Some(taken) = taken.as_ref().filter(|taken| taken.is_new)
            && let Err(error) = self.keep(taken, peer).await
        {
            handshake.abort();
            self.unmake(taken);
            told(Told::Refused(peer.clone(), Refusal::State(error)));
            return None;
        }
        let _ = handshake.call(|handshake, now| handshake.accept(now, ident));
        taken
    }

    /// A new link is on the disk, if it is to be kept there, before its connector knows of it.
    async fn keep(&self, taken: &Taken, peer: &PeerInfo) -> Result<(), Error> {
        let Some(state) = &self.shared.state else {
            return Ok(());
        };
        let id = taken.key.link_id;
        let origin = self.lock().held.get(&id).map(|held| Origin {
            endpoint_name: held.endpoint_name.clone(),
            parameters: held
                .link
                .call(|carrier, _| carrier.machine().config().parameters),
            owner: held.owner.clone(),
        });
        if let Some(origin) = origin {
            let journal = state.journal(taken.key, origin);
            let carried = journal.carried();
            carried.by(peer);
            let journal = journal.begun().await?;
            if let Some(held) = self.lock().held.get_mut(&id) {
                held.carried = Some(carried);
                held.journal = Some(journal);
            }
        }
        Ok(())
    }

    fn decide(&self, asked: &EndpointBlock, peer: &PeerInfo) -> Result<(Decision, u64), Refusal> {
        let options = &self.shared.options;
        let identity = peer
            .proven()
            .cloned()
            .filter(|_| options.keep.bind_identity);
        let drawn = random_link_id().map_err(Refusal::State)?;
        let mut book = self.lock();
        book.binder.set_next_link_id(drawn);
        let mut decision = book.binder.decide(asked).map_err(Refusal::Kind)?;
        if let Decision::New(key) = decision {
            book.binder.forget(key.link_id);
            drop(book);
            self.make_place(&peer.sender)?;
            book = self.lock();
            book.binder.set_next_link_id(drawn);
            decision = book.binder.decide(asked).map_err(Refusal::Kind)?;
        }
        book.turn += 1;
        let turn = book.turn;
        match decision {
            Decision::Lost => {}
            Decision::Old(key) => {
                let live = |held: &&mut Held<M>| !held.link.is_ended();
                let Some(held) = book.held.get_mut(&key.link_id).filter(live) else {
                    return Err(Refusal::Gone(key.link_id));
                };
                let owner = held.owner.as_deref();
                if options.keep.bind_identity && owner.is_some_and(|owner| !is_owner(owner, peer)) {
                    let sender = Arc::clone(&peer.sender);
                    return Err(Refusal::Identity(key.link_id, sender));
                }
                // A link of an earlier release belongs to the whole identity from here on.
                if held.owner.is_some() && identity.is_some() {
                    held.owner = identity;
                }
                held.turn = turn;
            }
            Decision::New(key) if book.held.len() >= options.keep.max_links => {
                book.binder.forget(key.link_id);
                return Err(Refusal::TooMany(options.keep.max_links));
            }
            Decision::New(key) => {
                let config = options.link.machine(
                    machine::frame::Role::Listener,
                    asked.parameters,
                    self.shared.state.is_some(),
                );
                let mut machine = machine::Link::new(config, key);
                machine.share(options.budget.quota());
                let budget = options.budget.clone();
                let link = Link::of_sender((self.shared.make)(machine), budget, &peer.sender);
                let held = Held {
                    link,
                    endpoint_name: asked.endpoint_name.clone(),
                    owner: identity,
                    was_told: false,
                    turn,
                    failures: Failures::default(),
                    journal: None,
                    carried: None,
                };
                book.held.insert(key.link_id, held);
            }
        }
        Ok((decision, turn))
    }

    /// A transport has ended: the link is an orphan, unless a newer transport has it.
    fn add_orphan(&self, key: LinkKey, link: &Link<M>, peer: &PeerInfo) {
        let mut book = self.lock();
        let is_kept = book.held.contains_key(&key.link_id) && !link.is_ended();
        if is_kept && !link.is_driven() {
            let sender = Arc::clone(&peer.sender);
            book.orphans.add(key.link_id, sender, is_empty(link));
        }
    }

    /// Gives up orphans that have carried nothing, as far as a new link of this sender needs their place.
    ///
    /// # Errors
    /// There is no place for the new link.
    fn make_place(&self, sender: &str) -> Result<(), Refusal> {
        let most = self.shared.options.keep.max_links;
        loop {
            let book = self.lock();
            let gone = match book.orphans.surplus(sender, most) {
                None if book.held.len() >= most => book.orphans.emptiest(),
                surplus => surplus,
            };
            let Some(link_id) = gone else {
                if book.held.len() >= most {
                    return Err(Refusal::TooMany(most));
                }
                if book.orphans.is_full(sender, most) {
                    return Err(Refusal::TooManyOrphans(sender.into(), most));
                }
                return Ok(());
            };
            let epoch = book.binder.epoch();
            let link = book.held.get(&link_id).map(|held| held.link.clone());
            drop(book);
            let key = LinkKey { epoch, link_id };
            match link {
                // It was used meanwhile by this end's application.
                Some(link) if !is_empty(&link) => {
                    self.lock().orphans.add(link_id, sender.into(), false);
                }
                Some(link) => self.lose(
                    key,
                    &link,
                    "it had carried nothing, and its place was needed",
                ),
                None => self.lock().orphans.remove(link_id),
            }
        }
    }

    /// The handshake of a new link failed: nobody knows of it, unless a later one did not.
    fn unmake(&self, taken: &Taken) {
        let mut book = self.lock();
        let id = taken.key.link_id;
        let is_unknown = |held: &Held<M>| !held.was_told && held.turn == taken.turn;
        if taken.is_new && book.held.get(&id).is_some_and(is_unknown) {
            let held = book.held.remove(&id);
            book.binder.forget(id);
            drop(book);
            if let Some(journal) = held.and_then(|held| held.journal) {
                tokio::spawn(journal.remove());
            }
        }
    }

    /// Gives the link its transport, unless a later decision has given it one or it is gone.
    fn begin<'l, T: Fn(Told<M>)>(
        &self,
        taken: &Taken,
        link: &'l Link<M>,
        driven: Driven<Stream, Kind>,
        (peer, told): (&PeerInfo, &T),
    ) -> Option<impl Future<Output = Driven<Stream, Kind>> + use<'l, M, T>> {
        let mut book = self.lock();
        let held = book.held.get_mut(&taken.key.link_id)?;
        if held.turn != taken.turn {
            return None;
        }
        let is_first = !std::mem::replace(&mut held.was_told, true);
        if let Some(carried) = &held.carried {
            carried.by(peer);
        }
        let endpoint_name = held.endpoint_name.clone();
        let journal = held.journal.take();
        let how = if taken.is_new {
            Attach::New(taken.key)
        } else {
            Attach::Resumed
        };
        // Under the book's lock: a transport that is decided on later begins later.
        let attach: fn(&mut M, Instant, Attach) = LinkHost::attach;
        let (wants_hints, most_packet) = (taken.wants_hints, self.shared.options.budget.largest());
        let begin = move |carrier: &mut M, now| {
            attach(carrier, now, how);
            if wants_hints {
                let limits = carrier.limits(most_packet);
                carrier.machine_mut().tell_hints(&limits);
            }
        };
        let driving = link.attach(driven.io, driven.leftover, begin);
        book.orphans.remove(taken.key.link_id);
        drop(book);
        if is_first {
            if let Some(journal) = journal {
                journal.keep(link.clone());
            }
            told(Told::Made(Made {
                link: link.clone(),
                key: taken.key,
                endpoint_name,
                peer: peer.clone(),
            }));
        }
        Some(driving)
    }

    fn link_of(&self, key: LinkKey) -> Option<Link<M>> {
        let book = self.lock();
        book.held.get(&key.link_id).map(|held| held.link.clone())
    }

    /// A transport of the link has ended.
    fn ended(&self, key: LinkKey, link: &Link<M>, end: &End<Kind>, has_resumed: bool) {
        let mut book = self.lock();
        let Some(held) = book.held.get_mut(&key.link_id) else {
            return;
        };
        if held.failures.count(violation(end), has_resumed) {
            drop(book);
            self.lose(
                key,
                link,
                "it failed in the same way at three resumes in a row",
            );
        }
    }

    /// Waits until the link has a transport or is over; an orphan is lost in time.
    async fn orphaned(&self, key: LinkKey, link: &Link<M>) {
        let transports = |carrier: &M| carrier.machine().stats().transports;
        let before = link.call(|carrier, _| transports(carrier));
        // One that came and went meanwhile has a wait of its own.
        let back = link.when(0, |carrier, _| {
            ready(carrier.machine().is_attached() || transports(carrier) > before)
        });
        match timeout(self.shared.options.keep.orphan_after, back).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.over(key, link),
            Err(_) if link.is_driven() => {}
            Err(_) => self.lose(key, link, "its peer did not come back in time"),
        }
    }

    /// The link has ended: for good, or, if it was let go and is kept on disk, for this process.
    fn over(&self, key: LinkKey, link: &Link<M>) {
        let state = link.call(|carrier, _| carrier.machine().state());
        let is_final = matches!(state, LinkState::Closed | LinkState::Lost);
        if is_final || self.shared.state.is_none() {
            self.forget(key);
        }
    }

    /// Gives a link up.
    pub(crate) fn lose(&self, key: LinkKey, link: &Link<M>, reason: &str) {
        self.forget(key);
        link.call(|carrier, now| carrier.lose(now, reason));
        link.abort();
    }

    /// The link is over: its connector is told so when it asks for it.
    pub(crate) fn forget(&self, key: LinkKey) {
        let mut book = self.lock();
        book.held.remove(&key.link_id);
        book.orphans.remove(key.link_id);
        book.binder.forget(key.link_id);
    }

    /// Whether its links survive this process.
    pub(crate) fn is_durable(&self) -> bool {
        self.shared.state.is_some()
    }

    /// Links, with and without a transport.
    pub(crate) fn len(&self) -> usize {
        self.lock().held.len()
    }

    fn lock(&self) -> MutexGuard<'_, Book<M>> {
        self.shared
            .book
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a connector gets no link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It asked for something that does not exist: the end of the handshake says so.
    #[error(transparent)]
    Kind(Kind),
    /// Its handshake was wrong or too slow, or it asked for something that does not exist.
    #[error("{}", .0.kind)]
    Handshake(ProtocolError<Kind>),
    /// The link was made by another identity of TLS.
    #[error("link {0} belongs to another identity than {1}")]
    Identity(u64, Arc<str>),
    /// The link was let go here, and is kept on disk.
    #[error("link {0} was let go here")]
    Gone(u64),
    /// There are as many links as may be.
    #[error("there are {0} links, the most allowed (max_links)")]
    TooMany(usize),
    /// The sender has left as many links without a transport as it may.
    #[error(
        "{0} has left so many links without a connection that the rest of {1} (max_links) is for others"
    )]
    TooManyOrphans(Arc<str>, usize),
    /// A connection of another address has its place; its link may come back over another one.
    #[error(
        "all of --max-connections are taken, its address has the most of them, and it was the least useful"
    )]
    Displaced,
    /// A new link could not be noted on disk.
    #[error(transparent)]
    State(Error),
}

impl Refusal {
    /// Its stable code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Kind(kind) => kind.code(),
            Self::Handshake(error) => error.kind.code(),
            Self::Identity(..) => "relink.identity",
            Self::Gone(_) => "relink.gone",
            Self::TooMany(_) | Self::TooManyOrphans(..) => "relink.too_many_links",
            Self::Displaced => "link.displaced",
            Self::State(error) => error.code(),
        }
    }

    /// The same as an acceptor counts it.
    pub(crate) fn of(&self, peer: &PeerInfo) -> Refused {
        let mut refused = Refused::new(peer, self.code(), self.to_string());
        if let Self::Handshake(error) = self {
            refused.hit = error.kind.limit();
            refused.option = error.kind.option();
            refused.offset = Some(error.offset);
        }
        refused
    }
}

/// Whether the link has carried no message in this process, and none waits.
fn is_empty<M: LinkHost>(link: &Link<M>) -> bool {
    let stats = link.call(|carrier, _| carrier.machine().stats());
    stats.messages_sent == 0 && stats.messages_received == 0
}

fn resumes<M: LinkHost>(link: &Link<M>) -> u64 {
    link.call(|carrier, _| carrier.machine().stats().resumes)
}

/// A link id of 63 random bits: over a plain connection it is all that tells a link's connector from others.
fn random_link_id() -> Result<u64, Error> {
    let mut drawn = [0; 8];
    rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::state(format!("no random link id can be drawn: {error}")))?;
    Ok((u64::from_le_bytes(drawn) >> 1).max(1))
}

/// Whether the peer has proved the identity `owner`. A journal of an earlier release names its owner by the
/// subject alone; it counts only where no other authority can have issued that subject.
fn is_owner(owner: &str, peer: &PeerInfo) -> bool {
    let proven = [peer.proven(), peer.former.as_ref()];
    proven.into_iter().flatten().any(|one| **one == *owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_without_issuer_is_known_only_where_one_authority_issues() {
        let mut peer = PeerInfo::unix(None);
        peer.sender = "tls:CN=a; issuer CN=ca".into();
        assert!(is_owner("tls:CN=a; issuer CN=ca", &peer));
        assert!(!is_owner("tls:CN=a", &peer), "several authorities");
        peer.former = Some("tls:CN=a".into());
        assert!(is_owner("tls:CN=a", &peer), "one authority");
        assert!(!is_owner("tls:CN=b", &peer));
        assert!(!is_owner("tls:CN=a; issuer CN=other", &peer));
        assert!(!is_owner("unix", &PeerInfo::unix(None)), "nothing proven");
        peer.sender = "token:web-1".into();
        peer.former = None;
        assert!(is_owner("token:web-1", &peer) && !is_owner("token:web-2", &peer));
    }
}
