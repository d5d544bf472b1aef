//! The bare Lumberjack machines: bytes in, events and bytes out, the time told in milliseconds.

use std::sync::Mutex;

use ackline_core::options::OptionType as _;
use ackline_core::{Connection, ProtocolError};
use ackline_lumberjack::SequenceMode;
use ackline_lumberjack::frame::{self, Frame, From, Version};
use ackline_lumberjack::{Event, Reader, ReaderConfig, Window, Writer, WriterConfig, WriterEvent};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::machine::{Machine, Now, lock};
use crate::options::{argument, whole};
use crate::{errors, options, records};

const PROTOCOL: &str = "lumberjack";

/// A complete window as the bare reader reports it.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackReaderWindow {
    window: Window,
}

#[pymethods]
impl LumberjackReaderWindow {
    #[getter]
    fn window(&self) -> u64 {
        self.window.id
    }

    #[getter]
    fn version(&self) -> u8 {
        self.window.version.number()
    }

    #[getter]
    fn window_size(&self) -> u32 {
        self.window.window_size
    }

    #[getter]
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        records::records(py, &self.window)
    }
}

/// The reader's machine.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackReader {
    machine: Mutex<Machine<Reader>>,
}

#[pymethods]
impl LumberjackReader {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut config = ReaderConfig::bare();
        options::refuse(&options::machine(&mut config, options)?)?;
        Ok(Self {
            machine: Machine::new(PROTOCOL, Reader::new(config)),
        })
    }

    fn receive(&self, now: Now, data: &[u8]) -> PyResult<(&'static str, usize)> {
        lock(&self.machine).receive(now, data)
    }

    fn receive_eof(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).receive_eof(now)
    }

    fn poll_event(&self) -> Option<LumberjackReaderWindow> {
        match lock(&self.machine).connection.poll_event()? {
            Event::Window(window) => Some(LumberjackReaderWindow { window }),
            // Only a reader that was asked to sets windows aside.
            Event::Invalid(_) => None,
        }
    }

    fn poll_transmit<'py>(&self, py: Python<'py>, now: Now) -> PyResult<Bound<'py, PyBytes>> {
        lock(&self.machine).transmit(py, now)
    }

    fn poll_timeout(&self) -> Option<u64> {
        lock(&self.machine).timeout()
    }

    fn handle_timeout(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).handle_timeout(now)
    }

    fn reading(&self, now: Now, on: bool) {
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine.connection.reading(now, on);
    }

    fn ack(&self, now: Now, window: &Bound<'_, PyAny>) -> PyResult<()> {
        let window = whole("window", window, 0, u64::MAX)?;
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine.connection.ack(now, window).map_err(errors::refused)
    }

    fn stop(&self, now: Now) {
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine.connection.stop(now);
    }

    #[getter]
    fn unacknowledged(&self) -> usize {
        lock(&self.machine).connection.unacknowledged()
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        lock(&self.machine).lifecycle()
    }
}

/// The writer's machine.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackWriter {
    machine: Mutex<Machine<Writer>>,
}

#[pymethods]
impl LumberjackWriter {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut config = WriterConfig::bare();
        let mut others = options::machine(&mut config, options)?;
        if let Some(value) = options.get_item("next_sequence_number")? {
            let next = Option::<u32>::read(&SequenceMode::NEXT, &options::value_of(&value)?);
            let next = next.map_err(|error| errors::option("next_sequence_number", &error))?;
            config.sequence =
                next.map_or(config.sequence, |next| SequenceMode::Cumulative { next });
            others.retain(|name| name != "next_sequence_number");
        }
        options::refuse(&others)?;
        Ok(Self {
            machine: Machine::new(PROTOCOL, Writer::new(config)),
        })
    }

    fn receive(&self, now: Now, data: &[u8]) -> PyResult<(&'static str, usize)> {
        lock(&self.machine).receive(now, data)
    }

    fn receive_eof(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).receive_eof(now)
    }

    fn poll_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let event = lock(&self.machine).connection.poll_event();
        event
            .map(|event| match event {
                WriterEvent::Acknowledged { window } => {
                    ("acknowledged", window, 0).into_pyobject(py)
                }
                WriterEvent::Unacknowledged { window, from } => {
                    ("unacknowledged", window, from).into_pyobject(py)
                }
            })
            .transpose()
    }

    fn poll_transmit<'py>(&self, py: Python<'py>, now: Now) -> PyResult<Bound<'py, PyBytes>> {
        lock(&self.machine).transmit(py, now)
    }

    fn poll_timeout(&self) -> Option<u64> {
        lock(&self.machine).timeout()
    }

    fn handle_timeout(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).handle_timeout(now)
    }

    fn reading(&self, now: Now, on: bool) {
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine.connection.reading(now, on);
    }

    fn send_window(&self, now: Now, events: &Bound<'_, PyAny>) -> PyResult<u64> {
        let events = records::out_records(events, 0)?;
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine
            .connection
            .send_window(now, &events)
            .map_err(errors::refused)
    }

    fn finish(&self, now: Now) {
        let mut machine = lock(&self.machine);
        let now = machine.at(now);
        machine.connection.finish(now);
    }

    #[getter]
    fn unacknowledged(&self) -> u64 {
        lock(&self.machine).connection.unacknowledged()
    }

    #[getter]
    fn window_size(&self) -> u32 {
        lock(&self.machine).connection.window_size()
    }

    #[getter]
    fn room(&self) -> usize {
        lock(&self.machine).connection.room()
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        lock(&self.machine).lifecycle()
    }
}

/// The frames at the front of `data`, each as a dict, and how many bytes they are.
#[pyfunction]
pub(crate) fn lumberjack_decode<'py>(
    py: Python<'py>,
    data: &[u8],
    sender: &str,
    options: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let from = match sender {
        "writer" => From::Writer,
        "reader" => From::Reader,
        _ => {
            return Err(errors::usage(
                "sender",
                "sender is \"writer\" or \"reader\"",
            ));
        }
    };
    let mut config = ReaderConfig::bare();
    options::refuse(&options::machine(&mut config, options)?)?;
    let frames = PyList::empty(py);
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        let decoded = frame::decode(rest, &config.limits, from).map_err(|kind| {
            let offset = u64::try_from(done).unwrap_or(u64::MAX);
            errors::protocol(PROTOCOL, &ProtocolError { kind, offset })
        })?;
        let Some((frame, len)) = decoded else { break };
        frames.append(frame_dict(py, &frame)?)?;
        done += len;
    }
    Ok((frames, done))
}

fn frame_dict<'py>(py: Python<'py>, frame: &Frame) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let head = |kind: &str, version: Version| -> PyResult<()> {
        dict.set_item("type", kind)?;
        dict.set_item("version", version.number())
    };
    match frame {
        Frame::Window {
            version,
            window_size,
        } => {
            head("window", *version)?;
            dict.set_item("window_size", window_size)?;
        }
        Frame::Data {
            version,
            sequence_number,
            pairs,
        } => {
            head("data", *version)?;
            dict.set_item("sequence_number", sequence_number)?;
            let pairs = pairs
                .iter()
                .map(|(key, value)| (key.as_ref(), value.as_ref()));
            dict.set_item("pairs", records::pair_list(py, pairs)?)?;
        }
        Frame::Json {
            version,
            sequence_number,
            payload,
        } => {
            head("json", *version)?;
            dict.set_item("sequence_number", sequence_number)?;
            dict.set_item("payload", PyBytes::new(py, payload))?;
        }
        Frame::Compressed { version, frames } => {
            head("compressed", *version)?;
            let frames = frames.iter().map(|frame| frame_dict(py, frame));
            dict.set_item("frames", frames.collect::<PyResult<Vec<_>>>()?)?;
        }
        Frame::Ack {
            version,
            sequence_number,
        } => {
            head("ack", *version)?;
            dict.set_item("sequence_number", sequence_number)?;
        }
    }
    Ok(dict)
}

argument! {
    /// A level of zlib's.
    Level(u32), "level", 0, 9
}

/// The bytes of frames given as dicts.
#[pyfunction]
#[pyo3(signature = (frames, *, level = Level(3)))]
pub(crate) fn lumberjack_encode<'py>(
    py: Python<'py>,
    frames: &Bound<'py, PyAny>,
    level: Level,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = Vec::new();
    for frame in frames.try_iter()? {
        frame::encode(&frame_of(&frame?)?, level.0, &mut bytes);
    }
    Ok(PyBytes::new(py, &bytes))
}

fn frame_of(dict: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let kind: String = dict.get_item("type")?.extract()?;
    let version = options::version(&dict.get_item("version")?)?;
    let number = |name: &str| whole(name, &dict.get_item(name)?, 0, u32::MAX);
    Ok(match kind.as_str() {
        "window" => Frame::Window {
            version,
            window_size: number("window_size")?,
        },
        "ack" => Frame::Ack {
            version,
            sequence_number: number("sequence_number")?,
        },
        "json" => {
            let payload: Vec<u8> = dict.get_item("payload")?.extract()?;
            let sequence_number = number("sequence_number")?;
            Frame::Json {
                version,
                sequence_number,
                payload: payload.into(),
            }
        }
        "data" => {
            let pairs: Vec<(Vec<u8>, Vec<u8>)> = dict.get_item("pairs")?.extract()?;
            let pairs = pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()));
            let sequence_number = number("sequence_number")?;
            Frame::Data {
                version,
                sequence_number,
                pairs: pairs.collect(),
            }
        }
        "compressed" => {
            let frames = dict.get_item("frames")?;
            let frames = frames.try_iter()?.map(|frame| frame_of(&frame?));
            Frame::Compressed {
                version,
                frames: frames.collect::<PyResult<_>>()?,
            }
        }
        _ => {
            return Err(errors::usage(
                "frame",
                &format!("there is no frame {kind:?}"),
            ));
        }
    })
}
