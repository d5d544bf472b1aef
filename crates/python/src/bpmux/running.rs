//! The handlers that run in threads, and those among them with a call that the peer has given up.
//!
//! A thread cannot be ended, so a handler runs on when nobody waits for it any more. It then leaves its place to
//! another handler, up to a limit.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use ackline::bpmux::{Incoming, Interest, Watch};

/// The handlers that run.
pub(super) struct Running {
    handlers: HashMap<u64, Handler>,
    last: u64,
    /// Most handlers that run at once for calls that were not given up.
    most: usize,
    /// Handlers with a call that was given up; there may be more than `most_abandoned`.
    abandoned: usize,
    /// Most handlers that may run beside the others after their call was given up.
    most_abandoned: usize,
    /// Whether a warning was logged since fewer of these handlers ran.
    is_told: bool,
}

enum Handler {
    /// The handler reads, or its call was given up too late: it counts.
    Counted,
    /// The peer can give up its call.
    Wanted(Watch),
    /// The leader waits for the peer to give up the call.
    Watched(Pin<Box<dyn Future<Output = ()> + Send>>),
    Abandoned,
}

impl Running {
    pub(super) fn new(most: usize, most_abandoned: usize) -> Self {
        Self {
            handlers: HashMap::new(),
            last: 0,
            most,
            abandoned: 0,
            most_abandoned,
            is_told: false,
        }
    }

    /// Begins a handler and returns its number.
    pub(super) fn begin(&mut self, incoming: &Incoming) -> u64 {
        let handler = match incoming {
            Incoming::Request(request) => Handler::Wanted(request.watch()),
            Incoming::Stream(sink, _) => Handler::Wanted(sink.watch()),
            // Messages that came before the end may still have to be read.
            _ => Handler::Counted,
        };
        self.last += 1;
        self.handlers.insert(self.last, handler);
        self.last
    }

    /// Removes a handler that has returned.
    pub(super) fn end(&mut self, handler: u64) {
        if let Some(Handler::Abandoned) = self.handlers.remove(&handler) {
            self.abandoned -= 1;
        }
    }

    /// Threads that may be needed: one for each handler and, if calls can be given up, one that waits for that.
    pub(super) fn most_threads(&self) -> usize {
        let beside = usize::from(self.most_abandoned > 0);
        let abandoned = self.abandoned.min(self.most_abandoned);
        self.most.saturating_add(beside).saturating_add(abandoned)
    }

    /// Whether one more may begin. While none may, `waker` is woken when a call is given up.
    pub(super) fn has_room(&mut self, waker: &Waker) -> bool {
        if self.counted() < self.most {
            return true;
        }
        if self.abandoned < self.most_abandoned {
            self.look(&mut Context::from_waker(waker));
        }
        let has_room = self.counted() < self.most;
        if has_room || self.most_abandoned == 0 {
            self.is_told = false;
        } else if self.abandoned >= self.most_abandoned && !self.is_told {
            self.is_told = true;
            tracing::warn!(
                target: "ackline::bpmux",
                code = "bpmux.handlers_abandoned",
                abandoned = self.abandoned,
                "handlers run on whose calls were given up: nothing more is handled until some return"
            );
        }
        has_room
    }

    /// Handlers that take a place.
    fn counted(&self) -> usize {
        let beside = self.abandoned.min(self.most_abandoned);
        self.handlers.len().saturating_sub(beside)
    }

    /// Checks which calls were given up.
    fn look(&mut self, context: &mut Context<'_>) {
        for handler in self.handlers.values_mut() {
            if let Handler::Wanted(watch) = handler {
                let watch = watch.clone();
                *handler = Handler::Watched(Box::pin(async move {
                    watch.ready(Interest::Cancelled).await;
                }));
            }
            if let Handler::Watched(given_up) = handler
                && given_up.as_mut().poll(context).is_ready()
            {
                *handler = Handler::Abandoned;
                self.abandoned += 1;
            }
        }
    }
}
