//! Waits that take nothing, for callers that take by calls that never wait, such as another language.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_bpmux::refusal;
use ackline_core::Payload;
use tokio::time::Instant;

use super::connection::Connection;
use super::error::Error;
use super::halves::{Sink, Stream};
use super::mailbox::Part;
use super::requests::{Request, Response};
use super::session::{Serial, Session, TOP, Wait};
use super::shared::{Inner, deadline, within};

/// A condition that a handle can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Of a connection: that the peer began something, or will begin nothing more.
    Arrival,
    /// Of a connection: that a request would be taken or refused, and no other caller has waited for that longer.
    Request,
    /// Of a [`Stream`]: a message, or its end.
    Message,
    /// Of a [`Response`]: that it is there, or will not come.
    Answer,
    /// Of a [`Sink`]: that a message of so many bytes would be taken or refused.
    Room(usize),
    /// Of a [`Sink`]: that every message has gone to the transport, or never will.
    Flushed,
    /// Of a [`Sink`] or a [`Request`]: that the peer has cancelled it, or it is over.
    Cancelled,
    /// The end of the connection alone.
    End,
}

/// Waits on the subject of a handle. A watch does not keep the subject open, but keeps the connection.
#[derive(Clone)]
pub struct Watch {
    inner: Arc<Inner>,
    serial: Serial,
}

impl Watch {
    /// Waits until it is there or the connection has ended; takes nothing. Cancel-safe.
    pub async fn ready(&self, interest: Interest) {
        let serial = self.serial;
        let key = match interest {
            Interest::Arrival => Wait::Accept.key(),
            // The payloads that wait may be of any handle: any change may make room.
            Interest::Request => 0,
            Interest::Message | Interest::Answer => Wait::Read(serial).key(),
            Interest::Room(_) | Interest::Flushed | Interest::Cancelled => {
                Wait::Write(serial).key()
            }
            Interest::End => u64::MAX,
        };
        let waited = self.inner.link.when(key, |session, _| {
            if is_there(session, serial, interest) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let _ = waited.await;
    }

    /// How long the peer takes to answer a ping of it; not of a [`Request`].
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`, also where it ends before the pong comes; `unknown_id`;
    /// [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        if let Some(end) = self.inner.link.end() {
            return Err(Error::Ended(end));
        }
        let serial = self.serial;
        let start = Instant::now();
        let pongs = |session: &mut Session| session.place(serial).map_or(0, |it| it.pongs);
        let before = self.inner.link.call(|session, _| {
            let before = pongs(session);
            session.ping(serial)?;
            Ok::<_, Error>(before)
        })?;
        let answered = self.inner.when(Wait::Pong(serial), |session| {
            if pongs(session) > before {
                return Poll::Ready(Ok(()));
            }
            // A subject that has ended gives no answer.
            if session.is_over(serial) {
                return Poll::Ready(Err(session.refused(refusal::ALREADY_ENDED)));
            }
            Poll::Pending
        });
        within(deadline(Some(timeout)), answered).await?;
        Ok(start.elapsed())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

fn is_there(session: &mut Session, serial: Serial, interest: Interest) -> bool {
    match interest {
        Interest::Arrival => session.has_arrival() || session.is_last(),
        Interest::Request => session.has_request_room(),
        Interest::Message => session.has_message(serial),
        Interest::Answer => {
            let place = session.place(serial);
            place.is_none_or(|it| it.response.is_some() || it.closed.is_some())
                || session.is_over(serial)
        }
        Interest::Room(bytes) => !matches!(session.has_room_for(serial, bytes), Ok(false)),
        Interest::Flushed => !matches!(session.is_flushed(serial), Ok(false)),
        Interest::Cancelled => {
            let place = session.place(serial);
            place.is_none_or(|it| it.cancelled.is_some()) || session.is_over(serial)
        }
        Interest::End => false,
    }
}

impl Connection {
    /// For [`Interest::Arrival`], [`Interest::Request`] and [`Interest::End`].
    pub fn watch(&self) -> Watch {
        Watch {
            inner: Arc::clone(&self.inner),
            serial: TOP,
        }
    }

    /// As [`request`](Self::request), now or not at all.
    ///
    /// # Errors
    /// [`Error::Blocked`]; as [`request`](Self::request).
    pub fn try_request(&self, payload: impl Into<bytes::Bytes>) -> Result<Response, Error> {
        let payload = payload.into();
        let asked = self.link().call_alive(|session, _| {
            if session.has_request_room() {
                session.request(payload)
            } else {
                Err(Error::Blocked)
            }
        });
        let serial = asked.map_err(Error::Ended)??;
        Ok(Response::new(Arc::clone(&self.inner), serial))
    }
}

impl Sink {
    /// For [`Interest::Room`], [`Interest::Flushed`] and [`Interest::Cancelled`].
    pub fn watch(&self) -> Watch {
        let (inner, serial) = self.place();
        Watch { inner, serial }
    }
}

impl Stream {
    /// The messages that are there, up to `max`, and no more once they have
    /// [`MOST_AT_ONCE`](super::MOST_AT_ONCE) bytes; `None` when no more can come.
    ///
    /// # Errors
    /// [`Error::Ended`], once every message that came was handed out.
    pub fn try_receive_many(&self, max: usize) -> Result<Option<Vec<Payload>>, Error> {
        let (inner, serial) = self.place();
        // Before the look: a change that comes between the two is taken the next time.
        let end = inner.link.end();
        let (messages, is_over, failed) = inner.link.call(|session, _| {
            let mut messages = Vec::new();
            let failed = session.next_messages(serial, max, &mut messages).err();
            (messages, session.has_message(serial), failed)
        });
        if let Some(error) = failed.filter(|_| messages.is_empty()) {
            return Err(error);
        }
        match end {
            _ if !messages.is_empty() => Ok(Some(messages)),
            _ if is_over => Ok(None),
            Some(end) => Err(Error::Ended(end)),
            None => Ok(Some(messages)),
        }
    }

    /// The next part of a message if it is there; an error as of [`receive_part`](Self::receive_part), or
    /// [`Error::Blocked`] where nothing is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_part(&self) -> Result<Option<Part>, Error> {
        let (inner, serial) = self.place();
        // Before the look: a change that comes between the two is taken the next time.
        let end = inner.link.end();
        let (part, is_over) = inner.link.call(|session, _| {
            let part = session.next_part(serial);
            (part, session.has_message(serial))
        });
        match end {
            _ if part.is_some() => Ok(part),
            _ if is_over => Ok(None),
            Some(end) => Err(Error::Ended(end)),
            None => Err(Error::Blocked),
        }
    }

    /// For [`Interest::Message`].
    pub fn watch(&self) -> Watch {
        let (inner, serial) = self.place();
        Watch { inner, serial }
    }
}

impl Response {
    /// For [`Interest::Answer`].
    pub fn watch(&self) -> Watch {
        let (inner, serial) = self.place();
        Watch { inner, serial }
    }
}

impl Request {
    /// For [`Interest::Cancelled`].
    pub fn watch(&self) -> Watch {
        let (inner, serial) = self.place();
        Watch { inner, serial }
    }
}
