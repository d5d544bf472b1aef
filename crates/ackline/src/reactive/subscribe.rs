//! A receiver that connects out and subscribes to a publisher: one connection at a time, until its stream is complete.
//!
//! A stream that failed, or whose connection is lost, is subscribed to again. Where it then begins is its publisher's
//! decision. A stream that is complete is not: all of its elements would land twice.

use std::sync::Arc;

use ackline_reactive::Role;

use super::address::Address;
use super::ingest::ElementIngest;
use crate::landing::Shared;
use crate::outgoing::{Outgoing, filled};
use crate::protocol::Accepting;
use crate::{ReceiverError, ReceiverOptions};

/// Connects to a URL until the stream of its publisher is complete.
pub(super) fn subscribe(
    url: &str,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let address = Address::parse(url).map_err(ReceiverError::Usage)?;
    let shown = address.shown();
    let endpoint = filled(address.endpoint, options)?;
    let own = &options.reactive;
    let publishers = [address.publisher];
    let memory = (shared.budget(), shared.room().clone());
    let outgoing = Outgoing {
        endpoint,
        ingest: ElementIngest::new(Role::Client, own, &publishers, memory),
        shared: Arc::clone(shared),
        connect_timeout: own.connect_timeout,
        reconnect_max: own.reconnect_max,
        shown,
    };
    Ok(Box::pin(
        outgoing.run(|ingest| ingest.completion().is_complete()),
    ))
}
