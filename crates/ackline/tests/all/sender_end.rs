//! The end of a sender: its reports and its last actions, on a paused clock.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::Arc;
use std::time::Duration;

use ackline::lumberjack::{Sender, SenderError, SenderOptions};

use crate::pipe::{self, Act, HOUR, Host, SECOND, events};

fn sender(hosts: &[&Arc<Host>], change: impl FnOnce(&mut SenderOptions)) -> Sender {
    let mut options = pipe::options();
    change(&mut options);
    pipe::sender(hosts, options)
}

#[tokio::test(start_paused = true)]
async fn a_flush_of_what_was_left_says_that_the_sender_is_closed() {
    let host = Host::new([], Act::BlackHole);
    let sender = sender(&[&host], |_| {});
    sender.flush(None).await.unwrap();
    sender.try_send(&events(1..=10)).unwrap();
    let flushing = tokio::spawn({
        let sender = sender.clone();
        async move { sender.flush(None).await }
    });
    tokio::time::sleep(SECOND).await;
    assert_eq!(sender.close(SECOND).await.events(), 10);
    let closed = Err(SenderError::Closed { unacknowledged: 10 });
    assert_eq!(flushing.await.unwrap(), closed);
    assert_eq!(sender.flush(None).await, closed);
    assert_eq!(sender.flushed(sender.last_batch(), None).await, closed);
    assert!(!sender.is_flushed(sender.last_batch()));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_never_accepted_is_not_acknowledged() {
    let host = Host::new([], Act::Ack);
    let sender = sender(&[&host], |_| {});
    for unknown in [0, 1, u64::MAX] {
        assert!(!sender.is_acknowledged(unknown));
        let told = sender.acknowledged(unknown, None).await.unwrap_err();
        assert!(matches!(told, SenderError::Usage(error) if error.code == "unknown_batch"));
    }
    let sent = sender.send(&events(1..=1), None).await.unwrap();
    sender
        .acknowledged(sent.batch(), Some(SECOND))
        .await
        .unwrap();
    assert!(sender.is_acknowledged(sent.batch()));
    assert!(!sender.is_acknowledged(sent.batch() + 1));
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_of_close_nothing_is_sent_to_the_hosts_that_are_well() {
    let well = [Host::new([], Act::Ack), Host::new([], Act::Ack)];
    // The host that hangs is ended first: its events are free while the others still run.
    let hung = Host::new([], Act::BlackHole);
    let sender = sender(&[&hung, &well[0], &well[1]], |options| {
        options.batch_events = 10;
    });
    sender.connected().await.unwrap();
    sender.send(&events(1..=1_000), None).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let left = sender.unacknowledged();
    assert_eq!(left, 20, "what the hung one has");
    let rest = sender.close(SECOND).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!((rest.events(), rest.possibly_arrived()), (left, left));
    let arrived: usize = well
        .iter()
        .map(|host| host.kept.lock().unwrap().events.len())
        .sum();
    assert_eq!(arrived, 980);
    assert_eq!(sender.stats().possible_repeats, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_start_grows_at_a_host_that_ends_after_a_few_windows_of_several_in_flight() {
    for (windows, in_flight) in [(3, 2), (5, 5), (3, 1)] {
        let host = Host::new([], Act::Windows(windows));
        let sender = sender(&[&host], |options| {
            options.batch_events = 50;
            options.backoff_min = Duration::from_millis(10);
            options.backoff_max = Duration::from_millis(20);
            options.writer.slow_start = Some(10);
            options.writer.max_in_flight = in_flight;
        });
        let sent = sender.send(&events(1..=5_000), None).await.unwrap();
        sent.acknowledged(Some(SECOND * 600)).await.unwrap();
        let kept = host.kept.lock().unwrap();
        // Windows of repeated events end where new events begin, so not every window is full.
        let mean = kept.events.len() / kept.windows.len();
        assert!(mean > 15, "{windows} {in_flight}: {:?}", kept.windows);
        let largest = kept.windows.iter().max();
        assert!(largest > Some(&30), "{windows} {in_flight}: {largest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_ends_while_more_is_to_be_sent_is_not_asked_again_at_once() {
    let host = Host::new([Act::Windows(1)], Act::Ack);
    let sender = sender(&[&host], |options| {
        options.batch_events = 1;
        options.writer.max_in_flight = 1;
    });
    sender.connected().await.unwrap();
    // It has lived for longer than the shortest wait, and nothing is out when it ends.
    tokio::time::sleep(SECOND * 2).await;
    sender.send(&events(1..=2), None).await.unwrap();
    let begin = tokio::time::Instant::now();
    sender.flush(HOUR).await.unwrap();
    let waited = begin.elapsed();
    assert!(waited > Duration::ZERO && waited <= SECOND, "{waited:?}");
    let kept = host.kept.lock().unwrap();
    assert_eq!((kept.numbers(), kept.connections), (vec![1, 2], 2));
    assert_eq!(sender.stats().possible_repeats, 0);
}
