//! Keyword options from Python into those of a connection and of a listener.

use std::time::Duration;

use ackline::bpmux::{ConnectOptions, CreditPolicy, LinkOptions, ListenOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::limit;
use crate::errors;
use crate::options::{acceptor, flag, refuse, time_of, tls, whole};

/// What both ends share, and the other names.
fn common(options: &Bound<'_, PyDict>) -> PyResult<(LinkOptions, u64, Vec<String>)> {
    let mut link = LinkOptions::default();
    let mut memory = ConnectOptions::default().memory;
    let mut credit = Credit::default();
    let mut others = Vec::new();
    for (key, value) in options {
        let key: String = key.extract()?;
        match key.as_str() {
            "memory" => memory = whole(&key, &value, 1, u64::MAX)?,
            "parts" => link.parts = flag(&key, &value)?,
            "chunk_size" => link.chunk_size = whole(&key, &value, 1, u32::MAX)?,
            "send_bytes" => link.send_bytes = whole(&key, &value, 1, usize::MAX)?,
            "ping_after" => link.ping_after = time_of(&key, &value)?,
            "pong_timeout" => link.pong_timeout = time_of(&key, &value)?,
            "chunk_receive_timeout" => link.chunk_receive_timeout = time_of(&key, &value)?,
            _ => {
                let is_known = credit.set(&key, &value)? || limit(&mut link.limits, &key, &value)?;
                if !is_known {
                    others.push(key);
                }
            }
        }
    }
    link.credit = credit.policy();
    Ok((link, memory, others))
}

/// Who gives the peer credit, and how much.
struct Credit {
    is_manual: bool,
    floor: u64,
    ceiling: u64,
    budget: u64,
}

impl Default for Credit {
    fn default() -> Self {
        let CreditPolicy::Automatic {
            floor,
            ceiling,
            budget,
        } = CreditPolicy::AUTOMATIC
        else {
            unreachable!("AUTOMATIC is automatic")
        };
        Self {
            is_manual: false,
            floor,
            ceiling,
            budget,
        }
    }
}

impl Credit {
    fn set(&mut self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match key {
            "credit" => {
                self.is_manual = match value.extract::<&str>().ok() {
                    Some("manual") => true,
                    Some("automatic") => false,
                    _ => {
                        let text = format!("credit is {value}; it is \"automatic\" or \"manual\"");
                        return Err(errors::usage("credit", &text));
                    }
                };
            }
            "credit_floor" => self.floor = whole(key, value, 1, u64::MAX)?,
            "credit_ceiling" => self.ceiling = whole(key, value, 1, u64::MAX)?,
            "credit_budget" => self.budget = whole(key, value, 0, u64::MAX)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    const fn policy(&self) -> CreditPolicy {
        if self.is_manual {
            return CreditPolicy::Manual;
        }
        CreditPolicy::Automatic {
            floor: self.floor,
            ceiling: self.ceiling,
            budget: self.budget,
        }
    }
}

/// All options of who connects; names that are none are refused.
pub(super) fn connect(options: &Bound<'_, PyDict>) -> PyResult<ConnectOptions> {
    let (link, memory, others) = common(options)?;
    let (tls, mut others) = tls(others, options)?;
    let mut made = ConnectOptions {
        link,
        memory,
        tls,
        ..ConnectOptions::default()
    };
    if let Some(value) = options.get_item("connect_timeout")? {
        others.retain(|name| name != "connect_timeout");
        made.connect_timeout = required("connect_timeout", &value)?;
    }
    refuse(&others)?;
    Ok(made)
}

/// All options of a listener; names that are none are refused.
pub(super) fn listen(options: &Bound<'_, PyDict>) -> PyResult<ListenOptions> {
    let (link, memory, others) = common(options)?;
    let (tls, others) = tls(others, options)?;
    let (acceptor, others) = acceptor(others, options)?;
    refuse(&others)?;
    Ok(ListenOptions {
        link,
        acceptor,
        memory,
        tls,
    })
}

/// A time that cannot be off.
fn required(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    time_of(key, value)?.ok_or_else(|| errors::usage(key, &format!("{key} is a number of seconds")))
}
