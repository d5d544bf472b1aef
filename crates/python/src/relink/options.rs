//! Keyword options from Python into the configurations of Relink's machines.

use ackline::relink::{ConnectOptions, ListenOptions, PARAMETERS};
use ackline_core::options::{Options as _, Uses};
use ackline_relink::EndpointConfig;
use ackline_relink::frame::EndpointName;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::options::{refuse, set, set_all, value_of};

/// Reads all options of a connector; unknown names are refused.
pub(super) fn connect(options: &Bound<'_, PyDict>) -> PyResult<ConnectOptions> {
    let mut made = ConnectOptions::default();
    set_all(&mut made, Uses::CONNECT, options)?;
    Ok(made)
}

/// Reads all options of a listener; unknown names are refused.
pub(super) fn listen(options: &Bound<'_, PyDict>) -> PyResult<ListenOptions> {
    let mut made = ListenOptions::default();
    let mut others = set(&mut made, Uses::LISTEN, options)?;
    if let Some(value) = options.get_item("endpoints")? {
        made.endpoints = endpoints(&value)?;
        others.retain(|name| name != "endpoints");
    }
    refuse(&others)?;
    Ok(made)
}

/// Further endpoints: each name with its parameters, the defaults if it sets none.
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
            let is_one = parameters.set(Uses::MACHINE, &key, &value_of(&value)?);
            if !is_one.map_err(|error| errors::option(&key, &error))? {
                others.push(key);
            }
        }
        refuse(&others)?;
        let name: String = name.extract()?;
        all.push(EndpointConfig {
            endpoint_name: EndpointName::try_from(&*name).map_err(errors::refused)?,
            parameters,
        });
    }
    Ok(all)
}
