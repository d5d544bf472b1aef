//! Rows to a Relink receiver, one transaction for each task: it is done when the receiver has all rows and has handed
//! none of them on; another process, the driver, commits the prepared rows of the tasks, or rolls them back.
//!
//! A transaction is on one channel, so that it is committed whole or not at all. The receiver is asked for its limits
//! before the first row: rows that do not fit are refused here, and the error names the limit and its option.

use std::sync::Mutex;
use std::time::Duration;

use ackline::relink::ReconnectOptions;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Error, Fate, GOODBYE, Link, MESSAGE_BYTES, PARAMETERS,
    Parameters, Payload, Target, Told,
};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::{Source, Step, set_connect, slices};
use crate::options::whole;
use crate::relink::raised;
use crate::runtime::Owned;
use crate::{arrow_in, errors, runtime};

/// The URL and the options of a sink, and its rows.
struct Given {
    url: String,
    connect: ConnectOptions,
    source: Source,
    /// Rows of the transaction, where the option was given.
    batch_events: Option<u32>,
    /// Bytes of all rows of the transaction.
    batch_bytes: u64,
    /// The channel that the rows go on.
    channel: ChannelId,
}

impl Given {
    fn of(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (source, rest) = Source::take(given)?;
        let (mut batch_events, mut batch_bytes) = (None, BATCH_BYTES);
        let mut connect = ConnectOptions {
            reconnect: ReconnectOptions {
                reconnect_max: RECONNECT_MAX.min(source.timeout),
                ..ReconnectOptions::default()
            },
            ..ConnectOptions::default()
        };
        set_connect(&mut connect, &rest, |key, value| {
            match key {
                "batch_events" => batch_events = Some(whole(key, value, 1, MOST_EVENTS)?),
                "batch_bytes" => batch_bytes = whole(key, value, 1, u64::MAX)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let plain = connect.with_url(url).map_err(raised)?;
        let target = Target::parse(&plain).map_err(|text| errors::usage("url", &text))?;
        let parameters = target.wanted.over(Parameters {
            connector_transactions: true,
            ..PARAMETERS
        });
        if !parameters.connector_transactions {
            let text = format!("{}: rows are sent in transactions only", target.shown());
            return Err(errors::usage("url", &text));
        }
        connect.parameters = parameters;
        connect.timeout = Some(source.timeout);
        connect.wants_hints = true;
        connect.link.send_bytes = usize::MAX;
        connect.link.machine.send_window = MOST_EVENTS;
        relink::check(url, connect.clone()).map_err(raised)?;
        Ok(Self {
            url: url.to_owned(),
            connect,
            source,
            batch_events,
            batch_bytes,
            channel: ChannelId::from(
                vec![0; parameters.connector_channel_id_size.into()].as_slice(),
            ),
        })
    }
}

/// The limits of a transaction, and the side that sets each.
#[derive(Debug, Clone, Copy)]
struct Room {
    rows: u64,
    /// The limit of the rows is this side's: the option, or the receivers' default.
    is_own: bool,
    /// Bytes, with [`ROW_BYTES`] for each row.
    bytes: u64,
    row_bytes: usize,
}

impl Room {
    fn of(told: Told, batch_events: Option<u32>) -> Self {
        let own = batch_events.map(u64::from);
        let (rows, is_own) = match (told.receive_window, own) {
            (Some(told), Some(own)) => (told.min(own), own < told),
            (Some(told), None) => (told, false),
            (None, own) => (own.unwrap_or(BATCH_EVENTS), true),
        };
        let row_bytes = told
            .message_bytes
            .and_then(|most| usize::try_from(most).ok());
        Self {
            rows,
            is_own,
            bytes: told.transaction_bytes.unwrap_or(u64::MAX),
            row_bytes: row_bytes.unwrap_or(MOST_ROW_BYTES).min(MOST_ROW_BYTES),
        }
    }
}

/// The rows that were sent.
#[derive(Default)]
struct Sent {
    link: Option<(Link, Room)>,
    rows: u64,
    bytes: u64,
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkSink {
    given: Given,
    sent: Owned<Mutex<Sent>>,
}

#[pymethods]
impl RelinkSink {
    /// Connects with the first row.
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            given: Given::of(url, options)?,
            sent: Owned::new(Mutex::default()),
        })
    }

    /// Raises the errors of these options, as a sink would, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        Given::of(url, options)?.source.check(schema)
    }

    /// Sends the rows, undecided.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        for slice in slices(&batch, STEP) {
            let (link, room) = self.link(py)?;
            let payloads = self.given.source.texts(py, &slice, room.row_bytes)?;
            py.detach(|| self.send(&link, room, payloads))?;
        }
        Ok(())
    }

    /// Waits until the receiver has every row, and lets the link go: rows and the link's state, for `commit`
    /// or `roll_back`; none without a row.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<(u64, Option<Bound<'py, PyBytes>>)> {
        let (link, rows) = {
            let sent = self.sent.lock()?;
            (sent.link.clone(), sent.rows)
        };
        let Some((link, _)) = link else {
            return Ok((0, None));
        };
        let state = self.hand_over(py, &link)?;
        self.sent.lock()?.link = None;
        Ok((rows, Some(PyBytes::new(py, &state))))
    }

    /// Rolls back and ends the link, if the receiver is there to hear of it.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let Some((link, _)) = self.sent.lock()?.link.take() else {
            return Ok(());
        };
        let ending = async {
            if relink::roll_back(&link).is_ok() {
                let _ = link.shutdown(None).await;
            }
        };
        runtime::block_on(py, Some(GOODBYE), ending)?;
        Ok(())
    }

    /// Commits the rows that tasks have prepared, given by their partitions: all of them or, if it is known before
    /// that some cannot be committed, none.
    #[staticmethod]
    fn commit(
        py: Python<'_>,
        url: &str,
        options: &Bound<'_, PyDict>,
        prepared: Vec<(u64, Vec<u8>)>,
    ) -> PyResult<()> {
        let (given, partitions, states) = asked(url, options, prepared)?;
        let stall = given.source.timeout;
        let committing = relink::commit_all(url, &given.connect, &states, stall);
        // Without a timeout there is always an answer; no answer would mean no commit.
        let fates = runtime::block_on(py, None, committing)?;
        let fates = fates.ok_or_else(|| errors::timeout("nothing is known of the commits"))?;
        match not_committed(url, &partitions, &fates) {
            Some(text) => Err(errors::lost(&text, 0)),
            None => Ok(()),
        }
    }

    /// Rolls back the rows that tasks have prepared, as far as the receiver still has them; returns how many.
    #[staticmethod]
    fn roll_back(
        py: Python<'_>,
        url: &str,
        options: &Bound<'_, PyDict>,
        prepared: Vec<(u64, Vec<u8>)>,
    ) -> PyResult<usize> {
        let (given, _, states) = asked(url, options, prepared)?;
        let stall = given.source.timeout.min(ABORT_PATIENCE);
        let rolling = relink::roll_back_all(url, &given.connect, &states, stall);
        Ok(runtime::block_on(py, None, rolling)?.unwrap_or(0))
    }
}

impl RelinkSink {
    /// Returns the link, which the first row makes, and the limits of the receiver on it.
    fn link(&self, py: Python<'_>) -> PyResult<(Link, Room)> {
        if let Some(link) = self.sent.lock()?.link.clone() {
            return Ok(link);
        }
        let connecting = relink::connect(&self.given.url, self.given.connect.clone());
        let made = match runtime::block_on(py, None, connecting)? {
            Some(Ok(link)) => link,
            Some(Err(error)) => return Err(self.failed(error, "no link")),
            None => return Err(errors::internal(&"a wait without an end ended")),
        };
        let asked = runtime::block_on(py, Some(self.given.source.timeout), limits_of(&made))?;
        let told = match asked {
            Some(Ok(told)) => told,
            Some(Err(error)) => return Err(self.failed(error, "no link")),
            None => {
                let text = format!(
                    "the receiver has not answered for {} s",
                    self.given.source.timeout.as_secs_f64()
                );
                return Err(self.failed(Error::Timeout, &text));
            }
        };
        let room = Room::of(told, self.given.batch_events);
        self.sent.lock()?.link = Some((made.clone(), room));
        Ok((made, room))
    }

    /// Sends texts, as long as the transaction may have them.
    fn send(&self, link: &Link, room: Room, payloads: Vec<Bytes>) -> PyResult<()> {
        let mut sent = self.sent.lock()?;
        let bytes = payloads.iter().map(Bytes::len).sum::<usize>();
        sent.bytes = sent.bytes.saturating_add(bytes as u64);
        let rows = sent.rows.saturating_add(payloads.len() as u64);
        self.fits(room, rows, sent.bytes)?;
        let payloads: Vec<Payload> = payloads.into_iter().map(Payload::from).collect();
        let taken = link
            .driven()
            .call(|session, at| session.send_run(at, &self.given.channel, &payloads));
        match taken {
            Ok((count, _)) if count == payloads.len() => {}
            // The window is as large as a channel gets, and there is no other limit.
            Ok(_) => return Err(errors::internal(&"a channel has no room for its rows")),
            Err(error) => return Err(self.failed(error, "rows cannot be sent")),
        }
        sent.rows = rows;
        self.is_welcome(link)
    }

    /// Refuses more rows than one transaction may have; nobody ever sees a part of it.
    fn fits(&self, room: Room, rows: u64, bytes: u64) -> PyResult<()> {
        let too_much = if rows > room.rows && room.is_own {
            let own = match self.given.batch_events {
                Some(_) => "batch_events",
                None => {
                    "the default of receivers that do not tell their limit; batch_events, for one that takes more"
                }
            };
            format!(
                "they are {rows} or more, and a transaction has {} at the most ({own})",
                room.rows
            )
        } else if rows > room.rows {
            format!(
                "they are {rows} or more, and the receiver takes {} in one transaction (its receive_window)",
                room.rows
            )
        } else if bytes > self.given.batch_bytes {
            let most = self.given.batch_bytes;
            format!(
                "they have {bytes} bytes or more, and a transaction has {most} at the most (batch_bytes)"
            )
        } else if bytes.saturating_add(rows.saturating_mul(ROW_BYTES)) > room.bytes {
            format!(
                "the first {rows} have {bytes} bytes, and the receiver takes {} in one transaction, with \
                 {ROW_BYTES} for each row, which is an eighth of its --memory",
                room.bytes
            )
        } else {
            return Ok(());
        };
        let text = format!(
            "{}: the rows{} do not fit into one transaction: {too_much}. None of them is committed: use more \
             partitions or smaller batches",
            shown(&self.given.url),
            self.given.source.place()
        );
        Err(errors::usage("rows", &text))
    }

    /// Fails as soon as the receiver reports that it does not take the transaction.
    fn is_welcome(&self, link: &Link) -> PyResult<()> {
        let Some(reason) = link.told().refused else {
            return Ok(());
        };
        let why = format!(
            "the receiver does not take the transaction{}: {reason}",
            self.given.source.place()
        );
        Err(self.lost(
            &why,
            ": use smaller batches, or a receiver with more memory",
        ))
    }

    /// Waits as long as rows leave, and for `timeout` when none does.
    fn hand_over(&self, py: Python<'_>, link: &Link) -> PyResult<Vec<u8>> {
        let source = &self.given.source;
        let mut stall = source.stall_timer(done(link));
        let state = source.wait(py, &mut stall, link.hand_over(None), || {
            self.is_welcome(link)?;
            Ok(done(link))
        })?;
        let Some(state) = state else {
            let text = format!(
                "nothing was received for {} s; a receiver whose memory is full takes no more until it has \
                 kept its messages",
                source.timeout.as_secs_f64()
            );
            return Err(self.failed(Error::Timeout, &text));
        };
        state.map_err(|error| self.failed(error, "rows are not received"))
    }

    /// The error that ends a task: the caller's mistakes are raised as they are, other errors with the uncommitted
    /// rows.
    fn failed(&self, error: Error, what: &str) -> PyErr {
        if error.is_usage() || matches!(error, Error::Url(_) | Error::Tls { .. }) {
            return raised(error);
        }
        self.lost(&format!("{what}: {error}"), "")
    }

    /// The error with the uncommitted rows, and behind it the advice.
    fn lost(&self, why: &str, advice: &str) -> PyErr {
        let (read, place) = (self.given.source.read(), self.given.source.place());
        let none = match read {
            0 => format!("no row{place} is committed"),
            _ => format!("none of the {read} rows{place} is committed"),
        };
        let url = shown(&self.given.url);
        errors::lost(&format!("{url}: {why}; {none}{advice}"), read)
    }
}

/// Reads the driver's arguments: the options, the partitions, and their states.
fn asked(
    url: &str,
    options: &Bound<'_, PyDict>,
    prepared: Vec<(u64, Vec<u8>)>,
) -> PyResult<(Given, Vec<u64>, Vec<Vec<u8>>)> {
    let (partitions, states) = prepared.into_iter().unzip();
    Ok((Given::of(url, options)?, partitions, states))
}

/// The receiver's limits, which it sends before its answer; none, if the receiver sends no limits.
async fn limits_of(link: &Link) -> Result<Told, Error> {
    loop {
        match link.ping(None).await {
            Ok(_) => return Ok(link.told()),
            // The connection went meanwhile: another one is made.
            Err(error) if error.code() == "not_connected" => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Grows as rows leave on the transport that there is.
fn done(link: &Link) -> u64 {
    let unsent = link
        .driven()
        .call(|session, _| session.machine().unemitted());
    u64::MAX - unsent
}

/// The text of the error when not everything was committed.
fn not_committed(url: &str, partitions: &[u64], fates: &[Fate]) -> Option<String> {
    let (mut done, mut said) = (0, Vec::new());
    let mut others = 0;
    for (partition, fate) in partitions.iter().zip(fates) {
        said.push(match fate {
            Fate::Committed => {
                done += 1;
                continue;
            }
            Fate::Dropped(None) => {
                others += 1;
                continue;
            }
            Fate::Dropped(Some(error)) => format!("partition {partition} cannot be: {error}"),
            Fate::Refused(Some(reason)) => {
                format!("partition {partition} was refused by the receiver: {reason}")
            }
            Fate::Refused(None) => {
                format!("partition {partition} was refused by the receiver, whose log says why")
            }
            Fate::Unknown(error) => {
                format!("whether partition {partition} is committed is not known: {error}")
            }
        });
    }
    if said.is_empty() && others == 0 {
        return None;
    }
    let more = said.len().saturating_sub(MOST_SAID);
    said.truncate(MOST_SAID);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    let text = format!(
        "{}: the batch is not committed as a whole, {done} of {} partitions are: {}",
        shown(url),
        fates.len(),
        said.join("; ")
    );
    Some(text)
}

/// The URL without its query.
fn shown(url: &str) -> String {
    Target::parse(url).map_or_else(|_| String::new(), |target| target.shown())
}

/// Rows of a transaction if a receiver does not tell its limit: the default of Relink's
/// `receive_window`.
const BATCH_EVENTS: u64 = 65_536;
/// Half of all numbers of messages: a window has no more.
const MOST_EVENTS: u32 = 0x7fff_ffff;
/// Bytes that the receiver charges for a row beside its own.
const ROW_BYTES: u64 = MESSAGE_BYTES as u64;
const ASK_AGAIN: Duration = Duration::from_millis(50);
const BATCH_BYTES: u64 = 256 << 20;
/// The receivers' default for the bytes of a message (`max_message_bytes`).
const MOST_ROW_BYTES: usize = 1 << 30;
/// Rows and bytes that are encoded at once.
const STEP: Step = Step {
    rows: 8_192,
    bytes: 4 << 20,
};
/// The longest wait between two attempts to connect again: a task has its own stall.
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Time in which a rollback tries to reach the receiver: a transaction that it cannot reach expires there.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// Most partitions that an error names.
const MOST_SAID: usize = 5;
