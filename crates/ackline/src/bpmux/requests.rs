//! Requests, from both sides: the asking side has a [`Response`] to wait for, the asked side a [`Request`] to
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use ackline_bpmux::refusal;
use ackline_core::Payload;
use bytes::Bytes;

use super::error::Error;
use super::mailbox::DROPPED;
use super::session::{Serial, Wait};
use super::shared::Inner;

/// A request of this end's that waits for its response. Dropped before, it is cancelled with an empty
/// payload.
pub struct Response {
    inner: Arc<Inner>,
    serial: Serial,
    /// The response was taken: nothing is left of it.
    is_taken: AtomicBool,
    /// It was cancelled here.
    is_given_up: AtomicBool,
}

impl Response {
    pub(super) const fn new(inner: Arc<Inner>, serial: Serial) -> Self {
        Self {
            inner,
            serial,
            is_taken: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// The connection and the serial number that this handle stands for.
    pub(super) fn place(&self) -> (Arc<Inner>, Serial) {
        (Arc::clone(&self.inner), self.serial)
    }

    /// Waits for the response. Cancel-safe: wait again, or drop it.
    ///
    /// # Errors
    /// [`Error::Closed`]: the peer will not answer; [`Error::Cancelled`]: it refused every request before
    /// this one was sent; `already_ended`: it was handed out before, or given up; [`Error::Ended`].
    pub async fn response(&self) -> Result<Payload, Error> {
        let serial = self.serial;
        self.inner
            .when(Wait::Read(serial), |session| {
                if let Some(response) = session.response(serial) {
                    if session.leave_if_gone(serial) {
                        self.is_taken.store(true, Ordering::Relaxed);
                    }
                    return Poll::Ready(Ok(response));
                }
                let closed = session.place(serial).and_then(|it| it.closed.clone());
                if let Some(payload) = closed {
                    return Poll::Ready(Err(Error::Closed(payload)));
                }
                let is_done = [&self.is_taken, &self.is_given_up];
                if is_done.iter().any(|it| it.load(Ordering::Relaxed)) {
                    return Poll::Ready(Err(session.refused(refusal::ALREADY_ENDED)));
                }
                if session.is_over(serial) {
                    return Poll::Ready(Err(Error::Cancelled(Bytes::new())));
                }
                Poll::Pending
            })
            .await
    }

    /// Gives the request up, with a payload that says why. Refused, it changes nothing: a response that is
    /// there can still be taken.
    ///
    /// # Errors
    /// `already_ended`: it was answered, closed or given up; [`Error::Ended`].
    pub fn cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        if let Some(end) = self.inner.link.end() {
            return Err(Error::Ended(end));
        }
        let payload = payload.into();
        self.inner.link.call(|session, _| {
            session.with_request(self.serial, |it, id| it.cancel_request(id, payload))
        })?;
        self.is_given_up.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// How long the peer takes to say that it is still at work; [`Error::Timeout`] if the answer may be on
    /// its way instead.
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`, `unknown_id`: answered, or not sent yet; [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.watch().ping(timeout).await
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            return;
        }
        let serial = self.serial;
        self.inner.link.call(|session, _| {
            // It may be over.
            let _ = session.with_request(serial, |it, id| it.cancel_request(id, Bytes::new()));
            session.leave(serial);
        });
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}

/// A request of the peer's. Dropped without an answer, it is closed with the payload `dropped`.
pub struct Request {
    inner: Arc<Inner>,
    serial: Serial,
    payload: Payload,
    /// It was, or was tried to be: nothing is left of it.
    is_answered: bool,
}

impl Request {
    pub(super) const fn new(inner: Arc<Inner>, serial: Serial, payload: Payload) -> Self {
        Self {
            inner,
            serial,
            payload,
            is_answered: false,
        }
    }

    /// The connection and the serial number that this handle stands for.
    pub(super) fn place(&self) -> (Arc<Inner>, Serial) {
        (Arc::clone(&self.inner), self.serial)
    }

    /// The request's payload.
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Answers it.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the answer is not wanted any more; [`Error::Ended`].
    pub fn respond(mut self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.answer(|machine, id| machine.respond(id, payload))
    }

    /// Ends it without a response, with a payload that says why.
    ///
    /// # Errors
    /// As [`respond`](Self::respond).
    pub fn close(mut self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.answer(|machine, id| machine.close_response(id, payload))
    }

    fn answer(
        &mut self,
        verb: impl FnOnce(&mut ackline_bpmux::Connection, u32) -> Result<(), ackline_core::UsageError>,
    ) -> Result<(), Error> {
        let serial = self.serial;
        let answered = self.inner.link.call_alive(|session, _| {
            let cancelled = session.place(serial).and_then(|it| it.cancelled.clone());
            let answered = match cancelled {
                Some(payload) => Err(Error::Cancelled(payload)),
                None => session.with_request(serial, verb),
            };
            session.leave(serial);
            answered
        });
        self.is_answered = answered.is_ok();
        answered.map_err(Error::Ended)?
    }

    /// Waits until the peer gives the request up: with the payload that says why.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn cancelled(&self) -> Result<Bytes, Error> {
        let serial = self.serial;
        self.inner
            .when(Wait::Write(serial), |session| {
                match session.place(serial).and_then(|it| it.cancelled.clone()) {
                    Some(payload) => Poll::Ready(Ok(payload)),
                    None => Poll::Pending,
                }
            })
            .await
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let serial = self.serial;
        self.inner.link.call(|session, _| {
            let payload = Bytes::from_static(DROPPED);
            // It may have been cancelled.
            let _ = session.with_request(serial, |it, id| it.close_response(id, payload));
            session.leave(serial);
        });
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.payload.bytes();
        f.debug_struct("Request")
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}
