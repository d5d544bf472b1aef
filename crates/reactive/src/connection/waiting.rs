//! The elements that wait to be sent, and the state of the end.

use std::sync::Arc;

use ackline_core::UsageError;

use super::{Connection, Kind, ProtocolError};

impl Connection {
    /// Bytes of a subscription of the peer that were published and are not sent yet.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn waiting(&self, subscriber: u64) -> Result<usize, UsageError> {
        self.check()?;
        self.publications.waiting(subscriber)
    }

    /// Asks to be told by [`drained`](Self::drained), once, when all elements of a subscription of the peer are sent.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn want_room(&mut self, subscriber: u64) -> Result<(), UsageError> {
        self.check()?;
        self.publications.want_room(subscriber)
    }

    /// Elements, and runs of packed ones, of a subscription of the peer that were published and are not sent yet.
    ///
    /// # Errors
    /// `not_connected`, `closing`, `unknown_subscriber`.
    pub fn queued(&self, subscriber: u64) -> Result<usize, UsageError> {
        self.check()?;
        self.publications.queued(subscriber)
    }

    /// The limits of this end.
    pub const fn limits(&self) -> &crate::Limits {
        &self.config.limits
    }

    /// Whether elements that come in parts are handed out so.
    pub const fn has_parts(&self) -> bool {
        self.config.parts
    }

    /// The violation that has ended the connection.
    pub const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        self.state.error.as_ref()
    }

    /// The text of the errors with which the connection has ended its streams, without a goodbye of the peer's.
    pub const fn lost(&self) -> Option<&Arc<str>> {
        self.state.lost.as_ref()
    }

    /// The next subscription of the peer that was asked for, and whose elements are all sent.
    pub fn drained(&mut self) -> Option<u64> {
        self.publications.drained()
    }

    /// Bytes of all subscriptions of the peer that were published and are not sent yet.
    pub fn waiting_bytes(&self) -> usize {
        self.publications.waiting_bytes()
    }

    /// Elements, and runs of packed ones, of all subscriptions of the peer that were published and are not sent yet.
    pub const fn queued_entries(&self) -> usize {
        self.publications.queued_entries()
    }
}
