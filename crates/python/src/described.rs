//! Values of a description between Python and Rust.

use ackline_core::described::{Described, Misuse, Source};
use ackline_core::{Fraction, Inspected, Members, Value};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBoolMethods, PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};

use crate::errors;
use crate::payloads::part;

/// A value from Python.
pub(crate) struct Given<'py>(pub(crate) Bound<'py, PyAny>);

impl Source for Given<'_> {
    fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    fn number(&self) -> Option<u64> {
        self.unless_flag()
    }

    fn signed(&self) -> Option<i64> {
        self.unless_flag()
    }

    fn fraction(&self) -> Option<Fraction> {
        // A type checker takes an int for a float; one that a float may not hold exactly is none.
        let is_exact =
            |number: &f64| number.abs() <= EXACT_INTS || !self.0.is_instance_of::<PyInt>();
        self.unless_flag().filter(is_exact).and_then(Fraction::new)
    }

    fn flag(&self) -> Option<bool> {
        self.0.cast::<PyBool>().ok().map(PyBoolMethods::is_true)
    }

    fn text(&self) -> Option<String> {
        self.0.extract().ok()
    }

    fn bytes(&self) -> Option<Bytes> {
        part(&self.0).ok()?
    }

    fn items(&self) -> Option<Vec<Self>> {
        let is_one = self.0.is_instance_of::<PyString>()
            || self.0.is_instance_of::<PyBytes>()
            || self.0.is_instance_of::<PyDict>();
        let items = self.0.try_iter().ok().filter(|_| !is_one)?;
        items.map(|item| Some(Given(item.ok()?))).collect()
    }

    fn members(&self) -> Option<Vec<(String, Self)>> {
        members(self.0.cast().ok()?).ok()
    }

    fn tagged(&self) -> Option<(String, Self)> {
        let pair: (String, Bound<'_, PyAny>) = self.0.extract().ok()?;
        Some((pair.0, Given(pair.1)))
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl<'py> Given<'py> {
    /// A number: a flag is one to Python, but nobody means it as one.
    fn unless_flag<T: for<'a> FromPyObject<'a, 'py>>(&self) -> Option<T> {
        let number = self.0.extract().ok();
        number.filter(|_| !self.0.is_instance_of::<PyBool>())
    }
}

/// Every whole number up to this one, 2^53, is a float too.
const EXACT_INTS: f64 = 9_007_199_254_740_992.0;

/// The items of a dict of names.
pub(crate) fn members<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Vec<(String, Given<'py>)>> {
    let members = dict.iter();
    members
        .map(|(name, value)| Ok((name.extract()?, Given(value))))
        .collect()
}

/// The names and values of keyword arguments.
pub(crate) fn keywords<'py>(
    dict: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<(String, Given<'py>)>> {
    dict.map_or_else(|| Ok(Vec::new()), members)
}

/// The exception for a name or value that is not understood, or for a refusal.
pub(crate) fn misused(error: &Misuse) -> PyErr {
    errors::usage(error.code(), error.message())
}

/// The description of a protocol.
pub(crate) fn protocol(name: &str) -> PyResult<&'static dyn Described> {
    let mut known = ackline::described();
    known.sort_by_key(|one| one.name());
    let found = known.iter().find(|one| one.name() == name).copied();
    found.ok_or_else(|| {
        let names: Vec<_> = known
            .iter()
            .map(|one| format!("{:?}", one.name()))
            .collect();
        let (last, others) = names.split_last().expect("there are protocols");
        let others = others.join(", ");
        let text = format!("protocol is {others} or {last}, not {name:?}");
        errors::usage("protocol", &text)
    })
}

/// How frames are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frames {
    /// Their members and `type`, their name.
    AsDicts,
    /// Offset, name, bytes, members, and the purpose of the bytes.
    AsTuples,
}

/// A value for Python.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &Value,
    as_frames: Frames,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nothing => py.None().into_bound(py),
        Value::Number(number) => number.into_pyobject(py)?.into_any(),
        Value::Signed(number) => number.into_pyobject(py)?.into_any(),
        Value::Fraction(fraction) => fraction.to_f64().into_pyobject(py)?.into_any(),
        Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Name(name) => name.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(content) => PyBytes::new(py, content).into_any(),
        Value::List(values) => {
            let values = values.iter().map(|one| to_python(py, one, as_frames));
            PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Value::Map(members) => to_dict(py, members, as_frames)?.into_any(),
        Value::Tagged(tag, value) => {
            let value = to_python(py, value, as_frames)?;
            (*tag, value).into_pyobject(py)?.into_any()
        }
        Value::Frames(frames) => {
            let list = PyList::empty(py);
            let mut offset = 0;
            for frame in frames {
                match as_frames {
                    Frames::AsDicts => list.append(frame_dict(py, frame)?)?,
                    Frames::AsTuples => list.append(frame_tuple(py, offset, frame)?)?,
                }
                offset += u64::try_from(frame.bytes.len()).unwrap_or(u64::MAX);
            }
            list.into_any()
        }
    })
}

/// Values by name.
pub(crate) fn to_dict<'py>(
    py: Python<'py>,
    members: &Members,
    as_frames: Frames,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in members {
        dict.set_item(name, to_python(py, value, as_frames)?)?;
    }
    Ok(dict)
}

/// A frame: its members and `type`, its name.
pub(crate) fn frame_dict<'py>(py: Python<'py>, frame: &Inspected) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("type", frame.name)?;
    dict.update(to_dict(py, &frame.members, Frames::AsDicts)?.as_mapping())?;
    Ok(dict)
}

/// A frame: its place, its name, its bytes, its members, and the purpose of so many of its bytes.
pub(crate) fn frame_tuple<'py>(
    py: Python<'py>,
    offset: u64,
    frame: &Inspected,
) -> PyResult<Bound<'py, PyTuple>> {
    let members = to_dict(py, &frame.members, Frames::AsTuples)?;
    let spans = frame.spans.iter().map(|span| (span.len, &span.label));
    let spans = PyList::new(py, spans.collect::<Vec<_>>())?;
    let bytes = PyBytes::new(py, &frame.bytes);
    (offset, frame.name, bytes, members, spans).into_pyobject(py)
}
