//! A listener's links: each transport's handshake, the link that it goes on with, and the fate of a link
//! without a transport.
//!
//! The [`Book`] decides which link a transport gets, and which one goes when there are too many. Here its links are
//! driven: a transport that is decided on later begins later, and an orphan is lost in time.

mod admission;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ackline_core::ErrorKind as _;
use ackline_link::{Admitted, Budget, Driven, End, Link, PeerInfo, Refused, Slot, Stream};
use ackline_relink::frame::EndpointName;
use ackline_relink::{
    self as machine, Attach, Book, EndpointConfig, Held, Identity, KeepOptions, Kind, LinkKey,
    LinkOptions, LinkState, Refusal, Taken,
};
use tokio::time::timeout;

use super::link_host::{LinkHost, counted_from, ready, resumes, violation};
use super::state::{Carried, Journal, ListenerState, Restored, epoch_now};

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
    book: Mutex<Book<Hosted<M>>>,
    state: Option<Arc<ListenerState>>,
}

/// The driven part of a link.
struct Hosted<M: LinkHost> {
    link: Link<M>,
    /// Until the link has its first transport.
    journal: Option<Journal>,
    /// The note of the peer that carries it, if it is kept.
    carried: Option<Carried>,
}

/// A transport whose handshake is done, and the link that its connector is to get.
struct Agreed {
    driven: Driven<Stream, Kind>,
    /// Bytes of it that the handshake took.
    bytes: u64,
    slot: Slot,
    taken: Taken,
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
        let mut book = Book::new(epoch, options.endpoints.clone(), options.keep.clone());
        for mut one in restored {
            one.machine.share(options.budget.quota());
            let (origin, key) = (one.journal.origin().clone(), one.machine.key());
            let carried = one.journal.carried();
            let sender = last_peer(Some(&carried)).sender;
            let link = Link::of_sender(make(one.machine), options.budget.clone(), &sender);
            one.journal.keep(link.clone());
            let hosted = Hosted {
                link,
                journal: None,
                carried: Some(carried),
            };
            book.restore(key.link_id, origin, sender, hosted);
        }
        Self {
            shared: Arc::new(Shared {
                options,
                make: Box::new(make),
                book: Mutex::new(book),
                state,
            }),
        }
    }

    /// Tells of the links of an earlier process; each is an orphan until its connector comes. To be called
    /// once.
    pub(crate) fn restored(&self, told: &impl Fn(Told<M>)) {
        let mut book = self.lock();
        let made = book.tell().into_iter();
        let made: Vec<_> = made
            .map(|(key, held)| Made::of(held, key, last_peer(held.host.carried.as_ref())))
            .collect();
        drop(book);
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
        let Some(Agreed {
            driven,
            bytes,
            slot,
            taken,
        }) = self.shake_hands(admitted, told).await
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
        let driving = slot.during(driving);
        let driven = match age {
            // Its connector comes back.
            Some(age) => timeout(age, driving).await.ok().flatten(),
            None => driving.await,
        };
        let end = counted_from(bytes, driven.map_or(End::Dropped, |driven| driven.end));
        if slot.is_displaced() {
            told(Told::Refused(peer.clone(), Refusal::Displaced));
        }
        drop(slot);
        let has_resumed = resumes(&link) > before || taken.is_new;
        if self.lock().ended(key.link_id, violation(&end), has_resumed) {
            self.lose(
                key,
                &link,
                "it failed in the same way at three resumes in a row",
            );
        }
        self.add_orphan(key, &link, &peer);
        told(Told::Ended(peer, end));
        self.orphaned(key, &link).await;
    }

    /// A transport has ended: the link is an orphan, unless a newer transport has it.
    fn add_orphan(&self, key: LinkKey, link: &Link<M>, peer: &PeerInfo) {
        let mut book = self.lock();
        if !link.is_ended() && !link.is_driven() {
            book.orphan(key.link_id, Arc::clone(&peer.sender), is_empty(link));
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
        let (held, is_first) = book.begin(taken)?;
        if let Some(carried) = &held.host.carried {
            carried.by(peer);
        }
        let journal = held.host.journal.take();
        let made = is_first.then(|| Made::of(held, taken.key, peer.clone()));
        let how = if taken.is_new {
            Attach::New(taken.key)
        } else {
            Attach::Resumed
        };
        // Under the book's lock: a transport that is decided on later begins later.
        let (wants_hints, most_packet) = (taken.wants_hints, self.shared.options.budget.largest());
        let begin = move |host: &mut M, now| {
            host.attach(now, how);
            if wants_hints {
                let limits = host.limits(most_packet);
                host.machine_mut().tell_hints(&limits);
            }
        };
        let driving = link.attach(driven.io, driven.leftover, begin);
        drop(book);
        if let Some(made) = made {
            if let Some(journal) = journal {
                journal.keep(link.clone());
            }
            told(Told::Made(made));
        }
        Some(driving)
    }

    fn link_of(&self, key: LinkKey) -> Option<Link<M>> {
        let book = self.lock();
        book.get(key.link_id).map(|held| held.host.link.clone())
    }

    /// Waits until the link has a transport or is over; an orphan is lost in time.
    async fn orphaned(&self, key: LinkKey, link: &Link<M>) {
        let transports = |host: &M| host.machine().stats().transports;
        let before = link.call(|host, _| transports(host));
        // One that came and went meanwhile has a wait of its own.
        let back = link.when(0, |host, _| {
            ready(host.machine().is_attached() || transports(host) > before)
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
        let state = link.call(|host, _| host.machine().state());
        let is_final = matches!(state, LinkState::Closed | LinkState::Lost);
        if is_final || self.shared.state.is_none() {
            self.forget(key);
        }
    }

    /// Gives a link up.
    pub(crate) fn lose(&self, key: LinkKey, link: &Link<M>, reason: &str) {
        self.forget(key);
        link.call(|host, now| host.lose(now, reason));
        link.abort();
    }

    /// The link is over: its connector is told so when it asks for it.
    pub(crate) fn forget(&self, key: LinkKey) {
        self.lock().forget(key.link_id);
    }

    /// Whether its links survive this process.
    pub(crate) fn is_durable(&self) -> bool {
        self.shared.state.is_some()
    }

    /// Links, with and without a transport.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Book<Hosted<M>>> {
        self.shared
            .book
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: LinkHost> Made<M> {
    fn of(held: &Held<Hosted<M>>, key: LinkKey, peer: PeerInfo) -> Self {
        Self {
            link: held.host.link.clone(),
            key,
            endpoint_name: held.origin.endpoint_name.clone(),
            peer,
        }
    }
}

/// The peer that a link had last.
fn last_peer(carried: Option<&Carried>) -> PeerInfo {
    let peer = carried.and_then(Carried::peer);
    peer.unwrap_or_else(|| PeerInfo::unix(None))
}

/// The identity of a peer, for the book.
fn identity(peer: &PeerInfo) -> Identity<'_> {
    Identity {
        sender: &peer.sender,
        proven: peer.proven(),
        former: peer.former.as_ref(),
    }
}

/// A refusal as an acceptor counts it.
pub(crate) fn refused(refusal: &Refusal, peer: &PeerInfo) -> Refused {
    let mut refused = Refused::new(peer, refusal.code(), refusal.to_string());
    if let Refusal::Handshake(error) = refusal {
        refused.hit = error.kind.limit();
        refused.option = error.kind.option();
        refused.offset = Some(error.offset);
    }
    refused
}

/// Whether the link has carried no message in this process, and none waits.
fn is_empty<M: LinkHost>(link: &Link<M>) -> bool {
    let stats = link.call(|host, _| host.machine().stats());
    stats.messages_sent == 0 && stats.messages_received == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owns(owner: &str, peer: &PeerInfo) -> bool {
        identity(peer).is(owner)
    }

    #[test]
    fn an_owner_without_issuer_is_known_only_where_one_authority_issues() {
        let mut peer = PeerInfo::unix(None);
        peer.sender = "tls:CN=a; issuer CN=ca".into();
        assert!(owns("tls:CN=a; issuer CN=ca", &peer));
        assert!(!owns("tls:CN=a", &peer), "several authorities");
        peer.former = Some("tls:CN=a".into());
        assert!(owns("tls:CN=a", &peer), "one authority");
        assert!(!owns("tls:CN=b", &peer));
        assert!(!owns("tls:CN=a; issuer CN=other", &peer));
        assert!(!owns("unix", &PeerInfo::unix(None)), "nothing proven");
        peer.sender = "token:web-1".into();
        peer.former = None;
        assert!(owns("token:web-1", &peer) && !owns("token:web-2", &peer));
    }
}
