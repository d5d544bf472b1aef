//! A connection behind a short lock, and its waiters.
//!
//! Decides which waiters are woken. A change (a `call`, progress of the driver, a wait that became
//! ready) re-runs the waits of key 0. Waits of another key are re-run when the connection names
//! that key ([`Connection::poll_wake`]), by [`Link::wake`], and at the end of the link, so that
//! many waiting calls do not re-run at each change.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ackline_core::{Connection, Table};
use tokio::sync::Notify;

use crate::acceptor::PostponedCheck;
use crate::budget::Account;
use crate::inline_write::InlineWrite;
use crate::socket::{Taking, Writer};
use crate::units::now;
use crate::{Budget, CLOSE_DEADLINE, End, RateLimit};

/// A connection that application and driver share. Clones are the same link.
pub struct Link<C: Connection> {
    pub(crate) shared: Arc<Shared<C>>,
}

/// The traffic and memory of a link.
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
    pub(crate) end: Option<End<C::Kind>>,
    /// The peer's fault, from the moment it is known; the goodbye may still be in progress.
    pub(crate) fault: Option<End<C::Kind>>,
    /// Time from our end to the peer's.
    pub(crate) close_timeout: Duration,
    pub(crate) aborted: bool,
    pub(crate) drive: DriveState,
    pub(crate) stats: LinkStats,
    pub(crate) rate: Option<Arc<RateLimit>>,
    /// The postponed check of its first bytes.
    pub(crate) postponed_check: Option<PostponedCheck>,
    pub(crate) inline: InlineWrite,
}

/// The state of a link's drives.
#[derive(Default)]
pub(crate) struct DriveState {
    /// Counts `drive` calls: the newest wins.
    pub(crate) generation: u64,
    /// A drive is running, or about to run.
    pub(crate) is_running: bool,
    /// Changes for which the driver was woken.
    pub(crate) calls: u64,
    /// Our end was sent on the transport.
    pub(crate) is_shut: bool,
    /// Bytes that were written when the peer's end came, if its system had taken all of them.
    pub(crate) taken_at_end: Option<u64>,
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

    /// A link whose bytes are charged to `budget` until its last clone is dropped, for a single
    /// peer.
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
            close_timeout: CLOSE_DEADLINE,
            aborted: false,
            drive: DriveState::default(),
            stats: LinkStats::default(),
            rate: None,
            postponed_check: None,
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

    /// Runs `f` under the lock, then wakes the driver, if it has something to do, and the waits of
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
    /// The link has ended, and `f` was not run.
    pub fn call_alive<R>(&self, f: impl FnOnce(&mut C, Instant) -> R) -> Result<R, End<C::Kind>> {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let now = now();
        let result = f(&mut state.connection, now);
        self.moved(state, now);
        Ok(result)
    }

    /// Runs `f` now and after each change until it is ready. For a key other than 0 that is each
    /// time that the connection or [`Link::wake`] names the key. `f` must leave the connection as
    /// it is when it returns `Pending`. Cancel-safe: nothing has happened before `f` is ready.
    ///
    /// # Errors
    /// The link has ended and `f`, run a last time, was still not ready.
    pub async fn when<R>(
        &self,
        key: u64,
        mut f: impl FnMut(&mut C, Instant) -> Poll<R>,
    ) -> Result<R, End<C::Kind>> {
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
    ) -> Result<R, End<C::Kind>> {
        self.look(key, |state| f(&state.connection)).await
    }

    async fn look<R>(
        &self,
        key: u64,
        mut f: impl FnMut(&mut State<C>) -> Poll<R>,
    ) -> Result<R, End<C::Kind>> {
        let mut waiting = Waiting::new(self, key);
        poll_fn(|context| match waiting.poll(context, &mut f) {
            Looked::Ready(result, _) => Poll::Ready(Ok(result)),
            Looked::Ended(end) => Poll::Ready(Err(end)),
            Looked::Pending => Poll::Pending,
        })
        .await
    }

    /// [`when`](Self::when) for callers that poll: `f` is run now, and the task of `context` is
    /// woken at the next change, or the next naming of `key`, unless `f` is ready. A task that no
    /// longer polls is woken once in vain.
    pub fn poll_when<R>(
        &self,
        key: u64,
        context: &Context<'_>,
        mut f: impl FnMut(&mut C, Instant) -> Poll<R>,
    ) -> Poll<Result<R, End<C::Kind>>> {
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

    /// Waits until the link is known to end: at once when the peer breaks the protocol or a limit,
    /// or ends while answers are owed to it; else with the link's end. In the first case the owed
    /// answers and the goodbye may still follow, within [`CLOSE_DEADLINE`](crate::CLOSE_DEADLINE)
    /// and [`ERROR_FLUSH_DEADLINE`](crate::ERROR_FLUSH_DEADLINE).
    pub async fn fault(&self) -> End<C::Kind> {
        let known = |state: &mut State<C>| state.fault.clone().map_or(Poll::Pending, Poll::Ready);
        self.look(0, known).await.unwrap_or_else(|end| end)
    }

    /// The peer's use so far, in finished units of work.
    pub(crate) fn brought(&self) -> u64 {
        self.lock().connection.finished()
    }

    /// The peer's fault, if it is known.
    pub fn known_fault(&self) -> Option<End<C::Kind>> {
        self.lock().fault.clone()
    }

    /// Limits the wait from our end to the peer's: [`CLOSE_DEADLINE`](crate::CLOSE_DEADLINE) unless
    /// this is shorter. Sending keeps its own time.
    pub fn close_within(&self, timeout: Duration) {
        let mut state = self.lock();
        state.close_timeout = timeout;
        self.changed(state);
    }

    /// Reads no faster than `rate`, which other links may share: a faster peer is made to wait.
    pub fn limit_rate(&self, rate: Arc<RateLimit>) {
        let mut state = self.lock();
        state.rate = Some(rate);
        self.changed(state);
    }

    /// Sets the postponed check of the first bytes of its transport.
    pub(crate) fn postpone_check(&self, postponed_check: Option<PostponedCheck>) {
        self.lock().postponed_check = postponed_check;
    }

    /// Re-runs the waits of `key`. Call it when an event shows that their state has changed.
    pub fn wake(&self, key: u64) {
        let mut wakers = Vec::new();
        self.lock().waiters.take(key, &mut wakers);
        wake_all(wakers);
    }

    /// The driver's waker, for state that is shared with other links: the driver then runs the
    /// connection.
    pub fn driver(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.wake_driver)
    }

    /// Whether the link has ended: nothing is read or written any more.
    pub fn is_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Whether our end was sent: the system has everything before it, and only the peer's end is
    /// awaited.
    pub fn is_shut(&self) -> bool {
        self.lock().drive.is_shut
    }

    /// How much of the bytes written to the current transport the peer has taken.
    pub fn taking(&self) -> Taking {
        let state = self.lock();
        let socket = state.inline.socket.as_ref();
        socket.map_or(Taking::Unknown, Writer::taking)
    }

    /// Whether the peer has ended its direction in good order (over TLS with its `close_notify`)
    /// after its system had taken every byte sent to it, and nothing was sent since. Only for
    /// sockets driven by [`drive_socket`](Self::drive_socket); `false` on other transports.
    pub fn is_ended_in_order(&self) -> bool {
        let state = self.lock();
        let written = state.stats.bytes_out.saturating_add(state.inline.written);
        state.drive.taken_at_end == Some(written)
    }

    /// The reason the link has ended, if it has.
    pub fn end(&self) -> Option<End<C::Kind>> {
        self.lock().end.clone()
    }

    /// Whether a transport carries the link now. A connection that outlives its transports
    /// ([`Connection::detached`]) is neither driven nor ended in between.
    pub fn is_driven(&self) -> bool {
        self.lock().drive.is_running
    }

    /// Ends the link at once: nothing more is read or written.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.aborted = true;
        if state.drive.is_running {
            self.changed(state);
        } else {
            self.end_with(state, End::Aborted);
        }
    }

    /// The traffic and memory of this link.
    pub fn stats(&self) -> LinkStats {
        let state = self.lock();
        let mut stats = state.stats;
        stats.bytes_out = stats.bytes_out.saturating_add(state.inline.written);
        drop(state);
        stats.charged = self.shared.account.charge();
        stats
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<C>> {
        // A panic in the application's closure is reported where it happened; the link continues.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the drive of this generation as over. The link ends with it, unless its connection
    /// continues without a transport.
    pub(crate) fn undriven(&self, generation: u64, end: End<C::Kind>) {
        let mut state = self.lock();
        if state.drive.generation != generation || !state.drive.is_running {
            return;
        }
        state.drive.is_running = false;
        state.end_inline();
        state.stats.paused = false;
        if state.connection.detached(now()) && !state.aborted {
            state.fault = None;
            self.changed(state);
        } else {
            self.end_with(state, end);
        }
    }

    /// Marks the link as ended and wakes every wait of any key.
    fn end_with(&self, mut state: MutexGuard<'_, State<C>>, end: End<C::Kind>) {
        state.end.get_or_insert(end);
        self.shared.account.depart(state.connection.held_bytes());
        let wakers = state.waiters.take_all();
        drop(state);
        wake_all(wakers);
    }

    /// After a call: leaves the driver idle if all of the call's output is written here.
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
        state.drive.calls = state.drive.calls.wrapping_add(1);
        // The driver is woken: nothing is written in between.
        state.inline.idle = None;
        if !state.drive.is_running {
            // No driver updates the account.
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

pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

impl<C: Connection> State<C> {
    /// The transport is gone, and its unwritten output with it.
    pub(crate) fn end_inline(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(inline.written);
    }

    /// The wakers of the waits to re-run: those of the keys that the connection names, and, if it
    /// has changed, those of key 0.
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

/// Waiters, by key.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Waiters of key 0.
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

    /// Adds a waker unless it is there already.
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

/// One `when`; dropping it removes its waiter.
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
    Ended(End<C::Kind>),
    Pending,
}

impl<C: Connection> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.link.lock().waiters.remove(self.key, id);
        }
    }
}
