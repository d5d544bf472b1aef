//! Lumberjack for Rust users: a listener that yields windows, a client that sends them, and how windows
//! become blocks of a spool and event rows again.

mod client;
mod ingest;
mod layout;
mod listener;

pub use ackline_lumberjack::{
    Event, Expander, Kind, Limits, NoWindow, OutRecord, Piece, Reader, ReaderConfig, Record,
    SequenceMode, Version, Window, Writer, WriterConfig,
};
pub use client::{Client, ClientError, connect};
pub use ingest::WindowIngest;
pub use layout::EventLayout;
pub use listener::{Connection, Listener, listen};

/// The scheme of URLs, also with `+unix`.
pub const SCHEME: &str = "lumberjack";

/// The address behind a URL of this protocol.
///
/// # Errors
/// What is wrong with the URL, in a sentence.
pub(crate) fn address(url: &str) -> Result<ackline_link::Address, String> {
    let (scheme, address) = ackline_link::Address::parse(url).map_err(|error| error.to_string())?;
    if scheme == SCHEME {
        return Ok(address);
    }
    let built = crate::protocols().join(", ");
    Err(format!(
        "{url}: there is no protocol {scheme:?}; built are: {built}"
    ))
}

/// The same configuration with windows no larger than `budget` can admit whatever else it holds: a larger
/// one could wait for memory for ever.
pub(crate) fn within(mut config: ReaderConfig, budget: &ackline_link::Budget) -> ReaderConfig {
    let largest = usize::try_from(budget.largest()).unwrap_or(usize::MAX);
    config.limits.window_bytes = config.limits.window_bytes.min(largest);
    config
}
