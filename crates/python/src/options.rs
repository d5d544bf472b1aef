//! Keyword options from Python into the configuration of a protocol's machine.

use std::fmt::Display;
use std::time::Duration;

use ackline::lumberjack::SenderOptions;
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Endpoint};
use ackline_lumberjack::{NoWindow, ReaderConfig, SequenceMode, Version, WriterConfig};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::{errors, runtime};

/// Applies the options that concern a Lumberjack reader; answers the names that do not.
pub(crate) fn reader(
    config: &mut ReaderConfig,
    options: &Bound<'_, PyDict>,
) -> PyResult<Vec<String>> {
    let mut others = Vec::new();
    for (key, value) in options {
        let key: String = key.extract()?;
        if !limit(config, &key, &value)? && !timer(config, &key, &value)? {
            others.push(key);
        }
    }
    Ok(others)
}

fn limit(config: &mut ReaderConfig, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let limits = &mut config.limits;
    match key {
        "max_window_events" => limits.window = whole(key, value, 0, u32::MAX)?,
        "max_json_bytes" => limits.json = whole(key, value, 0, usize::MAX)?,
        "max_data_bytes" => limits.data = whole(key, value, 0, usize::MAX)?,
        "max_compressed_bytes" => limits.compressed = whole(key, value, 0, usize::MAX)?,
        "max_inflated_bytes" => limits.inflated = whole(key, value, 0, usize::MAX)?,
        "max_pairs" => limits.pairs = whole(key, value, 0, u32::MAX)?,
        "max_field_bytes" => limits.field = whole(key, value, 0, usize::MAX)?,
        "max_window_bytes" => limits.window_bytes = whole(key, value, 0, usize::MAX)?,
        "max_unacked_windows" => limits.unacked_windows = whole(key, value, 0, usize::MAX)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn timer(config: &mut ReaderConfig, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (name, in_ms) = key
        .strip_suffix("_ms")
        .map_or((key, false), |name| (name, true));
    let slot = match name {
        "keepalive" => &mut config.keepalive,
        "tail_idle" => &mut config.tail_idle,
        "stall_timeout" => &mut config.stall_timeout,
        "idle_timeout" => &mut config.idle_timeout,
        "first_byte_timeout" => &mut config.first_byte_timeout,
        "no_window" if !in_ms => {
            config.no_window = no_window(value)?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    *slot = duration(key, value, in_ms)?;
    Ok(true)
}

fn no_window(value: &Bound<'_, PyAny>) -> PyResult<NoWindow> {
    let mode: Option<String> = value.extract().ok();
    match mode.as_deref() {
        Some("accept") => Ok(NoWindow::Accept),
        Some("refuse") => Ok(NoWindow::Refuse),
        _ => {
            let text = format!("no_window is {value}; it is \"accept\" or \"refuse\"");
            Err(errors::usage("no_window", &text))
        }
    }
}

/// `None` is off; milliseconds are whole numbers, seconds may have a fraction.
pub(crate) fn duration(
    name: &str,
    value: &Bound<'_, PyAny>,
    in_ms: bool,
) -> PyResult<Option<Duration>> {
    if value.is_none() {
        return Ok(None);
    }
    if in_ms {
        return whole(name, value, 0, u64::MAX).map(|time| Some(Duration::from_millis(time)));
    }
    time_of(name, value)
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

/// A whole number from `least` to what its type holds.
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

/// The same, where `None` is off.
pub(crate) fn whole_or_off<T>(
    name: &str,
    value: &Bound<'_, PyAny>,
    least: T,
    most: T,
) -> PyResult<Option<T>>
where
    T: Copy + Display + PartialOrd + for<'a, 'py> FromPyObject<'a, 'py>,
{
    if value.is_none() {
        return Ok(None);
    }
    whole(name, value, least, most).map(Some)
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

/// A whole number of its own type, as an argument of one name: what is wrong with it is told by that name.
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

/// True or false.
pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| {
        let text = format!("{name} is {value}; it is True or False");
        errors::usage(name, &text)
    })
}

/// Applies the options of a Lumberjack writer; answers the names that are not.
pub(crate) fn writer(
    config: &mut WriterConfig,
    options: &Bound<'_, PyDict>,
) -> PyResult<Vec<String>> {
    let mut others = Vec::new();
    for (key, value) in options {
        let key: String = key.extract()?;
        match key.as_str() {
            "version" => config.version = version(&value)?,
            "compression" => config.compression = whole_or_off(&key, &value, 0, 9)?,
            "max_in_flight" => config.max_in_flight = whole(&key, &value, 1, usize::MAX)?,
            "max_in_flight_events" => {
                config.max_in_flight_events = whole_or_off(&key, &value, 1, u32::MAX)?;
            }
            "max_in_flight_bytes" => {
                config.max_in_flight_bytes = whole_or_off(&key, &value, 1, u64::MAX)?;
            }
            "slow_start" => config.slow_start = whole_or_off(&key, &value, 1, u32::MAX)?,
            "max_window" => config.max_window = whole(&key, &value, 1, u32::MAX)?,
            "accept_count_acks" => config.accept_count_acks = flag(&key, &value)?,
            "read_timeout" => config.read_timeout = time_of(&key, &value)?,
            "read_timeout_ms" => config.read_timeout = duration(&key, &value, true)?,
            "progress_timeout" => config.progress_timeout = time_of(&key, &value)?,
            "progress_timeout_ms" => config.progress_timeout = duration(&key, &value, true)?,
            "next_sequence_number" => {
                if let Some(next) = whole_or_off(&key, &value, 0, u32::MAX)? {
                    config.sequence = SequenceMode::Cumulative { next };
                }
            }
            _ => others.push(key),
        }
    }
    Ok(others)
}

/// 1 or 2.
pub(crate) fn version(value: &Bound<'_, PyAny>) -> PyResult<Version> {
    match whole("version", value, 1, 2)? {
        1_u8 => Ok(Version::V1),
        _ => Ok(Version::V2),
    }
}

/// Takes the options of who may connect out of `others`.
pub(crate) fn acceptor(
    others: Vec<String>,
    options: &Bound<'_, PyDict>,
) -> PyResult<(AcceptorOptions, Vec<String>)> {
    let mut acceptor = AcceptorOptions::default();
    let mut rest = Vec::new();
    for name in others {
        let value = options.get_item(&name)?.filter(|value| !value.is_none());
        if !acceptor_option(&mut acceptor, &name, value.as_ref())? {
            rest.push(name);
        }
    }
    Ok((acceptor, rest))
}

/// `None` is what is not set, or off.
fn acceptor_option(
    acceptor: &mut AcceptorOptions,
    name: &str,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let wrong = |message: String| errors::usage(name, &message);
    match name {
        "proxy_from" | "allow" => {
            let Some(value) = value else { return Ok(true) };
            let Ok(text) = value.extract::<String>() else {
                let text = format!("{name} is {value}; it is a text of networks, with commas");
                return Err(errors::usage(name, &text));
            };
            acceptor.set_networks(name, &text).map_err(wrong)
        }
        "max_connection_age" | "handshake_timeout" | "first_byte_timeout" => {
            let time = match value {
                Some(value) => time_of(name, value)?,
                None => None,
            };
            let time = time.filter(|time| !time.is_zero());
            acceptor.set_time(name, time).map_err(wrong)
        }
        _ => {
            if value.is_none() && name == "max_connections_per_address" {
                // Its default is a part of another option.
                return Ok(true);
            }
            let count = match value {
                Some(value) if AcceptorOptions::COUNTS.contains(&name) => {
                    whole(name, value, 0, u64::MAX)?
                }
                _ => 0,
            };
            acceptor.set_count(name, count).map_err(wrong)
        }
    }
}

/// Takes the options of TLS out of `others`.
pub(crate) fn tls(
    others: Vec<String>,
    options: &Bound<'_, PyDict>,
) -> PyResult<(TlsOptions, Vec<String>)> {
    let mut tls = TlsOptions::default();
    let (names, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|name| TlsOptions::NAMES.contains(&name.as_str()));
    for name in names {
        let value = options.get_item(&name)?.filter(|value| !value.is_none());
        if let Some(value) = value {
            let text: String = value.str()?.extract()?;
            tls.set(&name, &text)
                .map_err(|message| errors::usage(&name, &message))?;
        }
    }
    Ok((tls, others))
}

/// The endpoint with these options where its URL left them open.
pub(crate) fn secured(mut endpoint: Endpoint, tls: &TlsOptions) -> PyResult<Endpoint> {
    Endpoint::fill(std::slice::from_mut(&mut endpoint), tls)
        .map_err(|error| errors::usage("url", &error.to_string()))?;
    Ok(endpoint)
}

/// All options of a Lumberjack sender to so many hosts; names that are none are refused.
pub(crate) fn sender(options: &Bound<'_, PyDict>, hosts: usize) -> PyResult<SenderOptions> {
    let mut config = SenderOptions::default();
    let others = writer(&mut config.writer, options)?;
    let (tls, mut others) = tls(others, options)?;
    config.tls = tls;
    if options.contains("max_window")? {
        // The machine's name of what is batch_events here.
        others.push("max_window".to_owned());
    }
    let mut buffer_events = Some(config.buffer_events);
    let mut buffer_bytes = Some(config.buffer_bytes);
    for (key, value) in options {
        let key: String = key.extract()?;
        let required = |value| {
            let message = format!("{key} is a number of seconds");
            time_of(&key, value)?.ok_or_else(|| errors::usage(&key, &message))
        };
        match key.as_str() {
            "batch_events" => config.batch_events = whole(&key, &value, 1, u32::MAX)?,
            "batch_bytes" => config.batch_bytes = whole(&key, &value, 1, u64::MAX)?,
            "buffer_events" => buffer_events = whole_or_off(&key, &value, 1, u64::MAX)?,
            "buffer_bytes" => buffer_bytes = whole_or_off(&key, &value, 1, u64::MAX)?,
            "connect_timeout" => config.connect_timeout = required(&value)?,
            "backoff_min" => config.backoff_min = required(&value)?,
            "backoff_max" => config.backoff_max = required(&value)?,
            "ttl" => config.ttl = time_of(&key, &value)?,
            "receipts" => config.receipts = whole(&key, &value, 0, usize::MAX)?,
            "cumulative" => {
                if flag(&key, &value)? {
                    config.writer.sequence = SequenceMode::Cumulative { next: 1 };
                }
            }
            _ => continue,
        }
        others.retain(|name| *name != key);
    }
    refuse(&others)?;
    let (events, bytes) = config.buffer_for(hosts);
    config.buffer_events = buffer_events.unwrap_or(events);
    config.buffer_bytes = buffer_bytes.unwrap_or(bytes);
    Ok(config)
}

/// Refuses what nobody understood.
pub(crate) fn refuse(others: &[String]) -> PyResult<()> {
    match others.first() {
        None => Ok(()),
        Some(name) => Err(errors::usage(
            "unknown_option",
            &format!("there is no option {name:?}"),
        )),
    }
}
