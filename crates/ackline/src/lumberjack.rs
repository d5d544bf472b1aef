//! Lumberjack for Rust users: a listener that yields windows, a sender that gets events to receivers, and how windows
//! become blocks of a spool and event rows again.

use ackline_link::{Budget, Endpoint};

#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod layout;
mod listener;
#[cfg(feature = "spool")]
mod receive;
mod sender;

pub use ackline_lumberjack::pool::{
    Batch, HostState, HostStats, SenderState, SenderStats, Unacked, WindowReceipt, WindowRoom,
};
pub use ackline_lumberjack::{
    Event, Expander, Invalid, Kind, Limits, NoWindow, OnInvalid, OutRecord, Piece, Reader,
    ReaderConfig, Record, SequenceMode, Version, Window, Writer, WriterConfig,
};
#[cfg(feature = "spool")]
pub use ingest::WindowIngest;
#[cfg(feature = "spool")]
pub use layout::{EventLayout, InvalidLayout};
pub use listener::{Connection, Listener, ListenerOptions, listen, listen_at, listen_with};
#[cfg(feature = "spool")]
pub(crate) use receive::PROTOCOL;
pub use sender::{Dial, Receipt, Sender, SenderError, SenderOptions};

/// The scheme of URLs, also with `+unix`.
pub const SCHEME: &str = "lumberjack";

/// The endpoint of a URL of this protocol.
///
/// # Errors
/// The URL is wrong; the text is a sentence.
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

/// The same configuration for a listener: windows that were complete before an error are still acknowledged,
/// and no window is larger than `budget` can admit beside anything else it holds, since a larger
/// one could wait for memory for ever.
pub(crate) fn within(mut config: ReaderConfig, budget: &Budget) -> ReaderConfig {
    let largest = usize::try_from(budget.largest()).unwrap_or(usize::MAX);
    config.limits.max_window_bytes = config.limits.max_window_bytes.min(largest);
    config.settle_after_error = true;
    config
}
