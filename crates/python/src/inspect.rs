//! The frames of a capture for `ackline decode`, of any protocol.

use std::sync::{Mutex, PoisonError};

use ackline_core::described::{Decoder, Failure};
use bytes::BytesMut;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::described::{frame_tuple, members, misused, protocol};
use crate::errors;

/// One direction of a recorded connection.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Inspector {
    protocol: &'static str,
    capture: Mutex<Capture>,
}

struct Capture {
    decoder: Box<dyn Decoder>,
    input: BytesMut,
    offset: u64,
    /// Whether the capture has ended and a whole text in it was not taken yet.
    holds_text: bool,
}

#[pymethods]
impl Inspector {
    #[new]
    fn new(protocol: &str, sender: Option<&str>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let described = self::protocol(protocol)?;
        let decoder = described.decoding_of(sender, members(options)?);
        Ok(Self {
            protocol: described.name(),
            capture: Mutex::new(Capture {
                decoder: decoder.map_err(|error| misused(&error))?,
                input: BytesMut::new(),
                offset: 0,
                holds_text: false,
            }),
        })
    }

    fn feed(&self, data: &[u8]) {
        self.lock(|capture| capture.input.extend_from_slice(data));
    }

    fn end(&self) {
        self.lock(|capture| capture.holds_text = capture.decoder.is_whole());
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let taken = self.lock(|capture| {
            if capture.decoder.is_whole() && !std::mem::take(&mut capture.holds_text) {
                return Ok(None);
            }
            let at = capture.offset;
            let frame = capture.decoder.next(&mut capture.input, at)?;
            if let Some(frame) = &frame {
                let len = u64::try_from(frame.bytes.len()).unwrap_or(u64::MAX);
                capture.offset = at.saturating_add(len);
            }
            Ok::<_, Failure>(frame.map(|frame| (at, frame)))
        });
        let taken = taken.map_err(|failure| errors::failed(self.protocol, &failure))?;
        let tuple = taken.map(|(at, frame)| frame_tuple(py, at, &frame));
        tuple.transpose()
    }

    #[getter]
    fn is_whole(&self) -> bool {
        self.lock(|capture| capture.decoder.is_whole())
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
