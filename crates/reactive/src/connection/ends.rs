//! The end of a connection: what its streams are told, and what still goes out.

use std::sync::Arc;

use super::{Connection, Event, Kind, Life, Outgoing, ProtocolError, Publications};

impl Connection {
    /// Tells the end of every stream of a connection that has ended without a goodbye of the peer's.
    pub(super) fn tell_lost(&mut self, reason: &str) {
        self.state.lost = Some(self.tell_ends(reason));
    }

    /// Tells the end of every stream (REQ-RS-32): an error for this end's subscriptions, a cancel for the peer's
    /// (R-RS-V3). Returns the reason, which all of them share.
    pub(super) fn tell_ends(&mut self, reason: &str) -> Arc<str> {
        let reason: Arc<str> = Arc::from(reason);
        for subscriber in self.subscriptions.drop_all() {
            let error = Arc::clone(&reason);
            self.events.push_shared(Event::Error { subscriber, error });
        }
        for subscriber in self.publications.open() {
            self.events.push(Event::Cancel { subscriber });
        }
        reason
    }

    /// Ends the connection. Messages that were caused before go out if a goodbye follows, elements do not.
    pub(super) fn end(&mut self, goodbye: Option<String>) {
        self.state.life = Life::Ended;
        self.publications = Publications::default();
        if goodbye.is_none() {
            self.outgoing = Outgoing::default();
        }
        self.outgoing.drop_turns();
        self.outgoing.goodbye = goodbye;
    }

    /// The peer broke a rule: one goodbye with the reason, without a wait for its answer (R-RS-8, R-RS-V3).
    pub(super) fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.offset,
        };
        let (text, for_peer) = (error.kind.to_string(), error.kind.text_for_peer());
        // One that was not sent yet is the only one.
        let own = self.outgoing.goodbye.take();
        let has_said_goodbye = self.state.has_goodbye;
        if !has_said_goodbye {
            self.tell_lost(&text);
        }
        self.end(own.or_else(|| (!has_said_goodbye).then_some(for_peer)));
        self.state.error = Some(error.clone());
        error
    }
}
