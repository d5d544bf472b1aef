//! The receiver's way with bpmux: each connection is landed as long as it lives.

use std::sync::Arc;

use ackline_bpmux::{Config, ReceiveOptions};
use ackline_link::Budget;
use bytes::Bytes;

use super::address::Address;
use super::ingest::MessageIngest;
use super::intake::IntakeConfig;
use super::layout::MessageLayout;
use super::options::most_incomplete;
use super::subscribe::subscribe;
use crate::landing::{Shared, accept};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// The configuration of a connection of a receiver with this memory.
pub(super) fn intake(
    options: &ReceiveOptions,
    budget: &Budget,
    stream: Option<Bytes>,
) -> IntakeConfig {
    IntakeConfig {
        machine: Config {
            // A consumer's commit may be long in coming: memory and the limit of entities bound them.
            most_held_closes: u32::MAX,
            parts: false,
            ..options.link.machine(budget.limit())
        },
        max_opening_bytes: options.max_opening_bytes,
        most_incomplete: most_incomplete(budget),
        quota: budget.quota(),
        stream,
    }
}

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    scheme: super::SCHEME,
    title: "bpmux",
    description: &ackline_bpmux::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    options: |options| &mut options.bpmux,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint: |url| Address::parse(url).map(|address| address.endpoint),
    waits: true,
    has_names: false,
    bound: |_, listener| listener.url().to_owned(),
    accept: accepting,
    subscribe: Some(subscribe),
};

fn accepting(
    site: Site,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    for url in &site.urls {
        let address = Address::parse(url).map_err(ReceiverError::Usage)?;
        if address.stream.is_some() {
            let endpoint = address.endpoint;
            return Err(ReceiverError::Usage(format!(
                "{endpoint}: stream is for a URL that the receiver connects to"
            )));
        }
    }
    let own = options.bpmux.clone();
    let make = move |budget: &Budget| MessageIngest::new(intake(&own, budget, None));
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}
