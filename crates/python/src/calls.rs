//! Calls into Python from threads of the runtime.
//!
//! A thread that is caught attached when the interpreter ends would abort the process. So its end waits for
//! the calls that run, and none are made after it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long the end of the interpreter waits: a callback may be stuck.
const LAST_CALLS: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

/// The process whose threads these are: a forked child has only the numbers.
static OWNER: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);

/// Counts anew. Called once per process, when its runtime is made.
pub(crate) fn start() {
    RUNNING.store(0, Ordering::SeqCst);
    OWNER.store(std::process::id(), Ordering::SeqCst);
}

/// Calls `f` attached to the interpreter, unless that ends.
pub(crate) fn call<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let _running = Running::begin()?;
    Python::try_attach(f)
}

struct Running;

impl Running {
    fn begin() -> Option<Self> {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let running = Self;
        (!ENDED.load(Ordering::SeqCst)).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has the last calls waited for before the interpreter ends. Called once, with the module's import.
pub(crate) fn end_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_calls, module)?;
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (end,)).map(drop)
}

/// Lets no call begin, and waits for those that run.
#[pyfunction]
fn end_calls(py: Python<'_>) {
    ENDED.store(true, Ordering::SeqCst);
    if OWNER.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    py.detach(|| {
        let begin = Instant::now();
        while RUNNING.load(Ordering::SeqCst) > 0 && begin.elapsed() < LAST_CALLS {
            std::thread::sleep(POLL);
        }
    });
}
