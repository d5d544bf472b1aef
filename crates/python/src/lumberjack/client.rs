//! A client: windows go out, and each is known to be acknowledged or not.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ackline_core::Connection;
use ackline_link::{End, Endpoint, Link};
use ackline_lumberjack::{Kind, Writer, WriterConfig, WriterEvent};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::runtime::{Owned, Waiter};
use crate::{errors, options, records, runtime};

/// How long a connection attempt may take, unless `connect_timeout` says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known of the link, by its task.
struct Shared {
    link: Link<Writer>,
    book: Mutex<Book>,
    changed: Notify,
}

#[derive(Default)]
struct Book {
    is_connected: bool,
    pending: HashSet<u64>,
    end: Option<Over>,
}

/// Why the link is over.
#[derive(Clone)]
enum Over {
    Connect(String),
    Link(End<Kind>),
}

#[derive(Clone, Copy)]
enum Interest {
    Connected,
    Room,
    Window(u64),
    Ended,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book());
        self.changed.notify_waiters();
    }

    fn is_there(&self, interest: Interest) -> bool {
        {
            let book = self.book();
            if book.end.is_some() {
                return true;
            }
            match interest {
                Interest::Connected => return book.is_connected,
                Interest::Window(window) => return !book.pending.contains(&window),
                Interest::Ended => return false,
                Interest::Room => {}
            }
        }
        self.link.call(|writer, _| writer.room() > 0)
    }

    /// Waits for `interest` or the end; takes nothing.
    async fn until(&self, interest: Interest) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_there(interest) {
                return;
            }
            changed.await;
        }
    }

    async fn run(self: Arc<Self>, url: String, endpoint: Endpoint, timeout: Duration) {
        let stream = match ackline_link::connect(&endpoint, timeout).await {
            Ok(stream) => stream,
            Err(error) => {
                let text = format!("cannot connect to {url}: {error}");
                return self.change(|book| book.end = Some(Over::Connect(text)));
            }
        };
        self.change(|book| book.is_connected = true);
        let watch = async {
            while let Ok(event) = self.link.when(0, |writer, _| next_event(writer)).await {
                // What ends unacknowledged stays pending: it was not acknowledged.
                if let WriterEvent::Acknowledged { window } = event {
                    self.change(|book| {
                        book.pending.remove(&window);
                    });
                }
            }
        };
        let (driven, ()) = tokio::join!(self.link.drive(stream), watch);
        self.change(|book| book.end = Some(Over::Link(driven.end)));
    }

    fn unacknowledged(&self) -> u64 {
        self.link.call(|writer, _| writer.unacknowledged())
    }

    fn raised(&self, over: &Over) -> PyErr {
        let unacknowledged = self.unacknowledged();
        match over {
            Over::Connect(text) => errors::transport(text),
            Over::Link(End::Protocol(error)) => errors::protocol("lumberjack", error),
            Over::Link(end) if unacknowledged > 0 => errors::lost(
                &format!("{end}; {unacknowledged} events are not acknowledged"),
                unacknowledged,
            ),
            Over::Link(end) => errors::closed(&end.to_string()),
        }
    }
}

fn next_event(writer: &mut Writer) -> Poll<WriterEvent> {
    writer.poll_event().map_or(Poll::Pending, Poll::Ready)
}

/// The link and its task, ended together.
struct Running {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.link.abort();
        self.task.abort();
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackClient {
    running: Owned<Running>,
    max_window: usize,
}

#[pymethods]
impl LumberjackClient {
    /// Begins to connect; `wait("connected")` says when that is decided.
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let endpoint = super::endpoint(url)?;
        let mut config = WriterConfig::default();
        let others = options::writer(&mut config, options)?;
        let (tls, mut others) = options::tls(others, options)?;
        let endpoint = options::secured(endpoint, &tls)?;
        let made = py.detach(|| endpoint.client());
        made.map_err(|error| errors::usage(error.code(), &error.to_string()))?;
        let url = endpoint.to_string();
        let timeout = match options.get_item("connect_timeout")? {
            Some(timeout) => options::duration(&timeout, false)?.unwrap_or(CONNECT_TIMEOUT),
            None => CONNECT_TIMEOUT,
        };
        others.retain(|name| name != "connect_timeout");
        options::refuse(&others)?;
        let max_window = config.max_window as usize;
        let shared = Arc::new(Shared {
            link: Link::new(Writer::new(config)),
            book: Mutex::default(),
            changed: Notify::new(),
        });
        let task = runtime::handle(py)?.spawn(Arc::clone(&shared).run(url, endpoint, timeout));
        Ok(Self {
            running: Owned::new(Running { shared, task }),
            max_window,
        })
    }

    #[getter]
    fn max_window(&self) -> usize {
        self.max_window
    }

    /// Sends one window; its number, or `None` while too many are in flight.
    fn try_send_window(&self, py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let shared = self.shared()?;
        if let Some(error) = self.ended()? {
            return Err(error);
        }
        let events = records::out_records(events)?;
        let sent = py.detach(|| {
            shared.link.call(|writer, now| {
                let sent = writer.send_window(now, &events);
                if let Ok(window) = sent {
                    // Under the link's lock: no acknowledgement can be seen before this.
                    shared.book().pending.insert(window);
                }
                sent
            })
        });
        match sent {
            Ok(window) => Ok(Some(window)),
            Err(refused) if refused.code == "too_many_in_flight" => Ok(None),
            Err(refused) if refused.code == "closed" || refused.code == "closing" => {
                Err(errors::closed(refused.message))
            }
            Err(refused) => Err(errors::refused(refused)),
        }
    }

    /// Whether `window` was acknowledged; raises when the link ended before.
    fn is_acknowledged(&self, window: u64) -> PyResult<bool> {
        if !self.shared()?.book().pending.contains(&window) {
            return Ok(true);
        }
        self.ended()?.map_or(Ok(false), Err)
    }

    /// Raises why the link is over, if it is.
    fn check(&self) -> PyResult<()> {
        self.ended()?.map_or(Ok(()), Err)
    }

    /// Waits for `interest` (`connected`, `room`, `window`, `ended`) or the link's end.
    #[pyo3(signature = (interest, timeout, window = 0))]
    fn wait(
        &self,
        py: Python<'_>,
        interest: &str,
        timeout: Option<f64>,
        window: u64,
    ) -> PyResult<bool> {
        let ready = self.ready(interest, window)?;
        Ok(runtime::block_on(py, runtime::seconds(timeout)?, ready)?.is_some())
    }

    /// Calls `callback()` once from another thread when `interest` is there.
    #[pyo3(signature = (interest, callback, window = 0))]
    fn wait_async(
        &self,
        py: Python<'_>,
        interest: &str,
        callback: Py<PyAny>,
        window: u64,
    ) -> PyResult<Waiter> {
        Waiter::spawn(py, callback, self.ready(interest, window)?)
    }

    #[getter]
    fn unacknowledged(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = self.shared()?;
        Ok(py.detach(|| shared.unacknowledged()))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.shared()?.book().end.is_some())
    }

    /// Sends nothing more; the link ends when everything is acknowledged.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        py.detach(|| shared.link.call(Writer::finish));
        Ok(())
    }

    /// Ends the link now.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        py.detach(|| shared.link.abort());
        Ok(())
    }
}

impl LumberjackClient {
    fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(&self.running.get()?.shared)
    }

    fn ended(&self) -> PyResult<Option<PyErr>> {
        let shared = self.shared()?;
        let over = shared.book().end.clone();
        Ok(over.map(|over| shared.raised(&over)))
    }

    fn ready(
        &self,
        interest: &str,
        window: u64,
    ) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let interest = match interest {
            "connected" => Interest::Connected,
            "room" => Interest::Room,
            "window" => Interest::Window(window),
            "ended" => Interest::Ended,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        let shared = Arc::clone(self.shared()?);
        Ok(async move { shared.until(interest).await })
    }
}
