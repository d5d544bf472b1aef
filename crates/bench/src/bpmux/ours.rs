//! The figures of bpmux: both ends of a connection in this process, with their default options.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline::bpmux::{
    self, ConnectOptions, Connection, Incoming, ListenOptions, Listener, Sink, Stream,
};
use bytes::Bytes;

use crate::ends::{Counted, Ends, Failed, Result, SMALL, counted, rate};

/// Messages taken at once.
const BATCH: usize = 1_024;
/// Requests that wait for their responses.
const DEEP: usize = 64;
const URL: &str = "bpmux://127.0.0.1:0";

/// Both ends of a connection; keep the listener.
pub(super) async fn connection(ends: &Ends) -> Result<(Connection, Connection, Listener)> {
    let listening = ends
        .other
        .spawn(bpmux::listen(URL, ListenOptions::default()));
    let listener = listening.await??;
    let url = listener.url().to_owned();
    let connecting = async move { bpmux::connect(&url, ConnectOptions::default()).await };
    let one = ends.one.spawn(connecting).await??;
    let other = listener.accept().await?;
    Ok((one, other, listener))
}

/// Payload bytes over so many sinks at once, in messages of `size`.
pub(super) async fn one_way(
    time: Duration,
    sinks: usize,
    size: usize,
    ends: &Ends,
) -> Result<Counted> {
    let (one, other, _listener) = connection(ends).await?;
    let payload = Bytes::from(vec![7; size]);
    let sending = ends.one.spawn(async move {
        let begun = Instant::now();
        let mut writers = Vec::new();
        for _ in 0..sinks {
            let sink = one.open_sink(Bytes::new()).await?;
            writers.push(tokio::spawn(write(sink, payload.clone(), begun + time)));
        }
        for writer in writers {
            writer.await??;
        }
        Ok::<_, Failed>(())
    });
    let receiving = ends.other.spawn(async move {
        let (begun, mut bytes) = (Instant::now(), 0);
        let mut readers = Vec::new();
        for _ in 0..sinks {
            if let Some(Incoming::Sink(stream, _)) = other.accept().await? {
                readers.push(tokio::spawn(read(stream)));
            }
        }
        for reader in readers {
            bytes += reader.await??;
        }
        Ok::<_, Failed>(counted(bytes, begun))
    });
    let counted = receiving.await??;
    sending.await??;
    Ok(counted)
}

async fn write(sink: Sink, payload: Bytes, until: Instant) -> Result<()> {
    while Instant::now() < until {
        sink.send(payload.clone()).await?;
    }
    Ok(sink.close(Bytes::new()).await?)
}

async fn read(stream: Stream) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let messages = stream.receive_many(BATCH).await?;
        if messages.is_empty() {
            return Ok(bytes);
        }
        for message in messages {
            bytes += u64::try_from(message.bytes())?;
        }
    }
}

/// Answered requests, 64 of them in flight.
pub(super) async fn requests(time: Duration, ends: &Ends) -> Result<Counted> {
    let (one, other, _listener) = connection(ends).await?;
    let answering = ends.other.spawn(answer(other));
    let asking = ends.one.spawn(async move {
        let payload = Bytes::from(vec![7; SMALL]);
        let (begun, mut count, mut waiting) = (Instant::now(), 0_u64, VecDeque::new());
        while begun.elapsed() < time {
            while waiting.len() < DEEP {
                waiting.push_back(one.request(payload.clone()).await?);
            }
            if let Some(response) = waiting.pop_front() {
                response.response().await?;
                count += 1;
            }
        }
        Ok::<_, Failed>(counted(count, begun))
    });
    let counted = asking.await??;
    answering.abort();
    Ok(counted)
}

/// Answers each request with its payload.
async fn answer(connection: Connection) -> Result<()> {
    while let Some(incoming) = connection.accept().await? {
        if let Incoming::Request(request) = incoming {
            let payload = request.payload().to_bytes();
            request.respond(payload)?;
        }
    }
    Ok(())
}

/// Seconds from a request to its response.
pub(super) async fn round_trips(time: Duration, ends: &Ends) -> Result<f64> {
    let (one, other, _listener) = connection(ends).await?;
    let answering = ends.other.spawn(answer(other));
    let asking = ends.one.spawn(async move {
        let payload = Bytes::from(vec![7; SMALL]);
        let (begun, mut count) = (Instant::now(), 0_u64);
        while begun.elapsed() < time {
            one.call(payload.clone(), None).await?;
            count += 1;
        }
        Ok::<_, Failed>(1.0 / rate(counted(count, begun)))
    });
    let seconds = asking.await??;
    answering.abort();
    Ok(seconds)
}
