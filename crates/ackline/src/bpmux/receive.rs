//! The receiver's way with bpmux: each connection is landed as long as it lives.

use std::sync::Arc;

use ackline_link::Budget;

use super::address::Address;
use super::ingest::MessageIngest;
use super::layout::MessageLayout;
use super::subscribe::subscribe;
use crate::landing::{Shared, accept};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    title: "bpmux",
    description: &ackline_bpmux::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    options: |options| &mut options.bpmux,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint: |url, _| Address::parse(url).map(|address| address.endpoint),
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
    let make = move |budget: &Budget| MessageIngest::new(&own, budget, None);
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}
