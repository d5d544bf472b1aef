//! What comes of something that takes its time: known once, taken once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What will come of it. Clones are the same one.
pub(crate) struct Outcome<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    result: Mutex<Option<R>>,
    known: Notify,
}

impl<R> Clone for Outcome<R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R> Outcome<R> {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                result: Mutex::new(None),
                known: Notify::new(),
            }),
        }
    }

    /// This came of it.
    pub(crate) fn tell(&self, result: R) {
        *self.lock() = Some(result);
        self.shared.known.notify_waiters();
    }

    /// What came of it, once.
    pub(crate) fn take(&self) -> Option<R> {
        self.lock().take()
    }

    /// Waits until it is known.
    pub(crate) async fn known(self) {
        loop {
            let mut known = std::pin::pin!(self.shared.known.notified());
            known.as_mut().enable();
            if self.lock().is_some() {
                return;
            }
            known.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<R>> {
        let result = self.shared.result.lock();
        result.unwrap_or_else(PoisonError::into_inner)
    }
}
