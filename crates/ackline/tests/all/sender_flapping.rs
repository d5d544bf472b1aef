//! Receivers that come and go for five hours of a paused clock, in every way a receiver can misbehave.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ackline::lumberjack::{Batch, Sender, SenderError, SenderOptions, SequenceMode};
use bytes::Bytes;
use tokio::time::Instant;

use crate::pipe::{Act, Host, Net, ways};

const SECOND: Duration = Duration::from_secs(1);
const HOURS: Duration = Duration::from_secs(5 * 3600);
const BUFFER: u64 = 500;

/// Up for 2 s in the next way, then down for 3 s.
async fn flap(host: Arc<Host>, offset: usize) {
    let ways = ways();
    for turn in offset.. {
        host.set(ways[turn % ways.len()].clone());
        host.come_up();
        tokio::time::sleep(SECOND * 2).await;
        host.go_down();
        tokio::time::sleep(SECOND * 3).await;
    }
}

fn open(hosts: &[Arc<Host>], sequence: SequenceMode) -> Sender {
    let mut options = SenderOptions {
        seed: Some(7),
        batch_events: 50,
        buffer_events: Some(BUFFER),
        ttl: Some(SECOND * 600),
        ..SenderOptions::default()
    };
    options.writer.compression = None;
    options.writer.slow_start = Some(10);
    if sequence != SequenceMode::PerWindow {
        options.writer.accept_count_acks = true;
        for host in hosts {
            host.expect_any_sequence();
        }
    }
    options.writer.sequence = sequence;
    let names: Vec<Arc<str>> = (0..hosts.len())
        .map(|at| format!("host{at}").into())
        .collect();
    let hosts = hosts.to_vec();
    Sender::over(Net { hosts }, &names, options).unwrap()
}

/// Sends batches of 20 as they find room until the time is over; answers how many events were accepted.
async fn feed(sender: &Sender) -> u64 {
    let begin = Instant::now();
    let mut accepted = 0;
    while begin.elapsed() < HOURS {
        let payloads = (1..=20).map(|n| Bytes::from((accepted + n).to_string()));
        let batch = Batch::json(payloads.collect()).unwrap();
        match sender.send(&batch, Some(SECOND * 5)).await {
            Ok(receipt) => accepted = receipt.last(),
            Err(SenderError::Timeout { .. }) => {}
            Err(other) => unreachable!("{other}"),
        }
        let stats = sender.stats();
        assert!(stats.buffer_events <= BUFFER, "memory is flat: {stats:?}");
        assert!(stats.unacknowledged <= BUFFER);
        tokio::time::sleep(SECOND).await;
    }
    accepted
}

async fn five_hours(count: usize, sequence: SequenceMode) {
    let hosts: Vec<_> = (0..count).map(|_| Host::new([], Act::Ack)).collect();
    let sender = open(&hosts, sequence);
    let flapping: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(at, host)| tokio::spawn(flap(Arc::clone(host), at * 5)))
        .collect();
    let accepted = feed(&sender).await;
    for flap in flapping {
        flap.abort();
    }
    for host in &hosts {
        host.set(Act::Ack);
        host.go_down();
        host.come_up();
    }
    sender.flush(Some(SECOND * 120)).await.unwrap();
    let stats = sender.stats();
    assert!(accepted > 30_000, "{accepted} events in five hours");
    assert_eq!(stats.unacknowledged, 0);
    let mut kept = HashSet::new();
    let mut copies = 0;
    for host in &hosts {
        let log = host.kept.lock().unwrap();
        copies += log.events.len() as u64;
        kept.extend(log.numbers());
        let per_cycle = log.attempts as u64 / (HOURS.as_secs() / 5);
        assert!(per_cycle < 8, "{} attempts", log.attempts);
    }
    assert_eq!(kept.len() as u64, accepted, "nothing is lost");
    assert_eq!(kept.iter().max(), Some(&accepted));
    let repeats = copies - accepted;
    assert!(
        repeats <= stats.possible_repeats,
        "{repeats} of {}",
        stats.possible_repeats
    );
    assert_eq!(sender.close(SECOND).await.events(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_receiver_that_flaps_for_five_hours_loses_nothing() {
    five_hours(1, SequenceMode::PerWindow).await;
}

#[tokio::test(start_paused = true)]
async fn three_receivers_that_flap_for_five_hours_lose_nothing() {
    five_hours(3, SequenceMode::PerWindow).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_flaps_and_may_count_loses_nothing_where_numbers_go_on_and_on() {
    five_hours(1, SequenceMode::Cumulative { next: 1 }).await;
}
