//! The bare machine of any protocol: bytes in, events and bytes out, the time told in milliseconds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::described::{Field, Opened, Role, Schema, Shape};
use ackline_core::{Lifecycle, Members, Need, SendQueue, Value};
use bytes::{Buf, BytesMut};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyType};

use crate::described::{
    Frames, Given, frame_dict, keywords, misused, protocol, to_dict, to_python,
};
use crate::errors;
use crate::options::argument;
use crate::payloads::bytes_of;

argument! {
    /// Milliseconds since the instant that the machine's user calls 0.
    Now(u64), "now", 0, u64::MAX
}

argument! {
    /// The number of a transport.
    Connection(u64), "connection", 1, u64::MAX
}

/// See `_sansio_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Machine {
    protocol: &'static str,
    role: &'static Role,
    opened: Mutex<Opened>,
    /// The instant that the user calls 0.
    start: Instant,
}

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (protocol, role, /, now = Now(0), **options))]
    fn new(
        protocol: &str,
        role: &str,
        now: Now,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (described, start) = (self::protocol(protocol)?, Instant::now());
        let opened = described.opened(role, after(start, now), keywords(options)?);
        let opened = opened.map_err(|error| misused(&error))?;
        Ok(Self {
            protocol: described.name(),
            role: opened.role,
            opened: Mutex::new(opened),
            start,
        })
    }

    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        _events: &Bound<'py, PyAny>,
    ) -> Bound<'py, PyType> {
        class.clone()
    }

    #[pyo3(signature = (now, verb, /, **arguments))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        now: Now,
        verb: &str,
        arguments: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Reading the arguments may run code of the caller, which may call this machine.
        let read = self.role.arguments(verb, keywords(arguments)?);
        let (verb, arguments) = read.map_err(|error| misused(&error))?;
        let answer = self.lock().machine.call(self.at(now), verb, &arguments);
        let answer = answer.map_err(|error| misused(&error))?;
        to_python(py, &answer, Frames::AsDicts)
    }

    fn receive(&self, now: Now, data: &Bound<'_, PyAny>) -> PyResult<(&'static str, usize)> {
        let data = bytes_of(data)?;
        let mut opened = self.lock();
        let need = opened.machine.receive(self.at(now), &data);
        self.check(opened)?;
        Ok(match need {
            Need::Input { at_least } => ("input", at_least),
            Need::Room => ("room", 0),
            Need::Again => ("again", 0),
        })
    }

    fn receive_eof(&self, now: Now) -> PyResult<()> {
        let mut opened = self.lock();
        opened.machine.receive_eof(self.at(now));
        self.check(opened)
    }

    fn poll_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(event) = self.lock().machine.poll_event() else {
            return Ok(None);
        };
        let dict = PyDict::new(py);
        dict.set_item("event", event.name)?;
        dict.update(to_dict(py, &event.members, Frames::AsDicts)?.as_mapping())?;
        Ok(Some(dict))
    }

    fn poll_transmit<'py>(&self, py: Python<'py>, now: Now) -> PyResult<Bound<'py, PyBytes>> {
        let mut queue = SendQueue::new();
        let now = self.at(now);
        self.lock().machine.poll_transmit(now, &mut queue);
        PyBytes::new_with(py, queue.remaining(), |bytes| {
            queue.copy_to_slice(bytes);
            Ok(())
        })
    }

    /// Rounded up: at the moment that is named the timer is due.
    fn poll_timeout(&self) -> Option<u64> {
        let due = self.lock().machine.poll_timeout()?;
        let left = due.saturating_duration_since(self.start);
        u64::try_from(left.as_micros().div_ceil(1000)).ok()
    }

    fn handle_timeout(&self, now: Now) -> PyResult<()> {
        let mut opened = self.lock();
        opened.machine.handle_timeout(self.at(now));
        self.check(opened)
    }

    fn reading(&self, now: Now, on: bool) {
        let now = self.at(now);
        self.lock().machine.reading(now, on);
    }

    fn select(&self, connection: Connection) -> PyResult<()> {
        let Connection(number) = connection;
        if self.lock().machine.select(number) {
            return Ok(());
        }
        let text = format!("connection is {number}; this machine has one connection, 1");
        Err(errors::usage("connection", &text))
    }

    #[getter]
    fn connections(&self) -> u64 {
        self.lock().machine.transports()
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        match self.lock().machine.lifecycle() {
            Lifecycle::Open => "open",
            Lifecycle::Draining => "draining",
            Lifecycle::Closed => "closed",
            Lifecycle::Handover => "handover",
        }
    }
}

impl Machine {
    /// Locks the machine; one whose method has panicked goes on.
    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, now: Now) -> Instant {
        after(self.start, now)
    }

    /// Raises the error that has ended the transport, once the machine is no longer locked.
    fn check(&self, opened: MutexGuard<'_, Opened>) -> PyResult<()> {
        let failure = opened.machine.failure().cloned();
        drop(opened);
        failure.map_or(Ok(()), |failure| {
            Err(errors::failed(self.protocol, &failure))
        })
    }
}

fn after(start: Instant, now: Now) -> Instant {
    let later = start.checked_add(Duration::from_millis(now.0));
    later.unwrap_or(start)
}

/// See `_sansio_core.pyi`.
#[pyfunction]
#[pyo3(signature = (protocol, data, sender = None, **options))]
pub(crate) fn sansio_decode<'py>(
    py: Python<'py>,
    protocol: &str,
    data: &[u8],
    sender: Option<&str>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let described = self::protocol(protocol)?;
    let decoder = described.decoding_of(sender, keywords(options)?);
    let mut decoder = decoder.map_err(|error| misused(&error))?;
    let mut input = BytesMut::from(data);
    let frames = PyList::empty(py);
    loop {
        let offset = u64::try_from(data.len() - input.len()).unwrap_or(u64::MAX);
        let frame = decoder.next(&mut input, offset);
        let frame = frame.map_err(|failure| errors::failed(described.name(), &failure))?;
        if let Some(frame) = &frame {
            frames.append(frame_dict(py, frame)?)?;
        }
        if frame.is_none() || decoder.is_whole() {
            return Ok((frames, data.len() - input.len()));
        }
    }
}

/// See `_sansio_core.pyi`.
#[pyfunction]
#[pyo3(signature = (protocol, frames, **options))]
pub(crate) fn sansio_encode<'py>(
    py: Python<'py>,
    protocol: &str,
    frames: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let described = self::protocol(protocol)?;
    let frames = frames.try_iter()?.map(|frame| frame.map(Given));
    let frames = frames.collect::<PyResult<Vec<_>>>()?;
    let mut bytes = Vec::new();
    let encoded = described.encode_from(keywords(options)?, &frames, &mut bytes);
    encoded.map_err(|error| misused(&error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// See `_sansio_core.pyi`.
#[pyfunction]
pub(crate) fn sansio_describe<'py>(py: Python<'py>, protocol: &str) -> PyResult<Bound<'py, PyAny>> {
    let described = self::protocol(protocol)?;
    let roles = described.roles().iter().map(|role| {
        let members = vec![
            ("options", fields(&role.options.fields())),
            ("verbs", schemas(role.verbs)),
            ("events", schemas(role.events)),
        ];
        (role.name, Value::Map(members))
    });
    let shown = Value::Map(vec![
        ("roles", Value::Map(roles.collect())),
        ("frames", schemas(described.frames())),
        ("decoding", fields(&described.decoding().fields())),
    ]);
    to_python(py, &shown, Frames::AsDicts)
}

/// See `_sansio_core.pyi`.
#[pyfunction]
pub(crate) fn sansio_protocols() -> Vec<&'static str> {
    let mut names: Vec<_> = ackline::described().iter().map(|one| one.name()).collect();
    names.sort_unstable();
    names
}

fn schemas(all: &'static [Schema]) -> Value {
    let shown = all.iter().map(|one| {
        let members = vec![
            ("members", fields(one.fields)),
            ("beside_the_vectors", one.is_beside_the_vectors.into()),
        ];
        (one.name, Value::Map(members))
    });
    Value::Map(shown.collect())
}

fn fields(all: &[Field]) -> Value {
    let shown = all.iter().map(|one| {
        let mut members = shape(&one.shape);
        members.push(("optional", one.is_optional.into()));
        members.push(("nullable", one.is_nullable.into()));
        members.extend(one.limit.map(|limit| ("limit", Value::Name(limit))));
        (one.name, Value::Map(members))
    });
    Value::Map(shown.collect())
}

fn shape(of: &Shape) -> Members {
    let is = |kind| ("is", Value::Name(kind));
    let words =
        |words: &[&'static str]| Value::List(words.iter().map(|word| Value::Name(word)).collect());
    let shapes =
        |shapes: &[Shape]| Value::List(shapes.iter().map(|one| Value::Map(shape(one))).collect());
    match of {
        Shape::Number { least, most } => vec![
            is("number"),
            ("least", (*least).into()),
            ("most", (*most).into()),
        ],
        Shape::Signed => vec![is("signed")],
        Shape::Fraction => vec![is("fraction")],
        Shape::Flag => vec![is("flag")],
        Shape::Bytes => vec![is("bytes")],
        Shape::Text => vec![is("text")],
        Shape::Word(all) => vec![is("word"), ("words", words(all))],
        Shape::Tagged {
            words: alone,
            tags,
            of,
        } => vec![
            is("tagged"),
            ("words", words(alone)),
            ("tags", words(tags)),
            ("of", Value::Map(shape(of))),
        ],
        Shape::Either(all) => vec![is("either"), ("of", shapes(all))],
        Shape::List(of) => vec![is("list"), ("of", Value::Map(shape(of)))],
        Shape::Row(all) => vec![is("row"), ("of", shapes(all))],
        Shape::Map(all) => vec![is("map"), ("members", fields(all))],
        Shape::Frames(all) => vec![is("frames"), ("frames", schemas(all))],
    }
}
