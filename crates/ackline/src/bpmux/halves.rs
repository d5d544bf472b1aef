//! The two halves of an open entity: the writer has a [`Sink`], the reader a [`Stream`], no matter
//! which end opened it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ackline_core::Payload;
use ackline_link::Link;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use super::error::Error;
use super::mailbox::Part;
use super::session::{Serial, Session, TOP, Wait};
use super::shared::Inner;

/// The half that this end writes. Dropped without [`close`](Self::close), it is closed with the payload
/// `dropped`; the top-level's is not.
pub struct Sink {
    inner: Arc<Inner>,
    serial: Serial,
    is_closed: bool,
}

/// The half that this end reads. Dropped before its end, it is cancelled with an empty payload; the
/// top-level's is not.
pub struct Stream {
    inner: Arc<Inner>,
    serial: Serial,
}

impl Sink {
    pub(super) const fn new(inner: Arc<Inner>, serial: Serial) -> Self {
        Self {
            inner,
            serial,
            is_closed: false,
        }
    }

    /// The connection and the serial number that this handle stands for.
    pub(super) fn place(&self) -> (Arc<Inner>, Serial) {
        (Arc::clone(&self.inner), self.serial)
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
        let serial = self.serial;
        self.inner
            .when(Wait::Write(serial), |session| {
                match session.send(serial, payload.clone()) {
                    Err(Error::Blocked) => Poll::Pending,
                    sent => Poll::Ready(sent),
                }
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
            .inner
            .link
            .call_alive(|session, _| session.send(self.serial, payload));
        match sent {
            Ok(sent) => sent,
            Err(end) => {
                self.is_on()?;
                Err(Error::Ended(end))
            }
        }
    }

    /// Refuses messages that can be sent to nobody: the reader's cancel is told also after the connection's
    /// end.
    fn is_on(&self) -> Result<(), Error> {
        let Some(end) = self.inner.link.end() else {
            return Ok(());
        };
        let serial = self.serial;
        let link = &self.inner.link;
        link.call(|session, _| session.is_not_cancelled(serial))?;
        Err(Error::Ended(end))
    }

    /// Waits until every message has gone to the transport: the peer gave credit for all of them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn flush(&self) -> Result<(), Error> {
        std::future::poll_fn(|context| self.poll_flushed(context)).await
    }

    /// Bytes of credit that nothing waits for: so many would be sent at once. Ready when there are some.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_capacity(&self, context: &Context<'_>) -> Poll<Result<u64, Error>> {
        let serial = self.serial;
        poll(
            &self.inner.link,
            Wait::Write(serial),
            context,
            |session| match session.capacity(serial) {
                Ok(0) => Poll::Pending,
                capacity => Poll::Ready(capacity),
            },
        )
    }

    /// As [`poll_capacity`](Self::poll_capacity), to be awaited.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn capacity(&self) -> Result<u64, Error> {
        std::future::poll_fn(|context| self.poll_capacity(context)).await
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
        let serial = self.serial;
        self.inner
            .when(Wait::Write(serial), |session| {
                if let Some(payload) = session.place(serial).and_then(|it| it.cancelled.clone()) {
                    return Poll::Ready(Err(Error::Cancelled(payload)));
                }
                let payload = payload.clone();
                let closed = session.with_target(serial, |it, target| it.close(target, payload));
                Poll::Ready(closed)
            })
            .await?;
        if serial == TOP {
            return Ok(());
        }
        self.inner
            .when(Wait::Write(serial), |session| {
                let Some(place) = session.place(serial) else {
                    return Poll::Ready(Ok(()));
                };
                match &place.cancelled {
                    Some(payload) => Poll::Ready(Err(Error::Cancelled(payload.clone()))),
                    None if place.acknowledged.close => Poll::Ready(Ok(())),
                    None => Poll::Pending,
                }
            })
            .await
    }

    /// Waits until the reader cancels the half: with the payload that says why.
    ///
    /// # Errors
    /// `already_ended`: it has ended otherwise; [`Error::Ended`].
    pub async fn cancelled(&self) -> Result<Bytes, Error> {
        let serial = self.serial;
        self.inner
            .when(Wait::Write(serial), |session| {
                if let Some(payload) = session.place(serial).and_then(|it| it.cancelled.clone()) {
                    return Poll::Ready(Ok(payload));
                }
                match session.target(serial) {
                    Ok(_) => Poll::Pending,
                    Err(over) => Poll::Ready(Err(session.refused(over))),
                }
            })
            .await
    }

    /// A view for byte streams: each write is a message. Its shutdown closes the half with an empty payload.
    pub fn into_write(self) -> impl AsyncWrite + Unpin {
        SinkWriter::new(CopyToBytes::new(Written(self)))
    }

    fn poll_flushed(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let serial = self.serial;
        poll(
            &self.inner.link,
            Wait::Write(serial),
            context,
            |session| match session.is_flushed(serial) {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            },
        )
    }

    fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let serial = self.serial;
        poll(
            &self.inner.link,
            Wait::Write(serial),
            context,
            |session| match session.has_room(serial) {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            },
        )
    }

    /// Closes it if that has not been done, and waits until that has gone.
    fn poll_closed(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let serial = self.serial;
        if !self.is_closed {
            self.is_closed = true;
            self.inner.link.call(|session, _| {
                session.is_not_cancelled(serial)?;
                session.with_target(serial, |it, target| it.close(target, Bytes::new()))
            })?;
        }
        if serial == TOP {
            return Poll::Ready(Ok(()));
        }
        poll(
            &self.inner.link,
            Wait::Write(serial),
            context,
            |session| match session.place(serial) {
                Some(place) => match &place.cancelled {
                    Some(payload) => Poll::Ready(Err(Error::Cancelled(payload.clone()))),
                    None if place.acknowledged.close => Poll::Ready(Ok(())),
                    None => Poll::Pending,
                },
                None => Poll::Ready(Ok(())),
            },
        )
    }
}

impl futures_sink::Sink<Bytes> for Sink {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_room(context)
    }

    fn start_send(self: Pin<&mut Self>, payload: Bytes) -> Result<(), Error> {
        self.try_send(payload)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_flushed(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().poll_closed(context)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.serial == TOP {
            return;
        }
        let (serial, is_closed) = (self.serial, self.is_closed);
        self.inner.link.call(|session, _| {
            if !is_closed {
                session.close_unwritten(serial);
            }
            session.leave(serial);
        });
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) const fn new(inner: Arc<Inner>, serial: Serial) -> Self {
        Self { inner, serial }
    }

    /// The connection and the serial number that this handle stands for.
    pub(super) fn place(&self) -> (Arc<Inner>, Serial) {
        (Arc::clone(&self.inner), self.serial)
    }

    /// The next message; `None` when its writer has closed it ([`closed`](Self::closed) has the payload), and
    /// after an own cancel. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once every message that came was handed out. [`Error::TooLarge`]: it comes in parts and
    /// is longer than `limits.max_payload_bytes`; [`receive_part`](Self::receive_part) goes on with it.
    pub async fn receive(&self) -> Result<Option<Payload>, Error> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// As [`receive`](Self::receive), for callers that poll.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn poll_receive(&self, context: &Context<'_>) -> Poll<Result<Option<Payload>, Error>> {
        self.poll_next(context, Session::next_message)
    }

    /// The next part of a message as it comes, and whether the message ends with it; `None` as of
    /// [`receive`](Self::receive). Messages come in parts with [`Config::parts`](super::Config::parts),
    /// where they have several chunks, and are of any length then; otherwise each is one part. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once every part that came was handed out.
    pub async fn receive_part(&self) -> Result<Option<Part>, Error> {
        std::future::poll_fn(|context| self.poll_receive_part(context)).await
    }

    /// As [`receive_part`](Self::receive_part), for callers that poll.
    ///
    /// # Errors
    /// As [`receive_part`](Self::receive_part).
    pub fn poll_receive_part(&self, context: &Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        self.poll_next(context, |session, serial| Ok(session.next_part(serial)))
    }

    /// The next one that `next` finds, or that no more comes.
    fn poll_next<R>(
        &self,
        context: &Context<'_>,
        next: impl Fn(&mut Session, Serial) -> Result<Option<R>, Error>,
    ) -> Poll<Result<Option<R>, Error>> {
        let serial = self.serial;
        poll(&self.inner.link, Wait::Read(serial), context, |session| {
            match next(session, serial) {
                Ok(None) => {}
                found => return Poll::Ready(found),
            }
            let place = session.place(serial);
            let is_over = place.is_none_or(|it| it.closed.is_some() || it.acknowledged.cancel);
            if is_over || session.target(serial).is_err() {
                return Poll::Ready(Ok(None));
            }
            Poll::Pending
        })
    }

    /// The messages that are there, at least one, up to `max`, and no more once they have
    /// [`MOST_AT_ONCE`](super::MOST_AT_ONCE) bytes; none when its writer has closed it. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_many(&self, max: usize) -> Result<Vec<Payload>, Error> {
        let Some(first) = self.receive().await? else {
            return Ok(Vec::new());
        };
        let serial = self.serial;
        let mut messages = vec![first];
        self.inner.link.call(|session, _| {
            // An error is told by the next call.
            let _ = session.next_messages(serial, max, &mut messages);
        });
        Ok(messages)
    }

    /// The payload that its writer closed it with, once it has.
    pub fn closed(&self) -> Option<Bytes> {
        let serial = self.serial;
        let place =
            |session: &mut Session, _| session.place(serial).and_then(|it| it.closed.clone());
        self.inner.link.call(place)
    }

    /// Gives the peer credit beside the automatic credit; all of it where that is off.
    ///
    /// # Errors
    /// `already_ended`, `credit_overflow`; [`Error::Ended`].
    pub fn grant_credit(&self, bytes: u64) -> Result<(), Error> {
        if let Some(end) = self.inner.link.end() {
            return Err(Error::Ended(end));
        }
        self.inner.link.call(|session, _| {
            session.with_target(self.serial, |it, target| it.grant_credit(target, bytes))
        })
    }

    /// The time that the peer takes to answer a ping of this half: a peer that does not answer is considered
    /// broken.
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`; [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.watch().ping(timeout).await
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
        let (serial, payload) = (self.serial, payload.into());
        if let Some(end) = self.inner.link.end() {
            return Err(Error::Ended(end));
        }
        self.inner
            .link
            .call(|session, _| session.with_target(serial, |it, target| it.cancel(target, payload)))
    }

    /// Waits until the peer has acknowledged the cancel that was begun. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn cancel_acknowledged(&self) -> Result<(), Error> {
        let serial = self.serial;
        if serial == TOP {
            return Ok(());
        }
        self.inner
            .when(Wait::Read(serial), |session| {
                let is_live = session.target(serial).is_ok();
                match session.place(serial) {
                    Some(place) if is_live && !place.acknowledged.cancel => Poll::Pending,
                    _ => Poll::Ready(Ok(())),
                }
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
        if self.serial == TOP {
            return;
        }
        let serial = self.serial;
        self.inner.link.call(|session, _| {
            session.cancel_unread(serial);
            session.leave(serial);
        });
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

fn poll<R>(
    link: &Link<Session>,
    wait: Wait,
    context: &Context<'_>,
    mut f: impl FnMut(&mut Session) -> Poll<Result<R, Error>>,
) -> Poll<Result<R, Error>> {
    let polled = ready!(link.poll_when(wait.key(), context, |session, _| f(session)));
    Poll::Ready(polled.unwrap_or_else(|end| Err(Error::Ended(end))))
}

/// A sink whose errors are those of byte streams.
struct Written(Sink);

impl futures_sink::Sink<Bytes> for Written {
    type Error = std::io::Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.poll_room(context).map_err(broken)
    }

    fn start_send(self: Pin<&mut Self>, payload: Bytes) -> std::io::Result<()> {
        self.0.try_send(payload).map_err(broken)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.poll_flushed(context).map_err(broken)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().0.poll_closed(context).map_err(broken)
    }
}

/// The pieces of a stream's messages.
struct Read {
    stream: Stream,
    /// The pieces of a message that are left, the last one first.
    rest: Vec<Bytes>,
}

impl futures_core::Stream for Read {
    type Item = std::io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Bytes>>> {
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
                    return Poll::Ready(why.map(|why| Err(broken(Error::Closed(why)))));
                }
                Err(error) => return Poll::Ready(Some(Err(broken(error)))),
            }
        }
    }
}

fn broken(error: Error) -> std::io::Error {
    let kind = match error {
        Error::Cancelled(_) => std::io::ErrorKind::BrokenPipe,
        Error::Blocked => std::io::ErrorKind::WouldBlock,
        Error::Ended(_) => std::io::ErrorKind::ConnectionAborted,
        _ => std::io::ErrorKind::Other,
    };
    std::io::Error::new(kind, error)
}
