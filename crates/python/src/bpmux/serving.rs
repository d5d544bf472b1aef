//! Distributes the peer's arrivals among several threads.
//!
//! ```text
//!          ┌────────────── idle ◄──── its handler has returned ◄──┐
//!          │ the leader has taken one                             │
//!          ▼                                                      │
//!        leader ──── something is begun ──► takes it, names the next leader, handles it
//! ```
//!
//! There is at most one leader, and the connection wakes only the leader. A thread that becomes the leader is not
//! woken by that: only its waker replaces the other's. So the thread that is woken is the one that handles the
//! arrival, and no thread is woken in vain: threads of Python run one at a time. Without an idle thread one more is
//! requested, up to a limit.
//!
//! While the limit of handlers is reached, the leader takes nothing: it waits until one returns, or until the peer
//! gives up the call of one (see [`Running`]). The thread of the handler that returns takes that leader's place.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ackline::bpmux::{Connection, Error, HeldClose, Incoming};
use pyo3::prelude::*;

use super::connection::{Arrived, arrived};
use super::raised::raised;
use super::running::Running;
use crate::runtime::{self, Alarm, Owned};

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxServing {
    serving: Owned<Serving>,
}

type Held = (Incoming, Option<HeldClose>);
type Accepted = Result<Option<Held>, Error>;
type Accept = Pin<Box<dyn Future<Output = Accepted> + Send>>;

struct Serving {
    connection: Connection,
    turns: Mutex<Turns>,
}

struct Turns {
    /// `None` once nothing more is begun.
    accept: Option<Accept>,
    leader: Option<Arc<Seat>>,
    /// Whether the leader takes nothing, because the limit of handlers is reached.
    is_full: bool,
    /// Idle threads; the last one is named first, because its data is still in the processor's cache.
    idle: Vec<Arc<Seat>>,
    /// Threads that take arrivals, or were requested.
    threads: usize,
    /// Whether a requested thread has not come yet: it will lead, or name the leader.
    is_coming: bool,
    running: Running,
}

/// A thread that waits for its turn.
struct Seat {
    alarm: Arc<Alarm>,
    /// The arrival that the leader has found for this thread.
    found: Mutex<Option<Accepted>>,
}

/// An arrival that a thread has taken, and whether one more thread is to be started.
struct Taken {
    held: Held,
    is_short: bool,
    /// The number of its handler.
    handler: u64,
}

#[pymethods]
impl BpmuxServing {
    /// Notes that this thread is the one that was requested.
    fn came(&self, py: Python<'_>) -> PyResult<()> {
        let serving = self.serving.get()?;
        py.detach(|| serving.lock().is_coming = false);
        Ok(())
    }

    /// Waits in this thread, which handles no signals, until there is an arrival for it. Returns the arrival, whether
    /// one more thread is to be started, and the number of the handler; pass that number to the next call, once the
    /// handler has returned. Returns `None` when no more arrivals come; one thread raises the reason.
    #[pyo3(signature = (returned))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        returned: Option<u64>,
    ) -> PyResult<Option<(Arrived<'py>, bool, u64)>> {
        let serving = self.serving.get()?;
        let handle = runtime::handle(py)?;
        let taken = py.detach(|| {
            let _inside = handle.enter();
            serving.take(returned)
        });
        let Some(taken) = taken.map_err(raised)? else {
            return Ok(None);
        };
        let arrived = arrived(py, Some(taken.held))?;
        Ok(Some((arrived, taken.is_short, taken.handler)))
    }
}

impl BpmuxServing {
    /// Creates the queue; the first thread is counted already.
    pub(super) fn new(connection: Connection, handlers: usize, abandoned: usize) -> Self {
        let turns = Turns {
            accept: Some(accept(&connection)),
            leader: None,
            is_full: false,
            idle: Vec::new(),
            threads: 1,
            is_coming: false,
            running: Running::new(handlers, abandoned),
        };
        Self {
            serving: Owned::new(Serving {
                connection,
                turns: Mutex::new(turns),
            }),
        }
    }
}

impl Serving {
    fn take(&self, returned: Option<u64>) -> Result<Option<Taken>, Error> {
        let seat = Seat::new();
        if let Some(handler) = returned {
            self.lock().running.end(handler);
        }
        loop {
            if let Poll::Ready(taken) = self.look(&seat) {
                return taken;
            }
            seat.alarm.wait();
        }
    }

    /// Returns the arrival for this thread to handle; if there is none, the thread is the leader, or idle, and will
    /// be woken.
    fn look(&self, seat: &Arc<Seat>) -> Poll<Result<Option<Taken>, Error>> {
        let mut turns = self.lock();
        let found = match seat.found().take() {
            Some(found) => found,
            None => match turns.find(&self.connection, seat) {
                Poll::Ready(found) => found,
                Poll::Pending => return Poll::Pending,
            },
        };
        let Some(held) = found? else {
            return Poll::Ready(Ok(None));
        };
        let handler = turns.running.begin(&held.0);
        let is_short = turns.lead_on(&self.connection);
        Poll::Ready(Ok(Some(Taken {
            held,
            is_short,
            handler,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    /// Polls for this thread, if it leads or nobody does.
    fn find(&mut self, connection: &Connection, seat: &Arc<Seat>) -> Poll<Accepted> {
        if self.accept.is_none() {
            return Poll::Ready(Ok(None));
        }
        let is_led = self
            .leader
            .as_ref()
            .is_some_and(|it| !Arc::ptr_eq(it, seat));
        if is_led && !self.is_full {
            self.stand_by(Arc::clone(seat));
            return Poll::Pending;
        }
        // A leader that takes nothing waits for a handler to return: this thread's handler has returned.
        if let Some(leader) = self.leader.take() {
            self.stand_by(leader);
        }
        self.idle.retain(|one| !Arc::ptr_eq(one, seat));
        let found = self.poll(connection, seat);
        self.leader = found.is_pending().then(|| Arc::clone(seat));
        found
    }

    fn stand_by(&mut self, seat: Arc<Seat>) {
        if !self.idle.iter().any(|one| Arc::ptr_eq(one, &seat)) {
            self.idle.push(seat);
        }
    }

    /// Names the next leader, unless there is one; returns whether a thread is to be started to become the leader.
    fn lead_on(&mut self, connection: &Connection) -> bool {
        if self.leader.is_some() || self.accept.is_none() {
            return false;
        }
        while let Some(next) = self.idle.pop() {
            match self.poll(connection, &next) {
                Poll::Pending => {
                    self.leader = Some(next);
                    return false;
                }
                Poll::Ready(found) => {
                    *next.found() = Some(found);
                    next.alarm.ring();
                }
            }
        }
        let has_room = self.threads < self.running.most_threads();
        let is_short = self.accept.is_some() && !self.is_coming && has_room;
        self.is_coming |= is_short;
        self.threads += usize::from(is_short);
        is_short
    }

    /// Returns the next arrival; if there is none yet, the thread of `seat` is woken for it.
    fn poll(&mut self, connection: &Connection, seat: &Seat) -> Poll<Accepted> {
        let Some(going) = &mut self.accept else {
            return Poll::Ready(Ok(None));
        };
        let waker = Waker::from(Arc::clone(&seat.alarm));
        self.is_full = !self.running.has_room(&waker);
        if self.is_full {
            return Poll::Pending;
        }
        let found = going.as_mut().poll(&mut Context::from_waker(&waker));
        match &found {
            Poll::Pending => {}
            Poll::Ready(Ok(Some(_))) => self.accept = Some(accept(connection)),
            Poll::Ready(_) => {
                self.accept = None;
                self.idle.iter().for_each(|one| one.alarm.ring());
            }
        }
        found
    }
}

impl Seat {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            alarm: Alarm::new(),
            found: Mutex::new(None),
        })
    }

    fn found(&self) -> MutexGuard<'_, Option<Accepted>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(connection: &Connection) -> Accept {
    let connection = connection.clone();
    Box::pin(async move { connection.accept_held().await })
}
