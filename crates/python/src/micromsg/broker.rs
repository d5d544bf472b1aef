//! A broker of topics and queues.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ackline::link::AcceptorStats;
use ackline::micromsg::{Broker, BrokerOptions, BrokerStats, Error, serve};
use ackline_core::locked;
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::raised::raised;
use super::text::Text;
use crate::dicts::set_fields;
use crate::options::made;
use crate::pending_op::PendingOp;
use crate::runtime::{Owned, seconds};

/// See `_micromsg_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct MicroMsgBroker {
    state: Owned<Arc<Mutex<State>>>,
    url: String,
}

/// A broker lets its spool go when it is over, also while Python keeps its object.
enum State {
    Running(Arc<Broker>),
    Over(BrokerStats, AcceptorStats),
}

impl State {
    fn stats(&self) -> (BrokerStats, AcceptorStats) {
        match self {
            Self::Running(broker) => (broker.stats(), broker.acceptor_stats()),
            Self::Over(broker, acceptor) => (*broker, acceptor.clone()),
        }
    }

    fn end(&mut self) {
        let (broker, acceptor) = self.stats();
        *self = Self::Over(broker, acceptor);
    }

    fn running(&self) -> Option<Arc<Broker>> {
        match self {
            Self::Running(broker) => Some(Arc::clone(broker)),
            Self::Over(..) => None,
        }
    }
}

/// Begins to serve.
#[pyfunction]
pub(crate) fn micromsg_serve(
    py: Python<'_>,
    url: Text<'_>,
    spool: Option<PathBuf>,
    queues: Text<'_>,
    options: &Bound<'_, PyDict>,
) -> PyResult<PendingOp> {
    let mut options: BrokerOptions = made(Uses::LISTEN.or(Uses::RECEIVE), options)?;
    options.spool = spool;
    options.queues = Some(queues.0.to_owned());
    let url = url.0.to_owned();
    PendingOp::begin(py, raised, async move {
        serve(&url, options).await.map(|broker| MicroMsgBroker {
            url: broker.url().to_owned(),
            state: Owned::new(Arc::new(Mutex::new(State::Running(Arc::new(broker))))),
        })
    })
}

#[pymethods]
impl MicroMsgBroker {
    /// The URL listened on.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The current state, and totals since the start.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state.get()?;
        let (stats, acceptor) = py.detach(|| locked(state).stats());
        let dict = PyDict::new(py);
        set_fields!(
            dict,
            stats,
            connections,
            subscriptions,
            published,
            delivered,
            slow_subscribers,
            refused,
            ignored,
            queues,
            waiting,
            unacknowledged,
            held_bytes,
        );
        set_fields!(dict, acceptor, health_checks, turned_away);
        Ok(dict)
    }

    /// The lines about connections that were refused since the last call.
    fn refusals(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let state = self.state.get()?;
        Ok(py.detach(|| {
            let running = locked(state).running();
            let next = || running.as_ref().and_then(|broker| broker.next_refusal());
            std::iter::from_fn(next).collect()
        }))
    }

    /// Ends it in order.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<PendingOp> {
        let timeout = seconds("timeout", timeout)?;
        let state = Arc::clone(self.state.get()?);
        PendingOp::begin(py, raised, async move {
            let running = locked(&state).running();
            let Some(broker) = running else {
                return Ok(None::<()>);
            };
            let done: Result<(), Error> = broker.close(timeout).await;
            locked(&state).end();
            done.map(|()| None)
        })
    }

    /// Ends it at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state.get()?;
        py.detach(|| {
            let mut state = locked(state);
            if let State::Running(broker) = &*state {
                broker.stop();
            }
            state.end();
        });
        Ok(())
    }
}
