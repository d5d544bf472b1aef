//! Received messages for Python: shared until Python asks for `bytes`.

use std::ffi::c_int;

use ackline::core::Sequence;
use ackline::relink::{ChannelId, Mark, Message, Payload};
use ackline_relink::COPIED_BYTES;
use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyList, PyMemoryView};

use crate::errors;
use crate::payloads::{joined, untracked};

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkMessage {
    /// Shared by the messages of a batch next to each other on one channel.
    #[pyo3(get)]
    channel: Py<PyBytes>,
    #[pyo3(get, name = "sequence")]
    number: u32,
    place: u64,
    /// The link that it came over.
    link: u64,
    content: Content,
}

/// A payload that was copied out of the input is copied on to Python at once, and dropped; a payload that is a part
/// of the input stays there until it is asked for.
enum Content {
    Copied(Py<PyBytes>),
    Held(Box<Payload>),
}

impl Content {
    fn new(py: Python<'_>, payload: Payload) -> Self {
        match payload.as_slice() {
            [part] if part.len() <= COPIED_BYTES => Self::Copied(PyBytes::new(py, part).unbind()),
            _ => Self::Held(Box::new(payload)),
        }
    }
}

impl RelinkMessage {
    /// Refuses a message that came over another link: its channel and number name another message there.
    pub(super) fn check_link(&self, py: Python<'_>, link: u64) -> PyResult<()> {
        if self.link == link {
            return Ok(());
        }
        let (number, channel) = (self.number, self.id(py));
        let text = format!("message {number} of channel {channel} came over another link");
        Err(errors::usage("other_link", &text))
    }

    /// Whether `other` was received next to it on its channel.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.channel.is(&other.channel)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            sequence: Sequence(self.number),
            place: self.place,
        }
    }

    pub(super) fn id(&self, py: Python<'_>) -> ChannelId {
        ChannelId::from(self.channel.as_bytes(py))
    }
}

/// Python's messages of those received.
pub(super) fn messages(
    py: Python<'_>,
    received: Vec<Message>,
    link: u64,
) -> PyResult<Bound<'_, PyList>> {
    let mut last: Option<(ChannelId, Py<PyBytes>)> = None;
    let mut made = Vec::with_capacity(received.len());
    for message in received {
        let channel = match &last {
            Some((id, channel)) if *id == message.channel => channel.clone_ref(py),
            _ => {
                let channel = PyBytes::new(py, message.channel.as_bytes()).unbind();
                last = Some((message.channel.clone(), channel.clone_ref(py)));
                channel
            }
        };
        let Mark { sequence, place } = message.mark();
        let message = RelinkMessage {
            channel,
            number: sequence.0,
            place,
            link,
            content: Content::new(py, message.payload),
        };
        made.push(untracked(py, message)?);
    }
    PyList::new(py, made)
}

#[pymethods]
impl RelinkMessage {
    /// All parts, one behind the other.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = match &self.content {
            Content::Copied(bytes) => return Ok(bytes.bind(py).clone()),
            Content::Held(payload) => payload,
        };
        joined(py, payload)
    }

    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match &self.content {
            Content::Copied(bytes) => PyList::new(py, [bytes]),
            Content::Held(payload) => PyList::new(py, parts_of(py, payload)),
        }
    }

    /// The parts without a copy.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let payload = match &self.content {
            Content::Copied(bytes) => {
                return PyList::new(py, [PyMemoryView::from(bytes.bind(py).as_any())?]);
            }
            Content::Held(payload) => payload,
        };
        let views = payload.parts().map(|bytes| {
            let part = Bound::new(py, RelinkPart { bytes })?;
            PyMemoryView::from(part.as_any())
        });
        PyList::new(py, views.collect::<PyResult<Vec<_>>>()?)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        match &self.content {
            Content::Copied(bytes) => bytes.as_bytes(py).len(),
            Content::Held(payload) => payload.bytes(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let parts = match &self.content {
            Content::Copied(_) => 1,
            Content::Held(payload) => payload.len(),
        };
        format!(
            "<RelinkMessage {} on channel {}: {parts} parts, {} bytes>",
            self.number,
            self.id(py),
            self.__len__(py),
        )
    }
}

/// One part of a received message, by Python's buffer protocol.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkPart {
    bytes: Bytes,
}

#[pymethods]
impl RelinkPart {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    #[allow(unsafe_code, clippy::needless_pass_by_value)] // the buffer protocol has no safe form
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        let len = ffi::Py_ssize_t::try_from(bytes.len())?;
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the view keeps `slf` alive; `slf` is frozen and owns the bytes; the view is made read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if filled == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// The parts of a payload, copied.
pub(super) fn parts_of<'py>(py: Python<'py>, payload: &Payload) -> Vec<Bound<'py, PyBytes>> {
    let parts = payload.as_slice().iter();
    parts.map(|part| PyBytes::new(py, part)).collect()
}

/// The number of a message.
pub(super) fn sequence_of(value: &Bound<'_, PyAny>) -> PyResult<Sequence> {
    let number = value.extract().ok().filter(|_| !is_flag(value));
    number.map(Sequence).ok_or_else(|| {
        let text = format!(
            "through is {value}; a message's number is a whole number from 0 to {}",
            u32::MAX
        );
        errors::usage("out_of_range", &text)
    })
}

/// The ids of channels: bytes, or a number as little-endian bytes of the agreed size.
pub(super) fn channel_of(value: &Bound<'_, PyAny>, size: u8) -> PyResult<ChannelId> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let id = ChannelId::from(bytes.as_bytes());
        if id.len() == usize::from(size) {
            return Ok(id);
        }
        let text = format!(
            "channel {id} has {} bytes; the ids of these channels have {size}",
            id.len()
        );
        return Err(errors::usage("invalid_channel_id", &text));
    }
    let wrong = || {
        let kind = value.get_type();
        let shown = if value.is_instance_of::<PyInt>() {
            value.to_string()
        } else {
            kind.to_string()
        };
        let text = format!(
            "a channel is its id as bytes, or as a number that fits {size} bytes; this is {shown}"
        );
        errors::usage("invalid_channel_id", &text)
    };
    let number: Option<u64> = value.extract().ok().filter(|_| !is_flag(value));
    let number = number.ok_or_else(wrong)?;
    ChannelId::le(number, size).ok_or_else(wrong)
}

/// `True` is a number to Python, but nobody means it as one.
fn is_flag(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBool>()
}
