//! One peer of the interop tests: the client or the server of ferro-lumberjack 1.0.0, plain or with TLS.
//!
//! `send HOST:PORT BATCH LEVEL [CA]` sends the lines of standard input as events and prints how many were
//! acknowledged. `listen HOST:PORT [CERT KEY]` prints the port, then each event as hex.

use std::error::Error;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::time::Duration;

use ferro_lumberjack::client::ClientBuilder;
use ferro_lumberjack::server::{Server, ServerConnection};
use ferro_lumberjack::tls::{ServerTlsConfig, TlsConfig};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["send", address, batch, level, ca @ ..] => {
            send(address, batch.parse()?, level.parse()?, ca.first()).await
        }
        ["listen", address, tls @ ..] => listen(address, tls).await,
        _ => Err("usage: send HOST:PORT BATCH LEVEL [CA] | listen HOST:PORT [CERT KEY]".into()),
    }
}

async fn send(address: &str, batch: usize, level: u32, ca: Option<&&str>) -> Outcome<()> {
    let mut builder = ClientBuilder::new()
        .add_host(address)
        .compression_level(level)
        .timeout(Duration::from_secs(10));
    if let Some(ca) = ca {
        builder = builder.tls(TlsConfig::builder().add_ca_pem_file(ca)?.build()?);
    }
    let mut text = Vec::new();
    stdin().read_to_end(&mut text)?;
    let lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let mut client = builder.connect().await?;
    let mut acked = 0;
    for window in lines.chunks(batch) {
        acked += client.send_json(window.to_vec()).await?;
    }
    println!("{acked}");
    Ok(())
}

async fn listen(address: &str, tls: &[&str]) -> Outcome<()> {
    let mut builder = Server::builder();
    if let [cert, key] = tls {
        let config = ServerTlsConfig::builder()
            .cert_pem_file(cert)?
            .key_pem_file(key)?
            .build()?;
        builder = builder.tls(config);
    }
    let listener = builder.bind(address).await?;
    println!("listening {}", listener.local_addr()?.port());
    stdout().flush()?;
    loop {
        // One connection after the other; a broken one is told and the next one is taken.
        let served = match listener.accept().await {
            Ok(connection) => serve(connection).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = served {
            eprintln!("{error}");
        }
    }
}

async fn serve(mut connection: ServerConnection) -> Outcome<()> {
    while let Some(window) = connection.read_window().await? {
        let mut out = stdout().lock();
        for event in &window.events {
            let hex: String = event
                .payload
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            writeln!(out, "{hex}")?;
        }
        out.flush()?;
        drop(out);
        connection.send_ack(window.last_seq).await?;
    }
    Ok(())
}
