//! A proxy of MicroMsg2: each client is joined with a connection of its own to a server, with the extensions that these two
//! agree on, known or not.
//!
//! `cargo run --example micromsg_proxy -- micromsg://127.0.0.1:0 micromsg://host:8334` prints where it listens, and for each
//! client how its connection has ended.
#![allow(clippy::print_stdout)] // the output is the example's purpose

use std::time::Duration;

use ackline::micromsg::{self, ConnectOptions, Connection, Error, ListenOptions};

const SOON: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, server] = &arguments[..] else {
        eprintln!("usage: micromsg_proxy LISTEN_URL SERVER_URL");
        std::process::exit(2);
    };
    let mut options = ListenOptions::default();
    micromsg::for_proxy(&mut options.link);
    let listener = micromsg::listen(listen, options).await?;
    println!("{}", listener.url());
    loop {
        let client = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            match join(&client, &server).await {
                Ok(()) => println!("ended in order"),
                Err(error) => println!("ended: {error}"),
            }
        });
    }
}

async fn join(client: &Connection, server: &str) -> Result<(), Error> {
    let server = match micromsg::mirror(client, server, ConnectOptions::default()).await {
        Ok(server) => server,
        Err(error) => {
            // A refused client is told already; one without a server is not.
            let _ = client.fail("the server cannot be reached");
            return Err(error);
        }
    };
    let bridged = micromsg::bridge(client, &server).await;
    // Both ends are told that it is over, whichever of them ended it.
    let closed = tokio::join!(client.close(SOON), server.close(SOON));
    bridged?;
    closed.0?;
    closed.1
}
