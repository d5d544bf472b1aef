//! Rows to a subscriber of Reactive Streams: each task connects to the listening subscriber, waits for its subscription
//! to the publisher of the URL, and publishes its rows as the subscriber requests them.
//!
//! The protocol has no acknowledgements. A task is done when the subscriber has said goodbye behind the completed stream,
//! for the one reason that a receiver gives when it has kept everything: the goodbye of a subscriber that stops, or that
//! found a fault, gives another. Rows that were sent are not kept, so that a lost connection ends the task.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use ackline::reactive::{
    self, ALL_ENDED, ConnectOptions, Connection, Error, Limits, NO_REASON, Publication,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::stall_timer::StallTimer;
use super::{GOODBYE, PAUSE_MAX, PAUSE_MIN, STEP, Source, set_connect, slices};
use crate::bpmux::cancelled;
use crate::reactive::raised;
use crate::runtime::Owned;
use crate::{arrow_in, errors, runtime};

/// The URL and the options of a sink, and its rows.
struct Given {
    url: String,
    /// The URL without the publisher.
    place: String,
    publisher: String,
    connect: ConnectOptions,
    source: Source,
    /// A further reason of a goodbye that acknowledges the rows.
    goodbye: Option<String>,
}

impl Given {
    fn of(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (source, rest) = Source::take(given)?;
        let mut goodbye = None;
        let mut connect = ConnectOptions::default();
        set_connect(&mut connect, &rest, |key, value| {
            if key == "goodbye" {
                goodbye = Some(value.extract()?);
            }
            Ok(key == "goodbye")
        })?;
        let split = reactive::split_url(url).map_err(Error::Open);
        let (place, publisher) = split.map_err(raised)?;
        reactive::check(&place, &connect).map_err(raised)?;
        Ok(Self {
            url: url.to_owned(),
            place,
            publisher,
            connect,
            source,
            goodbye,
        })
    }

    fn is_acknowledgement(&self, reason: &str) -> bool {
        [ALL_ENDED, NO_REASON].contains(&reason) || self.goodbye.as_deref() == Some(reason)
    }

    fn lost(&self, why: &str) -> PyErr {
        self.source.lost(&self.url, why)
    }
}

/// A connection, and the stream of the rows on it.
struct Going {
    connection: Connection,
    publication: Publication,
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveRows {
    given: Given,
    going: Owned<Mutex<Option<Going>>>,
}

#[pymethods]
impl ReactiveRows {
    /// Connects with the first row.
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            given: Given::of(url, options)?,
            going: Owned::new(Mutex::default()),
        })
    }

    /// Raises the errors of these options, as a sink would, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        Given::of(url, options)?.source.check(schema)
    }

    /// Publishes the rows; waits for demand.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        let mut going = self.going.lock()?;
        for slice in slices(&batch, STEP) {
            let most = usize::try_from(Limits::default().max_element_bytes).unwrap_or(usize::MAX);
            let payloads = self.given.source.texts(py, &slice, most)?;
            let going = match &mut *going {
                Some(going) => going,
                none => none.insert(self.subscribed(py)?),
            };
            let mut rows = VecDeque::from(payloads);
            let publishing = going.publication.publish_all(&mut rows);
            self.wait(py, &going.connection, publishing, "no demand")?;
        }
        Ok(())
    }

    /// Completes the stream and waits for the goodbye behind it: rows.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        // The publication is dropped behind the completion of its stream.
        let Some(going) = self.going.lock()?.take() else {
            return Ok(0);
        };
        let Going {
            connection,
            publication,
        } = going;
        let completed = publication.complete();
        completed.map_err(|error| self.failed(&connection, error))?;
        let silent = "the stream is complete, and no goodbye";
        self.wait(py, &connection, rejected(&connection), silent)?;
        let reason = connection.goodbye_reason().unwrap_or_default();
        if !self.given.is_acknowledgement(&reason) {
            let why = format!(
                "the subscriber's goodbye does not say that the rows are kept: {reason:?} (the option goodbye names a \
                 further reason that says so)"
            );
            return Err(self.given.lost(&why));
        }
        // Everything is acknowledged: how the connection ends is of no consequence.
        runtime::block_on(py, Some(GOODBYE), connection.ended())?;
        Ok(self.given.source.read())
    }

    /// Ends the connection now.
    fn abort(&self) -> PyResult<()> {
        if let Some(going) = self.going.lock()?.take() {
            going.connection.link().abort();
        }
        Ok(())
    }
}

impl ReactiveRows {
    /// Connects, and accepts the subscription to the publisher.
    fn subscribed(&self, py: Python<'_>) -> PyResult<Going> {
        let connection = self.connected(py)?;
        let (publisher, mut others) = (&*self.given.publisher, Vec::new());
        let accepting = accepted(&connection, publisher, &mut others);
        let accepted = self
            .given
            .source
            .wait(py, &mut self.stall(), accepting, || Ok(0))?;
        let why = match accepted {
            Some(Ok(Some(publication))) => {
                return Ok(Going {
                    connection,
                    publication,
                });
            }
            Some(Ok(None)) => {
                let reason = connection.goodbye_reason().unwrap_or_default();
                format!(
                    "the peer has said goodbye and has not subscribed to {publisher:?}: {reason:?}"
                )
            }
            Some(Err(error)) => return Err(self.failed(&connection, error)),
            None => {
                let seconds = self.given.source.timeout.as_secs_f64();
                format!("no subscription to {publisher:?} for {seconds} s")
            }
        };
        let others = match &*others {
            [] => String::new(),
            others => format!("; the peer has subscribed to {others:?}"),
        };
        Err(self.given.lost(&format!("{why}{others}")))
    }

    /// A new connection; while nobody listens, it tries again until the timeout.
    fn connected(&self, py: Python<'_>) -> PyResult<Connection> {
        let (stall, mut pause) = (self.stall(), PAUSE_MIN);
        let mut left = self.given.source.timeout;
        loop {
            let mut options = self.given.connect.clone();
            options.connect_timeout = options.connect_timeout.min(left.max(PAUSE_MIN));
            let connecting = reactive::connect(&self.given.place, options);
            let connected = runtime::block_on(py, None, connecting)?;
            let connected =
                connected.ok_or_else(|| errors::internal(&"a wait without an end ended"))?;
            let error = match connected {
                Ok(connection) => return Ok(connection),
                Err(Error::Open(error)) if error.is_passing() => error,
                Err(error) => return Err(raised(error)),
            };
            left = stall.left(Instant::now());
            if left.is_zero() {
                return Err(self.given.lost(&error.to_string()));
            }
            let wait = pause.min(left);
            runtime::block_on(py, Some(wait), std::future::pending::<()>())?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn stall(&self) -> StallTimer {
        self.given.source.stall_timer(0)
    }

    /// Waits as long as rows leave, and for `timeout` when none does; `silent` is missing then.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        connection: &Connection,
        waiting: impl Future<Output = Result<T, Error>> + Send,
        silent: &str,
    ) -> PyResult<T> {
        let sent = || Ok(connection.link_stats().bytes_out);
        let source = &self.given.source;
        let mut stall = source.stall_timer(connection.link_stats().bytes_out);
        let Some(done) = source.wait(py, &mut stall, waiting, sent)? else {
            let seconds = source.timeout.as_secs_f64();
            return Err(self.given.lost(&format!("{silent} for {seconds} s")));
        };
        done.map_err(|error| self.failed(connection, error))
    }

    /// The error that ends a task. A goodbye in the middle of a stream cancels it, and gives the reason.
    fn failed(&self, connection: &Connection, error: Error) -> PyErr {
        let text = error.to_string();
        match (error, connection.goodbye_reason()) {
            (_, Some(reason)) => {
                let why = format!(
                    "the subscriber has said goodbye before the stream was complete: {reason:?}"
                );
                self.given.lost(&why)
            }
            (Error::Cancelled, None) => {
                let source = &self.given.source;
                cancelled(&source.unacknowledged(&self.given.url, &text), b"")
            }
            _ => self.given.lost(&text),
        }
    }
}

/// Accepts the subscription to a publisher and rejects those before it, whose names it adds to `others`; `None` once the
/// peer has said goodbye.
async fn accepted(
    connection: &Connection,
    publisher: &str,
    others: &mut Vec<String>,
) -> Result<Option<Publication>, Error> {
    while let Some(request) = connection.accept().await? {
        if request.publisher() == publisher {
            return request.accept(0).map(Some);
        }
        if others.len() < MOST_NAMED {
            others.push(request.publisher().to_owned());
        }
        // It may be cancelled.
        let _ = request.reject(&format!("only {publisher:?} is published here"));
    }
    Ok(None)
}

/// Rejects all further subscriptions until the peer says goodbye.
async fn rejected(connection: &Connection) -> Result<(), Error> {
    while let Some(request) = connection.accept().await? {
        // It may be cancelled.
        let _ = request.reject("the rows are published to one subscription");
    }
    Ok(())
}

/// Publishers that an error names at the most.
const MOST_NAMED: usize = 5;
