//! A listener: the windows of all its connections, in the order they were completed.
//!
//! What waits here is bounded by the machines themselves: unacknowledged windows per connection, and
//! the memory budget over all of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline::lumberjack::ListenerOptions;
use ackline_core::options::Uses;
use ackline_core::{Connection, ErrorKind};
use ackline_link::{
    Acceptor, AcceptorOptions, Admitted, BoundListener, Budget, End, Link, ListenSpec, PeerInfo,
    Turned,
};
use ackline_lumberjack::{Event, Reader, ReaderConfig, Window};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, options, records, runtime};

/// Bytes of unacknowledged input over all connections, unless `memory` says otherwise.
const MEMORY: u64 = 256 << 20;
/// Refused connections remembered; the oldest goes first.
const MAX_REFUSED: usize = 100;
/// How long `close` waits for its task to let go of the socket, which takes microseconds.
const SOCKET_CLOSES: Duration = Duration::from_secs(1);

/// What the connections of a listener share.
struct Hub {
    config: ReaderConfig,
    budget: Budget,
    acceptor: Acceptor,
    state: Mutex<State>,
    changed: Notify,
    next_id: AtomicU64,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arrived>,
    links: HashMap<u64, Link<Reader>>,
    refused: VecDeque<Refused>,
    is_closed: bool,
}

struct Arrived {
    window: Window,
    link: Link<Reader>,
    connection: u64,
    peer: PeerInfo,
}

struct Refused {
    peer: Arc<str>,
    code: &'static str,
    offset: u64,
    message: String,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// Waits until `is_so`; takes nothing.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn links(&self) -> Vec<Link<Reader>> {
        self.lock().links.values().cloned().collect()
    }

    fn refuse(&self, peer: Arc<str>, end: &End<ackline_lumberjack::Kind>) {
        let (code, offset, message) = match end {
            End::Protocol(error) => (error.kind.code(), error.offset, error.kind.to_string()),
            End::Memory { offset, .. } => ("link.memory", *offset, end.to_string()),
            _ => return,
        };
        self.remember(Refused {
            peer,
            code,
            offset,
            message,
        });
    }

    fn turn_away(&self, turned: Turned) {
        let (refused, is_new) = match turned {
            Turned::Refused(refused) => (refused, true),
            Turned::Untold(refused) => (refused, false),
            _ => return,
        };
        let ackline_link::Refused {
            peer,
            code,
            message,
            times,
            ..
        } = refused;
        if let Some(times) = times {
            tracing::warn!(
                target: "ackline",
                peer = &*peer,
                code,
                times,
                why = message,
                "connection refused"
            );
        }
        if !is_new {
            return;
        }
        self.remember(Refused {
            peer,
            code,
            offset: 0,
            message,
        });
    }

    fn remember(&self, refused: Refused) {
        self.change(|state| {
            if state.refused.len() == MAX_REFUSED {
                state.refused.pop_front();
            }
            state.refused.push_back(refused);
        });
    }
}

async fn accept(listener: BoundListener, hub: Arc<Hub>) {
    let told = {
        let hub = Arc::clone(&hub);
        move |outcome| match outcome {
            Ok(admitted) => {
                tokio::spawn(serve(Arc::clone(&hub), admitted));
            }
            Err(turned) => hub.turn_away(turned),
        }
    };
    hub.acceptor.run(&listener, told).await;
    hub.change(|state| state.is_closed = true);
}

async fn serve(hub: Arc<Hub>, admitted: Admitted) {
    let peer = admitted.peer.clone();
    let link = Link::with_budget(Reader::new(hub.config.clone()), hub.budget.clone());
    let connection = hub.next_id.fetch_add(1, Ordering::Relaxed);
    let is_closed = hub.change(|state| {
        state.links.insert(connection, link.clone());
        state.is_closed
    });
    if is_closed {
        link.abort();
    }
    let deliver = async {
        while let Ok(window) = link.when(0, |reader, _| next_window(reader)).await {
            let (link, peer) = (link.clone(), peer.clone());
            let arrived = Arrived {
                window,
                link,
                connection,
                peer,
            };
            hub.change(|state| state.ready.push_back(arrived));
        }
    };
    let driving = admitted.drive(&link, Reader::retire);
    let ((driven, slot, _), ()) = tokio::join!(driving, deliver);
    drop(slot);
    hub.refuse(peer.name.clone(), &driven.end);
    hub.change(|state| state.links.remove(&connection));
}

fn next_window(reader: &mut Reader) -> Poll<Window> {
    match reader.poll_event() {
        Some(Event::Window(window)) => Poll::Ready(window),
        // Only a reader that was asked to sets windows aside.
        Some(Event::Invalid(_)) | None => Poll::Pending,
    }
}

/// The tasks of a listener, ended with it.
struct Serving {
    hub: Arc<Hub>,
    accepting: JoinHandle<()>,
}

impl Serving {
    fn abort(&self) {
        self.accepting.abort();
        self.hub.change(|state| state.is_closed = true);
        for link in self.hub.links() {
            link.abort();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.abort();
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackListener {
    serving: Owned<Serving>,
    url: String,
}

#[pymethods]
impl LumberjackListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let endpoint = super::endpoint(url)?;
        let mut made = ListenerOptions::default();
        let mut others = options::set(&mut made, Uses::LISTEN, options)?;
        let ListenerOptions {
            reader: mut config,
            acceptor,
            tls,
        } = made;
        config.settle_after_error = true;
        let memory = match options.get_item("memory")? {
            Some(memory) => options::whole("memory", &memory, 1, u64::MAX)?,
            None => MEMORY,
        };
        others.retain(|name| name != "memory");
        options::refuse(&others)?;
        let endpoint = options::secured(endpoint, &tls)?;
        let spec = ListenSpec::new(endpoint, acceptor.handshake_timeout)
            .map_err(|error| errors::usage(error.code(), &error.to_string()))?;
        let bound = runtime::block_on(py, None, spec.bind())?;
        let listener = bound
            .ok_or_else(|| errors::timeout("listening took too long"))?
            .map_err(|error| errors::transport(&format!("cannot listen on {spec}: {error}")))?;
        let url = listener.url().to_owned();
        let hub = Arc::new(Hub {
            acceptor: Acceptor::new(AcceptorOptions {
                first_byte_timeout: config.first_byte_timeout,
                ..acceptor
            }),
            config,
            budget: Budget::new(memory),
            state: Mutex::default(),
            changed: Notify::new(),
            next_id: AtomicU64::new(1),
        });
        let accepting = runtime::handle(py)?.spawn(accept(listener, Arc::clone(&hub)));
        Ok(Self {
            serving: Owned::new(Serving { hub, accepting }),
            url,
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Up to `max_windows` windows that are there; an empty list where there is none.
    fn try_receive(&self, py: Python<'_>, max_windows: &Bound<'_, PyAny>) -> PyResult<Py<PyList>> {
        let hub = self.hub()?;
        let max = options::whole("max_windows", max_windows, 1, usize::MAX)?;
        let taken: Vec<Arrived> = py.detach(|| {
            let mut state = hub.lock();
            let count = max.min(state.ready.len());
            state.ready.drain(..count).collect()
        });
        let windows = taken.into_iter().map(|arrived| LumberjackWindow {
            arrived: Owned::new(arrived),
        });
        Ok(PyList::new(
            py,
            windows
                .map(|window| Py::new(py, window))
                .collect::<PyResult<Vec<_>>>()?,
        )?
        .unbind())
    }

    /// Accepts no more and ends each connection as soon as its windows are acknowledged.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let serving = self.serving.get()?;
        py.detach(|| {
            serving.accepting.abort();
            serving.hub.change(|state| state.is_closed = true);
            for link in serving.hub.links() {
                link.call(Reader::stop);
            }
            // The socket is closed when its task is gone: nobody may connect after `close`.
            let deadline = Instant::now() + SOCKET_CLOSES;
            while !serving.accepting.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(())
    }

    /// Ends every connection now.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let serving = self.serving.get()?;
        py.detach(|| serving.abort());
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.hub()?.lock().is_closed)
    }

    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.hub()?.lock().links.len())
    }

    /// Connections that ended before their first byte, and those turned away by code.
    fn turned_away(&self) -> PyResult<(u64, BTreeMap<&'static str, u64>)> {
        let stats = self.hub()?.acceptor.stats();
        Ok((stats.health_checks, stats.turned_away))
    }

    /// The last connections ended for their input: `(peer, code, offset, message)`.
    fn refused(&self) -> PyResult<Vec<(String, &'static str, u64, String)>> {
        let state = self.hub()?.lock();
        let line = |one: &Refused| {
            (
                one.peer.to_string(),
                one.code,
                one.offset,
                one.message.clone(),
            )
        };
        Ok(state.refused.iter().map(line).collect())
    }

    fn __repr__(&self) -> String {
        format!("LumberjackListener({:?})", self.url)
    }
}

impl LumberjackListener {
    fn hub(&self) -> PyResult<&Arc<Hub>> {
        Ok(&self.serving.get()?.hub)
    }

    fn ready(&self, interest: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let hub = Arc::clone(self.hub()?);
        let is_ended = match interest {
            "receive" => false,
            "ended" => true,
            _ => {
                return Err(errors::usage(
                    "interest",
                    "interest is \"receive\" or \"ended\"",
                ));
            }
        };
        Ok(async move {
            hub.until(|state| {
                if is_ended {
                    state.is_closed && state.links.is_empty()
                } else {
                    state.is_closed || !state.ready.is_empty()
                }
            })
            .await;
        })
    }
}

waits!(LumberjackListener(interest: &str), |it, py| it.ready(interest));

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackWindow {
    arrived: Owned<Arrived>,
}

#[pymethods]
impl LumberjackWindow {
    #[getter]
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        records::events(py, &self.arrived.get()?.window)
    }

    #[getter]
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        records::records(py, &self.arrived.get()?.window)
    }

    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.arrived.get()?.window.id)
    }

    #[getter]
    fn sequence(&self) -> PyResult<u32> {
        Ok(self.arrived.get()?.window.last_sequence)
    }

    #[getter]
    fn version(&self) -> PyResult<u8> {
        Ok(self.arrived.get()?.window.version.number())
    }

    #[getter]
    fn peer(&self) -> PyResult<&str> {
        Ok(&self.arrived.get()?.peer.name)
    }

    #[getter]
    fn sender(&self) -> PyResult<&str> {
        Ok(&self.arrived.get()?.peer.sender)
    }

    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attributes = PyDict::new(py);
        for (name, value) in &self.arrived.get()?.peer.attributes {
            attributes.set_item(&**name, &**value)?;
        }
        Ok(attributes)
    }

    #[getter]
    fn connection(&self) -> PyResult<u64> {
        Ok(self.arrived.get()?.connection)
    }

    /// Whether the acknowledgement is on its way: not if the connection is over.
    fn ack(&self, py: Python<'_>) -> PyResult<bool> {
        let arrived = self.arrived.get()?;
        let refused = py.detach(|| {
            if arrived.link.is_ended() {
                return None;
            }
            Some(
                arrived
                    .link
                    .call(|reader, now| reader.ack(now, arrived.window.id)),
            )
        });
        match refused {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if error.code == "closed" => Ok(false),
            Some(Err(error)) => Err(errors::refused(error)),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.arrived.get()?.window.records as usize)
    }

    fn __repr__(&self) -> PyResult<String> {
        let arrived = self.arrived.get()?;
        let window = &arrived.window;
        Ok(format!(
            "<LumberjackWindow {} of {}: {} events, sequence {}>",
            window.id, arrived.peer.name, window.records, window.last_sequence
        ))
    }
}
