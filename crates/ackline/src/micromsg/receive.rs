//! The receiver's way with MicroMsg2: each connection is landed as long as it lives.

use std::sync::Arc;

use ackline_link::{Budget, Endpoint};

use super::SCHEME;
use super::address::Address;
use super::ingest::MessageIngest;
use super::layout::MessageLayout;
use super::subscribe::subscribe;
use crate::landing::{Shared, accept};
use crate::protocol::{Accepting, Protocol, Site, Way};
use crate::{ReceiverError, ReceiverOptions};

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    title: "MicroMsg2",
    description: &ackline_micromsg::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    options: |options| &mut options.micromsg,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint,
    waits: false,
    has_names: false,
    bound: |_, listener| listener.url().to_owned(),
    accept: accepting,
    subscribe: Some(subscribe),
};

/// A URL to connect to names a topic, and one to listen on does not.
fn endpoint(url: &str, way: Way) -> Result<Endpoint, String> {
    let address = Address::parse(url)?;
    let (shown, endpoint) = (address.shown(), address.endpoint);
    match (way, address.topic, address.filter) {
        (Way::Connect, None, _) => Err(format!(
            "{shown}: the topic is missing: write {SCHEME}://host:port/TOPIC or {SCHEME}+unix:///path?topic=TOPIC"
        )),
        (Way::Connect, Some(_), _) | (Way::Listen, None, None) => Ok(endpoint),
        (Way::Listen, ..) => Err(format!(
            "{endpoint}: topic and filter are for a URL that the receiver connects to; whoever connects to the \
             receiver names the destination of each message"
        )),
    }
}

#[allow(clippy::unnecessary_wraps)] // as the table has it
fn accepting(
    site: Site,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let own = options.micromsg.clone();
    let make = move |budget: &Budget| MessageIngest::accepting(&own, budget);
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}
