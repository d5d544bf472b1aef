//! Requests, from both sides: the asking side has a [`Response`] to wait for, the asked side a [`Request`] to
//! answer.

use std::time::Duration;

use ackline_bpmux::Error;
use ackline_bpmux::session::Wait;
use ackline_core::{Payload, UsageError};
use bytes::Bytes;

use super::Session;
use super::watch::Watch;

/// A request of this end's that waits for its response. Dropped before, it is cancelled with an empty
/// payload.
#[derive(Debug)]
pub struct Response(pub(super) Watch);

impl Response {
    /// Waits for the response. Cancel-safe: wait again, or drop it.
    ///
    /// # Errors
    /// [`Error::Closed`]: the peer will not answer; [`Error::Cancelled`]: it refused every request before
    /// this one was sent; `already_ended`: it was handed out before, or given up; [`Error::Ended`].
    pub async fn response(&self) -> Result<Payload, Error> {
        self.0.when(Wait::Read, Session::take_response).await
    }

    /// Gives the request up, with a payload that says why. Refused, it changes nothing: a response that is
    /// there can still be taken.
    ///
    /// # Errors
    /// `already_ended`: it was answered, closed or given up; [`Error::Ended`].
    pub fn cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.0
            .call_alive(|session, serial| session.cancel_request(serial, payload))
    }

    /// How long the peer takes to say that it is still at work; [`Error::Timeout`] if the answer may be on
    /// its way instead.
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`, `unknown_id`: answered, or not sent yet; [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.0.ping(timeout).await
    }

    /// For [`Interest::Answer`](super::Interest::Answer).
    pub fn watch(&self) -> Watch {
        self.0.clone()
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.0.call(Session::drop_response);
    }
}

/// A request of the peer's. Dropped without an answer, it is closed with the payload `dropped`.
#[derive(Debug)]
pub struct Request {
    place: Watch,
    payload: Payload,
    /// It was, or was tried to be: nothing is left of it.
    is_answered: bool,
}

impl Request {
    pub(super) const fn new(place: Watch, payload: Payload) -> Self {
        Self {
            place,
            payload,
            is_answered: false,
        }
    }

    /// The request's payload.
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Answers it.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the answer is not wanted any more; [`Error::Ended`].
    pub fn respond(self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.answer(|machine, id| machine.respond(id, payload))
    }

    /// Ends it without a response, with a payload that says why.
    ///
    /// # Errors
    /// As [`respond`](Self::respond).
    pub fn close(self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.answer(|machine, id| machine.close_response(id, payload))
    }

    fn answer(
        mut self,
        verb: impl FnOnce(&mut ackline_bpmux::Connection, u32) -> Result<(), UsageError>,
    ) -> Result<(), Error> {
        let link = self.place.link();
        let answered = link.call_alive(|session, _| session.answer(self.place.serial, verb));
        self.is_answered = answered.is_ok();
        answered?
    }

    /// Waits until the peer gives the request up: with the payload that says why.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn cancelled(&self) -> Result<Bytes, Error> {
        self.place
            .when(Wait::Write, |session, serial| session.cancelled(serial))
            .await
    }

    /// For [`Interest::Cancelled`](super::Interest::Cancelled).
    pub fn watch(&self) -> Watch {
        self.place.clone()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_answered {
            self.place.call(Session::drop_request);
        }
    }
}
