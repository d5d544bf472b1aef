//! Lumberjack records between Python and Rust: a JSON event is its text as bytes, a `D` event its pairs.

use ackline_lumberjack::{Expander, OutRecord, Record, Window};
use bytes::{Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::errors;

/// The events of a window: `bytes`, or a `dict` of `bytes`; the last of two equal keys wins.
pub(crate) fn events<'py>(py: Python<'py>, window: &Window) -> PyResult<Bound<'py, PyList>> {
    collect(py, window, |record| {
        Ok(match record {
            Record::Json { payload, .. } => PyBytes::new(py, payload).into_any(),
            Record::Data { pairs, .. } => {
                let dict = PyDict::new(py);
                for (key, value) in pairs {
                    dict.set_item(PyBytes::new(py, key), PyBytes::new(py, value))?;
                }
                dict.into_any()
            }
        })
    })
}

/// The records of a window, each `(sequence_number, payload)` or `(sequence_number, [(key, value), …])`.
pub(crate) fn records<'py>(py: Python<'py>, window: &Window) -> PyResult<Bound<'py, PyList>> {
    collect(py, window, |record| {
        Ok(match record {
            Record::Json { sequence, payload } => (sequence, PyBytes::new(py, payload))
                .into_pyobject(py)?
                .into_any(),
            Record::Data { sequence, pairs } => {
                let list = pair_list(py, pairs)?;
                (sequence, list).into_pyobject(py)?.into_any()
            }
        })
    })
}

/// Pairs as they came.
pub(crate) fn pair_list<'py, 'a>(
    py: Python<'py>,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (key, value) in pairs {
        list.append((PyBytes::new(py, key), PyBytes::new(py, value)))?;
    }
    Ok(list)
}

fn collect<'py>(
    py: Python<'py>,
    window: &Window,
    mut convert: impl FnMut(Record<'_>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let mut failed = None;
    let walked = window.for_each_record(&mut Expander::new(), |record| {
        if failed.is_none() {
            failed = convert(record).and_then(|item| list.append(item)).err();
        }
    });
    walked.map_err(|kind| errors::internal(&kind))?;
    failed.map_or(Ok(list), Err)
}

/// Converts event `at` for sending: `bytes` or `str` is JSON text, a sequence of pairs is sent as `D`.
pub(crate) fn out_record(event: &Bound<'_, PyAny>, at: usize) -> PyResult<OutRecord> {
    if let Ok(payload) = event.cast::<PyBytes>() {
        return Ok(OutRecord::Json(Bytes::copy_from_slice(payload.as_bytes())));
    }
    if let Ok(text) = event.cast::<PyString>() {
        return Ok(OutRecord::Json(Bytes::copy_from_slice(
            text.to_cow()?.as_bytes(),
        )));
    }
    let wrong = |what: &str| errors::usage("event", &format!("event {at}: {what}"));
    let kinds = "an event is JSON text, a dict, or a sequence of pairs";
    let mut pairs = Vec::new();
    for pair in event.try_iter().map_err(|_| wrong(kinds))? {
        let pair = pair?;
        let pair = pair.cast::<PyTuple>();
        let pair = pair.ok().filter(|pair| pair.len() == 2);
        let pair = pair.ok_or_else(|| wrong("a pair is a tuple of a key and a value"))?;
        let text = |place| -> PyResult<Bytes> {
            text_or_bytes(&pair.get_item(place)?)?
                .ok_or_else(|| wrong("keys and values are bytes or str"))
        };
        pairs.push((text(0)?, text(1)?));
    }
    Ok(OutRecord::Data(pairs))
}

/// `None` for anything else.
fn text_or_bytes(value: &Bound<'_, PyAny>) -> PyResult<Option<Bytes>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(Bytes::copy_from_slice(text.to_cow()?.as_bytes())));
    }
    let bytes = value.cast::<PyBytes>().ok();
    Ok(bytes.map(|bytes| Bytes::copy_from_slice(bytes.as_bytes())))
}

/// Every event of a Python sequence; errors call its first event `first`. Texts of a list share one buffer.
pub(crate) fn out_records(events: &Bound<'_, PyAny>, first: usize) -> PyResult<Vec<OutRecord>> {
    if events.is_instance_of::<PyString>() || events.is_instance_of::<PyBytes>() {
        let text = "events are a sequence; one event alone goes as a list: [event]";
        return Err(errors::usage("events", text));
    }
    if let Ok(list) = events.cast::<PyList>()
        && let Some(texts) = texts(list)
    {
        return Ok(texts);
    }
    events
        .try_iter()?
        .enumerate()
        .map(|(at, event)| out_record(&event?, first.saturating_add(at)))
        .collect()
}

/// The events of a list of bytes alone.
fn texts(list: &Bound<'_, PyList>) -> Option<Vec<OutRecord>> {
    let mut total: usize = 0;
    for event in list {
        total = total.saturating_add(event.cast::<PyBytes>().ok()?.as_bytes().len());
    }
    let mut buffer = BytesMut::with_capacity(total);
    let mut records = Vec::with_capacity(list.len());
    for event in list {
        buffer.extend_from_slice(event.cast::<PyBytes>().ok()?.as_bytes());
        records.push(OutRecord::Json(buffer.split().freeze()));
    }
    Some(records)
}
