//! The links of a listener: which one a connector gets, whether the link is that connector's, and which one goes when
//! there are too many. It does not hold transports, nor decide how long a link without a transport is kept.
//!
//! ```text
//! handshake ─► decided ─► a new link: told once ─┐
//!                 ├─────► a known one ───────────┴─► begun ─► transport gone ─► orphan
//!                 ▼                                    ▲                            │
//!              refused                                 └──── a newer transport ─────┘
//! ```
//!
//! The newest transport of a link wins, in the order of the decisions. The [`Binder`] decides which link a connector
//! gets.
//!
//! Its rules: R-REL-36.

use std::collections::HashMap;
use std::sync::Arc;

use ackline_core::{ErrorKind as _, ProtocolError};

use crate::frame::{EndpointBlock, Ident};
use crate::orphans::Orphans;
use crate::record::Origin;
use crate::{Binder, Decision, EndpointConfig, Error, Failures, KeepOptions, Kind, LinkKey};

/// The links of a listener, each with the value `T` that its host keeps for it.
#[derive(Debug)]
pub struct Book<T> {
    binder: Binder,
    held: HashMap<u64, Held<T>>,
    orphans: Orphans,
    keep: KeepOptions,
    /// Counts decisions.
    turn: u64,
}

/// A link of a listener.
#[derive(Debug)]
pub struct Held<T> {
    /// The value that the host keeps for it.
    pub host: T,
    /// The endpoint, parameters and owner of the link.
    pub origin: Origin,
    was_told: bool,
    /// The last decision that gave it a transport.
    turn: u64,
    failures: Failures,
}

/// A transport whose connector is to get a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The link.
    pub key: LinkKey,
    /// Whether the link is new.
    pub is_new: bool,
    /// Whether the connector asks for hints.
    pub wants_hints: bool,
    turn: u64,
}

/// The identity of a connector.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The sender that limits go by.
    pub sender: &'a Arc<str>,
    /// The identity that it has proved.
    pub proven: Option<&'a Arc<str>>,
    /// The identity that earlier releases gave the same proof. It names its owner by the subject alone; so it is here
    /// only where no other authority can have issued that subject.
    pub former: Option<&'a Arc<str>>,
}

impl Identity<'_> {
    /// Whether it is this owner.
    pub fn is(&self, owner: &str) -> bool {
        let mut proven = [self.proven, self.former].into_iter().flatten();
        proven.any(|one| **one == *owner)
    }
}

impl<T> Book<T> {
    /// A book without links, of a listener with this epoch.
    pub fn new(epoch: u64, endpoints: Vec<EndpointConfig>, keep: KeepOptions) -> Self {
        Self {
            binder: Binder::new(epoch, 1, endpoints),
            held: HashMap::new(),
            orphans: Orphans::default(),
            keep,
            turn: 0,
        }
    }

    /// Adds a link of an earlier process: an orphan of this sender.
    pub fn restore(&mut self, link_id: u64, origin: Origin, sender: Arc<str>, host: T) {
        self.binder.restore(origin.endpoint_name.clone(), link_id);
        self.orphans.add(link_id, sender, false);
        self.held.insert(link_id, Held::new(host, origin, 0));
    }

    /// The links that were not told of, ascending. They count as told from now on.
    pub fn tell(&mut self) -> Vec<(LinkKey, &Held<T>)> {
        let epoch = self.binder.epoch();
        let held = self.held.iter_mut().filter(|(_, held)| !held.was_told);
        let mut untold: Vec<_> = held
            .map(|(link_id, held)| {
                held.was_told = true;
                let link_id = *link_id;
                (LinkKey { epoch, link_id }, &*held)
            })
            .collect();
        untold.sort_by_key(|(key, _)| *key);
        untold
    }

    /// Whether this connector would get a new link, of the id that was drawn for it.
    ///
    /// # Errors
    /// As [`Binder::decide`].
    pub fn would_make(&mut self, asked: &EndpointBlock, drawn: u64) -> Result<bool, Kind> {
        self.binder.set_next_link_id(drawn);
        let decision = self.binder.decide(asked)?;
        if let Decision::New(key) = decision {
            self.binder.forget(key.link_id);
        }
        Ok(matches!(decision, Decision::New(_)))
    }

    /// Decides which link a connector gets; `drawn` is the id of a new one, which is to be [added](Self::add) at once.
    /// `is_over` tells links that have ended and are still held.
    ///
    /// # Errors
    /// It gets no link.
    pub fn decide(
        &mut self,
        asked: &EndpointBlock,
        drawn: u64,
        peer: &Identity<'_>,
        is_over: impl FnOnce(&T) -> bool,
    ) -> Result<(Ident, Option<Taken>), Refusal> {
        self.binder.set_next_link_id(drawn);
        let decision = self.binder.decide(asked).map_err(Refusal::Kind)?;
        self.turn = self.turn.saturating_add(1);
        let key = match decision {
            Decision::Lost => return Ok((self.binder.ident(decision), None)),
            Decision::Old(key) => self.resume(key, peer, is_over)?,
            Decision::New(key) if self.held.len() >= self.keep.max_links => {
                self.binder.forget(key.link_id);
                return Err(Refusal::TooMany(self.keep.max_links));
            }
            Decision::New(key) => key,
        };
        let taken = Taken {
            key,
            is_new: matches!(decision, Decision::New(_)),
            wants_hints: asked.wants_hints,
            turn: self.turn,
        };
        Ok((self.binder.ident(decision), Some(taken)))
    }

    fn resume(
        &mut self,
        key: LinkKey,
        peer: &Identity<'_>,
        is_over: impl FnOnce(&T) -> bool,
    ) -> Result<LinkKey, Refusal> {
        let live = |held: &&mut Held<T>| !is_over(&held.host);
        let held = self.held.get_mut(&key.link_id).filter(live);
        let held = held.ok_or(Refusal::Gone(key.link_id))?;
        if self.keep.bind_identity
            && let Some(owner) = &mut held.origin.owner
        {
            if !peer.is(owner) {
                return Err(Refusal::Identity(key.link_id, Arc::clone(peer.sender)));
            }
            // A link of an earlier release belongs to the whole identity from here on.
            if let Some(proven) = peer.proven {
                *owner = Arc::clone(proven);
            }
        }
        held.turn = self.turn;
        Ok(key)
    }

    /// Adds the new link that was decided on.
    pub fn add(&mut self, taken: &Taken, asked: &EndpointBlock, peer: &Identity<'_>, host: T) {
        let proven = peer.proven.filter(|_| self.keep.bind_identity);
        let origin = Origin {
            endpoint_name: asked.endpoint_name.clone(),
            parameters: asked.parameters,
            owner: proven.cloned(),
        };
        let held = Held::new(host, origin, taken.turn);
        self.held.insert(taken.key.link_id, held);
    }

    /// The link that is to be given up before a new one of this sender has its place: an orphan that has carried nothing.
    /// `None`: there is room.
    ///
    /// # Errors
    /// There is no place for a new link.
    pub fn in_the_way(&self, sender: &str) -> Result<Option<LinkKey>, Refusal> {
        let most = self.keep.max_links;
        let is_full = self.held.len() >= most;
        let surplus = self.orphans.surplus(sender, most);
        let empty = || is_full.then(|| self.orphans.emptiest()).flatten();
        let epoch = self.binder.epoch();
        match surplus.or_else(empty) {
            Some(link_id) => Ok(Some(LinkKey { epoch, link_id })),
            None if is_full => Err(Refusal::TooMany(most)),
            None if self.orphans.is_full(sender, most) => {
                Err(Refusal::TooManyOrphans(sender.into(), most))
            }
            None => Ok(None),
        }
    }

    /// The handshake of a new link failed: nobody knows of it, unless a later one did not. Returns the link that was
    /// removed.
    pub fn unmake(&mut self, taken: &Taken) -> Option<T> {
        let link_id = taken.key.link_id;
        let held = self.held.get(&link_id)?;
        if !taken.is_new || held.was_told || held.turn != taken.turn {
            return None;
        }
        self.binder.forget(link_id);
        self.held.remove(&link_id).map(|held| held.host)
    }

    /// Gives the link its transport, unless a later decision has given it one or it is gone. Returns the link, and whether
    /// it is to be told of.
    pub fn begin(&mut self, taken: &Taken) -> Option<(&mut Held<T>, bool)> {
        let held = self.held.get_mut(&taken.key.link_id)?;
        if held.turn != taken.turn {
            return None;
        }
        self.orphans.remove(taken.key.link_id);
        let is_first = !std::mem::replace(&mut held.was_told, true);
        Some((held, is_first))
    }

    /// A transport of a link has ended, perhaps with a violation. Returns whether the link is to be given up.
    pub fn ended(&mut self, link_id: u64, violation: Option<&Kind>, has_resumed: bool) -> bool {
        let held = self.held.get_mut(&link_id);
        held.is_some_and(|held| held.failures.count(violation, has_resumed))
    }

    /// The link has no transport any more; the last one was of this sender.
    pub fn orphan(&mut self, link_id: u64, sender: Arc<str>, is_empty: bool) {
        if self.held.contains_key(&link_id) {
            self.orphans.add(link_id, sender, is_empty);
        }
    }

    /// The link is over: its connector is told so when it asks for it.
    pub fn forget(&mut self, link_id: u64) {
        self.held.remove(&link_id);
        self.orphans.remove(link_id);
        self.binder.forget(link_id);
    }

    /// A link.
    pub fn get(&self, link_id: u64) -> Option<&Held<T>> {
        self.held.get(&link_id)
    }

    /// A link, to be changed.
    pub fn get_mut(&mut self, link_id: u64) -> Option<&mut Held<T>> {
        self.held.get_mut(&link_id)
    }

    /// Links, with and without a transport.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T> Held<T> {
    fn new(host: T, origin: Origin, turn: u64) -> Self {
        Self {
            host,
            origin,
            was_told: false,
            turn,
            failures: Failures::default(),
        }
    }
}

/// The reason why a connector gets no link.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
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
    pub fn code(&self) -> &'static str {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{EndpointName, Parameters};

    fn book(max_links: usize) -> Book<()> {
        let endpoint = EndpointConfig {
            endpoint_name: EndpointName::default(),
            parameters: Parameters::default(),
        };
        let keep = KeepOptions {
            max_links,
            ..KeepOptions::default()
        };
        Book::new(9, vec![endpoint], keep)
    }

    fn asked(old_link_id: u64) -> EndpointBlock {
        EndpointBlock {
            endpoint_name: EndpointName::default(),
            parameters: Parameters::default(),
            require_old_link_id: old_link_id > 0,
            wants_hints: false,
            old_epoch: if old_link_id > 0 { 9 } else { 0 },
            old_link_id,
        }
    }

    struct Peer(Arc<str>, Option<Arc<str>>);

    impl Peer {
        fn new(sender: &str) -> Self {
            Self(sender.into(), None)
        }

        fn identity(&self) -> Identity<'_> {
            let is_proven = self.0.starts_with("tls:");
            Identity {
                sender: &self.0,
                proven: is_proven.then_some(&self.0),
                former: self.1.as_ref(),
            }
        }
    }

    fn make(book: &mut Book<()>, drawn: u64, peer: &Peer) -> Result<Taken, Refusal> {
        let block = asked(0);
        let (_, taken) = book.decide(&block, drawn, &peer.identity(), |()| false)?;
        let taken = taken.unwrap();
        book.add(&taken, &block, &peer.identity(), ());
        Ok(taken)
    }

    fn again(book: &mut Book<()>, link_id: u64, peer: &Peer) -> Result<Option<Taken>, Refusal> {
        let decided = book.decide(&asked(link_id), 50, &peer.identity(), |()| false);
        decided.map(|(_, taken)| taken)
    }

    #[test]
    fn the_transport_that_was_decided_on_last_gets_the_link() {
        let (mut book, peer) = (book(9), Peer::new("a"));
        let first = make(&mut book, 7, &peer).unwrap();
        assert!(first.is_new && book.len() == 1);
        let second = again(&mut book, 7, &peer).unwrap().unwrap();
        assert!(!second.is_new && second.key == first.key);
        assert!(book.begin(&first).is_none(), "a later one has it");
        assert_eq!(book.unmake(&first), None);
        assert!(book.begin(&second).is_some_and(|(_, is_first)| is_first));
        assert!(book.begin(&second).is_some_and(|(_, is_first)| !is_first));
        book.forget(7);
        assert_eq!(again(&mut book, 7, &peer).unwrap(), None, "it is lost");
    }

    #[test]
    fn a_link_whose_handshake_failed_is_unmade() {
        let (mut book, peer) = (book(9), Peer::new("a"));
        let taken = make(&mut book, 7, &peer).unwrap();
        assert_eq!(book.unmake(&taken), Some(()));
        assert!(book.is_empty() && book.begin(&taken).is_none());
        assert_eq!(again(&mut book, 7, &peer).unwrap(), None);
    }

    #[test]
    fn a_link_belongs_to_the_identity_that_made_it() {
        let (mut book, owner) = (book(9), Peer::new("tls:CN=a"));
        make(&mut book, 7, &owner).unwrap();
        let other = again(&mut book, 7, &Peer::new("tls:CN=b")).unwrap_err();
        assert_eq!(other.code(), "relink.identity");
        let later = Peer("tls:CN=a; issuer CN=ca".into(), Some("tls:CN=a".into()));
        assert!(again(&mut book, 7, &later).is_ok());
        let whole = again(&mut book, 7, &owner).unwrap_err();
        assert_eq!(whole.code(), "relink.identity", "the whole identity has it");
    }

    #[test]
    fn empty_orphans_give_way_to_new_links_and_others_do_not() {
        let (mut book, peer) = (book(2), Peer::new("a"));
        make(&mut book, 1, &peer).unwrap();
        make(&mut book, 2, &peer).unwrap();
        assert!(book.would_make(&asked(0), 3).unwrap());
        assert_eq!(
            book.in_the_way("b").unwrap_err().code(),
            "relink.too_many_links"
        );
        book.orphan(1, "a".into(), true);
        let way = book.in_the_way("b").unwrap().unwrap();
        assert_eq!(way.link_id, 1);
        assert!(make(&mut book, 3, &peer).is_err(), "it is still there");
        book.forget(1);
        assert_eq!(book.in_the_way("b").unwrap(), None);
        assert!(make(&mut book, 3, &peer).is_ok());
    }
}
