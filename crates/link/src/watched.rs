//! A value behind a short lock whose changes can be waited for.
//!
//! For a value without a driver and with few waiters: each change looks at all waits again. Waits on a link have keys
//! ([`Link::when`](crate::Link::when)).

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value and the waits for its changes.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// This value.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// The value, to be read or to be changed in a way that nobody waits for.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value and wakes every wait.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// Runs `look` now and after each change until it answers. Cancel-safe: an answer that `look` has not given has
    /// taken nothing.
    pub async fn until<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look: a change after it is not missed.
            changed.as_mut().enable();
            if let Some(answer) = look(&mut self.lock()) {
                return answer;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_change_ends_the_waits_that_it_makes_true_and_leaves_the_others() {
        let watched = Watched::new(0);
        let mut context = Context::from_waker(Waker::noop());
        let at_least = |least| watched.until(move |value| (*value >= least).then_some(*value));
        let (mut one, mut two) = (pin!(at_least(1)), pin!(at_least(2)));
        assert!(one.as_mut().poll(&mut context).is_pending());
        assert!(two.as_mut().poll(&mut context).is_pending());
        watched.change(|value| *value = 1);
        assert_eq!(one.as_mut().poll(&mut context), Poll::Ready(1));
        assert!(two.as_mut().poll(&mut context).is_pending());
        watched.change(|value| *value = 3);
        assert_eq!(two.as_mut().poll(&mut context), Poll::Ready(3));
        assert_eq!(*watched.lock(), 3);
    }
}
