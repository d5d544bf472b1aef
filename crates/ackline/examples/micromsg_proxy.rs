//! A proxy of MicroMsg2: each client is joined with a connection of its own to a server, with the extensions that these two
//! agree on, known or not.
//!
//! `cargo run --example micromsg_proxy -- micromsg://127.0.0.1:0 micromsg://host:8334` prints where it listens, and for each
//! client how its connection has ended.
#![allow(clippy::print_stdout)] // the output is the example's purpose

use ackline::micromsg::{self, ConnectOptions, Error, ListenOptions};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, server] = &arguments[..] else {
        eprintln!("usage: micromsg_proxy LISTEN_URL SERVER_URL");
        std::process::exit(2);
    };
    let listener = micromsg::listen_as_proxy(listen, ListenOptions::default()).await?;
    println!("{}", listener.url());
    loop {
        let client = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            match client.pass_to(&server, ConnectOptions::default()).await {
                Ok(()) => println!("ended"),
                Err(error) => println!("ended: {error}"),
            }
        });
    }
}
