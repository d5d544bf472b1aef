//! Keyword options from Python into the configurations of Relink's machines.

use std::path::PathBuf;
use std::time::Duration;

use ackline::relink::{ConnectOptions, LinkOptions, ListenOptions, PARAMETERS};
use ackline_relink::frame::{EndpointName, Parameters, Role};
use ackline_relink::{EndpointConfig, Limits, LinkConfig};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::options::{acceptor, duration, flag, refuse, time_of, tls, whole, whole_or_off};

/// Sets a channel id size or a transaction flag; answers whether the option is one of them.
pub(super) fn parameter(
    parameters: &mut Parameters,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    match key {
        "connector_channel_id_size" => {
            parameters.connector_channel_id_size = whole(key, value, 0, u8::MAX)?;
        }
        "listener_channel_id_size" => {
            parameters.listener_channel_id_size = whole(key, value, 0, u8::MAX)?;
        }
        "connector_transactions" => parameters.connector_transactions = flag(key, value)?,
        "listener_transactions" => parameters.listener_transactions = flag(key, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets a limit of packets; answers whether the option is one.
pub(super) fn limit(limits: &mut Limits, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match key {
        "max_channel_ids" => limits.channel_id_count = whole(key, value, 1, u32::MAX)?,
        "max_message_parts" => limits.message_length = whole(key, value, 1, u32::MAX)?,
        "max_part_bytes" => limits.payload_size = whole(key, value, 1, u64::MAX)?,
        "max_message_bytes" => limits.message_size = whole(key, value, 1, u64::MAX)?,
        "max_multicast_bytes" => limits.multicast_size = whole(key, value, 1, u64::MAX)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets a window, limit or timer of a link; answers whether the option is one.
pub(super) fn link(config: &mut LinkConfig, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match key {
        "send_window" => config.send_window = whole(key, value, 1, 0x7fff_ffff)?,
        "receive_window" => config.receive_window = whole(key, value, 1, u32::MAX)?,
        "ack_window" => config.ack_window = whole(key, value, 1, u32::MAX)?,
        "max_channels" => config.max_channels = whole(key, value, 1, usize::MAX)?,
        _ => return Ok(timer(config, key, value)? || limit(&mut config.limits, key, value)?),
    }
    Ok(true)
}

fn timer(config: &mut LinkConfig, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (name, in_ms) = key
        .strip_suffix("_ms")
        .map_or((key, false), |name| (name, true));
    let time = || duration(name, value, in_ms);
    match name {
        "ack_delay" => config.ack_delay = time()?.unwrap_or_default(),
        "ping_after" => config.ping_after = time()?,
        "pong_timeout" => config.pong_timeout = time()?,
        "packet_receive_timeout" => config.packet_receive_timeout = time()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A name of up to 255 bytes.
pub(super) fn endpoint_name(name: &str) -> PyResult<EndpointName> {
    EndpointName::try_from(name).map_err(errors::refused)
}

/// What the options of a connector and of a listener share.
struct Common {
    parameters: Parameters,
    link: LinkOptions,
    memory: u64,
    state: Option<PathBuf>,
    handshake_timeout: Duration,
}

impl Common {
    /// Takes them out of all options; answers the other names.
    fn take(options: &Bound<'_, PyDict>) -> PyResult<(Self, Vec<String>)> {
        let defaults = ConnectOptions::default();
        let mut config = LinkConfig::new(Role::Connector, PARAMETERS);
        let mut common = Self {
            parameters: PARAMETERS,
            link: LinkOptions::default(),
            memory: defaults.memory,
            state: None,
            handshake_timeout: defaults.handshake_timeout,
        };
        let mut others = Vec::new();
        for (key, value) in options {
            let key: String = key.extract()?;
            match key.as_str() {
                "memory" => common.memory = whole(&key, &value, 1, u64::MAX)?,
                "send_bytes" => common.link.send_bytes = whole(&key, &value, 1, usize::MAX)?,
                "state" => common.state = value.extract()?,
                "handshake_timeout" => common.handshake_timeout = required(&key, &value)?,
                _ if key.ends_with("_ms") => others.push(key),
                _ => {
                    let is_known = parameter(&mut common.parameters, &key, &value)?
                        || link(&mut config, &key, &value)?;
                    if !is_known {
                        others.push(key);
                    }
                }
            }
        }
        common.link = LinkOptions {
            send_window: config.send_window,
            receive_window: config.receive_window,
            ack_window: config.ack_window,
            ack_delay: config.ack_delay,
            ping_after: config.ping_after,
            pong_timeout: config.pong_timeout,
            packet_receive_timeout: config.packet_receive_timeout,
            max_channels: config.max_channels,
            limits: config.limits,
            ..common.link
        };
        Ok((common, others))
    }
}

/// A time that cannot be off.
fn required(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    time_of(key, value)?.ok_or_else(|| errors::usage(key, &format!("{key} is a number of seconds")))
}

/// All options of a connector; names that are none are refused.
pub(super) fn connect(options: &Bound<'_, PyDict>) -> PyResult<ConnectOptions> {
    let (common, others) = Common::take(options)?;
    let (tls, others) = tls(others, options)?;
    let mut made = ConnectOptions {
        parameters: common.parameters,
        link: common.link,
        memory: common.memory,
        state: common.state,
        handshake_timeout: common.handshake_timeout,
        tls,
        ..ConnectOptions::default()
    };
    let mut unknown = Vec::new();
    for key in others {
        let value = options.get_item(&key)?;
        let Some(value) = value else { continue };
        match key.as_str() {
            "timeout" => made.timeout = time_of(&key, &value)?,
            "connect_timeout" => made.connect_timeout = required(&key, &value)?,
            "reconnect_max" => made.reconnect_max = required(&key, &value)?,
            "lost_after" => made.lost_after = time_of(&key, &value)?,
            "wants_hints" => made.wants_hints = flag(&key, &value)?,
            "stuck_after" => made.stuck_after = whole_or_off(&key, &value, 1, u32::MAX)?,
            _ => unknown.push(key),
        }
    }
    refuse(&unknown)?;
    Ok(made)
}

/// All options of a listener; names that are none are refused.
pub(super) fn listen(options: &Bound<'_, PyDict>) -> PyResult<ListenOptions> {
    let (common, others) = Common::take(options)?;
    let (tls, others) = tls(others, options)?;
    let (mut acceptor, others) = acceptor(others, options)?;
    acceptor.handshake_timeout = common.handshake_timeout;
    let mut made = ListenOptions {
        parameters: common.parameters,
        link: common.link,
        memory: common.memory,
        state: common.state,
        handshake_timeout: common.handshake_timeout,
        acceptor,
        tls,
        ..ListenOptions::default()
    };
    let mut unknown = Vec::new();
    for key in others {
        let value = options.get_item(&key)?;
        let Some(value) = value else { continue };
        match key.as_str() {
            "orphan_after" => made.orphan_after = required(&key, &value)?,
            "max_links" => made.max_links = whole(&key, &value, 1, usize::MAX)?,
            "bind_identity" => made.bind_identity = flag(&key, &value)?,
            "endpoints" => made.endpoints = endpoints(&value)?,
            _ => unknown.push(key),
        }
    }
    refuse(&unknown)?;
    Ok(made)
}

/// Further endpoints: for each name its parameters, the defaults where it sets none.
fn endpoints(value: &Bound<'_, PyAny>) -> PyResult<Vec<EndpointConfig>> {
    if value.is_none() {
        return Ok(Vec::new());
    }
    let wrong = || {
        let text = "endpoints is a dict of names, each with a dict of its parameters";
        errors::usage("endpoints", text)
    };
    let mut all = Vec::new();
    for (name, given) in value.cast::<PyDict>().map_err(|_| wrong())? {
        let mut parameters = PARAMETERS;
        let mut others = Vec::new();
        let given = given.cast::<PyDict>().map_err(|_| wrong())?;
        for (key, value) in given {
            let key: String = key.extract()?;
            if !parameter(&mut parameters, &key, &value)? {
                others.push(key);
            }
        }
        refuse(&others)?;
        let name: String = name.extract()?;
        all.push(EndpointConfig {
            endpoint_name: endpoint_name(&name)?,
            parameters,
        });
    }
    Ok(all)
}
