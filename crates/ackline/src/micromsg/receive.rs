//! The receiver's way with MicroMsg2: each connection is landed as long as it lives.

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
    title: "MicroMsg2",
    description: &ackline_micromsg::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    options: |options| &mut options.micromsg,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint: |url| Address::parse(url).map(|address| address.endpoint),
    waits: false,
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
        if address.topic.is_some() || address.filter.is_some() {
            let endpoint = address.endpoint;
            return Err(ReceiverError::Usage(format!(
                "{endpoint}: topic and filter are for a URL that the receiver connects to; whoever connects to the \
                 receiver names the destination of each message"
            )));
        }
    }
    let own = options.micromsg.clone();
    let make = move |budget: &Budget| MessageIngest::accepting(&own, budget);
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}
