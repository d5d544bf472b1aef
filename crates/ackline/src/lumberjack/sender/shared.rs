//! The state that a sender's tasks and its application share, and the wakes between them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use ackline_core::locked;
use ackline_link::{Link, Watched};
use ackline_lumberjack::pool::{HostState, Phase, Pool};

use super::super::Writer;
use super::{SenderError, within};

/// The pool and the links, with the waits for a change of them. Locks: a link's, then the pool's; never the
/// reverse.
pub(super) struct Shared {
    /// The application waits for its changes: something was acknowledged, or a host was reached or not.
    pool: Watched<Pool>,
    /// Each host's connection, while there is one.
    links: Mutex<Vec<Option<Link<Writer>>>>,
    /// For hosts without a connection: something is to be sent. Its lock is taken before the pool's.
    work: Watched<()>,
}

impl Shared {
    pub(super) fn new(pool: Pool, hosts: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: Watched::new(pool),
            links: Mutex::new(vec![None; hosts]),
            work: Watched::default(),
        })
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    pub(super) fn connected(&self, host: usize, link: Link<Writer>) {
        if let Some(place) = locked(&self.links).get_mut(host) {
            *place = Some(link);
        }
        self.pool.change(|pool| pool.connected(host));
    }

    pub(super) fn disconnected(&self, host: usize) {
        if let Some(place) = locked(&self.links).get_mut(host) {
            *place = None;
        }
        self.pool.change(|pool| pool.disconnected(host));
        self.woken();
    }

    /// A host could not be reached: any host may take the events that stayed with it.
    pub(super) fn failed(&self, host: usize, reason: Arc<str>) {
        self.pool.change(|pool| pool.failed(host, reason));
        self.woken();
    }

    pub(super) fn set_state(&self, host: usize, state: HostState) {
        if let Some(host) = self.pool().host(host) {
            host.state = state;
        }
    }

    /// A host has sent something, or something of it was acknowledged.
    pub(super) fn moved(&self, grown: bool) {
        if grown {
            self.pool.change(|_| ());
        }
        let is_of_interest = {
            let pool = self.pool();
            pool.has_work() || pool.phase() != Phase::Open
        };
        if is_of_interest {
            self.woken();
        }
    }

    /// Has every host look again.
    pub(super) fn woken(&self) {
        self.work.change(|()| ());
        let links: Vec<_> = locked(&self.links).iter().flatten().cloned().collect();
        for link in links {
            link.wake(0);
        }
    }

    /// Waits until there is something for this host to send; `false` when there will be nothing more.
    pub(super) async fn until_wanted(&self, host: usize) -> bool {
        let wanted = |(): &mut ()| {
            let pool = self.pool();
            if pool.is_over() {
                return Some(false);
            }
            pool.is_wanted(host).then_some(true)
        };
        self.work.until(wanted).await
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
    pub(super) async fn until<T>(&self, f: impl FnMut(&mut Pool) -> Option<T>) -> T {
        self.pool.until(f).await
    }

    /// Waits until `is_settled` holds.
    pub(super) async fn settled(
        &self,
        timeout: Option<Duration>,
        is_settled: impl Fn(&Pool) -> bool,
    ) -> Result<(), SenderError> {
        let settled = self.until(|pool| {
            if is_settled(pool) {
                return Some(Ok(()));
            }
            let unacknowledged = pool.unacknowledged();
            (pool.phase() == Phase::Closed).then_some(Err(SenderError::Closed { unacknowledged }))
        });
        within(timeout, settled)
            .await
            .unwrap_or_else(|| Err(self.late()))
    }

    /// The error of a wait whose time is up.
    pub(super) fn late(&self) -> SenderError {
        let pool = self.pool();
        SenderError::Timeout {
            unacknowledged: pool.unacknowledged(),
            reason: pool.last_error(),
        }
    }

    /// Moves on in its life and tells everybody.
    pub(super) fn enter(&self, phase: Phase) {
        self.pool.change(|pool| pool.enter(phase));
        self.woken();
    }
}
