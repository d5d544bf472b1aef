//! A listener of any protocol: accepts connections and keeps the links that come of them until each is handed out once.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use ackline_link::{
    Acceptor, AcceptorStats, Admitted, BoundListener, Refused, TurnedAway, Watched,
};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinHandle};

/// Accepts connections and makes links of them. Dropping it closes the socket and ends the links that nobody took.
pub struct Listening<T> {
    url: String,
    acceptor: Acceptor,
    made: MadeLinks<T>,
    refusals: Refusals,
    /// Ends the task that accepts.
    abort: AbortHandle,
    accepting: Mutex<JoinHandle<()>>,
}

/// The links that nobody has taken yet. Clones are the same.
pub(crate) struct MadeLinks<T>(Arc<Watched<State<T>>>);

struct State<T> {
    ready: VecDeque<T>,
    /// Nothing more is accepted.
    is_closed: bool,
    /// Nobody takes a link any more.
    is_abandoned: bool,
}

/// The last connections that were turned away or ended for their input. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Watched<VecDeque<Refused>>>);

impl<T: Send + 'static> Listening<T> {
    /// Accepts at a listener. `serve` is given where links go, and answers the function that makes them of connections.
    /// `code` is of the log line where accepting ends by itself. Must run inside a tokio runtime.
    pub(crate) fn start<F: Fn(Admitted) + Clone + Send + Sync + 'static>(
        listener: BoundListener,
        acceptor: Acceptor,
        code: &'static str,
        serve: impl FnOnce(MadeLinks<T>, &Refusals) -> F,
    ) -> Self {
        Self::start_with(listener, acceptor, code, |made, refusals| {
            let serve = serve(made, refusals);
            let refusals = refusals.clone();
            move |outcome| match outcome {
                Ok(admitted) => serve(admitted),
                Err(turned) => refusals.turned_away(turned),
            }
        })
    }

    /// As [`start`](Self::start); the function that `serve` answers also takes the connections that are turned away.
    pub(crate) fn start_with<F>(
        listener: BoundListener,
        acceptor: Acceptor,
        code: &'static str,
        serve: impl FnOnce(MadeLinks<T>, &Refusals) -> F,
    ) -> Self
    where
        F: Fn(Result<Admitted, TurnedAway>) + Clone + Send + Sync + 'static,
    {
        let url = listener.url().to_owned();
        let (made, refusals) = (MadeLinks::new(), Refusals::default());
        let told = serve(made.clone(), &refusals);
        let accepting = tokio::spawn({
            let (acceptor, made) = (acceptor.clone(), made.clone());
            async move {
                let error = acceptor.run(&listener, told).await;
                tracing::error!(code, %error, "accepting ended");
                made.0.change(|state| state.is_closed = true);
            }
        });
        Self {
            url,
            acceptor,
            made,
            refusals,
            abort: accepting.abort_handle(),
            accepting: Mutex::new(accepting),
        }
    }

    /// The URL listened on, with the port that was chosen.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Counts of refused connections and of health checks.
    pub fn stats(&self) -> AcceptorStats {
        self.acceptor.stats()
    }

    /// The last connections that were refused, the oldest first.
    pub fn refused(&self) -> Vec<Refused> {
        self.refusals.0.lock().iter().cloned().collect()
    }

    /// The next link; `None` if none will come. Cancel-safe.
    pub async fn next(&self) -> Option<T> {
        let next = |state: &mut State<T>| match state.ready.pop_front() {
            None => state.is_closed.then_some(None),
            link => Some(link),
        };
        self.made.0.until(next).await
    }

    /// The next link, if one is there now.
    pub fn try_next(&self) -> Option<T> {
        self.made.0.lock().ready.pop_front()
    }

    /// Ready when a link is there, or none will be.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<T> {
        let made = Arc::clone(&self.made.0);
        let is_ready = |state: &mut State<T>| state.is_closed || !state.ready.is_empty();
        async move { made.until(|state| is_ready(state).then_some(())).await }
    }

    /// Whether nothing more is accepted.
    pub fn is_closed(&self) -> bool {
        self.made.0.lock().is_closed
    }

    /// Accepts no more: when this returns, the socket is closed and its address is free. Cancel-safe.
    pub async fn close(&self) {
        self.abort.abort();
        let mut accepting = self.accepting.lock().await;
        if !accepting.is_finished() {
            let _ = (&mut *accepting).await;
        }
        self.made.0.change(|state| state.is_closed = true);
    }

    /// Accepts no more, and ends the links that nobody has taken; the socket is closed soon.
    pub fn stop(&self) {
        self.abort.abort();
        self.made.abandon();
    }

    /// As [`stop`](Self::stop); when this returns, the socket is closed and its address is free.
    pub async fn end(&self) {
        self.stop();
        self.close().await;
    }
}

impl<T> Drop for Listening<T> {
    fn drop(&mut self) {
        self.abort.abort();
        self.made.abandon();
    }
}

impl<T> Clone for MadeLinks<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> MadeLinks<T> {
    fn new() -> Self {
        Self(Arc::new(Watched::new(State {
            ready: VecDeque::new(),
            is_closed: false,
            is_abandoned: false,
        })))
    }

    /// Hands a link out, or drops it, which ends it, if nobody takes links any more. Waiting links are
    /// bounded by the acceptor's slots, or by the links that a protocol keeps.
    pub(crate) fn put(&self, link: T) {
        let unwanted = self.0.change(|state| {
            if state.is_abandoned {
                return Some(link);
            }
            state.ready.push_back(link);
            None
        });
        drop(unwanted);
    }

    fn abandon(&self) {
        let left = self.0.change(|state| {
            (state.is_closed, state.is_abandoned) = (true, true);
            std::mem::take(&mut state.ready)
        });
        drop(left);
    }
}

impl Refusals {
    /// Logs a connection that was turned away, and remembers it unless that was done before.
    pub(crate) fn turned_away(&self, turned: TurnedAway) {
        log_refusal(&turned);
        if let TurnedAway::Refused(refused) = turned {
            self.remember(refused);
        }
    }

    /// Remembers a refused connection; the oldest goes first.
    pub(crate) fn remember(&self, refused: Refused) {
        self.0.change(|refusals| {
            if refusals.len() == MAX_REFUSED {
                refusals.pop_front();
            }
            refusals.push_back(refused);
        });
    }
}

/// Logs a refused connection, unless there were many lines already.
pub(crate) fn log_refusal(turned: &TurnedAway) {
    if let TurnedAway::Refused(refused) | TurnedAway::Unreported(refused) = turned
        && let Some(times) = refused.times
    {
        let (peer, code, why) = (&*refused.peer, refused.code, &refused.message);
        let offset = refused.offset;
        tracing::warn!(peer, code, offset, times, why, "connection refused");
    }
}

/// Refused connections that are remembered.
const MAX_REFUSED: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_comes_after_everybody_has_left_is_dropped() {
        let (made, link) = (MadeLinks::new(), Arc::new(()));
        made.put(Arc::clone(&link));
        assert_eq!(Arc::strong_count(&link), 2);
        made.abandon();
        assert_eq!(Arc::strong_count(&link), 1, "those that wait are ended");
        made.put(Arc::clone(&link));
        assert_eq!(Arc::strong_count(&link), 1, "and those that come");
    }
}
