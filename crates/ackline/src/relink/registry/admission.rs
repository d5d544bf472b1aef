//! The handshake of a transport: the connector's request, the link that it gets, and the place for that link.

use std::task::Poll;

use ackline_core::Connection as _;
use ackline_link::{Admitted, End, Link, PeerInfo};
use ackline_relink::frame::{EndpointBlock, Ident, Role};
use ackline_relink::{
    self as machine, Error, Handshake, HandshakeEvent, ListenerConfig, Refusal, Taken,
};

use super::super::link_host::LinkHost;
use super::{Agreed, Hosted, LinkRegistry, Told, identity, is_empty};

impl<M: LinkHost> LinkRegistry<M> {
    /// The handshake of one transport; `None` where it gets no link.
    pub(super) async fn shake_hands(
        &self,
        admitted: Admitted,
        told: &(impl Fn(Told<M>) + Sync),
    ) -> Option<Agreed> {
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
        if let (End::Handover, Some(taken)) = (&driven.end, taken) {
            return Some(Agreed {
                driven,
                bytes: handshake.call(|handshake, _| handshake.taken()),
                slot,
                taken,
            });
        }
        if let Some(taken) = taken {
            self.unmake(&taken);
        }
        told(match driven.end {
            _ if slot.is_displaced() => Told::Refused(peer, Refusal::Displaced),
            End::Protocol(error) => Told::Refused(peer, Refusal::Handshake(error)),
            end => Told::Ended(peer, end),
        });
        None
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
        match self.take(&asked.await.ok()?, peer).await {
            Ok((ident, taken)) => {
                let _ = handshake.call(|handshake, now| handshake.accept(now, ident));
                taken
            }
            Err(Refusal::Kind(kind)) => {
                // It was asked just now.
                let _ = handshake.call(|handshake, now| handshake.refuse(now, kind));
                None
            }
            Err(other) => {
                handshake.abort();
                told(Told::Refused(peer.clone(), other));
                None
            }
        }
    }

    /// The link for a connector. A new one is on the disk, if it is to be kept there, before its connector knows of it.
    async fn take(
        &self,
        asked: &EndpointBlock,
        peer: &PeerInfo,
    ) -> Result<(Ident, Option<Taken>), Refusal> {
        let (ident, taken) = self.decide(asked, peer)?;
        if let Some(taken) = taken.filter(|taken| taken.is_new)
            && let Err(error) = self.keep(&taken, peer).await
        {
            self.unmake(&taken);
            return Err(Refusal::State(error));
        }
        Ok((ident, taken))
    }

    async fn keep(&self, taken: &Taken, peer: &PeerInfo) -> Result<(), Error> {
        let link_id = taken.key.link_id;
        let origin = self.lock().get(link_id).map(|held| held.origin.clone());
        let (Some(state), Some(origin)) = (&self.shared.state, origin) else {
            return Ok(());
        };
        let journal = state.journal(taken.key, origin);
        let carried = journal.carried();
        carried.by(peer);
        let journal = journal.begun().await?;
        if let Some(held) = self.lock().get_mut(link_id) {
            held.host.carried = Some(carried);
            held.host.journal = Some(journal);
        }
        Ok(())
    }

    fn decide(
        &self,
        asked: &EndpointBlock,
        peer: &PeerInfo,
    ) -> Result<(Ident, Option<Taken>), Refusal> {
        let drawn = random_link_id().map_err(Refusal::State)?;
        let is_new = self.lock().would_make(asked, drawn);
        if is_new.map_err(Refusal::Kind)? {
            self.make_place(&peer.sender)?;
        }
        let (mut book, identity) = (self.lock(), identity(peer));
        let decided = book.decide(asked, drawn, &identity, |host| host.link.is_ended())?;
        if let Some(taken) = decided.1.filter(|taken| taken.is_new) {
            let host = self.host(asked, &taken, peer);
            book.add(&taken, asked, &identity, host);
        }
        Ok(decided)
    }

    /// A new link, without a transport.
    fn host(&self, asked: &EndpointBlock, taken: &Taken, peer: &PeerInfo) -> Hosted<M> {
        let (shared, options) = (&self.shared, &self.shared.options);
        let is_kept = shared.state.is_some();
        let config = options
            .link
            .machine(Role::Listener, asked.parameters, is_kept);
        let mut machine = machine::Link::new(config, taken.key);
        machine.share(options.budget.quota());
        let budget = options.budget.clone();
        Hosted {
            link: Link::of_sender((shared.make)(machine), budget, &peer.sender),
            journal: None,
            carried: None,
        }
    }

    /// Gives up orphans that have carried nothing, as far as a new link of this sender needs their place.
    ///
    /// # Errors
    /// There is no place for the new link.
    fn make_place(&self, sender: &str) -> Result<(), Refusal> {
        loop {
            let book = self.lock();
            let Some(key) = book.in_the_way(sender)? else {
                return Ok(());
            };
            let link = book.get(key.link_id).map(|held| held.host.link.clone());
            drop(book);
            match link {
                // It was used meanwhile by this end's application.
                Some(link) if !is_empty(&link) => {
                    self.lock().orphan(key.link_id, sender.into(), false);
                }
                Some(link) => self.lose(
                    key,
                    &link,
                    "it had carried nothing, and its place was needed",
                ),
                None => self.forget(key),
            }
        }
    }

    /// The handshake of a new link failed: nobody knows of it, unless a later one did not.
    fn unmake(&self, taken: &Taken) {
        let host = self.lock().unmake(taken);
        if let Some(journal) = host.and_then(|host| host.journal) {
            tokio::spawn(journal.remove());
        }
    }
}

/// A link id of 63 random bits: over a plain connection it is all that tells a link's connector from others.
fn random_link_id() -> Result<u64, Error> {
    let mut drawn = [0; 8];
    rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::state(format!("no random link id can be drawn: {error}")))?;
    Ok((u64::from_le_bytes(drawn) >> 1).max(1))
}
