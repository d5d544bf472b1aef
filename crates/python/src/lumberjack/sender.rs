//! A sender: events go in, and each batch is known to be acknowledged or not.

use std::future::Future;
use std::sync::Arc;

use ackline::lumberjack::SenderOptions;
use ackline::lumberjack::{
    Batch, OutRecord, Sender, SenderError, SenderStats, Unacked, WindowRoom,
};
use ackline_core::options::Uses;
use ackline_link::Watched;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::dicts::set_fields;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{arrow_in, errors, options, records, runtime};

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackBatch {
    batch: Batch,
}

#[pymethods]
impl LumberjackBatch {
    #[new]
    #[pyo3(signature = (events, is_window = false, first = 0))]
    fn new(
        py: Python<'_>,
        events: &Bound<'_, PyAny>,
        is_window: bool,
        first: usize,
    ) -> PyResult<Self> {
        let batch = if events.hasattr("__arrow_c_array__")? {
            let column = arrow_in::column(events)?;
            let payloads = py.detach(|| ackline_json::texts(&column));
            let payloads = payloads.map_err(|error| errors::usage("events", &error.to_string()))?;
            py.detach(|| Batch::json(payloads))
        } else {
            let events = records::out_records(events, first)?;
            py.detach(|| Batch::new(events))
        };
        let batch = batch.map_err(errors::refused)?;
        let batch = if is_window { batch.as_window() } else { batch };
        Ok(Self { batch })
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.batch.bytes()
    }

    fn __len__(&self) -> usize {
        self.batch.len()
    }
}

/// See `_core.pyi`.
#[pyclass(module = "ackline._core")]
pub(crate) struct LumberjackRoom(WindowRoom);

#[pymethods]
impl LumberjackRoom {
    #[new]
    fn new(events: u64, plain_bytes: u64) -> Self {
        Self(WindowRoom::new(events, plain_bytes))
    }

    fn takes(&mut self, json_bytes: usize) -> bool {
        let len = OutRecord::json_wire_len(json_bytes);
        self.0.takes(u64::try_from(len).unwrap_or(u64::MAX))
    }

    #[getter]
    fn is_full(&self) -> bool {
        self.0.is_full()
    }
}

/// Id, host, events, acknowledged, first, last, repeats.
type Receipt = (u64, String, u64, u64, u64, u64, bool);
/// The first and last number of each run, and how many events may have arrived.
type Left = (Vec<(u64, u64)>, u64);

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackSender {
    sender: Owned<Sender>,
    /// The events that `finish` left unacknowledged, once that is known.
    rest: Arc<Watched<Option<Unacked>>>,
    batch_events: u32,
}

#[pymethods]
impl LumberjackSender {
    /// Begins to connect; `wait("connected")` returns when the connection is made or has failed.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // pyo3 hands over converted values
    fn new(py: Python<'_>, urls: Vec<String>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut made = SenderOptions::default();
        options::set_all(&mut made, Uses::CONNECT, options)?;
        let options = made;
        let batch_events = options.batch_events;
        let handle = runtime::handle(py)?;
        let opened = py.detach(|| {
            let _inside = handle.enter();
            Sender::open(&urls, options)
        });
        Ok(Self {
            sender: Owned::new(opened.map_err(raised)?),
            rest: Arc::default(),
            batch_events,
        })
    }

    #[getter]
    fn batch_events(&self) -> u32 {
        self.batch_events
    }

    /// Accepts a batch and returns its id and its first and last event's number, or `None` while the buffer is full.
    fn try_send(
        &self,
        py: Python<'_>,
        batch: &LumberjackBatch,
    ) -> PyResult<Option<(u64, u64, u64)>> {
        let sender = self.sender.get()?;
        match py.detach(|| sender.try_send(&batch.batch)) {
            Ok(receipt) => Ok(Some((receipt.batch(), receipt.first(), receipt.last()))),
            Err(SenderError::Blocked) => Ok(None),
            Err(error) => Err(raised(error)),
        }
    }

    /// Whether a batch is acknowledged; raises when the sender was closed before.
    fn is_acknowledged(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<bool> {
        let sender = self.sender.get()?;
        let given = || py.detach(|| sender.last_batch());
        let known = batch.extract().ok();
        let known = known.filter(|batch| (1..=given()).contains(batch));
        let Some(batch) = known else {
            let text = format!(
                "no batch has the number {batch}; the last one has {}",
                given()
            );
            return Err(errors::usage("unknown_batch", &text));
        };
        if py.detach(|| sender.is_acknowledged(batch)) {
            return Ok(true);
        }
        self.unless_closed(sender)
    }

    /// The id of the batch that was accepted last.
    #[getter]
    fn last_batch(&self, py: Python<'_>) -> PyResult<u64> {
        let sender = self.sender.get()?;
        Ok(py.detach(|| sender.last_batch()))
    }

    /// Whether all batches up to this one are acknowledged; raises when the sender was closed before.
    fn is_flushed(&self, py: Python<'_>, batch: u64) -> PyResult<bool> {
        let sender = self.sender.get()?;
        if py.detach(|| sender.is_flushed(batch)) {
            return Ok(true);
        }
        self.unless_closed(sender)
    }

    /// Raises the reason if no host was reached.
    fn check_connected(&self, py: Python<'_>) -> PyResult<()> {
        let connected = self.sender.get()?.connected();
        match runtime::block_on(py, Some(std::time::Duration::ZERO), connected)? {
            Some(Err(error)) => Err(raised(error)),
            _ => Ok(()),
        }
    }

    #[getter]
    fn unacknowledged(&self, py: Python<'_>) -> PyResult<u64> {
        let sender = self.sender.get()?;
        Ok(py.detach(|| sender.unacknowledged()))
    }

    /// Windows since the last call: id, host, events, acknowledged, first, last, repeats.
    fn receipts(&self, py: Python<'_>) -> PyResult<Vec<Receipt>> {
        let sender = self.sender.get()?;
        let receipts = py.detach(|| sender.receipts());
        let receipts = receipts.into_iter().map(|one| {
            let host = one.host.to_string();
            (
                one.id,
                host,
                one.events,
                one.acknowledged,
                one.first,
                one.last,
                one.repeats,
            )
        });
        Ok(receipts.collect())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sender = self.sender.get()?;
        let stats = py.detach(|| sender.stats());
        stats_dict(py, &stats)
    }

    /// Accepts no more; `wait("ended")` returns when everything is acknowledged, or after `timeout` seconds.
    fn finish(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let sender = self.sender.get()?.clone();
        let rest = Arc::clone(&self.rest);
        let timeout = runtime::seconds("timeout", Some(timeout))?.unwrap_or_default();
        runtime::handle(py)?.spawn(async move {
            let unacked = sender.close(timeout).await;
            rest.change(|rest| {
                rest.get_or_insert(unacked);
            });
        });
        Ok(())
    }

    /// The unacknowledged events: the numbers of each run's first and last event; `None` before the end.
    fn unacked(&self) -> PyResult<Option<Left>> {
        self.sender.get()?;
        let rest = self.rest.lock();
        Ok(rest
            .as_ref()
            .map(|rest| (rest.ranges(), rest.possibly_arrived())))
    }

    /// The events of `unacked`, in order.
    fn unacked_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.sender.get()?;
        let rest = self.rest.lock().clone().unwrap_or_default();
        let list = PyList::empty(py);
        for record in rest.records() {
            match record {
                OutRecord::Json(payload) => list.append(PyBytes::new(py, payload))?,
                OutRecord::Data(pairs) => {
                    let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..]));
                    list.append(records::pair_list(py, pairs)?)?;
                }
            }
        }
        Ok(list)
    }
}

impl LumberjackSender {
    /// Returns false: a batch may still be acknowledged. Raises if the sender was closed.
    fn unless_closed(&self, sender: &Sender) -> PyResult<bool> {
        if self.rest.lock().is_some() {
            return Err(lost(sender.unacknowledged()));
        }
        Ok(false)
    }

    fn ready(
        &self,
        interest: &str,
        batch: u64,
    ) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let interest = match interest {
            "connected" => Interest::Connected,
            "room" => Interest::Room,
            "batch" => Interest::Batch(batch),
            "flushed" => Interest::Flushed(batch),
            "ended" => Interest::Ended,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        let sender = self.sender.get()?.clone();
        let rest = Arc::clone(&self.rest);
        Ok(async move {
            // The caller takes the result afterwards: a wait takes nothing, not even an error.
            match interest {
                Interest::Connected => drop(sender.connected().await),
                Interest::Room => sender.room().await,
                Interest::Batch(batch) => drop(sender.acknowledged(batch, None).await),
                Interest::Flushed(batch) => drop(sender.flushed(batch, None).await),
                Interest::Ended => rest.until(|rest| rest.is_some().then_some(())).await,
            }
        })
    }
}

waits!(LumberjackSender(interest: &str)[batch: u64 = 0], |it, py| it.ready(interest, batch));

#[derive(Clone, Copy)]
enum Interest {
    Connected,
    Room,
    Batch(u64),
    Flushed(u64),
    Ended,
}

fn stats_dict<'py>(py: Python<'py>, stats: &SenderStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("state", stats.state.to_string())?;
    set_fields!(
        dict,
        stats,
        accepted,
        unacknowledged,
        possible_repeats,
        attempts,
        reconnects,
        buffer_events,
        buffer_bytes
    );
    dict.set_item("oldest_s", stats.oldest.map(|age| age.as_secs_f64()))?;
    dict.set_item("receipts_dropped", stats.receipts_dropped)?;
    let hosts = PyList::empty(py);
    for one in &stats.hosts {
        let host = PyDict::new(py);
        host.set_item("url", &*one.url)?;
        host.set_item("state", one.state.to_string())?;
        set_fields!(
            host,
            one,
            in_flight_windows,
            outstanding,
            acknowledged,
            attempts,
            connections,
            window_size
        );
        host.set_item("last_error", one.last_error.as_deref())?;
        hosts.append(host)?;
    }
    dict.set_item("hosts", hosts)?;
    Ok(dict)
}

fn lost(unacknowledged: u64) -> PyErr {
    let text = format!("the writer is closed; {unacknowledged} events are not acknowledged");
    errors::lost(&text, unacknowledged)
}

/// The exception of an error.
pub(crate) fn raised(error: SenderError) -> PyErr {
    match error {
        SenderError::Usage(error) if error.code == "closed" => {
            errors::closed("the writer is closed")
        }
        SenderError::Usage(error) => errors::refused(error),
        SenderError::Option(error) => errors::option(&error.option, &error),
        SenderError::Url(text) => errors::usage("url", &text),
        SenderError::Tls { code, message } => errors::usage(code, &message),
        SenderError::Closed { unacknowledged } => lost(unacknowledged),
        SenderError::Timeout { .. } => errors::timeout(&error.to_string()),
        other => errors::transport(&other),
    }
}
