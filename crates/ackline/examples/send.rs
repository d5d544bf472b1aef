//! Standard input to receivers, a line an event: `cargo run --example send -- lumberjack://127.0.0.1:5044 [URL…]`.
//!
//! With `repeat=N` each line is sent N times, for measuring.

use std::io::BufRead;
use std::time::{Duration, Instant};

use ackline::lumberjack::{Batch, Sender, SenderOptions};
use bytes::Bytes;

const LINES: usize = 2_048;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (options, urls): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|one| one.starts_with("repeat="));
    let repeat = match options.first() {
        Some(option) => option.trim_start_matches("repeat=").parse()?,
        None => 1,
    };
    let sender = Sender::open(&urls, SenderOptions::default())?;
    sender.connected().await?;
    let begin = Instant::now();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let window: Vec<Bytes> = lines
            .by_ref()
            .take(LINES)
            .map(|line| line.map(Bytes::from))
            .collect::<Result<_, _>>()?;
        if window.is_empty() {
            break;
        }
        let batch = Batch::json(window)?;
        for _ in 0..repeat {
            sender.send(&batch, None).await?;
        }
    }
    let rest = sender.close(Duration::from_secs(60)).await;
    let (stats, seconds) = (sender.stats(), begin.elapsed().as_secs_f64());
    eprintln!(
        "{} events in {seconds:.3} s, {} possible repeats",
        stats.accepted, stats.possible_repeats
    );
    for (first, last) in rest.ranges() {
        eprintln!("not acknowledged: {first} to {last}");
    }
    Ok(())
}
