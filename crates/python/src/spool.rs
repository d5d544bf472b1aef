//! A spool as Python reads it: positions, ranges as Arrow, consumers' marks.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ackline_spool::{BlockInfo, Loss, OnLoss, ReadOptions, Slice, SpoolError, Step, rfc3339};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arrow::EventStream;
use crate::consumers::{self, Lease};
use crate::dicts::set_fields;
use crate::errors::raised;
use crate::options::{whole, whole_if};
use crate::runtime::Owned;
use crate::{errors, logging, runtime};
use arguments::{BatchRows, Group, Losses, Memory, Threads};

mod arguments;

/// How often the durable mark is looked at while waiting for it: a read of a few bytes.
const MARK_CHECK: Duration = Duration::from_millis(20);

/// A spool opened for reading. A forked child opens its own: a lock inside may have been held.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Spool {
    path: PathBuf,
    spool: Owned<ackline_spool::Spool>,
}

#[pymethods]
impl Spool {
    #[new]
    #[pyo3(signature = (path, group = Group::default()))]
    fn new(path: PathBuf, group: Group) -> PyResult<Self> {
        logging::start();
        let spool =
            ackline_spool::Spool::open_with(&path, group.0).map_err(|error| raised(&error))?;
        Ok(Self {
            path,
            spool: Owned::new(spool),
        })
    }

    #[getter]
    fn path(&self) -> &PathBuf {
        &self.path
    }

    #[getter]
    fn uuid(&self) -> PyResult<String> {
        Ok(self.spool.get()?.uuid().to_string())
    }

    fn first_kept(&self, py: Python<'_>) -> PyResult<u64> {
        let spool = self.spool.get()?;
        py.detach(|| spool.first_kept())
            .map_err(|error| raised(&error))
    }

    fn durable(&self, py: Python<'_>) -> PyResult<u64> {
        let spool = self.spool.get()?;
        py.detach(|| spool.durable())
            .map_err(|error| raised(&error))
    }

    #[pyo3(signature = (start, max_rows = None, max_bytes = None, *, skip_losses = Losses::default()))]
    fn end_for(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        max_rows: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        skip_losses: Losses,
    ) -> PyResult<u64> {
        let spool = self.spool.get()?;
        let start = position("start", start)?;
        let max_rows = whole_if("max_rows", max_rows, 0, u64::MAX)?;
        let max_bytes = whole_if("max_bytes", max_bytes, 0, u64::MAX)?;
        py.detach(|| spool.end_for_with(start, max_rows, max_bytes, skip_losses.0))
            .map_err(|error| raised(&error))
    }

    /// Every position that is known to be lost or damaged.
    fn losses(&self, py: Python<'_>) -> PyResult<Vec<LossRow>> {
        let spool = self.spool.get()?;
        let losses = py
            .detach(|| spool.losses())
            .map_err(|error| raised(&error))?;
        Ok(losses.iter().map(loss_row).collect())
    }

    /// The same of a range; with `check` every byte of it is read.
    #[pyo3(signature = (start = None, end = None, *, check = false))]
    fn holes(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        check: bool,
    ) -> PyResult<Vec<LossRow>> {
        let spool = self.spool.get()?;
        let range = bounds(py, spool, start, end)?;
        let holes = py
            .detach(|| spool.holes(range, check))
            .map_err(|error| raised(&error))?;
        Ok(holes.iter().map(loss_row).collect())
    }

    /// The epoch of the writer of a position, in 16 hexadecimal digits.
    fn epoch_at(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.epoch_at(position))
            .map(|epoch| epoch.map(|epoch| format!("{epoch:016x}")))
            .map_err(|error| raised(&error))
    }

    #[pyo3(signature = (start = None, end = None, *, columns = None, threads = Threads(1), batch_rows = BatchRows(10_000),
                        memory = Memory::default(), skip_repeats = false, skip_losses = Losses::default()))]
    #[allow(clippy::too_many_arguments)] // the keywords of one call
    fn read(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        columns: Option<Vec<String>>,
        threads: Threads,
        batch_rows: BatchRows,
        memory: Memory,
        skip_repeats: bool,
        skip_losses: Losses,
    ) -> PyResult<EventStream> {
        let mut options = read_options(columns, threads, batch_rows, memory, skip_repeats);
        options.on_loss = skip_losses.0;
        let spool = self.spool.get()?;
        let range = bounds(py, spool, start, end)?;
        py.detach(|| spool.read(&ackline::layouts(), range, &options))
            .map(EventStream::new)
            .map_err(|error| raised(&error))
    }

    #[pyo3(signature = (start, end, max_slices, min_bytes, *, skip_losses = Losses::default()))]
    fn slices<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'py, PyAny>,
        end: &Bound<'py, PyAny>,
        max_slices: &Bound<'py, PyAny>,
        min_bytes: &Bound<'py, PyAny>,
        skip_losses: Losses,
    ) -> PyResult<Bound<'py, PyList>> {
        let spool = self.spool.get()?;
        let (start, end) = (position("start", start)?, position("end", end)?);
        let max_slices = whole("max_slices", max_slices, 1, usize::MAX)?;
        let min_bytes = whole("min_bytes", min_bytes, 0, u64::MAX)?;
        let slices = py
            .detach(|| spool.slices_with(start..end, max_slices, min_bytes, skip_losses.0))
            .map_err(|error| raised(&error))?;
        let list = PyList::empty(py);
        for slice in slices {
            list.append(slice_dict(py, &slice)?)?;
        }
        Ok(list)
    }

    /// Reads one slice: that file alone, without listing the spool.
    #[staticmethod]
    #[pyo3(signature = (slice, *, columns = None, threads = Threads(1), batch_rows = BatchRows(10_000),
                        memory = Memory::default(), skip_repeats = false))]
    fn read_slice(
        py: Python<'_>,
        slice: &Bound<'_, PyDict>,
        columns: Option<Vec<String>>,
        threads: Threads,
        batch_rows: BatchRows,
        memory: Memory,
        skip_repeats: bool,
    ) -> PyResult<EventStream> {
        logging::start();
        let slice = slice_of(slice)?;
        let options = read_options(columns, threads, batch_rows, memory, skip_repeats);
        py.detach(|| ackline_spool::Spool::read_slice(&ackline::layouts(), &slice, &options))
            .map(EventStream::new)
            .map_err(|error| raised(&error))
    }

    /// Each consumer's name, mark, and when the mark was written.
    fn consumers(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, String)>> {
        let spool = self.spool.get()?;
        let consumers = py
            .detach(|| spool.consumers())
            .map_err(|error| raised(&error))?;
        let mark = |consumer: ackline_spool::Consumer| {
            let updated = rfc3339(consumer.updated_us);
            (consumer.name, consumer.committed, updated)
        };
        Ok(consumers.into_iter().map(mark).collect())
    }

    /// All that is known of each consumer, one dict each.
    fn consumer_states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let spool = self.spool.get()?;
        let found = py
            .detach(|| spool.consumers())
            .map_err(|error| raised(&error))?;
        let list = PyList::empty(py);
        for consumer in found {
            list.append(consumers::dict(py, &consumer)?)?;
        }
        Ok(list)
    }

    /// Takes a consumer for this process.
    #[pyo3(signature = (name, holder = "", wait = 0.0, create_at = None))]
    fn lease(
        &self,
        py: Python<'_>,
        name: &str,
        holder: &str,
        wait: f64,
        create_at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Lease> {
        let create_at = whole_if("create_at", create_at, 0, u64::MAX)?;
        Lease::take(py, self.spool.get()?, (name, holder), wait, create_at)
    }

    fn add_consumer(
        &self,
        py: Python<'_>,
        name: &str,
        position: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.add_consumer(name, position))
            .map_err(|error| raised(&error))
    }

    /// From, to, skipped, repeated.
    fn seek_consumer(
        &self,
        py: Python<'_>,
        name: &str,
        position: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64, u64, u64)> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.seek_consumer(name, position))
            .map(|sought| (sought.from, sought.to, sought.skipped, sought.repeated))
            .map_err(|error| raised(&error))
    }

    /// Events, bytes, and when the oldest was received (microseconds), of the events above a position.
    fn lag(
        &self,
        py: Python<'_>,
        position: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64, Option<i64>)> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.lag(position))
            .map(|lag| (lag.events, lag.bytes, lag.oldest_us))
            .map_err(|error| raised(&error))
    }

    fn find(&self, py: Python<'_>, at_us: i64) -> PyResult<u64> {
        let spool = self.spool.get()?;
        py.detach(|| spool.find(at_us))
            .map_err(|error| raised(&error))
    }

    /// When the first event from a position on was received, in microseconds since 1970.
    fn waiting_since(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.waiting_since(position))
            .map_err(|error| raised(&error))
    }

    /// The bytes of segments and indexes.
    fn bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let spool = self.spool.get()?;
        py.detach(|| spool.bytes()).map_err(|error| raised(&error))
    }

    /// The process that writes the spool now.
    fn writer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let spool = self.spool.get()?;
        py.detach(|| spool.writer()).map_err(|error| raised(&error))
    }

    fn commit_mark(&self, py: Python<'_>, name: &str, position: &Bound<'_, PyAny>) -> PyResult<()> {
        let (spool, position) = (self.spool.get()?, self::position("position", position)?);
        py.detach(|| spool.commit_mark(name, position))
            .map_err(|error| raised(&error))
    }

    fn remove_consumer(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let spool = self.spool.get()?;
        py.detach(|| spool.remove_consumer(name))
            .map_err(|error| raised(&error))
    }

    /// Waits until the durable position is at least `position`; answers the position then.
    #[pyo3(signature = (position, timeout = None))]
    fn wait_durable(
        &self,
        py: Python<'_>,
        position: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let position = self::position("position", position)?;
        let timeout = runtime::seconds("timeout", timeout)?;
        let spool = self.spool.get()?;
        let reached = runtime::in_slices(py, timeout, |slice| match spool.durable() {
            Ok(durable) if durable < position => {
                std::thread::sleep(slice.min(MARK_CHECK));
                None
            }
            durable => Some(durable),
        })?;
        let durable = reached.unwrap_or_else(|| py.detach(|| spool.durable()));
        durable.map_err(|error| raised(&error))
    }

    /// The blocks of a range, one dict each, without their events.
    #[pyo3(signature = (start = None, end = None))]
    fn blocks(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<BlockStream> {
        let spool = self.spool.get()?;
        let range = bounds(py, spool, start, end)?;
        let blocks = py
            .detach(|| spool.blocks(range))
            .map_err(|error| raised(&error))?;
        Ok(BlockStream {
            blocks: Owned::new(Mutex::new(Box::new(blocks))),
        })
    }

    /// Times `rounds` fsyncs of 4 KiB in the spool's directory.
    fn fsync_probe<'py>(
        &self,
        py: Python<'py>,
        rounds: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rounds = whole("rounds", rounds, 1, u32::MAX)?;
        self.spool.get()?;
        let path = self.path.clone();
        let probe = py
            .detach(|| ackline_spool::fsync_probe(&path, rounds))
            .map_err(|error| raised(&error))?;
        let dict = PyDict::new(py);
        set_fields!(dict, probe, p50_us, p99_us, suspicious);
        Ok(dict)
    }

    /// Checks every durable byte; `progress(done_bytes, all_bytes)` is called meanwhile.
    fn verify<'py>(
        &self,
        py: Python<'py>,
        progress: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut failed = None;
        let report = self.spool.get()?.verify(&mut |done, all| {
            if failed.is_none() {
                failed = py
                    .check_signals()
                    .and_then(|()| progress.call1((done, all)))
                    .err();
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let report = report.map_err(|error| raised(&error))?;
        let dict = PyDict::new(py);
        set_fields!(
            dict, report, segments, groups, blocks, events, bytes, problems
        );
        let losses: Vec<LossRow> = report.losses.iter().map(loss_row).collect();
        dict.set_item("losses", losses)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<Spool {}>", self.path.display())
    }
}

/// The blocks of a range, one group at a time.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BlockStream {
    blocks: Owned<Mutex<Box<Blocks>>>,
}

type Blocks = dyn Iterator<Item = Result<BlockInfo, SpoolError>> + Send;

#[pymethods]
impl BlockStream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let blocks = self.blocks.get()?;
        let next = py.detach(|| {
            let mut blocks = blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.next()
        });
        match next {
            None => Ok(None),
            Some(Ok(block)) => block_dict(py, &block).map(Some),
            Some(Err(error)) => Err(raised(&error)),
        }
    }
}

/// One step of mending: the action, the file, the start position, the end position, and the reason.
type StepRow = (&'static str, PathBuf, Option<u64>, Option<u64>, String);

/// Mends a spool: the next position, and the steps.
#[pyfunction]
#[pyo3(signature = (path, dry_run = false, group = Group::default()))]
pub(crate) fn spool_mend(
    py: Python<'_>,
    path: PathBuf,
    dry_run: bool,
    group: Group,
) -> PyResult<(u64, Vec<StepRow>)> {
    let mended = py
        .detach(move || ackline_spool::mend(&path, group.0, dry_run))
        .map_err(|error| raised(&error))?;
    let row = |step: Step| (step.what, step.path, step.from, step.to, step.why);
    Ok((mended.position, mended.steps.into_iter().map(row).collect()))
}

/// Keeps the locks of this process from changing while it forks.
#[pyfunction]
fn before_fork() {
    ackline_spool::before_fork();
}

/// Lets the locks of this process change again.
#[pyfunction]
fn after_fork_in_parent() {
    ackline_spool::after_fork_in_parent();
}

/// Closes the locks of the parent, so that they end with the parent and not with this child.
#[pyfunction]
fn after_fork_in_child() {
    ackline_spool::after_fork_in_child();
}

/// Makes every `os.fork` of this process call the three functions above.
pub(crate) fn follow_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hooks = PyDict::new(module.py());
    hooks.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    hooks.set_item(
        "after_in_parent",
        wrap_pyfunction!(after_fork_in_parent, module)?,
    )?;
    hooks.set_item(
        "after_in_child",
        wrap_pyfunction!(after_fork_in_child, module)?,
    )?;
    let os = module.py().import("os")?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// A loss: the first position, the position after the last, the reason, and when it was noted.
pub(crate) type LossRow = (u64, u64, &'static str, String);

pub(crate) fn loss_row(loss: &Loss) -> LossRow {
    let noted = rfc3339(loss.noted_us);
    (loss.from, loss.to, loss.why.as_str(), noted)
}

/// Gives a spool a new UUID: returns the old one, the new one, and the consumers with marks that were lowered.
#[pyfunction]
#[pyo3(signature = (path, group = Group::default()))]
pub(crate) fn spool_adopt(
    py: Python<'_>,
    path: PathBuf,
    group: Group,
) -> PyResult<(String, String, Vec<String>)> {
    py.detach(move || ackline_spool::adopt(&path, group.0))
        .map(|adopted| (adopted.old, adopted.new, adopted.lowered))
        .map_err(|error| raised(&error))
}

fn read_options(
    columns: Option<Vec<String>>,
    threads: Threads,
    batch_rows: BatchRows,
    memory: Memory,
    skip_repeats: bool,
) -> ReadOptions {
    ReadOptions {
        columns,
        threads: threads.0,
        batch_rows: batch_rows.0,
        memory: memory.0,
        skip_repeats,
        on_loss: OnLoss::Fail,
    }
}

/// An event's position, the argument `name`.
pub(crate) fn position(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole(name, value, 0, u64::MAX)
}

/// A range; an open end is the first kept or the durable position.
fn bounds(
    py: Python<'_>,
    spool: &ackline_spool::Spool,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<Range<u64>> {
    let start = whole_if("start", start, 0, u64::MAX)?;
    let end = whole_if("end", end, 0, u64::MAX)?;
    let found = py.detach(|| {
        let start = start.map_or_else(|| spool.first_kept(), Ok)?;
        let end = end.map_or_else(|| spool.durable(), Ok)?;
        Ok(start..end.max(start))
    });
    found.map_err(|error: SpoolError| raised(&error))
}

fn slice_dict<'py>(py: Python<'py>, slice: &Slice) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", slice.path.to_string_lossy())?;
    set_fields!(dict, slice, uuid, byte_start, byte_end, start, end);
    Ok(dict)
}

fn slice_of(dict: &Bound<'_, PyDict>) -> PyResult<Slice> {
    let item = |name: &str| {
        dict.get_item(name)?
            .ok_or_else(|| errors::usage("slice", &format!("the slice has no {name:?}")))
    };
    Ok(Slice {
        path: item("path")?.extract()?,
        uuid: item("uuid")?.extract()?,
        byte_start: item("byte_start")?.extract()?,
        byte_end: item("byte_end")?.extract()?,
        start: item("start")?.extract()?,
        end: item("end")?.extract()?,
    })
}

fn block_dict<'py>(py: Python<'py>, block: &BlockInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("position", block.first_position)?;
    dict.set_item("count", block.count)?;
    dict.set_item("received_at", rfc3339(block.received_at_us))?;
    set_fields!(dict, block.origin, protocol, peer, link, stream);
    set_fields!(
        dict,
        block,
        first_sequence,
        layout,
        codec,
        windows,
        inflated_bytes,
        body_bytes
    );
    Ok(dict)
}
