//! Messages with properties between two ends of MicroMsg2, and subscriptions with filters.
//!
//! `cargo run --example send_and_subscribe -- publish micromsg://127.0.0.1:0` prints where it listens, and sends 1,000
//! messages to each subscriber; a subscriber is `… -- subscribe URL 'level>=N8'`. `… -- receive URL` prints what
//! `… -- send URL` sends. `examples/send_and_subscribe.py` is the same in Python, and either talks to the other.
#![allow(clippy::print_stdout)] // the output is the example's purpose

use std::time::Duration;

use ackline::micromsg::{
    self, Arrival, ConnectOptions, Connection, Error, Filter, ListenOptions, Message, Number,
    Properties, Property, Received,
};

const SOON: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["publish", url] => publish(url).await,
        ["subscribe", url, filter] => subscribe(url, filter).await,
        ["send", url] => send(url).await,
        ["receive", url] => receive(url).await,
        _ => {
            eprintln!(
                "usage: send_and_subscribe publish|send|receive URL, or subscribe URL FILTER"
            );
            std::process::exit(2);
        }
    }
}

/// The message with this number, of 1,000.
fn reading(number: i64) -> Message {
    let region = if number % 2 == 0 { "eu" } else { "us é" };
    let whole = Property::Number(Number::Whole(number % 10));
    let [share, at] = [0.25, 1.0].map(|step| step * f64::from(u16::try_from(number).unwrap_or(0)));
    Message::new("readings", number.to_string())
        .with("level", whole)
        .with("region", Property::Text(region.to_owned()))
        .with("share", Property::Number(Number::Fraction(share)))
        .with("at", Property::Date(1_000_000_000.5 + at))
}

async fn publish(url: &str) -> Result<(), Error> {
    let listener = micromsg::listen(url, ListenOptions::default()).await?;
    println!("{}", listener.url());
    loop {
        let connection = listener.accept().await?;
        tokio::spawn(async move { publish_to(&connection).await });
    }
}

async fn publish_to(connection: &Connection) -> Result<(), Error> {
    let Some(Arrival::Subscribe(subscribe)) = connection.receive_command().await? else {
        return connection.fail("subscribe first");
    };
    for message in (0..1_000).map(reading) {
        let raw = message.raw_properties()?;
        let properties = Properties::new(raw.as_bytes());
        if subscribe
            .filter
            .as_ref()
            .is_none_or(|filter| filter.matches(&properties))
        {
            connection.send(&message).await?;
        }
    }
    connection.close(SOON).await?;
    println!("acknowledged: {}", connection.stats().acknowledged);
    Ok(())
}

async fn subscribe(url: &str, filter: &str) -> Result<(), Error> {
    let connection = micromsg::connect(url, ConnectOptions::default()).await?;
    let filter = Filter::read(filter.as_bytes())
        .map_err(|wrong| Error::Open(ackline::core::OpenError::url(wrong.to_string())))?;
    connection.subscribe("readings", Some(&filter)).await?;
    let (mut count, mut sum, mut last) = (0, 0, None);
    while let Some(message) = connection.receive().await? {
        let payload = message.message.payload().to_bytes();
        let number: i64 = String::from_utf8_lossy(&payload).parse().unwrap_or(-1);
        (count, sum, last) = (count + 1, sum + number, Some(message));
    }
    let last = last.map_or_else(String::new, |last| described(&last));
    println!("{count} readings, sum {sum}, last {last}");
    connection.close(SOON).await
}

async fn send(url: &str) -> Result<(), Error> {
    let connection = micromsg::connect(url, ConnectOptions::default()).await?;
    connection.send(&Message::new("", "")).await?;
    connection.send(&reading(7)).await?;
    // More than one frame carries.
    let large = Message::new("large", vec![7; 3 << 20]);
    let last = connection.send(&large).await?;
    connection.acknowledged(last).await?;
    println!("acknowledged: {last}");
    connection.close(SOON).await
}

async fn receive(url: &str) -> Result<(), Error> {
    let listener = micromsg::listen(url, ListenOptions::default()).await?;
    println!("{}", listener.url());
    let connection = listener.accept().await?;
    while let Some(message) = connection.receive().await? {
        println!("{}", described(&message));
    }
    connection.close(SOON).await
}

fn described(received: &Received) -> String {
    let message = &received.message;
    format!(
        "{} of {} bytes to {:?}: {}",
        received.position,
        message.payload_bytes(),
        message.destination(),
        message.raw_properties(),
    )
}
