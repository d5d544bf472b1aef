//! A publisher and its subscribers: `docs/publishers-and-subscribers.md` explains each step.
//!
//! `cargo run --example publish_and_subscribe -- publish reactive://127.0.0.1:0` prints where it listens. Its subscribers
//! are `… -- fast URL`, `… -- slow URL/numbers`, `… -- both URL` and `… -- by-hand URL`.
//! `examples/publish_and_subscribe.py` is the same in Python, and either talks to the other.
#![allow(clippy::print_stdout)] // the output is the example's purpose

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ackline::reactive::{
    self, ConnectOptions, Demand, Elements, Error, ListenOptions, Published, Publishers,
    Subscription,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_core::Stream;
use tokio::time::Interval;

const SOON: Option<Duration> = Some(Duration::from_secs(10));
/// Bytes of a reading: the time in ns (u64), the sensor (u16), the temperature (f32).
const READING: u64 = 14;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["publish", url] => publish(url).await,
        ["fast", url] => fast(url).await,
        ["slow", url] => slow(url).await,
        ["both", url] => both(url).await,
        ["by-hand", url] => by_hand(url).await,
        _ => {
            eprintln!("usage: publish_and_subscribe publish|fast|slow|both|by-hand URL");
            std::process::exit(2);
        }
    }
}

async fn publish(url: &str) -> Result<(), Error> {
    let numbers = (0..1_000_000).flat_map(|number| f64::from(number).to_le_bytes());
    let numbers: Bytes = numbers.collect();
    let mut publishers = Publishers::new();
    publishers.add("numbers", move |_| {
        Published::packed(8, numbers.clone()).map_err(|error| error.to_string())
    })?;
    publishers.add("sensors/*", sensor)?;
    let listener = reactive::listen(url, ListenOptions::default()).await?;
    println!("{}", listener.url());
    loop {
        let connection = listener.accept().await?;
        let publishers = publishers.clone();
        tokio::spawn(async move {
            publishers.serve(&connection).await?;
            connection.shutdown("", SOON).await
        });
    }
}

/// The readings of a sensor; an error rejects the subscription.
fn sensor(name: &str) -> Result<Published, String> {
    let number = name.trim_start_matches("sensors/");
    let sensor = number
        .parse()
        .map_err(|_| format!("there is no sensor {number}"))?;
    let every = tokio::time::interval(Duration::from_millis(10));
    Ok(Published::stream(READING, Readings { sensor, every }))
}

/// A reading every 10 ms, while the subscriber requests more.
struct Readings {
    sensor: u16,
    every: Interval,
}

impl Stream for Readings {
    type Item = Result<Elements, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.every.poll_tick(context).is_pending() {
            return Poll::Pending;
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut reading = BytesMut::new();
        reading.put_u64_le(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        reading.put_u16_le(self.sensor);
        reading.put_f32_le(20.0 + since.as_secs_f32().sin());
        Poll::Ready(Some(Ok(Elements::Packed(reading.freeze()))))
    }
}

async fn fast(url: &str) -> Result<(), Error> {
    let connection = reactive::connect(url, ConnectOptions::default()).await?;
    let live = connection
        .subscribe("sensors/7", Demand::automatic(1_000))
        .await?;
    if let Some(first) = live.receive().await? {
        let first = first.to_bytes();
        println!("sensor: {}", u16::from_le_bytes([first[8], first[9]]));
    }
    drop(live);
    let numbers = connection
        .subscribe("numbers", Demand::automatic(1_000))
        .await?;
    println!("fast: {}", summed(&numbers).await?);
    let rejected = connection
        .subscribe("sensors/none", Demand::automatic(1_000))
        .await?;
    if let Err(Error::Failed(reason)) = rejected.accepted().await {
        println!("rejected: {reason}");
    }
    connection.shutdown("", SOON).await
}

/// Reads a stream of doubles to its end.
async fn summed(numbers: &Subscription) -> Result<String, Error> {
    let (mut count, mut total) = (0, 0.0);
    while let Some(packed) = numbers.receive_packed(1 << 20).await? {
        let (doubles, _) = packed.as_chunks::<8>();
        count += doubles.len();
        total += doubles.iter().copied().map(f64::from_le_bytes).sum::<f64>();
    }
    Ok(format!("{count} elements, sum {total:.0}"))
}

async fn slow(url: &str) -> Result<(), Error> {
    let (url, publisher) = reactive::split_url(url)?;
    let connection = reactive::connect(&url, ConnectOptions::default()).await?;
    let numbers = connection
        .subscribe(&publisher, Demand::automatic(10))
        .await?;
    let mut taken = 0;
    while numbers.receive().await?.is_some() {
        taken += 1;
        println!("slow: {taken}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    connection.shutdown("", SOON).await
}

async fn both(url: &str) -> Result<(), Error> {
    let connection = reactive::connect(url, ConnectOptions::default()).await?;
    let unread = connection
        .subscribe("numbers", Demand::automatic(10))
        .await?;
    let numbers = connection
        .subscribe("numbers", Demand::automatic(1_000))
        .await?;
    println!("fast: {}", summed(&numbers).await?);
    let waiting = unread.receive_many(1_024).await?;
    println!("slow: {} elements wait", waiting.len());
    connection.shutdown("", SOON).await
}

async fn by_hand(url: &str) -> Result<(), Error> {
    let connection = reactive::connect(url, ConnectOptions::default()).await?;
    let numbers = connection.subscribe("numbers", Demand::by_hand(3)).await?;
    let mut first = 0;
    while first < 3 {
        first += numbers.receive_many(3).await?.len();
    }
    println!("first: {first} and {} requested", numbers.requested()?);
    numbers.request(1)?;
    if let Some(next) = numbers.receive().await? {
        let next: [u8; 8] = next.to_bytes()[..].try_into().unwrap_or_default();
        println!("next: {:.1}", f64::from_le_bytes(next));
    }
    connection.shutdown("", SOON).await
}
