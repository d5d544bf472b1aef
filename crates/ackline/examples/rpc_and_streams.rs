//! Requests, sinks, streams and duplexes over bpmux: `docs/rpc-and-streams.md` explains each step.
//!
//! `cargo run --example rpc_and_streams -- serve bpmux://127.0.0.1:0` prints where it listens, `… -- call URL` is its
//! client. `examples/rpc_and_streams.py` is the same in Python, and either talks to the other.
#![allow(clippy::print_stdout)] // the output is the example's purpose

use std::time::Duration;

use ackline::bpmux::{
    self, ConnectOptions, Connection, CreditPolicy, Error, Incoming, LinkOptions, ListenOptions,
    Payload, Request, Sink, Stream,
};

const SOON: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", url] => serve(url).await,
        ["call", url] => call(url).await,
        _ => {
            eprintln!("usage: rpc_and_streams serve URL | call URL");
            std::process::exit(2);
        }
    }
}

async fn serve(url: &str) -> Result<(), Error> {
    let listener = bpmux::listen(url, ListenOptions::default()).await?;
    println!("{}", listener.url());
    loop {
        let connection = listener.accept().await?;
        tokio::spawn(async move {
            while let Some(incoming) = connection.accept().await? {
                tokio::spawn(handle(incoming));
            }
            connection.shutdown(SOON).await
        });
    }
}

async fn handle(incoming: Incoming) -> Result<(), Error> {
    match incoming {
        Incoming::Request(request) => answer(request).await,
        Incoming::Sink(stream, opening) => drain(&stream, &opening).await,
        Incoming::Stream(sink, _) => count(sink).await,
        Incoming::Duplex(sink, stream, _) => echo(sink, &stream).await,
        _ => Ok(()),
    }
}

async fn answer(request: Request) -> Result<(), Error> {
    match text(request.payload()).as_str() {
        "secret" => request.close("not for everybody"),
        "slow" => {
            let why = request.cancelled().await?;
            println!("given up: {}", String::from_utf8_lossy(&why));
            Ok(())
        }
        asked => {
            let answer = asked.to_uppercase();
            request.respond(answer)
        }
    }
}

async fn drain(stream: &Stream, opening: &Payload) -> Result<(), Error> {
    let mut count = 0;
    while stream.receive().await?.is_some() {
        count += 1;
    }
    let told = stream.closed().unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    println!("{}: {count} messages of {told}", text(opening));
    Ok(())
}

async fn count(sink: Sink) -> Result<(), Error> {
    for number in 0_u64.. {
        match sink.send(number.to_string()).await {
            Err(Error::Cancelled(why)) => {
                println!("cancelled: {}", String::from_utf8_lossy(&why));
                break;
            }
            sent => sent?,
        }
    }
    Ok(())
}

async fn echo(sink: Sink, stream: &Stream) -> Result<(), Error> {
    while let Some(message) = stream.receive().await? {
        sink.send(message.to_bytes()).await?;
    }
    sink.close("").await
}

async fn call(url: &str) -> Result<(), Error> {
    let connection = bpmux::connect(url, ConnectOptions::default()).await?;
    requests(&connection).await?;
    streams(&connection).await?;
    connection.shutdown(SOON).await?;
    by_hand(url).await
}

async fn requests(connection: &Connection) -> Result<(), Error> {
    let answer = connection.call("hello", SOON).await?;
    println!("answer: {}", text(&answer));

    match connection.call("secret", SOON).await {
        Err(Error::Closed(why)) => println!("refused: {}", String::from_utf8_lossy(&why)),
        other => println!("{other:?}"),
    }

    // Out of time: the request is cancelled.
    let short = Some(Duration::from_millis(100));
    if let Err(Error::Timeout) = connection.call("slow", short).await {
        println!("no answer in time");
    }

    // Many at once: responses may be awaited in any order.
    let first = connection.request("first").await?;
    let second = connection.request("second").await?;
    println!("second: {}", text(&second.response().await?));
    println!("first: {}", text(&first.response().await?));

    // Given up, with a word about why.
    let slow = connection.request("slow").await?;
    slow.ping(Duration::from_secs(10)).await?;
    slow.cancel("not needed")
}

async fn streams(connection: &Connection) -> Result<(), Error> {
    // A stream: the peer writes it.
    let numbers = connection.open_stream("numbers").await?;
    for _ in 0..3 {
        let Some(number) = numbers.receive().await? else {
            break;
        };
        println!("number: {}", text(&number));
    }
    numbers.cancel("enough").await?;

    // A sink: the peer reads it; `close` returns when the peer has everything.
    let log = connection.open_sink("log").await?;
    for line in ["one", "two", "three"] {
        log.send(line).await?;
    }
    log.close("3").await?;

    // Both.
    let (sink, stream) = connection.open_duplex("echo").await?;
    sink.send("there and back").await?;
    if let Some(message) = stream.receive().await? {
        println!("echo: {}", text(&message));
    }
    sink.close("").await?;
    let mut left = 0;
    while stream.receive().await?.is_some() {
        left += 1;
    }
    println!("left: {left}");
    Ok(())
}

async fn by_hand(url: &str) -> Result<(), Error> {
    let options = ConnectOptions {
        link: LinkOptions {
            credit: CreditPolicy::Manual.into(),
            ..LinkOptions::default()
        },
        ..ConnectOptions::default()
    };
    let connection = bpmux::connect(url, options).await?;
    let numbers = connection.open_stream("numbers").await?;
    numbers.grant_credit(10)?; // ten bytes: the ten numbers of one digit, and no more
    let mut count = 0;
    while count < 10 {
        count += numbers.receive_many(100).await?.len();
    }
    println!("for ten bytes: {count} numbers");

    // A response needs credit too: the top-level's.
    connection.stream().grant_credit(5)?;
    let answer = connection.call("hello", SOON).await?;
    println!("answer: {}", text(&answer));
    numbers.cancel("").await?;
    connection.shutdown(SOON).await
}

fn text(payload: &Payload) -> String {
    String::from_utf8_lossy(&payload.to_bytes()).into_owned()
}
