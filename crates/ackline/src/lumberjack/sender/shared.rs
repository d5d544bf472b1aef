//! The state that a sender's tasks and its application share, and the wakes between them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ackline_link::Link;
use tokio::sync::Notify;

use super::super::Writer;
use super::pool::{Phase, Pool};
use super::report::HostState;

/// The pool and the links, with the waits for a change of them. Locks: a link's, then the pool's; never the
/// reverse.
pub(super) struct Shared {
    pool: Mutex<Pool>,
    /// Each host's connection, while there is one.
    links: Mutex<Vec<Option<Link<Writer>>>>,
    /// For hosts without a connection: something is to be sent.
    work: Notify,
    /// For the application: something was acknowledged, or a host was reached or not.
    changed: Notify,
}

impl Shared {
    pub(super) fn new(pool: Pool, hosts: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: Mutex::new(pool),
            links: Mutex::new(vec![None; hosts]),
            work: Notify::new(),
            changed: Notify::new(),
        })
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Option<Link<Writer>>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connected(&self, host: usize, link: Link<Writer>) {
        if let Some(place) = self.links().get_mut(host) {
            *place = Some(link);
        }
        {
            let mut pool = self.pool();
            pool.tried(host);
            if let Some(host) = pool.host(host) {
                host.state = HostState::Connected;
                host.connections = host.connections.saturating_add(1);
            }
        }
        self.changed.notify_waiters();
    }

    pub(super) fn disconnected(&self, host: usize) {
        if let Some(place) = self.links().get_mut(host) {
            *place = None;
        }
        self.pool().set_room(host, None);
        self.woken();
        self.changed.notify_waiters();
    }

    /// A host could not be reached: any host may take the events that stayed with it.
    pub(super) fn failed(&self, host: usize, reason: Arc<str>) {
        {
            let mut pool = self.pool();
            pool.release(host);
            pool.tried(host);
            if let Some(host) = pool.host(host) {
                host.last_error = Some(reason);
            }
        }
        self.woken();
        self.changed.notify_waiters();
    }

    pub(super) fn set_state(&self, host: usize, state: HostState) {
        if let Some(host) = self.pool().host(host) {
            host.state = state;
        }
    }

    /// A host has sent something, or something of it was acknowledged.
    pub(super) fn moved(&self, grown: bool) {
        if grown {
            self.changed.notify_waiters();
        }
        let is_of_interest = {
            let pool = self.pool();
            pool.has_work() || pool.phase != Phase::Open
        };
        if is_of_interest {
            self.woken();
        }
    }

    /// Has every host look again.
    pub(super) fn woken(&self) {
        self.work.notify_waiters();
        let links: Vec<_> = self.links().iter().flatten().cloned().collect();
        for link in links {
            link.wake(0);
        }
    }

    /// Waits until there is something for this host to send; `false` when there will be nothing more.
    pub(super) async fn until_wanted(&self, host: usize) -> bool {
        wait(&self.work, || {
            let pool = self.pool();
            if pool.is_over() {
                return Some(false);
            }
            pool.is_wanted(host).then_some(true)
        })
        .await
    }

    /// `wait`, or `None` once nothing will be sent any more.
    pub(super) async fn unless_over<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut over = pin!(self.until(|pool| pool.is_over().then_some(())));
        let mut wait = pin!(wait);
        poll_fn(|context| {
            if let Poll::Ready(result) = wait.as_mut().poll(context) {
                return Poll::Ready(Some(result));
            }
            over.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// Waits until `f` has an answer. Takes nothing itself, so giving up loses nothing.
    pub(super) async fn until<T>(&self, mut f: impl FnMut(&mut Pool) -> Option<T>) -> T {
        wait(&self.changed, || f(&mut self.pool())).await
    }

    /// Moves on in its life and tells everybody.
    pub(super) fn enter(&self, phase: Phase) {
        {
            let mut pool = self.pool();
            pool.phase = pool.phase.max(phase);
        }
        self.woken();
        self.changed.notify_waiters();
    }
}

async fn wait<T>(notify: &Notify, mut f: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(notify.notified());
        notified.as_mut().enable();
        if let Some(answer) = f() {
            return answer;
        }
        notified.await;
    }
}
