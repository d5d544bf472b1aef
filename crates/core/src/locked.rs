//! Locks of state that stays sound when a holder panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of another holder.
#[inline]
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
