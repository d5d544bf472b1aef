//! A receiver in a few lines: `cargo run --example receive -- lumberjack://127.0.0.1:5044 [SPOOL]`.
//!
//! Without a spool it counts and acknowledges without keeping. Ends when standard input ends.

use std::time::Duration;

use ackline::{Receiver, ReceiverOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "lumberjack://127.0.0.1:5044".to_owned());
    let options = ReceiverOptions {
        urls: vec![url],
        spool: args.next().map(Into::into),
        ..ReceiverOptions::default()
    };
    let receiver = Receiver::start(options).await?;
    eprintln!("listening on {}", receiver.urls().join(", "));
    let ended =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::pin!(ended);
    loop {
        if tokio::time::timeout(Duration::from_secs(1), &mut ended)
            .await
            .is_ok()
        {
            break;
        }
        eprintln!("{}", receiver.stats().to_json());
    }
    let unacked = receiver.stop(None).await;
    eprintln!("{unacked} windows left unacknowledged");
    Ok(())
}
