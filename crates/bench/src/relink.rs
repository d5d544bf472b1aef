//! Relink, measured: its packets in memory, and its links beside bare TCP.

mod links;
mod packets;

use std::error::Error;

const USAGE: &str =
    "usage: ackline-bench relink decode|links [SECONDS] [large|small|round_trip|resume]";

/// Measures the part named by its first argument for so many seconds each and prints JSON lines.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let what = arguments.next();
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    match what.as_deref() {
        Some("decode") => packets::run(seconds),
        Some("links") => links::run(seconds, arguments.next().as_deref()),
        _ => Err(USAGE.into()),
    }
}
