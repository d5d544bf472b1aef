//! Two ends with the defaults and little memory: payloads of every allowed size come to their end, however many wait.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::time::Duration;

use ackline::bpmux::{self, ConnectOptions, Connection, Incoming, ListenOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls of one end that wait at once: more than go in parts.
const CALLS: usize = 8;

/// The smallest memory that is accepted, and two larger ones.
const MEMORIES: [u64; 3] = [64 << 10, 16 << 20, 64 << 20];

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what)
        .await
        .expect("it happens in time")
}

/// Two ends with so much memory each, and the listener's end first.
async fn pair(memories: [u64; 2]) -> [Connection; 2] {
    let [memory, other] = memories;
    let options = ListenOptions {
        memory,
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let options = ConnectOptions {
        memory: other,
        ..ConnectOptions::default()
    };
    let connecting = bpmux::connect(listener.url(), options).await.unwrap();
    [soon(listener.accept()).await.unwrap(), connecting]
}

/// Answers every request with so many bytes.
fn answering(connection: &Connection, bytes: usize) {
    let connection = connection.clone();
    tokio::spawn(async move {
        while let Ok(Some(Incoming::Request(request))) = connection.accept().await {
            request.respond(vec![7; bytes]).unwrap();
        }
    });
}

/// Calls with requests of so many bytes, for responses of so many.
async fn calls(connection: &Connection, request: usize, response: usize) {
    many_calls(connection, CALLS, request, response).await;
}

async fn many_calls(connection: &Connection, count: usize, request: usize, response: usize) {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let connection = connection.clone();
        calls.spawn(async move { connection.call(vec![7; request], None).await });
    }
    while let Some(called) = soon(calls.join_next()).await {
        assert_eq!(called.unwrap().unwrap().bytes(), response);
    }
}

/// An eighth of the memory, some parts of it, and a megabyte where that is allowed.
fn sizes(memory: u64) -> Vec<usize> {
    let most = usize::try_from(memory / 8).unwrap();
    let mut sizes = vec![most, most - 1, most / 2, most / 3, most / 7];
    sizes.extend([1_000_000].into_iter().filter(|size| *size < most));
    sizes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_fit_at_every_memory() {
    for memory in MEMORIES {
        for size in sizes(memory) {
            let [one, other] = soon(pair([memory; 2])).await;
            answering(&one, 10);
            calls(&other, size, 10).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_responses_fit_at_every_memory() {
    for memory in MEMORIES {
        for size in sizes(memory) {
            let [one, other] = soon(pair([memory; 2])).await;
            answering(&one, size);
            calls(&other, 10, size).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_and_responses_of_both_ends_fit_at_every_memory() {
    for memory in MEMORIES {
        for size in sizes(memory) {
            let [one, other] = soon(pair([memory; 2])).await;
            answering(&one, size);
            answering(&other, size);
            tokio::join!(calls(&one, size, size), calls(&other, size, size));
        }
    }
}

/// Small requests alone use up all credit that responses of the same end would need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_requests_of_both_ends_hold_up_no_large_response() {
    for (memory, count, request) in [
        (64 << 10, 100, 50),
        (1 << 20, 300, 400),
        (16 << 20, 60, 20_000),
    ] {
        let size = usize::try_from(memory / 8).unwrap();
        let [one, other] = soon(pair([memory; 2])).await;
        answering(&one, size);
        answering(&other, size);
        tokio::join!(
            many_calls(&one, count, request, size),
            many_calls(&other, count, request, size)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_whose_memories_differ_fit_each_other() {
    for memories in [[16 << 20, 256 << 20], [256 << 20, 64 << 10]] {
        let size = usize::try_from(memories[0].min(memories[1]) / 8).unwrap();
        let [one, other] = soon(pair(memories)).await;
        answering(&one, size);
        answering(&other, size);
        tokio::join!(calls(&one, size, size), calls(&other, size, size));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_of_the_top_level_fit_beside_large_requests() {
    for memory in MEMORIES {
        let size = usize::try_from(memory / 8).unwrap();
        let [one, other] = soon(pair([memory; 2])).await;
        answering(&one, 10);
        let sending = other.sink();
        let send = tokio::spawn(async move {
            for _ in 0..CALLS {
                sending.send(vec![7; size]).await.unwrap();
            }
            sending
        });
        let receiving = one.stream();
        let receive = async {
            for _ in 0..CALLS {
                let message = soon(receiving.receive()).await.unwrap().unwrap();
                assert_eq!(message.bytes(), size);
            }
        };
        tokio::join!(receive, calls(&other, size, 10));
        drop(soon(send).await.unwrap());
    }
}
