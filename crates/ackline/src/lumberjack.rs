//! Lumberjack for Rust users: a listener that yields windows, a sender that gets events to receivers, and how windows
//! become blocks of a spool and event rows again.

use std::sync::Arc;

use ackline_link::{Budget, Endpoint};

use crate::landing::accept;
use crate::protocol::Protocol;

mod ingest;
mod layout;
mod listener;
mod sender;

pub use ackline_lumberjack::{
    Event, Expander, Invalid, Kind, Limits, NoWindow, OnInvalid, OutRecord, Piece, Reader,
    ReaderConfig, Record, SequenceMode, Version, Window, Writer, WriterConfig,
};
pub use ingest::WindowIngest;
pub use layout::{EventLayout, InvalidLayout};
pub use listener::{Connection, Listener, ListenerOptions, listen, listen_with};
pub use sender::{
    Batch, Dial, HostState, HostStats, Receipt, Sender, SenderError, SenderOptions, SenderState,
    SenderStats, Unacked, WindowReceipt, WindowRoom,
};

/// The scheme of URLs, also with `+unix`.
pub const SCHEME: &str = "lumberjack";

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    scheme: SCHEME,
    description: &ackline_lumberjack::Description,
    layouts: || vec![Arc::new(EventLayout), Arc::new(InvalidLayout)],
    endpoint: |url| Endpoint::parse(url).map_err(|error| error.to_string()),
    waits: false,
    has_names: false,
    bound: |_, listener| listener.url().to_owned(),
    subscribe: None,
    accept: |site, shared, options| {
        let config = ReaderConfig {
            v1: options.reader.v1 && options.takes_v1(),
            ..options.reader.clone()
        };
        let make = |budget: &Budget| WindowIngest::new(within(config, budget));
        Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
    },
};

/// The endpoint of a URL of this protocol.
///
/// # Errors
/// What is wrong with the URL, in a sentence.
pub(crate) fn endpoint(url: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
    if endpoint.protocol == SCHEME {
        return Ok(endpoint);
    }
    Err(format!(
        "{endpoint} is of {}, not of {SCHEME}",
        endpoint.protocol
    ))
}

/// The same configuration for a listener: what was complete before an error is still acknowledged, and
/// windows are no larger than `budget` can admit whatever else it holds, since a larger one could wait for
/// memory for ever.
pub(crate) fn within(mut config: ReaderConfig, budget: &Budget) -> ReaderConfig {
    let largest = usize::try_from(budget.largest()).unwrap_or(usize::MAX);
    config.limits.window_bytes = config.limits.window_bytes.min(largest);
    config.settle_after_error = true;
    config
}
