//! Measures bpmux: its connections compared with yamux and bare TCP, and the effect of a transfer
//! on its neighbours.

mod ours;
mod peer;
mod trickle;

use std::error::Error;
use std::time::Duration;

use crate::ends::{Ends, LARGE, Result, line, measured, rate, raw_round_trips, raw_stream};

const USAGE: &str =
    "usage: ackline-bench bpmux connections [SECONDS] [large|many|requests|round_trip|trickle]";
const PARTS: [&str; 5] = ["large", "many", "requests", "round_trip", "trickle"];
/// Sinks or streams that are written at once.
const MANY: usize = 1_000;
/// Bytes of each of their messages.
const KIB: usize = 1_024;

/// Measures for so many seconds each and prints JSON lines.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    if arguments.next().as_deref() != Some("connections") {
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

async fn measure(name: &'static str, time: Duration, ends: &'static Ends) -> Result<()> {
    match name {
        "large" => {
            let (raw, raw_cpu) = measured(raw_stream(time, 1, ends)).await?;
            let (yamux, yamux_cpu) = measured(peer::one_way(time, 1, LARGE, ends)).await?;
            let (ours, cpu) = measured(ours::one_way(time, 1, LARGE, ends)).await?;
            let figures = [
                ("raw_bytes_per_second", rate(raw)),
                ("yamux_bytes_per_second", rate(yamux)),
                ("bytes_per_second", rate(ours)),
                ("ratio", rate(ours) / rate(raw)),
                ("yamux_ratio", rate(ours) / rate(yamux)),
                ("raw_cpu_us_per_mb", raw_cpu / raw.0 * 1e12),
                ("yamux_cpu_us_per_mb", yamux_cpu / yamux.0 * 1e12),
                ("cpu_us_per_mb", cpu / ours.0 * 1e12),
            ];
            line(name, &figures)
        }
        "many" => {
            let (yamux, yamux_cpu) = measured(peer::one_way(time, MANY, KIB, ends)).await?;
            let (ours, cpu) = measured(ours::one_way(time, MANY, KIB, ends)).await?;
            let figures = [
                ("yamux_messages_per_second", rate(yamux) / 1_024.0),
                ("messages_per_second", rate(ours) / 1_024.0),
                ("yamux_ratio", rate(ours) / rate(yamux)),
                ("yamux_cpu_ns_per_message", yamux_cpu / yamux.0 * 1_024e9),
                ("cpu_ns_per_message", cpu / ours.0 * 1_024e9),
            ];
            line(name, &figures)
        }
        "requests" => {
            let (requests, cpu) = measured(ours::requests(time, ends)).await?;
            let figures = [
                ("requests_per_second", rate(requests)),
                ("cpu_ns_per_request", cpu / requests.0 * 1e9),
            ];
            line(name, &figures)
        }
        "round_trip" => {
            let raw = raw_round_trips(time, ends).await?;
            let yamux = peer::round_trips(time, ends).await?;
            let ours = ours::round_trips(time, ends).await?;
            let figures = [
                ("raw_us", raw * 1e6),
                ("yamux_us", yamux * 1e6),
                ("us", ours * 1e6),
                ("ratio", ours / raw),
                ("yamux_ratio", ours / yamux),
            ];
            line(name, &figures)
        }
        _ => trickle::run(name, ends).await,
    }
}
