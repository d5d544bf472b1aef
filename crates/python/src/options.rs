//! Arguments and keyword options from Python.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ackline_core::options::{OptionKind, OptionRow, OptionValue, Options, Uses};
use ackline_link::Endpoint;
use ackline_link::tls::TlsOptions;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};

use crate::{errors, runtime};

/// The table of a call such as `relink.listen`.
fn table(of: &str) -> PyResult<(Uses, Box<dyn Options>)> {
    let found = ackline::options_of(of);
    found.ok_or_else(|| errors::usage("of", &format!("there are no options of {of:?}")))
}

/// The options of `receive`, or of a protocol's `connect` or `listen` such as `relink.listen`, each as a dict.
#[pyfunction]
pub(crate) fn option_table(py: Python<'_>, of: &str) -> PyResult<Py<PyList>> {
    let (uses, options) = table(of)?;
    let sections = match of {
        "receive" => ackline::receiver_options(),
        _ => vec![("", options.rows())],
    };
    let all = PyList::empty(py);
    for (section, rows) in sections {
        for row in rows.into_iter().filter(|row| row.spec.uses.has(uses)) {
            all.append(row_dict(py, section, &row)?)?;
        }
    }
    Ok(all.unbind())
}

fn row_dict<'py>(py: Python<'py>, section: &str, row: &OptionRow) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", row.spec.name)?;
    dict.set_item("section", section)?;
    dict.set_item("kind", row.spec.kind.name())?;
    dict.set_item("off", row.spec.off)?;
    dict.set_item("default", &row.value)?;
    dict.set_item("help", row.spec.help())?;
    let words = match row.spec.kind {
        OptionKind::Word(words) => words,
        _ => &[],
    };
    dict.set_item("words", PyTuple::new(py, words)?)?;
    dict.set_item("range", row.spec.kind.range())?;
    dict.set_item("url", row.spec.uses.has(Uses::URL))?;
    Ok(dict)
}

/// Raises if an option of a table does not take `value`.
#[pyfunction]
pub(crate) fn check_option(of: &str, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let (uses, mut options) = table(of)?;
    let is_known = options.set(uses, name, &value_of(value)?);
    if is_known.map_err(|error| errors::option(name, &error))? {
        return Ok(());
    }
    refuse(&[name.to_owned()])
}

/// Bytes of a size such as `4GiB`; `None` for other text.
#[pyfunction]
pub(crate) fn size_in(text: &str) -> Option<u64> {
    ackline_core::options::size(text)
}

/// Whole milliseconds of a time such as `10s`; `None` for other text.
#[pyfunction]
pub(crate) fn milliseconds_in(text: &str) -> Option<u64> {
    u64::try_from(ackline_core::options::time_in(text)?.as_millis()).ok()
}

/// The protocols: scheme and name.
#[pyfunction]
pub(crate) fn protocols() -> Vec<(&'static str, &'static str)> {
    let schemes = ackline::protocols().into_iter();
    schemes.zip(ackline::protocol_titles()).collect()
}

/// A value of Python as every table of options takes it.
pub(crate) fn value_of(value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if value.is_none() {
        return Ok(OptionValue::Off);
    }
    // A flag is a number to Python, but nobody means it as one.
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(OptionValue::Flag(flag.is_true()));
    }
    if let Ok(number) = value.extract::<u64>() {
        return Ok(OptionValue::Whole(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(OptionValue::Real(number));
    }
    match value.extract::<PathBuf>() {
        Ok(path) => match path.into_os_string().into_string() {
            Ok(text) => Ok(OptionValue::Text(text)),
            Err(_) => Ok(OptionValue::Other(value.repr()?.extract()?)),
        },
        Err(_) => Ok(OptionValue::Other(value.repr()?.extract()?)),
    }
}

/// Sets the options in `given` that the table has; answers the names of the others.
pub(crate) fn set(
    options: &mut dyn Options,
    uses: Uses,
    given: &Bound<'_, PyDict>,
) -> PyResult<Vec<String>> {
    let mut others = Vec::new();
    for (name, value) in given {
        let name: String = name.extract()?;
        let is_known = options.set(uses, &name, &value_of(&value)?);
        if !is_known.map_err(|error| errors::option(&name, &error))? {
            others.push(name);
        }
    }
    Ok(others)
}

/// Sets all options in `given`; a name that the table does not have is refused.
pub(crate) fn set_all(
    options: &mut dyn Options,
    uses: Uses,
    given: &Bound<'_, PyDict>,
) -> PyResult<()> {
    refuse(&set(options, uses, given)?)
}

/// `None` is off; anything else is a number of seconds.
pub(crate) fn time_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() {
        return Ok(None);
    }
    match value.extract() {
        Ok(time) => runtime::seconds(name, Some(time)),
        Err(_) => Err(runtime::no_time(name, value)),
    }
}

/// A whole number from `least` to the largest value of its type.
pub(crate) fn whole<T>(name: &str, value: &Bound<'_, PyAny>, least: T, most: T) -> PyResult<T>
where
    T: Copy + Display + PartialOrd + for<'a, 'py> FromPyObject<'a, 'py>,
{
    // A flag is a number to Python, but nobody means it as one.
    let is_flag = value.is_instance_of::<PyBool>();
    let number: Option<T> = value.extract().ok().filter(|_| !is_flag);
    number
        .filter(|number| (&least..=&most).contains(&number))
        .ok_or_else(|| {
            let text = format!("{name} is {value}; it is a whole number from {least} to {most}");
            errors::usage(name, &text)
        })
}

/// The same for an argument that need not be given.
pub(crate) fn whole_if<T>(
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
    least: T,
    most: T,
) -> PyResult<Option<T>>
where
    T: Copy + Display + PartialOrd + for<'a, 'py> FromPyObject<'a, 'py>,
{
    value
        .map(|value| whole(name, value, least, most))
        .transpose()
}

/// A whole number of its own type, as an argument; an error names that argument.
macro_rules! argument {
    ($(#[$doc:meta])* $type:ident($number:ty), $name:literal, $least:expr, $most:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $type(pub(crate) $number);

        impl<'a, 'py> pyo3::FromPyObject<'a, 'py> for $type {
            type Error = pyo3::PyErr;

            fn extract(value: pyo3::Borrowed<'a, 'py, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                $crate::options::whole($name, &value, $least, $most).map(Self)
            }
        }
    };
}
pub(crate) use argument;

/// Raises if `value`, the argument `name`, is no whole number from `least` to 2^64-1.
#[pyfunction]
pub(crate) fn check_whole(name: &str, value: &Bound<'_, PyAny>, least: u64) -> PyResult<()> {
    whole(name, value, least, u64::MAX).map(drop)
}

/// The endpoint with these options where its URL left them open.
pub(crate) fn secured(mut endpoint: Endpoint, tls: &TlsOptions) -> PyResult<Endpoint> {
    Endpoint::fill(std::slice::from_mut(&mut endpoint), tls)
        .map_err(|error| errors::usage("url", &error.to_string()))?;
    Ok(endpoint)
}

/// Refuses an option that no table has.
pub(crate) fn refuse(others: &[String]) -> PyResult<()> {
    match others.first() {
        None => Ok(()),
        Some(name) => Err(errors::usage(
            "unknown_option",
            &format!("there is no option {name:?}"),
        )),
    }
}

/// Reads all options of an end; unknown names are refused.
pub(crate) fn made<T: Default + Options>(uses: Uses, given: &Bound<'_, PyDict>) -> PyResult<T> {
    let mut made = T::default();
    set_all(&mut made, uses, given)?;
    Ok(made)
}
