//! The tasks that Java has open, by number. A number that is not open is refused. The memory of a batch is freed with its
//! task, or by the next batch: it is Java's part to ask for neither while somebody reads it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ackline_columns::Task;
use arrow_ipc::writer::StreamWriter;

use crate::layout::Layout;
use crate::thrown::Thrown;

/// A task, and the batch that Java is reading.
pub(crate) struct Open {
    task: Task,
    batch: Option<Layout>,
}

/// The open tasks, and the last number that was given.
#[derive(Default)]
struct Handles {
    open: HashMap<i64, Arc<Mutex<Open>>>,
    last: i64,
}

static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);

impl Open {
    /// The schema of the batches as a message of Arrow's IPC format.
    pub(crate) fn schema(&self) -> Result<Vec<u8>, Thrown> {
        let schema = self.task.schema();
        let written = StreamWriter::try_new(Vec::new(), &schema);
        // The stream's end, which follows the message, is not written.
        let message = written.map(|stream| stream.get_ref().clone());
        message.map_err(|error| Thrown::new("spark.jvm", error.to_string()))
    }

    /// The cost so far: bytes, and nanoseconds for reading, for making events and for filling columns.
    pub(crate) fn spent(&self) -> [i64; 4] {
        let spent = self.task.spent();
        let number = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        [
            number(u128::from(spent.bytes)),
            number(spent.reading.as_nanos()),
            number(spent.expanding.as_nanos()),
            number(spent.projecting.as_nanos()),
        ]
    }

    /// The layout of the next batch, which lives until the next call; `None` after the last batch.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<i64>>, Thrown> {
        self.batch = None;
        let Some(batch) = self.task.next().transpose()? else {
            return Ok(None);
        };
        let layout = Layout::of(&batch);
        let layout = layout.map_err(|error| Thrown::new("spark.jvm", error.to_string()))?;
        let numbers = layout.numbers();
        self.batch = Some(layout);
        Ok(Some(numbers))
    }
}

/// Keeps a task and returns its number, which is never 0.
pub(crate) fn keep(task: Task) -> i64 {
    let open = Open { task, batch: None };
    let mut handles = handles();
    handles.last += 1;
    let number = handles.last;
    handles.open.insert(number, Arc::new(Mutex::new(open)));
    number
}

/// Runs a step of an open task.
pub(crate) fn with<T>(
    number: i64,
    step: impl FnOnce(&mut Open) -> Result<T, Thrown>,
) -> Result<T, Thrown> {
    let open = handles().open.get(&number).cloned();
    let open = open.ok_or_else(|| not_open(number))?;
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    step(&mut open)
}

/// Ends a task and frees its batch.
pub(crate) fn end(number: i64) -> Result<(), Thrown> {
    // The files are closed without the lock.
    let ended = handles().open.remove(&number);
    ended.map(drop).ok_or_else(|| not_open(number))
}

fn handles() -> MutexGuard<'static, Handles> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_open(number: i64) -> Thrown {
    Thrown::new("spark.jvm", format!("the handle {number} is not open"))
}
