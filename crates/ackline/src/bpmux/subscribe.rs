//! A receiver that connects out: one connection at a time, for ever, landed as those are that come in.

use std::sync::Arc;

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
    let Address { endpoint, stream } = Address::parse(url).map_err(ReceiverError::Usage)?;
    let endpoint = filled(endpoint, options)?;
    let own = &options.bpmux;
    let outgoing = Outgoing {
        shown: endpoint.to_string(),
        endpoint,
        ingest: MessageIngest::new(own, shared.budget(), stream),
        shared: Arc::clone(shared),
        connect_timeout: own.connect_timeout,
        reconnect_max: own.reconnect_max,
    };
    Ok(Box::pin(outgoing.run(|_| false)))
}
