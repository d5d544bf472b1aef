//! A listener and a connection of bpmux, a request and its response; and a URL of TLS, which this build has not.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use ackline::bpmux::{self, ConnectOptions, Incoming, ListenOptions};

const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = bpmux::listen("bpmux://127.0.0.1:0", ListenOptions::default()).await?;
    let url = listener.url().to_owned();
    let serving = tokio::spawn(async move {
        let connection = listener.accept().await?;
        if let Some(Incoming::Request(request)) = connection.accept().await? {
            request.respond("told")?;
        }
        connection.shutdown(LIMIT).await
    });
    let connection = bpmux::connect(&url, ConnectOptions::default()).await?;
    let answer = connection.call("ask", LIMIT).await?.to_bytes();
    connection.shutdown(LIMIT).await?;
    serving.await??;
    assert_eq!(answer, "told");
    let refused = bpmux::check("bpmux+tls://127.0.0.1:1", &ConnectOptions::default());
    let refused = refused.err().ok_or("there is no TLS here")?.to_string();
    assert!(refused.contains("feature \"tls\""), "{refused}");
    println!("called over {url}");
    Ok(())
}
