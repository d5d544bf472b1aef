//! Small messages on many streams, alone and beside a transfer both ways on one duplex of the same connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ackline::bpmux::{Incoming, Sink, Stream};
use bytes::{BufMut, Bytes, BytesMut};

use super::ours::connection;
use crate::ends::{Ends, Failed, LARGE, Result, SMALL, line};

/// Open at once, the duplex among them.
const STREAMS: usize = 10_000;
/// Bytes that the duplex carries in each direction.
const TRANSFER: usize = 100_000_000;
/// From some small messages to the next ones, each on the next stream.
const PAUSE: Duration = Duration::from_millis(1);
const AT_ONCE: usize = 4;
/// Small messages without a transfer.
const IDLE: usize = 4_000;

/// Seconds from a small message's call to its receiver.
type Latencies = Arc<Mutex<Vec<f64>>>;

/// Measures and prints a line.
pub(super) async fn run(name: &str, ends: &Ends) -> Result<()> {
    let (one, other, _listener) = connection(ends).await?;
    let latencies = Latencies::default();
    let origin = Instant::now();
    let opening = ends.one.spawn({
        let latencies = Arc::clone(&latencies);
        async move {
            let (sink, stream) = one.open_duplex(Bytes::new()).await?;
            for _ in 1..STREAMS {
                let stream = one.open_stream(Bytes::new()).await?;
                tokio::spawn(note(stream, origin, Arc::clone(&latencies)));
            }
            Ok::<_, Failed>((one, sink, stream))
        }
    });
    let accepting = ends.other.spawn(async move {
        let (mut duplex, mut sinks) = (None, Vec::new());
        while sinks.len() + 1 < STREAMS {
            match other.accept().await?.ok_or("the connection ended")? {
                Incoming::Duplex(sink, stream, _) => duplex = Some((sink, stream)),
                Incoming::Stream(sink, _) => sinks.push(sink),
                _ => return Err("nobody asked for it".into()),
            }
        }
        Ok::<_, Failed>((duplex.ok_or("no duplex")?, sinks, other))
    });
    let (_one, sink, stream) = opening.await??;
    let ((other_sink, other_stream), sinks, _other) = accepting.await??;

    let is_over = Arc::new(AtomicBool::new(false));
    let trickling = trickle(sinks, origin, Arc::clone(&is_over));
    let sinks = ends.other.spawn(trickling);
    let idle = alone(&latencies).await;
    let begun = Instant::now();
    let transfers = [
        ends.one.spawn(write(sink)),
        ends.one.spawn(read(stream)),
        ends.other.spawn(write(other_sink)),
        ends.other.spawn(read(other_stream)),
    ];
    for transfer in transfers {
        transfer.await??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut beside = taken(&latencies);
    is_over.store(true, Ordering::Relaxed);
    sinks.await??;
    let mut idle = idle;
    let (idle, beside_p99) = (percentiles(&mut idle), percentiles(&mut beside));
    let figures = [
        ("idle_p50_us", idle.0 * 1e6),
        ("idle_p99_us", idle.1 * 1e6),
        ("p50_us", beside_p99.0 * 1e6),
        ("p99_us", beside_p99.1 * 1e6),
        ("ratio", beside_p99.1 / idle.1),
        ("transfer_ms", seconds * 1e3),
        ("messages", f64::from(u32::try_from(beside.len())?)),
    ];
    line(name, &figures)
}

/// The latencies without other traffic.
async fn alone(latencies: &Latencies) -> Vec<f64> {
    // The first ones wake everything up.
    while latencies
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .len()
        < IDLE / 10
    {
        tokio::time::sleep(PAUSE).await;
    }
    taken(latencies);
    while latencies
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .len()
        < IDLE
    {
        tokio::time::sleep(PAUSE).await;
    }
    taken(latencies)
}

fn taken(latencies: &Latencies) -> Vec<f64> {
    std::mem::take(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The median and the 99th percentile.
fn percentiles(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
        values.get(index).copied().unwrap_or_default()
    };
    (at(50), at(99))
}

/// A small message on one stream after the other, each with the time of its call.
async fn trickle(sinks: Vec<Sink>, origin: Instant, is_over: Arc<AtomicBool>) -> Result<()> {
    let mut ticks = tokio::time::interval(PAUSE);
    for (at, sink) in sinks.iter().cycle().enumerate() {
        if at % AT_ONCE == 0 {
            ticks.tick().await;
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut message = BytesMut::with_capacity(SMALL);
        message.put_f64(origin.elapsed().as_secs_f64());
        message.resize(SMALL, 0);
        sink.send(message.freeze()).await?;
    }
    Ok(())
}

async fn note(stream: Stream, origin: Instant, latencies: Latencies) -> Result<()> {
    while let Some(message) = stream.receive().await? {
        let bytes = message.to_bytes();
        let sent = f64::from_be_bytes(bytes.get(..8).ok_or("no time")?.try_into()?);
        let latency = origin.elapsed().as_secs_f64() - sent;
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        latencies.push(latency);
    }
    Ok(())
}

async fn write(sink: Sink) -> Result<()> {
    let payload = Bytes::from(vec![7; LARGE]);
    let mut left = TRANSFER;
    while left > 0 {
        let message = payload.slice(..left.min(LARGE));
        left -= message.len();
        sink.send(message).await?;
    }
    Ok(sink.close(Bytes::new()).await?)
}

async fn read(stream: Stream) -> Result<()> {
    while !stream.receive_many(LARGE).await?.is_empty() {}
    Ok(())
}
