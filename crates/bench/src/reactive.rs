//! Measures the Reactive Streams protocol: elements from a publisher to a subscriber, beside bare
//! TCP.

mod ours;

use std::error::Error;
use std::time::Duration;

use ours::{KIB, PACKED};

use crate::ends::{Ends, Result, line, measured, rate, raw_stream};

const USAGE: &str = "usage: ackline-bench reactive streams [SECONDS] [packed|kib]";
const PARTS: [&str; 2] = ["packed", "kib"];
/// Bytes of a KiB.
const KIB_BYTES: f64 = 1_024.0;
/// Bytes of a packed element.
const PACKED_BYTES: f64 = 8.0;

/// Measures for so many seconds each and prints JSON lines.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    if arguments.next().as_deref() != Some("streams") {
        return Err(USAGE.into());
    }
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let part = arguments.next();
    if part.as_deref().is_some_and(|part| !PARTS.contains(&part)) {
        return Err(USAGE.into());
    }
    Ends::measure(&PARTS, part.as_deref(), |name, ends| {
        measure(name, time, ends)
    })
}

async fn measure(name: &'static str, time: Duration, ends: &Ends) -> Result<()> {
    let (raw, raw_cpu) = measured(raw_stream(time, 1, ends)).await?;
    let (stream, bytes) = match name {
        "packed" => (PACKED, PACKED_BYTES),
        _ => (KIB, KIB_BYTES),
    };
    let (ours, cpu) = measured(ours::one_way(time, stream, ends)).await?;
    let figures = [
        ("raw_bytes_per_second", rate(raw)),
        ("bytes_per_second", rate(ours)),
        ("elements_per_second", rate(ours) / bytes),
        ("ratio", rate(ours) / rate(raw)),
        ("raw_cpu_us_per_mb", raw_cpu / raw.0 * 1e12),
        ("cpu_us_per_mb", cpu / ours.0 * 1e12),
        ("cpu_ns_per_element", cpu / ours.0 * bytes * 1e9),
    ];
    line(name, &figures)
}
