//! Waits of coroutines, with one waker for each event loop.
//!
//! ```text
//! wake, on any thread ─► token on the queue, descriptor written ─► the loop's reader ─► `poll_woken`: polls those waits
//!                                                                                     └► asyncio's futures are set,
//!                                                                                        callbacks are called
//! ```
//!
//! A wait is polled where it is begun and in `poll_woken`, both in its loop's thread. Waking it puts its token into a
//! queue and writes to a descriptor that the loop watches: no thread of the runtime calls into Python, and none has
//! a task for a wait.

use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsRawFd as _, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use crate::runtime::Owned;
use crate::{errors, runtime};

/// The token of a registered wait, and the future of asyncio that is set when it comes true.
pub(crate) type Standing = (u64, Py<PyAny>);
/// Makes the value that the future is set to.
type Told = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Going = Pin<Box<dyn Future<Output = Told> + Send>>;

/// See `_core.pyi`.
#[pyclass(frozen, weakref, module = "ackline._core")]
pub(crate) struct LoopWaker {
    waits: Owned<Waits>,
    create_future: Py<PyAny>,
}

struct Waits {
    queue: Arc<WakeQueue>,
    /// Locked only while attached to the interpreter: never for long, and never by two.
    table: Mutex<WaitTable>,
}

#[derive(Default)]
struct WaitTable {
    standing: HashMap<u64, Wait>,
    last: u64,
}

struct Wait {
    /// `None` while it is polled.
    going: Option<Going>,
    waker: Arc<WaitWaker>,
    whom: Whom,
}

/// The receiver of the outcome, told in the loop's thread.
enum Whom {
    /// A future of asyncio: it is set.
    Future(Py<PyAny>),
    /// A callback: it is called without arguments.
    Callback(Py<PyAny>),
}

#[pymethods]
impl LoopWaker {
    #[new]
    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let queue = WakeQueue::new().map_err(|error| errors::transport(&error))?;
        let waits = Waits {
            queue: Arc::new(queue),
            table: Mutex::default(),
        };
        Ok(Self {
            waits: Owned::new(waits),
            create_future: event_loop.getattr("create_future")?.unbind(),
        })
    }

    /// The descriptor that the loop watches.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.waits.get()?.queue.signal.fileno())
    }

    /// Polls the waits that were woken, and reports the waits that are over. An error of a callback is raised once
    /// all are reported.
    fn poll_woken(&self, py: Python<'_>) -> PyResult<()> {
        let waits = self.waits.get()?;
        let handle = runtime::handle(py)?;
        let mut woken = waits.woken();
        py.detach(|| {
            let _inside = handle.enter();
            woken.iter_mut().for_each(Woken::poll);
        });
        let mut failed = Ok(());
        for one in woken {
            if let Some((whom, told)) = waits.over(one) {
                failed = failed.and(whom.tell(py, told));
            }
        }
        failed
    }

    /// Gives a wait up, if it is registered.
    fn give_up(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        let wait = self.waits.get()?.lock().standing.remove(&token);
        if let Some(wait) = wait {
            py.detach(|| drop(wait.going));
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.create_future)?;
        // In a forked child the parent's objects are never freed.
        if let Some(waits) = self.waits.here()
            && let Ok(table) = waits.table.try_lock()
        {
            for wait in table.standing.values() {
                let (Whom::Future(told) | Whom::Callback(told)) = &wait.whom;
                visit.call(told)?;
            }
        }
        Ok(())
    }
}

impl LoopWaker {
    /// Begins a wait; `None` if its condition holds already.
    pub(crate) fn wait<F>(&self, py: Python<'_>, ready: F) -> PyResult<Option<Standing>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let begun = self.begin(py, readiness(ready))?;
        if begun.told.is_some() {
            return Ok(None);
        }
        let future = self.create_future.call0(py)?;
        let token = self.stand(begun, Whom::Future(future.clone_ref(py)))?;
        Ok(Some((token, future)))
    }

    /// Begins a wait that calls `callback` at its end; returns its token. `None`, and no call, if its condition holds
    /// already.
    pub(crate) fn call<F>(
        &self,
        py: Python<'_>,
        ready: F,
        callback: Py<PyAny>,
    ) -> PyResult<Option<u64>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let begun = self.begin(py, readiness(ready))?;
        if begun.told.is_some() {
            return Ok(None);
        }
        self.stand(begun, Whom::Callback(callback)).map(Some)
    }

    /// Begins a wait with an outcome, and sets the future to it.
    pub(crate) fn tell<F>(
        &self,
        py: Python<'_>,
        outcome: F,
        tell: fn(Python<'_>, F::Output) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Standing>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let going = Box::pin(async move {
            let outcome = outcome.await;
            Box::new(move |py: Python<'_>| tell(py, outcome)) as Told
        });
        let mut begun = self.begin(py, going)?;
        let future = self.create_future.call0(py)?;
        let token = match begun.told.take() {
            Some(told) => {
                set(future.bind(py), told)?;
                OVER
            }
            None => self.stand(begun, Whom::Future(future.clone_ref(py)))?,
        };
        Ok((token, future))
    }

    /// Polls it a first time.
    fn begin(&self, py: Python<'_>, going: Going) -> PyResult<Woken> {
        let handle = runtime::handle(py)?;
        let mut begun = self.waits.get()?.next(going);
        py.detach(|| {
            let _inside = handle.enter();
            begun.poll();
        });
        Ok(begun)
    }

    /// Registers a wait that is not over, and answers its token. Woken meanwhile, it is polled when the loop goes on: in
    /// this thread.
    fn stand(&self, begun: Woken, whom: Whom) -> PyResult<u64> {
        let wait = Wait {
            going: begun.going,
            waker: begun.waker,
            whom,
        };
        let waits = self.waits.get()?;
        waits.lock().standing.insert(begun.token, wait);
        Ok(begun.token)
    }
}

/// A wait that comes to true.
fn readiness(ready: impl Future<Output = ()> + Send + 'static) -> Going {
    Box::pin(async move {
        ready.await;
        Box::new(|py: Python<'_>| Ok(true.into_pyobject(py)?.to_owned().into_any().unbind()))
            as Told
    })
}

/// The token of a wait that was over before it was registered.
const OVER: u64 = 0;

/// A wait that is to be polled.
struct Woken {
    token: u64,
    waker: Arc<WaitWaker>,
    going: Option<Going>,
    /// Its outcome, once it is over.
    told: Option<Told>,
}

impl Woken {
    fn poll(&mut self) {
        let Some(going) = &mut self.going else {
            return;
        };
        // This comes before the poll: a change after it wakes the wait again.
        self.waker.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.waker));
        if let Poll::Ready(told) = going.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.told = Some(told);
            self.going = None;
        }
    }
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, going: Going) -> Woken {
        let mut table = self.lock();
        table.last += 1;
        let waker = WaitWaker {
            queue: Arc::clone(&self.queue),
            token: table.last,
            is_queued: AtomicBool::new(false),
        };
        Woken {
            token: waker.token,
            waker: Arc::new(waker),
            going: Some(going),
            told: None,
        }
    }

    fn woken(&self) -> Vec<Woken> {
        let mut table = self.lock();
        let tokens = self.queue.take().into_iter();
        // A wait that was given up meanwhile is not there.
        let woken = tokens.filter_map(|token| {
            let wait = table.standing.get_mut(&token)?;
            Some(Woken {
                token,
                waker: Arc::clone(&wait.waker),
                going: wait.going.take(),
                told: None,
            })
        });
        woken.collect()
    }

    /// The receiver of the outcome and the outcome, if the wait is over. A wait given up while it was polled is dropped.
    fn over(&self, woken: Woken) -> Option<(Whom, Told)> {
        let mut table = self.lock();
        if let Some(told) = woken.told {
            return Some((table.standing.remove(&woken.token)?.whom, told));
        }
        let wait = table.standing.get_mut(&woken.token);
        if let Some(wait) = wait {
            wait.going = woken.going;
        }
        None
    }
}

impl Whom {
    fn tell(self, py: Python<'_>, told: Told) -> PyResult<()> {
        match self {
            Self::Future(future) => set(future.bind(py), told),
            Self::Callback(callback) => callback.call0(py).map(drop),
        }
    }
}

/// Sets a future of asyncio unless the future's task was cancelled.
fn set(future: &Bound<'_, PyAny>, told: Told) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match told(py) {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}

/// The queue that wakers push to. It and its descriptor live as long as one waker does, even when the loop is gone.
struct WakeQueue {
    /// Tokens of the waits that were woken since the last `poll_woken`.
    woken: Mutex<Vec<u64>>,
    signal: Descriptor,
}

impl WakeQueue {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            woken: Mutex::default(),
            signal: Descriptor::new()?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, token: u64) {
        let mut woken = self.lock();
        let is_first = woken.is_empty();
        woken.push(token);
        drop(woken);
        if is_first {
            self.signal.write();
        }
    }

    fn take(&self) -> Vec<u64> {
        // Silenced first: a waker that pushes after that writes again.
        self.signal.silence();
        std::mem::take(&mut self.lock())
    }
}

/// The waker of one wait.
struct WaitWaker {
    queue: Arc<WakeQueue>,
    token: u64,
    /// Its token is in the queue until it is polled.
    is_queued: AtomicBool,
}

impl Wake for WaitWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(self.token);
        }
    }
}

/// A descriptor that a selector sees as readable from `write` to `silence`.
#[cfg(target_os = "linux")]
struct Descriptor(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Descriptor {
    fn new() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    fn fileno(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn write(&self) {
        // Full, it is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        // Empty, it is silent.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// A descriptor that a selector sees as readable from `write` to `silence`.
#[cfg(not(target_os = "linux"))]
struct Descriptor {
    near: std::os::unix::net::UnixStream,
    far: std::os::unix::net::UnixStream,
}

#[cfg(not(target_os = "linux"))]
impl Descriptor {
    fn new() -> std::io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self { near, far })
    }

    fn fileno(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    fn write(&self) {
        // Full, it is readable.
        let _ = std::io::Write::write(&mut &self.far, &[0]);
    }

    fn silence(&self) {
        // There is a byte for each first push since the last time: one, or two.
        let _ = std::io::Read::read(&mut &self.near, &mut [0; 64]);
    }
}
