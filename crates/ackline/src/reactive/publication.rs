//! The subscriptions of the peer, at the publisher's end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use ackline_reactive::Error;
use ackline_reactive::session::{Arrival, Wait};
use bytes::Bytes;

use super::{Session, Watch};

/// A subscription of the peer that waits for an answer. Dropped, it is rejected.
#[derive(Debug)]
pub struct SubscribeRequest {
    publication: Publication,
    publisher: Arc<str>,
    initial_demand: u64,
}

/// An accepted subscription of the peer, which this end publishes to. Dropped before
/// [`complete`](Self::complete) or [`fail`](Self::fail), it is ended with an error.
#[derive(Debug)]
pub struct Publication {
    place: Watch,
}

impl SubscribeRequest {
    pub(super) fn new(place: Watch, arrival: Arrival) -> Self {
        Self {
            publication: Publication { place },
            publisher: arrival.publisher,
            initial_demand: arrival.initial_demand,
        }
    }

    /// The publisher's name.
    pub fn publisher(&self) -> &str {
        &self.publisher
    }

    /// The elements that it takes at first.
    pub const fn initial_demand(&self) -> u64 {
        self.initial_demand
    }

    /// Accepts it; every element has `element_size` bytes, or any number if that is 0.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Ended`].
    pub fn accept(self, element_size: u64) -> Result<Publication, Error> {
        let admit = |session: &mut Session, serial| session.admit(serial, element_size);
        self.publication.place.call_alive(admit)?;
        Ok(self.publication)
    }

    /// Rejects it, with a reason.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Ended`].
    pub fn reject(self, reason: &str) -> Result<(), Error> {
        let reject = |session: &mut Session, serial| session.reject(serial, reason);
        self.publication.place.call_alive(reject)
    }
}

impl Publication {
    /// For [`Interest::Room`](super::Interest::Room) and [`Interest::Cancelled`](super::Interest::Cancelled).
    pub fn watch(&self) -> Watch {
        self.place.clone()
    }

    /// Publishes an element: waits for demand, and while as much waits to be sent as may wait. Cancel-safe: an element that
    /// was not taken has not happened.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the subscriber wants no more; `wrong_element_size`, `already_ended`; [`Error::Ended`].
    pub async fn publish(&self, element: impl Into<Bytes>) -> Result<(), Error> {
        let mut element = VecDeque::from([element.into()]);
        self.publish_all(&mut element).await
    }

    /// Publishes elements, in as many steps as their demand takes; those that are published are taken out of `elements`.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_all(&self, elements: &mut VecDeque<Bytes>) -> Result<(), Error> {
        while !elements.is_empty() {
            let publish = |session: &mut Session, serial| session.publish(serial, elements);
            self.place.when(Wait::Write, publish).await?;
        }
        Ok(())
    }

    /// Publishes as many of the elements as there are room and demand for; those are taken out of `elements`.
    ///
    /// # Errors
    /// [`Error::Blocked`]: there is none; as [`publish`](Self::publish).
    pub fn try_publish_all(&self, elements: &mut VecDeque<Bytes>) -> Result<(), Error> {
        self.place
            .call_now(|session, serial| session.publish(serial, elements))
    }

    /// Publishes elements of the stream's fixed size that stand one behind the other, in as many steps as their demand
    /// takes; those that are published are taken out of `elements`. Nothing is copied.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_packed(&self, elements: &mut Bytes) -> Result<(), Error> {
        while !elements.is_empty() {
            let publish = |session: &mut Session, serial| session.publish_packed(serial, elements);
            self.place.when(Wait::Write, publish).await?;
        }
        Ok(())
    }

    /// As [`publish_packed`](Self::publish_packed), as far as there are room and demand.
    ///
    /// # Errors
    /// [`Error::Blocked`]: there is none; as [`publish`](Self::publish).
    pub fn try_publish_packed(&self, elements: &mut Bytes) -> Result<(), Error> {
        self.place
            .call_now(|session, serial| session.publish_packed(serial, elements))
    }

    /// Waits until an element would be taken: so many are requested. Cancel-safe.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn room(&self) -> Result<u64, Error> {
        self.place.when(Wait::Write, Session::room).await
    }

    /// Elements that are taken now, or [`Error::Blocked`].
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn try_room(&self) -> Result<u64, Error> {
        self.place.call_now(Session::room)
    }

    /// Waits until the subscriber has cancelled, or the connection is over.
    pub fn poll_cancelled(&self, context: &Context<'_>) -> Poll<Error> {
        let cancelled = |session: &mut Session, serial| match session.is_wanted(serial) {
            Ok(()) => Err::<(), _>(Error::Blocked),
            Err(error) => Err(error),
        };
        match self.place.poll(Wait::Write, context, cancelled) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    }

    /// Whether the subscriber has cancelled, or the connection is over.
    pub fn is_cancelled(&self) -> bool {
        let is_wanted = self.place.call(|session, serial| session.is_wanted(serial));
        is_wanted.is_err() || self.place.link().is_ended()
    }

    /// Completes the stream, behind the elements that were published.
    ///
    /// # Errors
    /// [`Error::Cancelled`], `already_ended`; [`Error::Ended`].
    pub fn complete(&self) -> Result<(), Error> {
        self.place.call_alive(Session::complete)
    }

    /// Ends the stream with an error, behind the elements that were published.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn fail(&self, error: &str) -> Result<(), Error> {
        self.place
            .call_alive(|session, serial| session.fail(serial, error))
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.place.call(Session::drop_publication);
    }
}
