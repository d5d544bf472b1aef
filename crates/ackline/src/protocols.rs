//! The one table of protocols: a new one adds its entry, and nothing else changes here.

use ackline_core::described::Described;
use ackline_core::options::{OptionRow, Options, Uses};
use ackline_link::Endpoint;
use ackline_spool::Layouts;

use crate::protocol::{Protocol, Way};
use crate::{ReceiverOptions, bpmux, lumberjack, micromsg, reactive, relink};

/// Every protocol that is built.
pub(crate) const PROTOCOLS: &[Protocol] = &[
    lumberjack::PROTOCOL,
    relink::PROTOCOL,
    bpmux::PROTOCOL,
    reactive::PROTOCOL,
    micromsg::PROTOCOL,
];

/// The URL schemes that are built.
pub fn protocols() -> Vec<&'static str> {
    PROTOCOLS.iter().map(Protocol::scheme).collect()
}

/// Their names in texts.
pub fn protocol_titles() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|one| one.title).collect()
}

/// The descriptions of the protocols that are built: their machines, verbs, events and frames by name.
pub fn described() -> Vec<&'static dyn Described> {
    PROTOCOLS.iter().map(|one| one.description).collect()
}

/// The options of a receiver in sections, each with its title; protocols come last, in the order of [`protocols`].
pub fn receiver_options() -> Vec<(&'static str, Vec<OptionRow>)> {
    let mut all = ReceiverOptions::default();
    let shared = [
        ("Spool", all.writer.rows()),
        ("Quarantine", all.quarantine.rows()),
        ("Fairness", all.fairness.rows()),
        ("Connections", all.acceptor.rows()),
        ("TLS", all.tls.rows()),
    ];
    let protocols = PROTOCOLS
        .iter()
        .map(|one| (one.title, (one.options)(&mut all).rows()));
    let mut sections: Vec<_> = shared.into_iter().chain(protocols).collect();
    let is_elsewhere = |row: &OptionRow| {
        let rows = sections.iter().flat_map(|(_, rows)| rows);
        rows.into_iter()
            .any(|other| other.spec.name == row.spec.name)
    };
    let own = ReceiverOptions::default().rows();
    let own = own.into_iter().filter(|row| !is_elsewhere(row)).collect();
    sections.insert(0, ("Receiver", own));
    for (_, rows) in &mut sections {
        rows.retain(|row| row.spec.uses.has(Uses::RECEIVE));
    }
    sections
}

/// The options of a call by its name, with their defaults: `receive`, `micromsg.serve`, or a protocol's such as
/// `relink.listen`; `None` for another name.
pub fn options_of(call: &str) -> Option<(Uses, Box<dyn Options>)> {
    if call == "receive" {
        return Some((Uses::RECEIVE, Box::new(ReceiverOptions::default())));
    }
    if call == "micromsg.serve" {
        let uses = Uses::LISTEN.or(Uses::RECEIVE);
        return Some((uses, Box::new(micromsg::BrokerOptions::default())));
    }
    let (scheme, call) = call.split_once('.')?;
    let protocol = PROTOCOLS.iter().find(|one| one.scheme() == scheme)?;
    match call {
        "connect" => Some((Uses::CONNECT, (protocol.connect)())),
        "listen" => Some((Uses::LISTEN, (protocol.listen)())),
        _ => None,
    }
}

/// Every layout a spool of ours may hold.
pub fn layouts() -> Layouts {
    Layouts::new(PROTOCOLS.iter().flat_map(|one| (one.layouts)()).collect())
}

/// The protocol and the endpoint of a URL that is to be used so.
///
/// # Errors
/// The URL is wrong; the text is a sentence.
pub(crate) fn of(url: &str, way: Way) -> Result<(&'static Protocol, Endpoint), String> {
    let protocol = named(url)?;
    Ok((protocol, (protocol.endpoint)(url, way)?))
}

/// The protocol that a URL names.
///
/// # Errors
/// There is none of that name; the text is a sentence.
pub(crate) fn named(url: &str) -> Result<&'static Protocol, String> {
    let scheme = url.split("://").next().unwrap_or_default();
    let scheme = scheme.split('+').next().unwrap_or_default();
    if let Some(protocol) = PROTOCOLS.iter().find(|one| one.scheme() == scheme) {
        return Ok(protocol);
    }
    // An error behind an unknown scheme is of no interest.
    let endpoint = match Endpoint::parse(url) {
        Ok(endpoint) => endpoint.to_string(),
        Err(_) if url.contains("://") => format!("{scheme}://"),
        Err(error) => return Err(error.to_string()),
    };
    let built = protocols().join(", ");
    Err(format!(
        "{endpoint}: there is no protocol {scheme:?}; built are: {built}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_nobody_knows_is_named_whatever_follows_it() {
        for url in ["relnk://127.0.0.1:0/t", "kafka://h:9092", "relnk+tls://"] {
            let error = of(url, Way::Listen).err().unwrap_or_default();
            assert!(error.contains("there is no protocol"), "{url}: {error}");
        }
        let error = of("5044", Way::Listen).err().unwrap_or_default();
        assert!(!error.contains("there is no protocol"), "{error}");
    }
}
