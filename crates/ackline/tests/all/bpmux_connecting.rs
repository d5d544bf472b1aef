//! Connecting to a bpmux listener that may be away.

use std::time::{Duration, Instant};

use ackline::bpmux::{self, ConnectOptions, Error, ListenOptions, Retry};
use ackline::core::OpenError;

const DEADLINE: Duration = Duration::from_secs(30);

fn retry(timeout: Duration) -> Retry {
    Retry {
        timeout,
        wait_max: Duration::from_millis(20),
        failures: 0,
    }
}

#[tokio::test]
async fn a_listener_that_comes_later_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("bpmux+unix://{}/x.sock", directory.path().display());
    let connecting = tokio::spawn({
        let url = url.clone();
        async move { bpmux::connect_within(&url, ConnectOptions::default(), retry(DEADLINE)).await }
    });
    // Meanwhile nobody is there.
    tokio::task::yield_now().await;
    let listener = bpmux::listen(&url, ListenOptions::default()).await.unwrap();
    let connection = connecting.await.unwrap().unwrap();
    let other = listener.accept().await.unwrap();
    let asked = tokio::spawn(async move { connection.call("x", Some(DEADLINE)).await });
    let Some(bpmux::Incoming::Request(request)) = other.accept().await.unwrap() else {
        panic!("no request came");
    };
    request.respond("y").unwrap();
    assert_eq!(asked.await.unwrap().unwrap().to_bytes(), "y");
}

#[tokio::test]
async fn the_last_error_comes_when_the_time_is_over() {
    let (time, began) = (Duration::from_millis(200), Instant::now());
    let mut retry = retry(time);
    retry.failures = 3;
    let error = bpmux::connect_within("bpmux://127.0.0.1:1", ConnectOptions::default(), retry)
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Open(OpenError::Connect(_))),
        "{error}"
    );
    assert!(began.elapsed() >= time);
}

#[tokio::test]
async fn what_never_can_be_is_refused_at_once() {
    let within = |url: &'static str| {
        bpmux::connect_within(url, ConnectOptions::default(), retry(DEADLINE * 1000))
    };
    let tls = if cfg!(feature = "tls") {
        "/no/such.pem"
    } else {
        "build ackline with its feature \"tls\""
    };
    for (url, says) in [
        ("bpmux://127.0.0.1:0", "has port 0, on which nobody listens"),
        ("relink://127.0.0.1:1", "is of relink, not of bpmux"),
        ("http://x", "http://x is of http, not of bpmux"),
        ("bpmux://h:1,bpmux://h:2", "one URL at a time"),
        ("bpmux://127.0.0.1", "needs a host and a port"),
        ("bpmux+tls://127.0.0.1:1?ca=/no/such.pem", tls),
    ] {
        let error = within(url).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        let checked = bpmux::check(url, &ConnectOptions::default()).unwrap_err();
        assert_eq!(checked.to_string(), error);
    }
    bpmux::check("bpmux://127.0.0.1:1", &ConnectOptions::default()).unwrap();
}
