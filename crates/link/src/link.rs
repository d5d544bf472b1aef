//! A connection behind a short lock, and who waits for it.
//!
//! Decides who is woken by what. A change (a `call`, progress of the driver, a wait that came true)
//! re-runs the waits of key 0; waits of another key are re-run when the connection names that key
//! ([`Connection::poll_wake`]), by [`Link::wake`], and at the end of the link, so that many waiting calls
//! do not re-run at each change.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ackline_core::{Connection, Table};
use tokio::sync::Notify;

use crate::acceptor::Unheard;
use crate::budget::Account;
use crate::inline_write::InlineWrite;
use crate::socket::{Taking, Writer};
use crate::{Budget, CLOSE_DEADLINE, End, LinkError, Pace};

/// A connection that application and driver share. Clones are the same link.
pub struct Link<C: Connection> {
    pub(crate) shared: Arc<Shared<C>>,
}

/// What has passed through a link and what it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Bytes read from the transport.
    pub bytes_in: u64,
    /// Bytes written to the transport.
    pub bytes_out: u64,
    /// Bytes charged to the memory budget: above the free 64 KiB, reserved or held.
    pub charged: u64,
    /// Whether reading waits for the memory budget.
    pub paused: bool,
}

pub(crate) struct Shared<C: Connection> {
    state: Mutex<State<C>>,
    pub(crate) wake_driver: Arc<Notify>,
    pub(crate) account: Account,
}

pub(crate) struct State<C: Connection> {
    pub(crate) connection: C,
    pub(crate) waiters: Waiters,
    pub(crate) end: Option<LinkError<C::Kind>>,
    /// What the peer did, from the moment it is known; the goodbye may still be on its way.
    pub(crate) fault: Option<LinkError<C::Kind>>,
    /// Time from our end to the peer's.
    pub(crate) stall_timeouts: Duration,
    pub(crate) aborted: bool,
    /// Our end was sent on the transport.
    pub(crate) is_shut: bool,
    /// Bytes that had been written when the peer's end came, if its system had taken all of them.
    pub(crate) taken_at_end: Option<u64>,
    /// A drive is running, or about to.
    pub(crate) is_driven: bool,
    /// Changes that the driver was woken for.
    pub(crate) calls: u64,
    /// Counts `drive` calls: the newest wins.
    pub(crate) generation: u64,
    pub(crate) stats: LinkStats,
    pub(crate) pace: Option<Arc<Pace>>,
    /// Its first bytes were not looked at.
    pub(crate) unheard: Option<Unheard>,
    pub(crate) inline: InlineWrite,
}

/// A link that is not kept by this reference to it.
pub struct WeakLink<C: Connection>(Weak<Shared<C>>);

impl<C: Connection> std::fmt::Debug for WeakLink<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakLink")
    }
}

impl<C: Connection> WeakLink<C> {
    /// The link, while anybody keeps it.
    pub fn upgrade(&self) -> Option<Link<C>> {
        self.0.upgrade().map(|shared| Link { shared })
    }
}

impl<C: Connection> Clone for Link<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C: Connection> Link<C> {
    /// A link without a memory limit of its own.
    pub fn new(connection: C) -> Self {
        Self::with_budget(connection, Budget::new(u64::MAX))
    }

    /// A link whose bytes are charged to `budget` until the last clone of it is dropped, for the one peer that
    /// there is.
    pub fn with_budget(connection: C, budget: Budget) -> Self {
        Self::of_sender(connection, budget, &Arc::from(""))
    }

    /// As [`with_budget`](Self::with_budget), to a [sender](crate::PeerInfo::sender) whose links have a share of the
    /// budget together.
    pub fn of_sender(connection: C, budget: Budget, sender: &Arc<str>) -> Self {
        let wake_driver = Arc::new(Notify::new());
        let account = budget.open(sender, Arc::clone(&wake_driver));
        let state = State {
            connection,
            waiters: Waiters::default(),
            end: None,
            fault: None,
            stall_timeouts: CLOSE_DEADLINE,
            is_shut: false,
            taken_at_end: None,
            aborted: false,
            is_driven: false,
            calls: 0,
            generation: 0,
            stats: LinkStats::default(),
            pace: None,
            unheard: None,
            inline: InlineWrite::default(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake_driver,
                account,
            }),
        }
    }

    /// A reference that does not keep the link.
    pub fn downgrade(&self) -> WeakLink<C> {
        WeakLink(Arc::downgrade(&self.shared))
    }

    /// Runs `f` under the lock, then wakes the driver, if there is something for it to do, and the waits of
    /// key 0. `f` must be short.
    pub fn call<R>(&self, f: impl FnOnce(&mut C, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = now();
        let result = f(&mut state.connection, now);
        self.moved(state, now);
        result
    }

    /// [`call`](Self::call), unless the link has ended.
    ///
    /// # Errors
    /// It has, and `f` was not run.
    pub fn call_alive<R>(
        &self,
        f: impl FnOnce(&mut C, Instant) -> R,
    ) -> Result<R, LinkError<C::Kind>> {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let now = now();
        let result = f(&mut state.connection, now);
        self.moved(state, now);
        Ok(result)
    }

    /// Runs `f` now and after each change (for a key other than 0: each that the connection or
    /// [`Link::wake`] names it for) until it is ready.
    /// `f` must leave the connection as it is when it answers `Pending`. Cancel-safe: what `f` has not
    /// answered has not happened.
    ///
    /// # Errors
    /// The link has ended and `f`, run a last time, was still not ready.
    pub async fn when<R>(
        &self,
        key: u64,
        mut f: impl FnMut(&mut C, Instant) -> Poll<R>,
    ) -> Result<R, LinkError<C::Kind>> {
        let mut waiting = Waiting::new(self, key);
        let mut f = |state: &mut State<C>| f(&mut state.connection, now());
        poll_fn(|context| match waiting.poll(context, &mut f) {
            Looked::Ready(result, state) => {
                self.moved(state, now());
                Poll::Ready(Ok(result))
            }
            Looked::Ended(end) => Poll::Ready(Err(end)),
            Looked::Pending => Poll::Pending,
        })
        .await
    }

    /// [`when`](Self::when) for a look that changes nothing: nobody is woken by its end.
    ///
    /// # Errors
    /// As [`when`](Self::when).
    pub async fn until<R>(
        &self,
        key: u64,
        mut f: impl FnMut(&C) -> Poll<R>,
    ) -> Result<R, LinkError<C::Kind>> {
        self.look(key, |state| f(&state.connection)).await
    }

    async fn look<R>(
        &self,
        key: u64,
        mut f: impl FnMut(&mut State<C>) -> Poll<R>,
    ) -> Result<R, LinkError<C::Kind>> {
        let mut waiting = Waiting::new(self, key);
        poll_fn(|context| match waiting.poll(context, &mut f) {
            Looked::Ready(result, _) => Poll::Ready(Ok(result)),
            Looked::Ended(end) => Poll::Ready(Err(end)),
            Looked::Pending => Poll::Pending,
        })
        .await
    }

    /// [`when`](Self::when) for who polls: `f` is run now, and the task of `context` is woken at the next
    /// change, or the next naming of `key`, unless `f` is ready. A task that polls no more is woken once
    /// in vain.
    pub fn poll_when<R>(
        &self,
        key: u64,
        context: &Context<'_>,
        mut f: impl FnMut(&mut C, Instant) -> Poll<R>,
    ) -> Poll<Result<R, LinkError<C::Kind>>> {
        let mut state = self.lock();
        let now = now();
        if let Poll::Ready(result) = f(&mut state.connection, now) {
            self.moved(state, now);
            return Poll::Ready(Ok(result));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        state.waiters.add_once(key, context.waker());
        Poll::Pending
    }

    /// Waits until the link is known to end: at once when the peer breaks the protocol or a limit, or ends
    /// while answers are owed to it
    /// (what is still owed and the goodbye, of [`CLOSE_DEADLINE`](crate::CLOSE_DEADLINE) and
    /// [`ERROR_FLUSH_DEADLINE`](crate::ERROR_FLUSH_DEADLINE) at the most, are still to come), else with its end.
    pub async fn fault(&self) -> LinkError<C::Kind> {
        let known = |state: &mut State<C>| state.fault.clone().map_or(Poll::Pending, Poll::Ready);
        self.look(0, known).await.unwrap_or_else(|end| end)
    }

    /// How much of use the peer has brought: units of work that were finished.
    pub(crate) fn brought(&self) -> u64 {
        self.lock().connection.finished()
    }

    /// What the peer did, if that is known.
    pub(crate) fn known_fault(&self) -> Option<LinkError<C::Kind>> {
        self.lock().fault.clone()
    }

    /// From our end on, waits no longer than this for the peer's:
    /// [`CLOSE_DEADLINE`](crate::CLOSE_DEADLINE) unless it is shorter. What is still to be sent keeps
    /// its time.
    pub fn close_within(&self, stall_timeouts: Duration) {
        let mut state = self.lock();
        state.stall_timeouts = stall_timeouts;
        self.changed(state);
    }

    /// Reads no faster than `pace`, which other links may share: above it the peer is made to wait.
    pub fn pace(&self, pace: Arc<Pace>) {
        let mut state = self.lock();
        state.pace = Some(pace);
        self.changed(state);
    }

    /// The first bytes of its transport are still to be looked at.
    pub(crate) fn hear(&self, unheard: Option<Unheard>) {
        self.lock().unheard = unheard;
    }

    /// Re-runs the waits of `key`: called by whoever sees, in an event, what changed for it.
    pub fn wake(&self, key: u64) {
        let mut wakers = Vec::new();
        self.lock().waiters.take(key, &mut wakers);
        wake_all(wakers);
    }

    /// Wakes the driver, which looks at the connection then: for who shares something with other links.
    pub fn driver(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.wake_driver)
    }

    /// Whether the link has ended: nothing will be read or written any more.
    pub fn is_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Whether our end was sent: everything before it is with the system, and only the peer's end is waited for.
    pub fn is_shut(&self) -> bool {
        self.lock().is_shut
    }

    /// How far the peer is with what was written to the transport that carries the link now.
    pub fn taking(&self) -> Taking {
        let state = self.lock();
        let socket = state.inline.socket.as_ref();
        socket.map_or(Taking::Unknown, Writer::taking)
    }

    /// Whether the peer has ended its direction in order (over TLS with its `close_notify`), when its system had
    /// taken every byte that was sent to it, and nothing was sent since. On sockets driven by
    /// [`drive_socket`](Self::drive_socket); `false` on other transports.
    pub fn is_ended_in_order(&self) -> bool {
        let state = self.lock();
        let written = state.stats.bytes_out.saturating_add(state.inline.written);
        state.taken_at_end == Some(written)
    }

    /// Why the link has ended, if it has.
    pub fn end(&self) -> Option<LinkError<C::Kind>> {
        self.lock().end.clone()
    }

    /// Whether a transport carries the link now. A connection that outlives its transports
    /// ([`Connection::detached`]) is in between not driven and not ended.
    pub fn is_driven(&self) -> bool {
        self.lock().is_driven
    }

    /// Ends the link at once: nothing more is read or written.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.aborted = true;
        if state.is_driven {
            self.changed(state);
        } else {
            self.end_with(state, End::Aborted);
        }
    }

    /// What has passed through this link and what it holds.
    pub fn stats(&self) -> LinkStats {
        let state = self.lock();
        let mut stats = state.stats;
        stats.bytes_out = stats.bytes_out.saturating_add(state.inline.written);
        drop(state);
        stats.charged = self.shared.account.charge();
        stats
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<C>> {
        // A panic of the application's closure is reported where it happened; the link goes on.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive of this generation is over: so is the link, unless its connection goes on without a
    /// transport.
    pub(crate) fn undriven(&self, generation: u64, end: LinkError<C::Kind>) {
        let mut state = self.lock();
        if state.generation != generation || !state.is_driven {
            return;
        }
        state.is_driven = false;
        state.end_inline();
        state.stats.paused = false;
        if state.connection.detached(now()) && !state.aborted {
            state.fault = None;
            self.changed(state);
        } else {
            self.end_with(state, end);
        }
    }

    /// Marks the link as ended and wakes every wait, whatever its key.
    fn end_with(&self, mut state: MutexGuard<'_, State<C>>, end: LinkError<C::Kind>) {
        state.end.get_or_insert(end);
        self.shared.account.depart(state.connection.held_bytes());
        let wakers = state.waiters.take_all();
        drop(state);
        wake_all(wakers);
    }

    /// After something was called: the driver is left at rest if all that comes of it is done here.
    fn moved(&self, mut state: MutexGuard<'_, State<C>>, now: Instant) {
        let it = &mut *state;
        if !it.inline.is_done(&mut it.connection, now) {
            self.changed(state);
            return;
        }
        let wakers = state.wakers(true);
        drop(state);
        wake_all(wakers);
    }

    fn changed(&self, mut state: MutexGuard<'_, State<C>>) {
        state.calls = state.calls.wrapping_add(1);
        // It is woken: nothing is written in between.
        state.inline.idle = None;
        if !state.is_driven {
            // No driver keeps the account.
            self.settle(&state);
        }
        let wakers = state.wakers(true);
        drop(state);
        self.shared.wake_driver.notify_one();
        wake_all(wakers);
    }

    fn settle(&self, state: &State<C>) {
        self.shared.account.settle(state.connection.held_bytes());
    }
}

/// Tokio's clock, so that paused-time tests run an hour in microseconds.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

impl<C: Connection> State<C> {
    /// The transport is gone, and with it what was left to write.
    pub(crate) fn end_inline(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(inline.written);
    }

    /// Whose waits are to be looked at again: those of the keys that the connection names, and, if it has
    /// changed, those of key 0.
    pub(crate) fn wakers(&mut self, changed: bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        if changed {
            self.waiters.take(0, &mut wakers);
        }
        while let Some(key) = self.connection.poll_wake() {
            self.waiters.take(key, &mut wakers);
        }
        wakers
    }
}

/// Who waits, by key.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Those of key 0.
    unkeyed: Vec<Waiter>,
    keyed: Table<u64, Vec<Waiter>>,
    next_id: u64,
}

struct Waiter {
    id: u64,
    waker: Waker,
}

impl Waiters {
    fn take(&mut self, key: u64, into: &mut Vec<Waker>) {
        let taken = match key {
            0 => std::mem::take(&mut self.unkeyed),
            _ if self.keyed.is_empty() => return,
            _ => self.keyed.remove(&key).unwrap_or_default(),
        };
        into.extend(taken.into_iter().map(|waiter| waiter.waker));
    }

    fn take_all(&mut self) -> Vec<Waker> {
        let keyed = self.keyed.drain().flat_map(|(_, waiters)| waiters);
        let all = self.unkeyed.drain(..).chain(keyed);
        all.map(|waiter| waiter.waker).collect()
    }

    fn add(&mut self, key: u64, waker: &Waker) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        let waiters = match key {
            0 => &mut self.unkeyed,
            _ => self.keyed.entry(key).or_default(),
        };
        waiters.push(Waiter {
            id: self.next_id,
            waker: waker.clone(),
        });
        self.next_id
    }

    /// Adds a waker unless it waits already.
    fn add_once(&mut self, key: u64, waker: &Waker) {
        let waiters = match key {
            0 => Some(&self.unkeyed),
            _ => self.keyed.get(&key),
        };
        let is_there = waiters.is_some_and(|waiters| {
            let mut wakers = waiters.iter().map(|waiter| &waiter.waker);
            wakers.any(|other| other.will_wake(waker))
        });
        if !is_there {
            self.add(key, waker);
        }
    }

    fn remove(&mut self, key: u64, id: u64) {
        if key == 0 {
            self.unkeyed.retain(|waiter| waiter.id != id);
            return;
        }
        let Some(waiters) = self.keyed.get_mut(&key) else {
            return;
        };
        waiters.retain(|waiter| waiter.id != id);
        if waiters.is_empty() {
            self.keyed.remove(&key);
        }
    }
}

/// One `when`; dropping it takes it off the list.
struct Waiting<'a, C: Connection> {
    link: &'a Link<C>,
    key: u64,
    id: Option<u64>,
}

impl<'a, C: Connection> Waiting<'a, C> {
    fn new(link: &'a Link<C>, key: u64) -> Self {
        Self {
            link,
            key,
            id: None,
        }
    }

    fn poll<R>(
        &mut self,
        context: &Context<'_>,
        f: &mut impl FnMut(&mut State<C>) -> Poll<R>,
    ) -> Looked<'a, C, R> {
        let mut state = self.link.lock();
        if let Some(id) = self.id.take() {
            state.waiters.remove(self.key, id);
        }
        if let Poll::Ready(result) = f(&mut state) {
            return Looked::Ready(result, state);
        }
        if let Some(end) = &state.end {
            return Looked::Ended(end.clone());
        }
        self.id = Some(state.waiters.add(self.key, context.waker()));
        Looked::Pending
    }
}

/// The outcome of a look at a link, which is still locked where it is ready.
enum Looked<'a, C: Connection, R> {
    Ready(R, MutexGuard<'a, State<C>>),
    Ended(LinkError<C::Kind>),
    Pending,
}

impl<C: Connection> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.link.lock().waiters.remove(self.key, id);
        }
    }
}
