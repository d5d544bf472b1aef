//! The task of one host: connects when there is something to send, sends the windows that it may send, and
//! comes back.
//!
//! ```text
//! Idle ── wanted ──► Connecting ── made ──► Connected ── its time is over ──► Draining
//!  ▲                     │ failed               │ lost          idle and ended │
//!  └─────────────────────┴──────► Waiting ◄─────┴──────────────────────────────┴──► Idle
//! ```

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline_core::{Connection as _, Lifecycle};
use ackline_link::{Backoff, End, Jitter, Link};
use ackline_lumberjack::pool::{HostState, Phase};
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::{Kind, Writer, WriterConfig};
use super::shared::Shared;
use super::{LAST_BYTES, SenderOptions, within};

/// How a sender gets a transport to each of its hosts.
pub trait Dial: Send + Sync + 'static {
    /// The transport.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Makes a connection to the host of this place in the list, resolving its name anew.
    fn dial(&self, host: usize) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// One host and the state that it keeps from connection to connection.
pub(super) struct Host<D> {
    at: usize,
    name: Arc<str>,
    dial: Arc<D>,
    shared: Arc<Shared>,
    config: WriterConfig,
    ttl: Option<Duration>,
    backoff_min: Duration,
    backoff: Backoff,
    jitter: Jitter,
}

/// The time of the next connection, after the end of a connection or of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// As soon as there is something to send.
    WhenWanted,
    /// After a wait.
    Later,
}

impl<D: Dial> Host<D> {
    pub(super) fn new(
        at: usize,
        name: Arc<str>,
        dial: Arc<D>,
        shared: Arc<Shared>,
        options: &SenderOptions,
    ) -> Self {
        // Hosts of one seed are to wait differently.
        let seed = |salt: u64| {
            let host = u64::try_from(at).unwrap_or_default();
            Jitter::new(
                options
                    .seed
                    .map(|seed| seed.wrapping_add(host << 8).wrapping_add(salt)),
            )
        };
        Self {
            at,
            name,
            dial,
            shared,
            config: options.writer.clone(),
            ttl: options.ttl,
            backoff_min: options.backoff_min,
            backoff: Backoff::new(options.backoff_min, options.backoff_max, seed(0)),
            jitter: seed(1),
        }
    }

    /// Runs until the sender is done or this future is dropped.
    pub(super) async fn run(mut self) {
        // The first connection is made at once: the application that opened the sender waits for it.
        loop {
            let next = match self.shared.unless_over(self.connect()).await {
                None => return,
                Some(Ok(stream)) => self.session(stream).await,
                Some(Err(error)) => {
                    self.not_connected(&error);
                    Next::Later
                }
            };
            if next == Next::Later {
                let wait = self.backoff.next_wait();
                self.shared.set_state(self.at, HostState::Waiting);
                let waited = self.shared.unless_over(tokio::time::sleep(wait));
                if waited.await.is_none() {
                    return;
                }
            }
            self.shared.set_state(self.at, HostState::Idle);
            if !self.shared.until_wanted(self.at).await {
                return;
            }
        }
    }

    async fn connect(&self) -> io::Result<D::Io> {
        self.shared.set_state(self.at, HostState::Connecting);
        if let Some(host) = self.shared.pool().host(self.at) {
            host.attempts = host.attempts.saturating_add(1);
        }
        self.dial.dial(self.at).await
    }

    fn not_connected(&self, error: &io::Error) {
        let text = format!("cannot connect to {}: {error}", self.name);
        tracing::warn!(code = "sender.not_connected", host = %self.name, %error, "cannot connect");
        self.shared.failed(self.at, text.into());
    }

    async fn session(&mut self, stream: D::Io) -> Next {
        let link = Link::new(Writer::new(self.config.clone()));
        let ttl = self.ttl.map(|ttl| self.jitter.around(ttl));
        let session = Session::begin(self.at, &self.shared, link);
        tracing::info!(code = "sender.connected", host = %self.name, "connected");
        let backoff = &mut self.backoff;
        let driven = {
            let moving = async { tokio::join!(session.link.drive(stream), session.feed(backoff)) };
            let mut moving = pin!(moving);
            if let Some((driven, ())) = within(ttl, moving.as_mut()).await {
                driven
            } else {
                session.expire();
                moving.await.0
            }
        };
        let lost = session.end();
        let next_size = session.next_slow_start();
        let (has_expired, lived) = (session.has_expired(), session.began.elapsed());
        drop(session);
        self.config.slow_start = self.config.slow_start.and(Some(next_size));
        self.log_end(&driven.end, lost);
        let is_idle = lost == 0 && !self.shared.pool().is_wanted(self.at);
        // A host that ends a connection that it has just accepted is not asked again at once.
        if has_expired || (is_idle && lived >= self.backoff_min) {
            Next::WhenWanted
        } else {
            Next::Later
        }
    }

    fn log_end(&self, end: &End<Kind>, lost: u64) {
        let orderly = matches!(
            end,
            End::Closed | End::Eof | End::CloseDeadline | End::Io(_)
        );
        if lost == 0 && orderly {
            tracing::debug!(code = "sender.ended", host = %self.name, %end, "nothing was out");
            return;
        }
        tracing::warn!(code = "sender.lost", host = %self.name, %end, events = lost,
            "a connection was lost; its events are sent again");
        let text = format!("{}: {end}", self.name);
        if let Some(host) = self.shared.pool().host(self.at) {
            host.last_error = Some(text.into());
        }
    }
}

/// One connection. Its end is booked when it is dropped at the latest.
struct Session<'a> {
    at: usize,
    shared: &'a Arc<Shared>,
    link: Link<Writer>,
    began: tokio::time::Instant,
    expired: AtomicBool,
}

impl<'a> Session<'a> {
    fn begin(at: usize, shared: &'a Arc<Shared>, link: Link<Writer>) -> Self {
        shared.connected(at, link.clone());
        Self {
            at,
            shared,
            link,
            began: tokio::time::Instant::now(),
            expired: AtomicBool::new(false),
        }
    }

    /// Sends no more; ends when the events in flight are acknowledged.
    fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
        self.shared.set_state(self.at, HostState::Draining);
        self.link.close_within(LAST_BYTES);
        self.link.wake(0);
    }

    fn has_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Books acknowledgements and sends windows until the link ends.
    async fn feed(&self, backoff: &mut Backoff) {
        while let Ok(grown) = self
            .link
            .when(0, |writer, now| self.step(writer, now))
            .await
        {
            if grown {
                backoff.reset();
            }
            self.shared.moved(grown);
        }
    }

    /// One step of everything that needs no waiting; ready with whether anything was acknowledged.
    fn step(&self, writer: &mut Writer, now: Instant) -> Poll<bool> {
        let (mut grown, booked) = self.shared.pool().book(self.at, writer);
        let mut moved = booked || grown;
        if self.is_to_finish() && writer.lifecycle() == Lifecycle::Open && !writer.is_finishing() {
            writer.finish(now);
            moved = true;
        }
        while let Some(allowance) = writer.allowance() {
            let taken = {
                let mut pool = self.shared.pool();
                moved |= pool.set_room(self.at, Some(allowance));
                pool.take(self.at, allowance)
            };
            let Some(window) = taken else { break };
            moved = true;
            if writer.send_window(now, window.records()).is_err() {
                self.shared.pool().put_back(self.at);
                break;
            }
        }
        let mut pool = self.shared.pool();
        moved |= pool.set_room(self.at, writer.allowance());
        grown |= pool.note(self.at, writer);
        if moved {
            Poll::Ready(grown)
        } else {
            Poll::Pending
        }
    }

    fn is_to_finish(&self) -> bool {
        let pool = self.shared.pool();
        self.has_expired() || (pool.phase() != Phase::Open && pool.is_done())
    }

    /// Books the end of the link; answers how many events were lost with it.
    fn end(&self) -> u64 {
        let lost = self.link.call(|writer, now| {
            // A link that was cut off has not told its machine.
            let _ = writer.receive_eof(now);
            let lost = writer.unacknowledged();
            self.shared.pool().book(self.at, writer);
            lost
        });
        self.shared.disconnected(self.at);
        lost
    }

    fn next_slow_start(&self) -> u32 {
        self.link.call(|writer, _| writer.window_size())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.link.abort();
        self.end();
    }
}
