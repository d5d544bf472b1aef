//! The figures of the protocol, with default options.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ackline::micromsg::{
    self, BrokerOptions, ConnectOptions, Connection, Filter, ListenOptions, Message, Number,
    Properties, Property,
};
use bytes::Bytes;

use crate::ends::{Counted, Ends, Failed, Result, counted};

/// Bytes of a payload.
pub(super) const BYTES: f64 = 256.0;
/// Messages that are handed over, or taken, at once.
const BATCH: usize = 256;
/// Bytes of messages taken at once.
const MOST_BYTES: usize = 1 << 20;
const URL: &str = "micromsg://127.0.0.1:0";
const TOPIC: &str = "bench";

fn batch() -> VecDeque<Message> {
    let payload = Bytes::from_static(&[7; 256]);
    let message = Message::new(TOPIC, payload);
    (0..BATCH).map(|_| message.clone()).collect()
}

/// Messages from the connecting end to the listening one, which acknowledges them in groups.
pub(super) async fn one_way(time: Duration, ends: &Ends) -> Result<Counted> {
    let listening = ends
        .other
        .spawn(micromsg::listen(URL, ListenOptions::default()));
    let listener = listening.await??;
    let url = listener.url().to_owned();
    let sending = ends.one.spawn(async move {
        let connection = micromsg::connect(&url, ConnectOptions::default()).await?;
        send(&connection, time).await?;
        connection.close(None).await?;
        Ok::<_, Failed>(())
    });
    let connection = listener.accept().await?;
    let receiving = ends.other.spawn(async move {
        let (mut count, mut begun) = (0, None);
        loop {
            let messages = connection.receive_some(BATCH, MOST_BYTES).await?;
            let begun = *begun.get_or_insert_with(Instant::now);
            if messages.is_empty() {
                return Ok::<_, Failed>(counted(count, begun));
            }
            count += u64::try_from(messages.len())?;
        }
    });
    sending.await??;
    receiving.await?
}

async fn send(connection: &Connection, time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        connection.send_all(&mut batch()).await?;
    }
    Ok(())
}

/// Evaluations of a filter of three conditions on the properties of a message, which are split each time.
pub(super) fn filters(time: Duration) -> Result<Counted> {
    let filter =
        Filter::read(b"level>=N3;region=Teu;host<Tweb").map_err(|kind| kind.to_string())?;
    let messages: Vec<String> = (0..64)
        .map(|number| format!("level:N{};region:Teu;host:Tweb-{number};", 3 + number % 7))
        .collect();
    let (begun, mut count, mut matches) = (Instant::now(), 0_u64, 0_u64);
    while begun.elapsed() < time {
        for raw in &messages {
            let properties = Properties::new(black_box(raw.as_bytes()));
            matches += u64::from(filter.matches(&properties));
        }
        count += u64::try_from(messages.len())?;
    }
    black_box(matches);
    Ok(counted(count, begun))
}

/// Batches that the publisher may be ahead of each subscriber: the broker ends one for which too much waits.
const AHEAD: u64 = 32;

/// Deliveries of a broker to so many subscribers of a topic, each on a connection of its own.
pub(super) async fn fan_out(time: Duration, subscribers: usize, ends: &Ends) -> Result<Counted> {
    let serving = ends
        .other
        .spawn(micromsg::serve(URL, BrokerOptions::default()));
    let broker = serving.await??;
    let url = broker.url().to_owned();
    let (mut receiving, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..subscribers {
        let url = url.clone();
        let subscribing = ends.one.spawn(async move {
            let connection = micromsg::connect(&url, ConnectOptions::default()).await?;
            connection.subscribe(TOPIC, None).await?;
            Ok::<_, Failed>(connection)
        });
        let connection = subscribing.await??;
        let count = Arc::new(AtomicU64::new(0));
        counts.push(Arc::clone(&count));
        receiving.push(ends.one.spawn(async move {
            loop {
                let messages = connection.receive_some(BATCH, MOST_BYTES).await?;
                let taken = u64::try_from(messages.len())?;
                let all = count.fetch_add(taken, Ordering::Relaxed) + taken;
                let mut each = messages.iter();
                if messages.is_empty() || each.any(|one| one.message.payload_bytes() == 0) {
                    return Ok::<_, Failed>(all);
                }
            }
        }));
    }
    let begun = Instant::now();
    let publishing = ends.one.spawn(async move {
        let connection = micromsg::connect(&url, ConnectOptions::default()).await?;
        let mut sent = 0;
        while begun.elapsed() < time {
            let slowest = counts.iter().map(|one| one.load(Ordering::Relaxed)).min();
            if sent > slowest.unwrap_or(0) + AHEAD * u64::try_from(BATCH)? {
                tokio::task::yield_now().await;
                continue;
            }
            connection.send_all(&mut batch()).await?;
            sent += u64::try_from(BATCH)?;
        }
        // The last one, by its length.
        let last =
            Message::new(TOPIC, Bytes::new()).with("last", Property::Number(Number::Whole(1)));
        connection.send(&last).await?;
        connection.close(None).await?;
        Ok::<_, Failed>(())
    });
    publishing.await??;
    let mut count = 0;
    for one in receiving {
        count += one.await??;
    }
    let counted = counted(count, begun);
    broker.close(None).await?;
    Ok(counted)
}
