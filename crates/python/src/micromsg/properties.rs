//! Properties of messages between Python and Rust: numbers, dates and texts.

use std::ops::Range;

use ackline::micromsg::{Number, Property, read_properties, write_properties};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyMapping, PyString};

use super::raised::unreadable;
use super::text::unicode;
use crate::errors;

/// The properties of a text as it is on the wire, as a dict; of two with one name the first counts.
#[pyfunction]
pub(crate) fn micromsg_read_properties<'py>(
    py: Python<'py>,
    raw: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let read = read_properties(raw.as_bytes()).map_err(|kind| unreadable(&kind))?;
    let dict = PyDict::new(py);
    for (name, value) in read {
        if !dict.contains(&name)? {
            dict.set_item(&name, told(py, &name, value)?)?;
        }
    }
    Ok(dict)
}

/// The text of properties on the wire.
#[pyfunction]
pub(crate) fn micromsg_write_properties(properties: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut given = Vec::new();
    if let Ok(dict) = properties.cast::<PyDict>() {
        for (name, value) in dict {
            given.push(named(&name, &value)?);
        }
    } else {
        let text = "properties are a mapping of names to numbers, dates and texts";
        let mapping = properties.cast::<PyMapping>();
        let mapping = mapping.map_err(|_| errors::usage("properties", text))?;
        for pair in mapping.items()? {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            given.push(named(&name, &value)?);
        }
    }
    let each = given.iter().map(|(name, value)| (name.as_str(), value));
    write_properties(each).map_err(errors::refused)
}

fn named(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<(String, Property)> {
    let text = "the name of a property is a str";
    let name = name
        .cast::<PyString>()
        .map_err(|_| errors::usage("invalid_name", text))?;
    let name = unicode(name)?;
    Ok((name.to_owned(), property(value, name)?))
}

/// The value of a property, or of a condition on a property.
pub(super) fn property(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Property> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Property::Text(unicode(text)?.to_owned()));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Property::Number(Number::Fraction(number.value())));
    }
    // A flag is a number to Python, but nobody means it as one.
    if !value.is_instance_of::<PyBool>() && value.hasattr("__index__")? {
        let number: i64 = value.extract().map_err(|_| {
            let text = format!("{name:?} is {value}; a whole number is from -2^63 to 2^63-1");
            errors::usage("out_of_range", &text)
        })?;
        return Ok(Property::Number(Number::Whole(number)));
    }
    let dates = Dates::of(value.py())?;
    if value.is_instance(dates.class.bind(value.py()))? {
        return dates.seconds(value, name).map(Property::Date);
    }
    let text = format!(
        "{name:?} is {}; a value is an int, a float, a datetime or a str",
        value.get_type().name()?
    );
    Err(errors::usage("invalid_value", &text))
}

/// A value for Python.
fn told(py: Python<'_>, name: &str, value: Property) -> PyResult<Py<PyAny>> {
    match value {
        Property::Number(Number::Whole(number)) => number.into_py_any(py),
        Property::Number(Number::Fraction(number)) => number.into_py_any(py),
        Property::Date(seconds) => Dates::of(py)?.date(py, seconds).map_err(|_| {
            let text = format!("{name:?} is {seconds} s, which is no date from year 1 to 9999");
            errors::usage("invalid_properties", &text)
        }),
        Property::Text(text) => text.into_py_any(py),
    }
}

/// The class of dates and the beginning of their count.
struct Dates {
    class: Py<PyAny>,
    timedelta: Py<PyAny>,
    epoch: Py<PyAny>,
}

static DATES: PyOnceLock<Dates> = PyOnceLock::new();

impl Dates {
    fn of(py: Python<'_>) -> PyResult<&'static Self> {
        DATES.get_or_try_init(py, || {
            let module = py.import("datetime")?;
            let class = module.getattr("datetime")?;
            let utc = module.getattr("timezone")?.getattr("utc")?;
            Ok(Self {
                epoch: class.call1((1970, 1, 1, 0, 0, 0, 0, utc))?.unbind(),
                class: class.unbind(),
                timedelta: module.getattr("timedelta")?.unbind(),
            })
        })
    }

    /// The seconds since 1970 of a date with a time zone.
    fn seconds(&self, date: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
        if date.call_method0("utcoffset")?.is_none() {
            let text = format!("{name:?} is {date}, a date without a time zone");
            return Err(errors::usage("invalid_value", &text));
        }
        let since = date.sub(&self.epoch)?;
        let days: i64 = since.getattr("days")?.extract()?;
        if !DAYS.contains(&days) {
            let text = format!("{name:?} is {date}, which is not from year 1 to 9999 in UTC");
            return Err(errors::usage("invalid_value", &text));
        }
        let seconds: f64 = since.call_method0("total_seconds")?.extract()?;
        Ok(seconds.min(LAST_SECONDS))
    }

    fn date(&self, py: Python<'_>, seconds: f64) -> PyResult<Py<PyAny>> {
        let since = self.timedelta.call1(py, (0, seconds))?;
        Ok(self.epoch.bind(py).add(since)?.unbind())
    }
}

/// Days from 1970 to the years that Python has: 1 to 9999.
const DAYS: Range<i64> = -719_162..2_932_897;
/// The last number of seconds before year 10000: later moments of year 9999 would be read as of year 10000.
const LAST_SECONDS: f64 = 253_402_300_800_f64.next_down();
