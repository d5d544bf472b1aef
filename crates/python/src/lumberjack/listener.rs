//! A listener: the windows of all its connections, in the order they were completed.
//!
//! The machines themselves bound the windows that wait here: unacknowledged windows per connection, and the
//! memory budget over all of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;

use ackline::lumberjack::{Connection, Listener, ListenerOptions, listen_at};
use ackline_core::options::Uses;
use ackline_link::{Budget, Link, ListenSpec, PeerInfo, Refused, Watched};
use ackline_lumberjack::{Reader, Window};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokio::task::JoinHandle;

use crate::dicts::attributes;
use crate::listeners::listened;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, options, records, runtime};

/// The listener, and the windows and links of its connections.
struct Hub {
    listener: Listener,
    state: Watched<State>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arrived>,
    /// The open connections by their number.
    links: HashMap<u64, Link<Reader>>,
    /// Connections so far.
    connections: u64,
    is_closed: bool,
}

struct Arrived {
    window: Window,
    link: Link<Reader>,
    connection: u64,
    peer: PeerInfo,
}

impl Hub {
    fn links(&self) -> Vec<Link<Reader>> {
        self.state.lock().links.values().cloned().collect()
    }

    /// Accepts no more; answers the links that are open.
    fn close(&self) -> Vec<Link<Reader>> {
        self.state.change(|state| state.is_closed = true);
        self.links()
    }

    fn abort(&self) {
        for link in self.close() {
            link.abort();
        }
    }
}

async fn accept(hub: Arc<Hub>) {
    while let Ok(connection) = hub.listener.accept().await {
        tokio::spawn(serve(Arc::clone(&hub), connection));
    }
    hub.state.change(|state| state.is_closed = true);
}

async fn serve(hub: Arc<Hub>, mut connection: Connection) {
    let (link, peer) = (connection.link().clone(), connection.info().clone());
    let (number, is_closed) = hub.state.change(|state| {
        state.connections += 1;
        state.links.insert(state.connections, link.clone());
        (state.connections, state.is_closed)
    });
    if is_closed {
        link.abort();
    }
    while let Ok(window) = connection.window().await {
        let arrived = Arrived {
            window,
            link: link.clone(),
            connection: number,
            peer: peer.clone(),
        };
        hub.state.change(|state| state.ready.push_back(arrived));
    }
    connection.ended().await;
    hub.state.change(|state| state.links.remove(&number));
}

/// The task that accepts, ended with its listener.
struct Serving {
    hub: Arc<Hub>,
    accepting: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.abort();
        self.hub.listener.listening().stop();
        self.hub.abort();
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
        let mut made = ListenerOptions::default();
        options::set_all(&mut made, Uses::LISTEN, options)?;
        let url = made.with_url(url);
        let endpoint =
            super::endpoint(&url.map_err(|error| errors::option(&error.option, &error))?)?;
        let ListenerOptions {
            reader: mut config,
            acceptor,
            tls,
            memory,
        } = made;
        config.settle_after_error = true;
        let endpoint = options::secured(endpoint, &tls)?;
        let spec = ListenSpec::new(endpoint, acceptor.handshake_timeout)
            .map_err(|error| errors::usage(error.code(), &error.to_string()))?;
        let listening = listen_at(&spec, config, acceptor, Budget::new(memory));
        let listener = listened(py, listening, |error| {
            errors::transport(&format!("cannot listen on {spec}: {error}"))
        })?;
        let url = listener.url().to_owned();
        let hub = Arc::new(Hub {
            listener,
            state: Watched::default(),
        });
        let accepting = runtime::handle(py)?.spawn(accept(Arc::clone(&hub)));
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
            let mut state = hub.state.lock();
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
        let hub = self.hub()?;
        runtime::finish(py, async {
            for link in hub.close() {
                link.call(Reader::stop);
            }
            hub.listener.listening().end().await;
        })
    }

    /// Ends every connection now.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let hub = self.hub()?;
        runtime::finish(py, async {
            hub.abort();
            hub.listener.listening().end().await;
        })
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.hub()?.state.lock().is_closed)
    }

    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.hub()?.state.lock().links.len())
    }

    /// Connections that ended before their first byte, and those turned away by code.
    fn turned_away(&self) -> PyResult<(u64, BTreeMap<&'static str, u64>)> {
        let stats = self.hub()?.listener.stats();
        Ok((stats.health_checks, stats.turned_away))
    }

    /// The last connections ended for their input: `(peer, code, offset, message)`.
    fn refused(&self) -> PyResult<Vec<(String, &'static str, u64, String)>> {
        let refused = self.hub()?.listener.listening().refused();
        let line = |one: Refused| {
            let offset = one.offset.unwrap_or_default();
            (one.peer.to_string(), one.code, offset, one.message)
        };
        Ok(refused.into_iter().map(line).collect())
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
            let is_so = |state: &mut State| {
                if is_ended {
                    state.is_closed && state.links.is_empty()
                } else {
                    state.is_closed || !state.ready.is_empty()
                }
            };
            hub.state.until(|state| is_so(state).then_some(())).await;
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
        attributes(py, &self.arrived.get()?.peer)
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
