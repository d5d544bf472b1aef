//! One tokio runtime per process, made when it is first needed, and the rules that keep it sound across `fork`.
//!
//! A forked child has none of its parent's threads. An object made before the fork is therefore never
//! used there ([`Owned::get`] refuses) and never dropped: dropping an inherited socket would
//! deregister it from the parent's epoll instance and so kill the parent's link.

use std::fmt::Display;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{errors, given_back, logging};

/// Worker threads at the least: one connection keeps one busy, the second keeps acknowledgements flowing meanwhile.
const LEAST_WORKERS: usize = 2;

/// As many as the processors that this process may use.
fn workers() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.max(LEAST_WORKERS)
}
/// Turns of busy links before a worker looks for sockets and links that have become ready. With tokio's own 61 a peer
/// waits for 61 turns of others that have work without an end.
const TURNS_BETWEEN_LOOKS: u32 = 4;

/// Turns before a worker looks for tasks that other threads have woken, or that did not fit into its own queue.
/// The spool's threads wake links, and when thousands of connections come at once, all others stand behind them.
const TURNS_BETWEEN_WAKES: u32 = 1;

/// How often a waiting call looks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Locked only while attached to the interpreter, as is `os.fork`: a child never finds it locked.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The runtime of this process.
pub(crate) fn handle(_py: Python<'_>) -> PyResult<Handle> {
    let mut current = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some((owner, runtime)) = *current
        && owner == pid
    {
        return Ok(runtime.handle().clone());
    }
    logging::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("ackline")
        .event_interval(TURNS_BETWEEN_LOOKS)
        .global_queue_interval(TURNS_BETWEEN_WAKES)
        .enable_all()
        .build()
        .map_err(|error| errors::transport(&error))?;
    // Never dropped: the parent's has no threads here, and ours lives as long as the process.
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    given_back::begin(runtime);
    *current = Some((pid, runtime));
    Ok(runtime.handle().clone())
}

/// A value that belongs to the process that made it.
pub(crate) struct Owned<T> {
    pid: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            pid: std::process::id(),
            value: ManuallyDrop::new(value),
        }
    }

    /// The value, or `ForkError` in a child.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(errors::forked)
    }

    /// The value, unless this is a child; for callers that may not raise.
    pub(crate) fn here(&self) -> Option<&T> {
        (self.pid == std::process::id()).then_some(&self.value)
    }
}

impl<T> Owned<Mutex<T>> {
    /// The value behind its lock, or `ForkError` in a child.
    pub(crate) fn lock(&self) -> PyResult<MutexGuard<'_, T>> {
        let value = self.get()?;
        Ok(value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for Owned<T> {
    #[allow(unsafe_code)] // a field that may have to be forgotten has no safe form but an Option
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: dropped here only, and `drop` runs once.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// Runs `future` to its end with the interpreter released, looking for signals meanwhile.
/// `None` when `timeout` passed first.
pub(crate) fn block_on<F>(
    py: Python<'_>,
    timeout: Option<Duration>,
    future: F,
) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let handle = handle(py)?;
    let mut future = pin!(future);
    let alarm = Alarm::new();
    in_slices(py, timeout, |slice| {
        let _inside = handle.enter();
        parked(slice, future.as_mut(), &alarm)
    })
}

/// Calls `wait` with the interpreter released until it answers, for a slice of the time each, and looks for signals
/// in between. `None` when `timeout` passed first.
pub(crate) fn in_slices<R: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut wait: impl FnMut(Duration) -> Option<R> + Send,
) -> PyResult<Option<R>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    loop {
        let slice = left().map_or(SIGNAL_CHECK, |left| left.min(SIGNAL_CHECK));
        let done = py.detach(|| wait(slice));
        if done.is_some() {
            return Ok(done);
        }
        py.check_signals()?;
        if left().is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

/// Runs `future`, which ends at once, with the interpreter released and without looking at signals.
pub(crate) fn finish<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let handle = handle(py)?;
    Ok(py.detach(|| handle.block_on(future)))
}

/// Polls `future`, as often as it wakes this thread, for so long; a thread that only waits needs no timer of the
/// runtime's.
fn parked<F: Future>(
    time: Duration,
    mut future: Pin<&mut F>,
    alarm: &Arc<Alarm>,
) -> Option<F::Output> {
    let waker = Waker::from(Arc::clone(alarm));
    let mut context = Context::from_waker(&waker);
    let until = Instant::now() + time;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !alarm.rings_until(until) {
            return None;
        }
    }
}

/// Wakes the thread that made it.
pub(crate) struct Alarm {
    thread: Thread,
    /// Others may use the thread's own token.
    rung: AtomicBool,
}

impl Alarm {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            rung: AtomicBool::new(false),
        })
    }

    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until it rings; in its thread.
    pub(crate) fn wait(&self) {
        while !self.rung.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }

    /// Waits for it; whether it rang in time.
    fn rings_until(&self, until: Instant) -> bool {
        while !self.rung.swap(false, Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Seconds as Python gives them in the argument or option `name`.
pub(crate) fn seconds(name: &str, time: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(time) = time else {
        return Ok(None);
    };
    let checked = Duration::try_from_secs_f64(time);
    checked.map(Some).map_err(|_| no_time(name, &time))
}

/// The error for a value that is no time.
pub(crate) fn no_time(name: &str, value: &dyn Display) -> PyErr {
    let message = format!("{name} is {value}; it is in seconds, at least 0 and finite");
    errors::usage(name, &message)
}

/// Raises if `value`, the argument `name`, is no number of seconds.
#[pyfunction]
pub(crate) fn check_seconds(name: &str, value: Option<f64>) -> PyResult<()> {
    seconds(name, value).map(drop)
}
