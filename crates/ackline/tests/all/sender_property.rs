//! Any sizes, limits and receivers: nothing is lost, nothing acknowledged twice, each connection in order,
//! and never more in flight than allowed.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ackline::lumberjack::{Batch, Sender, SenderOptions, SenderStats, WindowReceipt};
use bytes::Bytes;
use proptest::prelude::*;

use crate::pipe::{Act, Host, Net, ways};

const STEP: Duration = Duration::from_millis(700);

#[derive(Debug, Clone)]
struct Case {
    scripts: Vec<Vec<Act>>,
    batches: Vec<(u64, bool)>,
    batch_events: u32,
    batch_bytes: u64,
    windows: usize,
    events: Option<u32>,
    bytes: Option<u64>,
    slow_start: Option<u32>,
    ttl: Option<Duration>,
    seed: u64,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => prop::sample::select(ways()),
        1 => (0_usize..400).prop_map(Act::CutAfter),
        1 => (0_usize..400).prop_map(Act::ResetAfter),
        1 => (0_usize..40).prop_map(Act::CutAnswersAfter),
        1 => (1_usize..5).prop_map(Act::Windows),
        1 => (0_usize..50).prop_map(Act::Storm),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let scripts = prop::collection::vec(prop::collection::vec(act(), 0..6), 1..4);
    let batches = prop::collection::vec((1_u64..40, any::<bool>()), 1..30);
    let sizes = (1_u32..20, 15_u64..300, 1_usize..5);
    let limits = (
        prop::option::of(1_u32..30),
        prop::option::of(20_u64..400),
        prop::option::of(1_u32..12),
        prop::option::of((1_u64..20).prop_map(Duration::from_secs)),
    );
    (scripts, batches, sizes, limits, any::<u64>()).prop_map(
        |(scripts, batches, sizes, limits, seed)| Case {
            scripts,
            batches,
            batch_events: sizes.0,
            batch_bytes: sizes.1,
            windows: sizes.2,
            events: limits.0,
            bytes: limits.1,
            slow_start: limits.2,
            ttl: limits.3,
            seed,
        },
    )
}

fn open(case: &Case, hosts: &[Arc<Host>]) -> Sender {
    let mut options = SenderOptions {
        batch_events: case.batch_events,
        batch_bytes: case.batch_bytes,
        buffer_events: Some(200),
        ttl: case.ttl,
        seed: Some(case.seed),
        receipts: 1_000_000,
        ..SenderOptions::default()
    };
    options.writer.compression = None;
    options.writer.max_in_flight = case.windows;
    options.writer.max_in_flight_events = case.events;
    options.writer.max_in_flight_bytes = case.bytes;
    options.writer.slow_start = case.slow_start;
    let names: Vec<Arc<str>> = (0..hosts.len()).map(|at| at.to_string().into()).collect();
    let hosts = hosts.to_vec();
    Sender::over(Net { hosts }, &names, options).unwrap()
}

/// The limits that a sender must keep at any moment.
fn check(case: &Case, stats: &SenderStats) {
    assert!(stats.buffer_events <= 200);
    for host in &stats.hosts {
        assert!(host.in_flight_windows <= case.windows, "{host:?}");
        let events = case.events.map_or(u64::MAX, u64::from);
        assert!(host.outstanding <= events, "{host:?}");
        // The shortest frame has 11 bytes.
        assert!(
            host.outstanding * 11 <= case.bytes.unwrap_or(u64::MAX / 2),
            "{host:?}"
        );
        assert!(host.window_size <= case.batch_events);
    }
}

async fn run(case: Case) {
    let hosts: Vec<_> = case
        .scripts
        .iter()
        .map(|script| Host::new(script.clone(), Act::Ack))
        .collect();
    let sender = open(&case, &hosts);
    let mut next = 1;
    for (count, is_window) in &case.batches {
        let payloads = (next..next + count).map(|n| Bytes::from(n.to_string()));
        let batch = Batch::json(payloads.collect()).unwrap();
        let batch = if *is_window { batch.as_window() } else { batch };
        next += count;
        while sender.send(&batch, Some(STEP)).await.is_err() {
            check(&case, &sender.stats());
        }
        check(&case, &sender.stats());
    }
    let mut steps = 0;
    while sender.flush(Some(STEP)).await.is_err() {
        check(&case, &sender.stats());
        steps += 1;
        assert!(steps < 10_000, "{:?}", sender.stats());
    }
    let last = next - 1;
    books(&hosts, &sender.receipts(), last);
    order(&case, &hosts);
    let stats = sender.stats();
    let copies: u64 = hosts
        .iter()
        .map(|host| host.kept.lock().unwrap().events.len() as u64)
        .sum();
    assert!(copies - last <= stats.possible_repeats);
    assert_eq!(
        (
            stats.unacknowledged,
            stats.buffer_events,
            stats.buffer_bytes
        ),
        (0, 0, 0)
    );
}

/// Each event is acknowledged once, by a host that had it whole.
fn books(hosts: &[Arc<Host>], receipts: &[WindowReceipt], last: u64) {
    let mut acked: HashMap<u64, usize> = HashMap::new();
    for receipt in receipts {
        assert_eq!(
            receipt.last - receipt.first + 1,
            receipt.events,
            "{receipt:?}"
        );
        let host: usize = receipt.host.parse().unwrap();
        for event in receipt.first..receipt.first + receipt.acknowledged {
            assert_eq!(
                acked.insert(event, host),
                None,
                "{event} is acknowledged twice"
            );
        }
    }
    assert_eq!(acked.len() as u64, last, "nothing is lost");
    for (at, host) in hosts.iter().enumerate() {
        let kept = host.kept.lock().unwrap().numbers();
        for (event, _) in acked.iter().filter(|(_, host)| **host == at) {
            assert!(kept.contains(event), "{event} was not there");
        }
    }
}

/// A connection of the only host carries ascending events.
fn order(case: &Case, hosts: &[Arc<Host>]) {
    let [host] = hosts else { return };
    let kept = host.kept.lock().unwrap();
    for pair in kept.events.windows(2) {
        let [(one, before), (other, after)] = pair else {
            continue;
        };
        assert!(one != other || before < after, "{case:?}");
    }
    for window in &kept.windows {
        assert!(*window <= case.batch_events as usize);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_or_acknowledged_twice_whatever_receivers_do(case in case()) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(case));
    }
}
