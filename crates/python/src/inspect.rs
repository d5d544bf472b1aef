//! The frames of a capture for `ackline decode`, of any protocol that has an [`Inspect`].

use std::sync::{Mutex, PoisonError};

use ackline_bpmux as bpmux;
use ackline_core::{Inspect, Inspected, LimitHit, ProtocolError, Value};
use ackline_lumberjack::frame::From;
use ackline_lumberjack::{self as lumberjack, Over};
use ackline_relink::frame::{Context, Role};
use ackline_relink::{self as relink};
use bytes::{Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::options::{flag, whole};
use crate::{errors, options};

/// The one limit of a reader of captures.
const LIMIT: &str = "--max-frame-bytes";

/// One direction of a recorded connection.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Inspector {
    capture: Mutex<Capture>,
}

struct Capture {
    frames: Box<dyn Frames>,
    input: BytesMut,
    offset: u64,
}

#[pymethods]
impl Inspector {
    #[new]
    fn new(protocol: &str, sender: Option<&str>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let frames = match protocol {
            "bpmux" => bpmux_frames(sender, options)?,
            "lumberjack" => lumberjack_frames(sender, options)?,
            "relink" => relink_frames(sender, options)?,
            _ => {
                return Err(errors::usage(
                    "protocol",
                    &format!(
                        "protocol is \"bpmux\", \"lumberjack\" or \"relink\", not {protocol:?}"
                    ),
                ));
            }
        };
        Ok(Self {
            capture: Mutex::new(Capture {
                frames,
                input: BytesMut::new(),
                offset: 0,
            }),
        })
    }

    fn feed(&self, data: &[u8]) {
        self.lock(|capture| capture.input.extend_from_slice(data));
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let taken = self.lock(|capture| {
            let at = capture.offset;
            let frame = capture.frames.next(&mut capture.input, at)?;
            if let Some(frame) = &frame {
                let len = u64::try_from(frame.bytes.len()).unwrap_or(u64::MAX);
                capture.offset = at.saturating_add(len);
            }
            Ok::<_, Raise>(frame.map(|frame| (at, frame)))
        });
        match taken {
            Ok(Some((at, frame))) => frame_tuple(py, at, &frame).map(Some),
            Ok(None) => Ok(None),
            Err(raise) => Err(raise()),
        }
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.lock(|capture| capture.offset)
    }

    #[getter]
    fn pending(&self) -> usize {
        self.lock(|capture| capture.input.len())
    }
}

impl Inspector {
    fn lock<T>(&self, run: impl FnOnce(&mut Capture) -> T) -> T {
        run(&mut self.capture.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Makes the exception for unsound input, once no lock is held.
type Raise = Box<dyn FnOnce() -> PyErr>;

/// The frames of any protocol.
trait Frames: Send {
    /// Returns the frame at the front of `input`; `offset` is its place in the capture.
    fn next(&mut self, input: &mut BytesMut, offset: u64) -> Result<Option<Inspected>, Raise>;
}

/// The frames of one protocol, and the name of our one limit in its error kinds.
struct Of<I: Inspect> {
    protocol: &'static str,
    inspector: I,
    limited: fn(I::Kind) -> I::Kind,
}

impl<I: Inspect + Send> Frames for Of<I> {
    fn next(&mut self, input: &mut BytesMut, offset: u64) -> Result<Option<Inspected>, Raise> {
        self.inspector.inspect(input).map_err(|kind| {
            let (protocol, kind) = (self.protocol, (self.limited)(kind));
            let raise = move || errors::protocol(protocol, &ProtocolError { kind, offset });
            Box::new(raise) as Raise
        })
    }
}

fn sender_of<T>(sender: Option<&str>, sides: [(&str, T); 2]) -> PyResult<T> {
    let [(first, one), (second, other)] = sides;
    match sender {
        None => Ok(one),
        Some(name) if name == first => Ok(one),
        Some(name) if name == second => Ok(other),
        Some(name) => Err(errors::usage(
            "sender",
            &format!("sender is {first:?} or {second:?}, not {name:?}"),
        )),
    }
}

fn lumberjack_frames(
    sender: Option<&str>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Box<dyn Frames>> {
    let from = sender_of(sender, [("writer", From::Writer), ("reader", From::Reader)])?;
    let (mut most, mut others) = (usize::MAX, Vec::new());
    for (key, value) in options {
        match key.extract()? {
            "max_frame_bytes" => most = whole("max_frame_bytes", &value, 0, usize::MAX)?,
            _ => others.push(key.extract()?),
        }
    }
    options::refuse(&others)?;
    let limits = lumberjack::Limits {
        max_window_events: u32::MAX,
        max_pairs: u32::MAX,
        max_json_bytes: most,
        max_data_bytes: most,
        max_compressed_bytes: most,
        max_inflated_bytes: most,
        max_field_bytes: most,
        ..lumberjack::Limits::default()
    };
    Ok(Box::new(Of {
        protocol: "lumberjack",
        inspector: lumberjack::Inspector::new(from, limits),
        limited: |kind| {
            use lumberjack::Kind;
            let ours = |over| Over {
                option: LIMIT,
                ..over
            };
            match kind {
                Kind::FrameTooLarge(over) => Kind::FrameTooLarge(ours(over)),
                Kind::FieldTooLarge(over) => Kind::FieldTooLarge(ours(over)),
                Kind::InflatedTooLarge(over) => Kind::InflatedTooLarge(ours(over)),
                other => other,
            }
        },
    }))
}

fn relink_frames(sender: Option<&str>, options: &Bound<'_, PyDict>) -> PyResult<Box<dyn Frames>> {
    let sides = [("connector", Role::Connector), ("listener", Role::Listener)];
    let mut context = Context {
        from: sender_of(sender, sides)?,
        connector_channel_id_size: 0,
        listener_channel_id_size: 0,
    };
    let (mut most, mut handshake, mut others) = (u64::MAX, false, Vec::new());
    for (key, value) in options {
        match key.extract()? {
            "max_frame_bytes" => most = whole("max_frame_bytes", &value, 0, u64::MAX)?,
            "handshake" => handshake = flag("handshake", &value)?,
            "connector_channel_id_size" => {
                context.connector_channel_id_size =
                    whole("connector_channel_id_size", &value, 0, u8::MAX)?;
            }
            "listener_channel_id_size" => {
                context.listener_channel_id_size =
                    whole("listener_channel_id_size", &value, 0, u8::MAX)?;
            }
            _ => others.push(key.extract()?),
        }
    }
    options::refuse(&others)?;
    let limits = relink::Limits {
        max_channel_ids: u32::MAX,
        max_message_parts: u32::MAX,
        max_part_bytes: most,
        max_message_bytes: most,
        max_multicast_bytes: u64::MAX,
        copies: u32::MAX,
    };
    Ok(Box::new(Of {
        protocol: "relink",
        inspector: relink::frame::Inspector::new(context, limits, handshake),
        limited: |kind| match kind {
            relink::Kind::Limit(hit) => relink::Kind::Limit(LimitHit {
                option: LIMIT,
                ..hit
            }),
            other => other,
        },
    }))
}

/// Both sides send the same chunks.
fn bpmux_frames(sender: Option<&str>, options: &Bound<'_, PyDict>) -> PyResult<Box<dyn Frames>> {
    if let Some(sender) = sender {
        let text =
            format!("sender is {sender:?}; both ends of bpmux send the same chunks: leave it");
        return Err(errors::usage("sender", &text));
    }
    let (mut limits, mut others) = (bpmux::Limits::default(), Vec::new());
    limits.max_payload_bytes = u64::MAX;
    for (key, value) in options {
        match key.extract()? {
            "max_frame_bytes" => {
                limits.max_payload_bytes = whole("max_frame_bytes", &value, 0, u64::MAX)?;
            }
            _ => others.push(key.extract()?),
        }
    }
    options::refuse(&others)?;
    Ok(Box::new(Of {
        protocol: "bpmux",
        inspector: bpmux::chunk::Inspector::new(limits),
        limited: |kind| match kind {
            bpmux::Kind::Limit(hit) => bpmux::Kind::Limit(LimitHit {
                option: LIMIT,
                ..hit
            }),
            other => other,
        },
    }))
}

/// The frame's offset, its name, its bytes, its members, and the meaning of its bytes.
fn frame_tuple<'py>(
    py: Python<'py>,
    offset: u64,
    frame: &Inspected,
) -> PyResult<Bound<'py, PyTuple>> {
    let members = PyDict::new(py);
    for (name, value) in &frame.members {
        members.set_item(name, member(py, value)?)?;
    }
    let spans = frame.spans.iter().map(|span| (span.len, &span.label));
    let spans = PyList::new(py, spans.collect::<Vec<_>>())?;
    (offset, frame.name, bytes(py, &frame.bytes), members, spans).into_pyobject(py)
}

pub(crate) fn member<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Number(number) => number.into_pyobject(py)?.into_any(),
        Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Name(name) => name.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(content) => bytes(py, content).into_any(),
        Value::List(values) => {
            let values: PyResult<Vec<_>> = values.iter().map(|one| member(py, one)).collect();
            PyList::new(py, values?)?.into_any()
        }
        Value::Frames(frames) => {
            let list = PyList::empty(py);
            let mut offset = 0;
            for frame in frames {
                list.append(frame_tuple(py, offset, frame)?)?;
                offset += u64::try_from(frame.bytes.len()).unwrap_or(u64::MAX);
            }
            list.into_any()
        }
    })
}

fn bytes<'py>(py: Python<'py>, content: &Bytes) -> Bound<'py, PyBytes> {
    PyBytes::new(py, content)
}
