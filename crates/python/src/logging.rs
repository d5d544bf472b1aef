//! Turns the crates' `tracing` events into records of Python's logger `ackline`.
//!
//! A thread that logs only puts a line on a bounded queue: it never waits for the interpreter. One dedicated
//! thread takes the lines off and attaches. Lines that do not fit into the queue are counted, and the next
//! record reports how many were lost. Before the interpreter ends, it waits for that thread: a thread that is
//! attached at that time would abort the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use ackline::LogLines;
use pyo3::prelude::*;
use tracing::Level;

/// Lines that wait for the interpreter.
const MAX_LINES: usize = 1_000;
/// How long the end of the interpreter waits for the last lines: a handler may be stuck.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The logger's name.
const LOGGER: &str = "ackline";

/// The queue of this process. It is leaked: the parent of a forked child may have held the lock, so the child
/// makes its own.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

#[derive(Default)]
struct Queue {
    lines: Mutex<Lines>,
    arrived: Condvar,
    handed: Condvar,
    /// The process that has the thread: a forked child has only the queue.
    pid: u32,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<Line>,
    lost: u64,
    /// Whether the thread has lines that it has not handed over yet.
    handing: bool,
    ended: bool,
}

struct Line {
    level: Level,
    text: String,
}

/// Makes this process's queue and the thread that empties it, unless it has them: when its runtime is made,
/// or its first spool is opened. Call it while attached to the interpreter.
pub(crate) fn start() {
    if Queue::current().is_some_and(|queue| queue.pid == std::process::id()) {
        return;
    }
    static INSTALLED: Once = Once::new();
    let queue: &'static Queue = Box::leak(Box::new(Queue {
        pid: std::process::id(),
        ..Queue::default()
    }));
    let thread = std::thread::Builder::new().name("ackline-log".to_owned());
    if thread.spawn(move || hand_over(queue)).is_err() {
        // Without the thread the queue would not be emptied: the links work without logging.
        return;
    }
    QUEUE.store(std::ptr::from_ref(queue).cast_mut(), Ordering::Release);
    INSTALLED.call_once(|| {
        // This fails if this module has already installed a subscriber, which then goes on.
        let lines = LogLines::new(Level::DEBUG, |level, text| {
            if let Some(queue) = Queue::current() {
                queue.push(Line { level, text });
            }
        });
        let _ = tracing::subscriber::set_global_default(lines);
    });
}

/// Has the last lines handed over before the interpreter ends. Called once, with the module's import.
pub(crate) fn end_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_logging, module)?;
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (end,)).map(drop)
}

/// Hands over the queued lines and ends the thread, before the interpreter ends.
#[pyfunction]
fn end_logging(py: Python<'_>) {
    if let Some(queue) = Queue::current()
        && queue.pid == std::process::id()
    {
        py.detach(|| queue.end());
    }
}

impl Queue {
    #[allow(unsafe_code)] // an atomic reference that may be replaced has no safe form without a lock
    fn current() -> Option<&'static Self> {
        // SAFETY: null, or a queue that `start` leaked and that nobody frees or writes to.
        unsafe { QUEUE.load(Ordering::Acquire).as_ref() }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Line) {
        let mut lines = self.lock();
        if lines.ended {
            return;
        }
        if lines.waiting.len() == MAX_LINES {
            lines.lost += 1;
            return;
        }
        lines.waiting.push_back(line);
        drop(lines);
        self.arrived.notify_one();
    }

    /// Waits for lines and takes all of them; `None` when no more will come.
    fn take(&self) -> Option<VecDeque<Line>> {
        let lines = self.lock();
        let mut lines = self
            .arrived
            .wait_while(lines, |lines| lines.waiting.is_empty() && !lines.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if lines.waiting.is_empty() {
            return None;
        }
        lines.handing = true;
        let mut taken = std::mem::take(&mut lines.waiting);
        let lost = std::mem::take(&mut lines.lost);
        drop(lines);
        if lost > 0 {
            taken.push_back(Line {
                level: Level::WARN,
                text: format!(
                    "{lost} log records were lost: the interpreter was busy code=log.lost"
                ),
            });
        }
        Some(taken)
    }

    fn done(&self) {
        self.lock().handing = false;
        self.handed.notify_all();
    }

    fn end(&self) {
        let mut lines = self.lock();
        lines.ended = true;
        self.arrived.notify_one();
        let busy = |lines: &mut Lines| lines.handing || !lines.waiting.is_empty();
        let _ = self.handed.wait_timeout_while(lines, LAST_LINES, busy);
    }
}

fn hand_over(queue: &Queue) {
    while let Some(lines) = queue.take() {
        let handed = Python::try_attach(|py| {
            for line in &lines {
                if let Err(error) = log(py, line) {
                    error.write_unraisable(py, None);
                }
            }
        });
        queue.done();
        if handed.is_none() {
            // The interpreter ends: nobody reads any more.
            return;
        }
    }
}

fn log(py: Python<'_>, line: &Line) -> PyResult<()> {
    let level = match line.level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    };
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    logger.call_method1("log", (level, "%s", &line.text))?;
    Ok(())
}
