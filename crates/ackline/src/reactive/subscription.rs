//! A subscription of this end: a stream of elements.

use std::pin::Pin;
use std::task::{Context, Poll};

use ackline_core::Payload;
use ackline_reactive::Error;
use ackline_reactive::session::{Part, Wait};
use bytes::Bytes;

use super::{Session, Watch};

/// A subscription to a publisher of the peer. Dropped before its end, it is cancelled.
#[derive(Debug)]
pub struct Subscription(Watch);

impl Subscription {
    pub(super) const fn new(place: Watch) -> Self {
        Self(place)
    }

    /// For [`Interest::Accepted`](super::Interest::Accepted) and [`Interest::Element`](super::Interest::Element).
    pub fn watch(&self) -> Watch {
        self.0.clone()
    }

    /// Waits until the publisher has accepted the subscription: the size of every element, or 0 where they have any size.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Failed`]: it was rejected, with the reason; [`Error::Ended`].
    pub async fn accepted(&self) -> Result<u64, Error> {
        let accepted = |session: &mut Session, serial| session.accepted(serial);
        self.0.when(Wait::Read, accepted).await
    }

    /// As [`accepted`](Self::accepted), or [`Error::Blocked`] before.
    ///
    /// # Errors
    /// As said.
    pub fn try_accepted(&self) -> Result<u64, Error> {
        self.0.call_now(|session, serial| session.accepted(serial))
    }

    /// The next element; `None` when the publisher has completed the stream. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Failed`]: the publisher has ended it with an error; [`Error::Cancelled`], after an own
    /// [`cancel`](Self::cancel); [`Error::Ended`], once every element that came was handed out; `in_parts` with
    /// [`Config::parts`](super::Config::parts).
    pub async fn receive(&self) -> Result<Option<Payload>, Error> {
        self.0.when(Wait::Read, Session::take_element).await
    }

    /// The elements that are there, at least one, up to `max`, and no more once they have
    /// [`MOST_AT_ONCE`](super::MOST_AT_ONCE) bytes; none when the stream is complete. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_many(&self, max: usize) -> Result<Vec<Payload>, Error> {
        let taken = |session: &mut Session, serial| session.take_elements(serial, max);
        self.0.when(Wait::Read, taken).await
    }

    /// As [`receive_many`](Self::receive_many), or [`Error::Blocked`] where nothing is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_many(&self, max: usize) -> Result<Vec<Payload>, Error> {
        self.0
            .call_now(|session, serial| session.take_elements(serial, max))
    }

    /// Elements of a fixed size, one behind the other, of up to `most` bytes and at least one element; `None` when the
    /// stream is complete. Nothing is copied. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), but `in_parts` only if a part of an element is next; `not_fixed_size`.
    pub async fn receive_packed(&self, most: usize) -> Result<Option<Bytes>, Error> {
        let taken = |session: &mut Session, serial| session.take_packed(serial, most);
        self.0.when(Wait::Read, taken).await
    }

    /// As [`receive_packed`](Self::receive_packed), or [`Error::Blocked`] where nothing is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_packed(&self, most: usize) -> Result<Option<Bytes>, Error> {
        self.0
            .call_now(|session, serial| session.take_packed(serial, most))
    }

    /// The next part of an element, or the next element that came whole; `None` when the stream is complete. Elements come
    /// in parts with [`Config::parts`](super::Config::parts). Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), but not `in_parts`.
    pub async fn receive_part(&self) -> Result<Option<Part>, Error> {
        self.0.when(Wait::Read, Session::take_part).await
    }

    /// As [`receive_part`](Self::receive_part), or [`Error::Blocked`] where nothing is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_part(&self) -> Result<Option<Part>, Error> {
        self.0.call_now(Session::take_part)
    }

    /// Requests more elements, beside those that are requested by themselves.
    ///
    /// # Errors
    /// `invalid_demand`, `already_ended`; [`Error::Ended`].
    pub fn request(&self, count: u64) -> Result<(), Error> {
        self.0
            .call_alive(|session, serial| session.request(serial, count))
    }

    /// Elements that are requested and have not come.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn requested(&self) -> Result<u64, Error> {
        self.0
            .call_alive(|session, serial| session.requested(serial))
    }

    /// Cancels the subscription: elements that have come and were not taken are dropped.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn cancel(&self) -> Result<(), Error> {
        self.0.call_alive(Session::cancel)
    }
}

/// The elements; the stream is over when the publisher has completed it, and after an own cancel.
impl futures_core::Stream for Subscription {
    type Item = Result<Payload, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let taken = self.0.poll(Wait::Read, context, Session::take_element);
        taken.map(|taken| match taken {
            Err(Error::Cancelled) => None,
            taken => taken.transpose(),
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.call(Session::drop_subscription);
    }
}
