//! Responses that wait for credit: requests wait behind them, and go on when they leave.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ackline::bpmux::{
    self, ConnectOptions, Connection, CreditPolicy, Error, Incoming, LinkOptions, ListenOptions,
};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
const RESPONSE: usize = 32 << 10;
const REQUESTS: usize = 60;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

/// Two ends with 1 MiB of memory each, of which an eighth is for responses that wait.
async fn pair(credit: CreditPolicy) -> (Connection, Connection) {
    let link = LinkOptions {
        credit: credit.into(),
        ..LinkOptions::default()
    };
    let options = ListenOptions {
        memory: 1 << 20,
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let options = ConnectOptions {
        link,
        memory: 1 << 20,
        ..ConnectOptions::default()
    };
    let left = bpmux::connect(listener.url(), options).await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    (left, right)
}

/// Answers everything, and counts it.
fn answering(connection: &Connection) -> Arc<AtomicUsize> {
    let answered = Arc::new(AtomicUsize::new(0));
    let (connection, count) = (connection.clone(), Arc::clone(&answered));
    tokio::spawn(async move {
        while let Ok(Some(Incoming::Request(request))) = connection.accept().await {
            request.respond(vec![7; RESPONSE]).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    answered
}

async fn asked(connection: &Connection) -> Vec<bpmux::Response> {
    let mut responses = Vec::new();
    for _ in 0..REQUESTS {
        responses.push(soon(connection.request("ask")).await.unwrap());
    }
    responses
}

#[tokio::test]
async fn requests_wait_for_responses_and_go_on_when_these_leave() {
    let (left, right) = pair(CreditPolicy::Manual).await;
    let answered = answering(&right);
    let responses = asked(&left).await;
    // A ping comes back behind everything that was sent before it.
    soon(left.ping(LONG)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = answered.load(Ordering::Relaxed);
    assert!((1..=5).contains(&before), "{before} are answered");
    // Up to four responses are sent in parts at once.
    left.stream().grant_credit(RESPONSE as u64 * 4).unwrap();
    for response in &responses {
        left.stream().grant_credit(RESPONSE as u64).unwrap();
        assert_eq!(soon(response.response()).await.unwrap().bytes(), RESPONSE);
    }
    assert_eq!(answered.load(Ordering::Relaxed), REQUESTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_that_ask_each_other_are_both_answered() {
    let (left, right) = pair(CreditPolicy::AUTOMATIC).await;
    let answered = [answering(&left), answering(&right)];
    let asking = [left, right].map(|end| {
        tokio::spawn(async move {
            for _ in 0..4 {
                for response in asked(&end).await {
                    let payload = soon(response.response()).await?;
                    assert_eq!(payload.bytes(), RESPONSE);
                }
            }
            // Both stay until both are done.
            Ok::<_, Error>(end)
        })
    });
    let [left, right] = asking;
    let ends = (soon(left).await.unwrap(), soon(right).await.unwrap());
    assert!(ends.0.is_ok() && ends.1.is_ok());
    for count in answered {
        assert_eq!(count.load(Ordering::Relaxed), 4 * REQUESTS);
    }
}
