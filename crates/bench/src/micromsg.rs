//! Measures MicroMsg2: acknowledged messages beside bare TCP, the evaluation of filters, and deliveries to many
//! subscribers.

mod ours;

use std::error::Error;
use std::time::Duration;

use crate::ends::{Ends, Result, line, measured, rate, raw_stream};

const USAGE: &str = "usage: ackline-bench micromsg messages [SECONDS] [batch-ack|filters|fan-out]";
const PARTS: [&str; 3] = ["batch-ack", "filters", "fan-out"];
/// Subscribers of a topic.
const SUBSCRIBERS: usize = 100;

/// Measures for so many seconds each and prints JSON lines.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    if arguments.next().as_deref() != Some("messages") {
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
    match name {
        "batch-ack" => messages(time, ends).await,
        "filters" => {
            let evaluations = ours::filters(time)?;
            let figures = [
                ("evaluations_per_second", rate(evaluations)),
                ("ns_per_evaluation", 1e9 / rate(evaluations)),
            ];
            line(name, &figures)
        }
        _ => {
            let (deliveries, cpu) = measured(ours::fan_out(time, SUBSCRIBERS, ends)).await?;
            let figures = [
                ("deliveries_per_second", rate(deliveries)),
                ("cpu_ns_per_delivery", cpu / deliveries.0 * 1e9),
            ];
            line(name, &figures)
        }
    }
}

async fn messages(time: Duration, ends: &Ends) -> Result<()> {
    let (raw, raw_cpu) = measured(raw_stream(time, 1, ends)).await?;
    let (ours, cpu) = measured(ours::one_way(time, ends)).await?;
    let bytes = (ours.0 * ours::BYTES, ours.1);
    let figures = [
        ("raw_bytes_per_second", rate(raw)),
        ("messages_per_second", rate(ours)),
        ("ratio", rate(bytes) / rate(raw)),
        ("raw_cpu_us_per_mb", raw_cpu / raw.0 * 1e12),
        ("cpu_ns_per_message", cpu / ours.0 * 1e9),
    ];
    line("batch-ack", &figures)
}
