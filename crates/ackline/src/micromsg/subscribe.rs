//! A receiver that connects to a broker and subscribes to a topic: one connection at a time, for ever, landed as those are
//! that come in.

use std::sync::Arc;

use ackline_micromsg::intake::Subscription;

use super::address::Address;
use super::ingest::MessageIngest;
use crate::landing::Shared;
use crate::outgoing::{Outgoing, filled};
use crate::protocol::Accepting;
use crate::{ReceiverError, ReceiverOptions};

/// Connects to a URL, for ever.
pub(super) fn subscribe(
    url: &str,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let address = Address::parse(url).map_err(ReceiverError::Usage)?;
    let shown = address.shown();
    let endpoint = filled(address.endpoint, options)?;
    let own = &options.micromsg;
    let subscription = Subscription {
        // The URL was checked.
        topic: address.topic.unwrap_or_default(),
        filter: address.filter,
    };
    let outgoing = Outgoing {
        endpoint,
        ingest: MessageIngest::connecting(own, shared.budget(), subscription),
        shared: Arc::clone(shared),
        connect_timeout: own.connect_timeout,
        reconnect_max: own.reconnect_max,
        shown,
    };
    Ok(Box::pin(outgoing.run(|_| false)))
}
