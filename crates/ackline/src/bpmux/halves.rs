//! The two halves of an open entity: the writer has a [`Sink`], the reader a [`Stream`], no matter
//! which end opened it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ackline_bpmux::Error;
use ackline_bpmux::session::{Part, TOP, Wait};
use ackline_core::Payload;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use super::Session;
use super::watch::Watch;

/// The half that this end writes. Dropped without [`close`](Self::close), it is closed with the payload
/// `dropped`; the top-level's is not.
#[derive(Debug)]
pub struct Sink {
    place: Watch,
    is_closed: bool,
}

/// The half that this end reads. Dropped before its end, it is cancelled with an empty payload; the
/// top-level's is not.
#[derive(Debug)]
pub struct Stream(pub(super) Watch);

impl Sink {
    pub(super) const fn new(place: Watch) -> Self {
        Self {
            place,
            is_closed: false,
        }
    }

    /// For [`Interest::Room`](super::Interest::Room), [`Interest::Flushed`](super::Interest::Flushed) and
    /// [`Interest::Cancelled`](super::Interest::Cancelled).
    pub fn watch(&self) -> Watch {
        self.place.clone()
    }

    /// Sends a message: waits while as much waits for credit as may wait. Cancel-safe: a message that was not
    /// taken has not happened.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the reader wants no more; `already_ended`, `top_level_closed`;
    /// [`Error::Ended`].
    pub async fn send(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.is_on()?;
        let payload = payload.into();
        self.place
            .when(Wait::Write, |session, serial| {
                session.send(serial, payload.clone())
            })
            .await
    }

    /// Sends a message now or not at all.
    ///
    /// # Errors
    /// [`Error::Blocked`]; as [`send`](Self::send).
    pub fn try_send(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        let sent = self
            .place
            .call_alive(|session, serial| session.send(serial, payload));
        if matches!(sent, Err(Error::Ended(_))) {
            self.is_on()?;
        }
        sent
    }

    /// Refuses messages that can be sent to nobody: the reader's cancel is told also after the connection's
    /// end.
    fn is_on(&self) -> Result<(), Error> {
        let Some(end) = self.place.link().end() else {
            return Ok(());
        };
        self.place
            .call(|session, serial| session.is_not_cancelled(serial))?;
        Err(Error::Ended(end))
    }

    /// Waits until every message has gone to the transport: the peer gave credit for all of them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn flush(&self) -> Result<(), Error> {
        self.place.when(Wait::Write, Session::flushed).await
    }

    /// Bytes of credit that nothing waits for: so many would be sent at once. Ready when there are some.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_capacity(&self, context: &Context<'_>) -> Poll<Result<u64, Error>> {
        self.place.poll(Wait::Write, context, Session::capacity)
    }

    /// As [`poll_capacity`](Self::poll_capacity), to be awaited.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn capacity(&self) -> Result<u64, Error> {
        self.place.when(Wait::Write, Session::capacity).await
    }

    /// Closes the half behind its messages, with a payload that by convention is empty if all is well, and
    /// waits until the peer has acknowledged that: everything sent before has then arrived, and where the peer holds
    /// the acknowledgement ([`HeldClose`](super::HeldClose)) it has done its work. The top-level's close is never
    /// acknowledged: it is not waited for.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the reader cancelled it before, and may not have seen all messages;
    /// `already_ended`; [`Error::Ended`].
    pub async fn close(mut self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.is_closed = true;
        let payload = payload.into();
        self.place
            .call(|session, serial| session.close(serial, payload))?;
        self.place
            .when(Wait::Write, |session, serial| {
                session.close_acknowledged(serial)
            })
            .await
    }

    /// Waits until the reader cancels the half: with the payload that says why.
    ///
    /// # Errors
    /// `already_ended`: it has ended otherwise; [`Error::Ended`].
    pub async fn cancelled(&self) -> Result<Bytes, Error> {
        self.place
            .when(Wait::Write, |session, serial| session.cancelled(serial))
            .await
    }

    /// A view for byte streams: each write is a message. Its shutdown closes the half with an empty payload.
    pub fn into_write(self) -> impl AsyncWrite + Unpin {
        SinkWriter::new(CopyToBytes::new(self))
    }

    /// Closes it if that has not been done, and waits until that has gone.
    fn poll_closed(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.place
                .call(|session, serial| session.close(serial, Bytes::new()))?;
        }
        self.place.poll(Wait::Write, context, |session, serial| {
            session.close_acknowledged(serial)
        })
    }
}

impl futures_sink::Sink<Bytes> for Sink {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let room = |session: &mut Session, serial| session.room(serial, 1).map(drop);
        self.place.poll(Wait::Write, context, room)
    }

    fn start_send(self: Pin<&mut Self>, payload: Bytes) -> Result<(), Error> {
        self.try_send(payload)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.place.poll(Wait::Write, context, Session::flushed)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().poll_closed(context)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.place.serial == TOP {
            return;
        }
        self.place.call(if self.is_closed {
            Session::leave
        } else {
            Session::drop_sink
        });
    }
}

impl Stream {
    /// For [`Interest::Message`](super::Interest::Message).
    pub fn watch(&self) -> Watch {
        self.0.clone()
    }

    /// The next message; `None` when its writer has closed it ([`closed`](Self::closed) has the payload), and
    /// after an own cancel. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once every message that came was handed out. [`Error::TooLarge`]: it comes in parts and
    /// is longer than `limits.max_payload_bytes`; [`receive_part`](Self::receive_part) goes on with it.
    pub async fn receive(&self) -> Result<Option<Payload>, Error> {
        self.0.when(Wait::Read, Session::take_message).await
    }

    /// As [`receive`](Self::receive), for callers that poll.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn poll_receive(&self, context: &Context<'_>) -> Poll<Result<Option<Payload>, Error>> {
        self.0.poll(Wait::Read, context, Session::take_message)
    }

    /// The next part of a message as it comes, and whether the message ends with it; `None` as of
    /// [`receive`](Self::receive). Messages come in parts with [`Config::parts`](super::Config::parts),
    /// where they have several chunks, and are of any length then; otherwise each is one part. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once every part that came was handed out.
    pub async fn receive_part(&self) -> Result<Option<Part>, Error> {
        self.0.when(Wait::Read, Session::take_part).await
    }

    /// As [`receive_part`](Self::receive_part), for callers that poll.
    ///
    /// # Errors
    /// As [`receive_part`](Self::receive_part).
    pub fn poll_receive_part(&self, context: &Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        self.0.poll(Wait::Read, context, Session::take_part)
    }

    /// The messages that are there, at least one, up to `max`, and no more once they have
    /// [`MOST_AT_ONCE`](super::MOST_AT_ONCE) bytes; none when its writer has closed it. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_many(&self, max: usize) -> Result<Vec<Payload>, Error> {
        self.0
            .when(Wait::Read, |session, serial| {
                session.take_messages(serial, max)
            })
            .await
    }

    /// The messages that are there, up to `max`, and no more once they have
    /// [`MOST_AT_ONCE`](super::MOST_AT_ONCE) bytes; `None` when no more can come.
    ///
    /// # Errors
    /// [`Error::Ended`], once every message that came was handed out.
    pub fn try_receive_many(&self, max: usize) -> Result<Option<Vec<Payload>>, Error> {
        let received = |session: &mut Session, serial| session.take_messages(serial, max);
        match self.0.call_now(received) {
            Err(Error::Blocked) => Ok(Some(Vec::new())),
            received => received.map(|messages| Some(messages).filter(|it| !it.is_empty())),
        }
    }

    /// The next part of a message if it is there; an error as of [`receive_part`](Self::receive_part), or
    /// [`Error::Blocked`] where nothing is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_part(&self) -> Result<Option<Part>, Error> {
        self.0.call_now(Session::take_part)
    }

    /// The payload that its writer closed it with, once it has.
    pub fn closed(&self) -> Option<Bytes> {
        self.0.call(|session, serial| session.closed(serial))
    }

    /// Gives the peer credit beside the automatic credit; all of it where that is off.
    ///
    /// # Errors
    /// `already_ended`, `credit_overflow`; [`Error::Ended`].
    pub fn grant_credit(&self, bytes: u64) -> Result<(), Error> {
        self.0
            .call_alive(|session, serial| session.grant_credit(serial, bytes))
    }

    /// The time that the peer takes to answer a ping of this half: a peer that does not answer is considered
    /// broken.
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`; [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.0.ping(timeout).await
    }

    /// Cancels the half, with a payload that by convention is empty if all is well: messages on their way are
    /// dropped. Waits until the peer has acknowledged that; not so for the top-level. Refused, it changes
    /// nothing: messages that have come can still be received.
    ///
    /// # Errors
    /// `already_ended`: it was cancelled before, or its writer has closed it; [`Error::Ended`].
    pub async fn cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.begin_cancel(payload)?;
        self.cancel_acknowledged().await
    }

    /// As [`cancel`](Self::cancel), without waiting.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub fn begin_cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.0
            .call_alive(|session, serial| session.cancel(serial, payload))
    }

    /// Waits until the peer has acknowledged the cancel that was begun. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn cancel_acknowledged(&self) -> Result<(), Error> {
        self.0
            .when(Wait::Read, |session, serial| {
                session.cancel_acknowledged(serial)
            })
            .await
    }

    /// A view for byte streams: the messages one after the other. Its end is the writer's close; one with a
    /// payload is an error that has it.
    pub fn into_read(self) -> impl AsyncRead + Unpin {
        StreamReader::new(Read {
            stream: self,
            rest: Vec::new(),
        })
    }
}

impl futures_core::Stream for Stream {
    type Item = Result<Payload, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_receive(context).map(Result::transpose)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.0.serial != TOP {
            self.0.call(Session::drop_stream);
        }
    }
}

/// The pieces of a stream's messages.
struct Read {
    stream: Stream,
    /// The pieces of a message that are left, the last one first.
    rest: Vec<Bytes>,
}

impl futures_core::Stream for Read {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(piece) = self.rest.pop() {
                return Poll::Ready(Some(Ok(piece)));
            }
            match ready!(self.stream.poll_receive_part(context)) {
                Ok(Some(part)) => {
                    let pieces = part.payload.as_slice().iter();
                    self.rest.extend(pieces.rev().cloned());
                }
                Ok(None) => {
                    let why = self.stream.closed().filter(|payload| !payload.is_empty());
                    return Poll::Ready(why.map(|why| Err(Error::Closed(why))));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
