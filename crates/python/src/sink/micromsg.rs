//! Rows to a peer of MicroMsg2: each task has a connection of its own, and sends each row as a message with a destination
//! and properties from its columns. A task is done when all messages are acknowledged. Rows are kept until then: when a
//! connection is lost, those that were not acknowledged are sent again over another one.

mod columns;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use ackline::micromsg::{self, ConnectOptions, Connection, Error, Kind, Message};
use ackline_link::End;
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use self::columns::{Named, check_destination, wire_bytes};
use super::stall_timer::StallTimer;
use super::{
    Failed, GOODBYE, KEPT_BYTES, PAUSE_MIN, STEP, Source, refused, set_connect, slices, until_done,
};
use crate::micromsg::raised;
use crate::runtime::Owned;
use crate::{arrow_in, errors, runtime};

/// The URL and the options of a sink, and its rows.
struct Given {
    url: String,
    /// The URL without the destination.
    place: String,
    /// The destination of all messages; empty if a column has it.
    destination: String,
    columns: Named,
    connect: ConnectOptions,
    source: Source,
}

impl Given {
    fn of(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (source, rest) = Source::take(given)?;
        let (mut connect, mut columns) = (ConnectOptions::default(), Named::default());
        set_connect(&mut connect, &rest, |key, value| {
            match key {
                "destination" => columns.destination = Some(value.extract()?),
                "properties" => columns.properties = value.extract()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let split = micromsg::split_subscription(url).map_err(Error::Open);
        let (place, destination, filter) = split.map_err(raised)?;
        if filter.is_some() {
            let text = "the URL of a sink has a filter, and filters are for subscribers";
            return Err(errors::usage("url", text));
        }
        if !destination.is_empty() {
            check_destination(&destination).map_err(|why| errors::usage("url", why))?;
        }
        match (&columns.destination, destination.is_empty()) {
            (Some(column), false) => {
                let text = format!(
                    "the URL has the destination {destination:?}, and micromsg.destination names the column {column}: give \
                     one"
                );
                return Err(errors::usage("destination", &text));
            }
            (None, true) => columns.destination = Some(DESTINATION.to_owned()),
            _ => {}
        }
        suggest(&mut connect, &source);
        micromsg::check(&place, &connect).map_err(raised)?;
        Ok(Self {
            url: url.to_owned(),
            place,
            destination,
            columns,
            connect,
            source,
        })
    }

    /// Raises for rows of this schema that have no form.
    fn check(&self, schema: &Schema) -> PyResult<()> {
        let found = self.columns.found_in(schema).map_err(|why| wrong(&why))?;
        let payload = schema.project(&found.payload);
        let payload = payload.map_err(|error| wrong(&error.to_string()))?;
        let encoder = self.source.form.encoder(&payload);
        encoder.map(drop).map_err(|error| refused(&error))
    }

    /// The rows of a batch as messages.
    fn messages(&self, py: Python<'_>, batch: &RecordBatch) -> PyResult<Vec<Message>> {
        let schema = batch.schema();
        let found = self.columns.found_in(&schema).map_err(|why| wrong(&why))?;
        let payload = batch.project(&found.payload);
        let payload = payload.map_err(|error| wrong(&error.to_string()))?;
        let most = self.connect.link.limits.max_message_bytes;
        let first = self.source.read();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let payloads = self.source.texts(py, &payload, most)?;
        let messages = py.detach(|| found.messages(batch, payloads, &self.destination));
        messages.map_err(|(row, why)| {
            let row = first.saturating_add(u64::try_from(row).unwrap_or(u64::MAX));
            wrong(&format!("row {row}{}: {why}", self.source.place()))
        })
    }
}

/// Suggests acknowledgements of both kinds, and the name of the rows' format, unless the options say otherwise.
fn suggest(connect: &mut ConnectOptions, source: &Source) {
    let offer = &mut connect.offer;
    if offer.optional_extensions.is_none() {
        let format = if source.form.is_raw() { "" } else { ";json" };
        let suggested = format!("batch-ack:max-count={};ack{format}", offer.window);
        offer.optional_extensions = Some(suggested);
    }
}

/// A connection and its messages.
struct Going {
    connection: Connection,
    /// Messages that were sent on it.
    sent: usize,
    /// Those of them whose acknowledgement was taken note of.
    acknowledged: usize,
    /// Bytes of the messages sent on it and not acknowledged.
    bytes: usize,
}

impl Going {
    fn unacknowledged(&self) -> usize {
        self.sent.saturating_sub(self.acknowledged)
    }

    /// Messages whose acknowledgement has come and was not taken note of.
    fn come(&self) -> usize {
        index(self.connection.stats().acknowledged).saturating_sub(self.acknowledged)
    }
}

/// The progress of a partition.
#[derive(Default)]
struct Task {
    going: Option<Going>,
    /// Messages that are not acknowledged.
    kept: VecDeque<Message>,
    /// Messages at the front of `kept` that were sent on any connection.
    sent: usize,
    /// Rows that are acknowledged.
    acknowledged: u64,
    /// Messages that were sent on more than one connection.
    possible_repeats: u64,
    stall: Option<StallTimer>,
}

impl Task {
    /// Forgets the messages whose acknowledgement has come.
    fn take_acknowledged(&mut self) {
        let Some(going) = &mut self.going else {
            return;
        };
        let come = going.come().min(self.kept.len());
        let bytes = self.kept.drain(..come).map(|message| wire_bytes(&message));
        going.bytes = going.bytes.saturating_sub(bytes.sum());
        going.acknowledged += come;
        self.sent = self.sent.saturating_sub(come);
        self.acknowledged = self.acknowledged.saturating_add(number(come));
    }

    /// The next messages that may be sent. None if the bytes of those on their way are too many, or if all are sent.
    fn next(&self) -> VecDeque<Message> {
        let Some(going) = &self.going else {
            return VecDeque::new();
        };
        let mut bytes = going.bytes;
        let fits = |message: &&Message| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(wire_bytes(message));
            is_first || bytes <= KEPT_BYTES
        };
        let unsent = self.kept.iter().skip(going.unacknowledged());
        unsent.take_while(fits).cloned().collect()
    }

    /// Takes note that so many messages were sent behind those that were sent before.
    fn count_sent(&mut self, count: usize) {
        let Some(going) = &mut self.going else {
            return;
        };
        let from = going.unacknowledged();
        let messages = self.kept.iter().skip(from).take(count);
        going.bytes = going.bytes.saturating_add(messages.map(wire_bytes).sum());
        going.sent += count;
        let repeats = self.sent.min(from + count).saturating_sub(from);
        self.possible_repeats = self.possible_repeats.saturating_add(number(repeats));
        self.sent = self.sent.max(from + count);
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct MicroMsgRows {
    given: Given,
    task: Owned<Mutex<Task>>,
}

#[pymethods]
impl MicroMsgRows {
    /// Connects with the first row.
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            given: Given::of(url, options)?,
            task: Owned::new(Mutex::default()),
        })
    }

    /// Raises the errors of these options, as a sink would, without connecting; of the rows' columns only with a schema.
    #[staticmethod]
    #[pyo3(signature = (url, options, schema=None))]
    fn check(
        url: &str,
        options: &Bound<'_, PyDict>,
        schema: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let given = Given::of(url, options)?;
        schema.map_or(Ok(()), |schema| given.check(&arrow_in::schema(schema)?))
    }

    /// The column of destinations; `None` if the URL has the destination.
    #[staticmethod]
    fn destination_column(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
        Ok(Given::of(url, options)?.columns.destination)
    }

    /// Sends the rows; waits for room.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        let mut task = self.task.lock()?;
        for slice in slices(&batch, STEP) {
            task.kept.extend(self.given.messages(py, &slice)?);
            self.until_done(py, &mut task, |task| self.bring(py, task))?;
        }
        Ok(())
    }

    /// Waits until all rows are acknowledged: rows, and how many of them were sent again.
    fn finish(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let mut task = self.task.lock()?;
        self.until_done(py, &mut task, |task| {
            if task.kept.is_empty() {
                return Ok(());
            }
            self.bring(py, task)?;
            let unacknowledged = task.going.as_ref().map_or(0, Going::unacknowledged);
            self.acknowledged(py, task, unacknowledged)
        })?;
        if let Some(going) = task.going.take() {
            // Everything is acknowledged: how the connection ends is of no consequence.
            let closing = going.connection.close(Some(GOODBYE));
            let _ = runtime::block_on(py, None, closing)?;
        }
        Ok((self.given.source.read(), task.possible_repeats))
    }

    /// Ends the connection now.
    fn abort(&self) -> PyResult<()> {
        if let Some(going) = self.task.lock()?.going.take() {
            going.connection.link().abort();
        }
        Ok(())
    }
}

impl MicroMsgRows {
    /// Returns the outcome of `step`. It is repeated with a new connection as long as the stall timer allows it.
    fn until_done<T>(
        &self,
        py: Python<'_>,
        task: &mut Task,
        step: impl Fn(&mut Task) -> Result<T, Failed>,
    ) -> PyResult<T> {
        // The rows may have taken their time to come.
        self.stall(task).renew(Instant::now());
        until_done(py, task, step, |task, why| {
            task.take_acknowledged();
            task.going = None;
            let (now, done) = (Instant::now(), task.acknowledged);
            if self.stall(task).is_over(now, done) {
                return Err(self.lost(task, why));
            }
            Ok(())
        })
    }

    /// Sends the messages that were not sent on this connection; connects first if needed.
    fn bring(&self, py: Python<'_>, task: &mut Task) -> Result<(), Failed> {
        if task.going.is_none() {
            task.going = Some(self.connected(py, task)?);
        }
        loop {
            task.take_acknowledged();
            let mut next = task.next();
            let Some(going) = &task.going else {
                return Ok(());
            };
            if next.is_empty() {
                if task.kept.len() == going.unacknowledged() {
                    return Ok(());
                }
                self.acknowledged(py, task, 1)?;
                continue;
            }
            let (count, connection) = (next.len(), going.connection.clone());
            let sent = self.wait(py, task, &connection, connection.send_all(&mut next));
            task.count_sent(count - next.len());
            sent?;
        }
    }

    /// Waits until so many messages are acknowledged, of those that are not.
    fn acknowledged(&self, py: Python<'_>, task: &mut Task, count: usize) -> Result<(), Failed> {
        let Some(going) = &task.going else {
            return Ok(());
        };
        let position = number(going.acknowledged + count);
        let connection = going.connection.clone();
        self.wait(py, task, &connection, connection.acknowledged(position))?;
        task.take_acknowledged();
        Ok(())
    }

    /// A new connection with acknowledgements.
    fn connected(&self, py: Python<'_>, task: &mut Task) -> Result<Going, Failed> {
        let mut options = self.given.connect.clone();
        let left = self.stall(task).left(Instant::now()).max(PAUSE_MIN);
        options.connect_timeout = options.connect_timeout.min(left);
        let handshake = &mut options.link.handshake_timeout;
        *handshake = Some(handshake.unwrap_or(left).min(left));
        let connecting = micromsg::connect(&self.given.place, options);
        let connected = runtime::block_on(py, None, connecting)?;
        let connected =
            connected.ok_or_else(|| errors::internal(&"a wait without an end ended"))?;
        let connection = connected.map_err(|error| match error {
            Error::Open(ref open) if !open.is_passing() => Failed::Raised(raised(error)),
            // A peer that refuses the handshake refuses the next one, too.
            Error::Failed(why) => {
                Failed::Raised(self.lost(task, &format!("the peer refuses the connection: {why}")))
            }
            error => self.failed(task, &error),
        })?;
        let window = connection.try_verb(|session| Ok(session.window()));
        if matches!(window, Ok(None)) {
            return Err(Failed::Raised(self.lost(task, NO_ACKS)));
        }
        Ok(Going {
            connection,
            sent: 0,
            acknowledged: 0,
            bytes: 0,
        })
    }

    fn stall<'a>(&self, task: &'a mut Task) -> &'a mut StallTimer {
        task.stall
            .get_or_insert_with(|| self.given.source.stall_timer(0))
    }

    /// Waits as long as acknowledgements come, and for `timeout` when none does.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        task: &mut Task,
        connection: &Connection,
        waiting: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Failed> {
        let before = task.acknowledged;
        let noted = task.going.as_ref().map_or(0, |going| going.acknowledged);
        let acknowledged = || {
            let come = index(connection.stats().acknowledged).saturating_sub(noted);
            Ok(before.saturating_add(number(come)))
        };
        let stall = self.stall(task);
        let Some(done) = self.given.source.wait(py, stall, waiting, acknowledged)? else {
            let seconds = self.given.source.timeout.as_secs_f64();
            task.take_acknowledged();
            let why = format!("no acknowledgement for {seconds} s");
            return Err(Failed::Raised(self.lost(task, &why)));
        };
        done.map_err(|error| self.failed(task, &error))
    }

    /// An error of a connection: the rows may go over another one, unless the peer broke the protocol.
    fn failed(&self, task: &mut Task, error: &Error) -> Failed {
        if let Error::Usage(_) = error {
            return Failed::Raised(raised(error.clone()));
        }
        // A peer that was silent too long may be busy.
        let is_violation = |kind: &Kind| !matches!(kind, Kind::Timeout { .. });
        if let Error::Ended(End::Protocol(fault)) = error
            && is_violation(&fault.kind)
        {
            task.take_acknowledged();
            return Failed::Raised(self.lost(task, &error.to_string()));
        }
        Failed::Lost(error.to_string())
    }

    /// The error of a task whose rows are not all acknowledged.
    fn lost(&self, task: &Task, why: &str) -> PyErr {
        let source = &self.given.source;
        let (read, place, done) = (source.read(), source.place(), task.acknowledged);
        let url = self.given.url.split('?').next().unwrap_or_default();
        let rows = format!("{done} of the {read} rows{place} that were read are acknowledged");
        errors::lost(&format!("{url}: {why}; {rows}"), read.saturating_sub(done))
    }
}

fn wrong(text: &str) -> PyErr {
    errors::usage("rows", text)
}

fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The column of destinations by default.
const DESTINATION: &str = "destination";
const NO_ACKS: &str = "the peer agrees on no acknowledgements, neither batch-ack nor ack, so rows could be lost and nobody \
                       would know";
