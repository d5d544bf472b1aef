//! A receiver that connects out to bpmux listeners and lands their messages.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::common::{batches, landed, receiving, until, within};
use ackline::bpmux::{Connection, Incoming, ListenOptions, Listener, Sink, listen};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use serde_json::json;

/// A receiver that connects to this URL, when its spool is free.
async fn started(url: &str, dir: &Path) -> Arc<Receiver> {
    let mut options = ReceiverOptions {
        connect: vec![url.to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    options
        .set_all(json!({"reconnect_max_ms": 50}).as_object().unwrap())
        .unwrap();
    receiving(&options).await
}

async fn listening() -> Listener {
    let options = ListenOptions::default();
    listen("bpmux://127.0.0.1:0", options).await.unwrap()
}

async fn accepted(listener: &Listener) -> Connection {
    within(listener.accept()).await.unwrap()
}

async fn sends(link: &Connection, text: &str) {
    let sink = link.open_sink("").await.unwrap();
    sink.send(text.to_owned()).await.unwrap();
    within(sink.close("1")).await.unwrap();
}

fn texts(dir: &Path) -> Vec<String> {
    let rows = landed(dir).into_iter();
    rows.map(|(payload, _)| payload).collect()
}

fn column(dir: &Path, name: &str) -> Vec<Option<String>> {
    let batches = batches(dir);
    let texts = batches.iter().flat_map(|batch| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column
            .iter()
            .map(|text| text.map(str::to_owned))
            .collect::<Vec<_>>()
    });
    texts.collect()
}

#[tokio::test]
async fn what_a_listener_sends_lands_and_a_connection_that_is_lost_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let listener = listening().await;
    let receiver = started(listener.url(), dir.path()).await;
    assert!(receiver.urls().is_empty());
    for text in ["one", "two", "three"] {
        let link = accepted(&listener).await;
        sends(&link, text).await;
        // Dropped: it is lost.
    }
    let link = accepted(&listener).await;
    sends(&link, "four").await;
    within(link.shutdown(None)).await.unwrap();
    let _next = accepted(&listener).await;
    let stats = until(&receiver, "all", |stats| stats.acked.acked_events == 4).await;
    assert_eq!((stats.acked.landed, stats.refusals.refused), (4, 0));
    assert_eq!(texts(dir.path()), ["one", "two", "three", "four"]);
    let links: BTreeSet<_> = column(dir.path(), "link").into_iter().collect();
    assert_eq!(links.len(), 4, "each connection is a link of its own");
    let peers: BTreeSet<_> = column(dir.path(), "peer").into_iter().flatten().collect();
    let address = listener.url().trim_start_matches("bpmux://").to_owned();
    assert_eq!(peers, BTreeSet::from([address]));
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn a_listener_that_is_not_there_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("bpmux+unix://{}", dir.path().join("x.sock").display());
    let receiver = started(&url, &dir.path().join("spool")).await;
    let listener = listen(&url, ListenOptions::default()).await.unwrap();
    let link = accepted(&listener).await;
    sends(&link, "late").await;
    assert_eq!(texts(&dir.path().join("spool")), ["late"]);
    receiver.stop(None).await;
}

/// The stream that the receiver has opened, on which the listener writes.
async fn asked(link: &Connection) -> (Sink, String) {
    // The opening costs credit of the listener's.
    match within(link.accept()).await.unwrap() {
        Some(Incoming::Stream(sink, opening)) => {
            let opening = opening.to_bytes().to_vec();
            (sink, String::from_utf8(opening).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_url_with_a_stream_opens_one_at_each_connection() {
    let dir = tempfile::tempdir().unwrap();
    let listener = listening().await;
    let url = format!("{}?stream=all%20of%20it", listener.url());
    let receiver = started(&url, dir.path()).await;
    for round in ["one", "two"] {
        let link = accepted(&listener).await;
        let (sink, opening) = asked(&link).await;
        assert_eq!(opening, "all of it");
        for text in [round, "more"] {
            sink.send(text).await.unwrap();
        }
        within(sink.close("2")).await.unwrap();
    }
    assert_eq!(texts(dir.path()), ["one", "more", "two", "more"]);
    let streams: BTreeSet<_> = column(dir.path(), "stream").into_iter().collect();
    assert_eq!(streams, BTreeSet::from([Some("own.0".to_owned())]));
    let batch = &batches(dir.path())[0];
    let attributes = batch
        .column_by_name("attributes")
        .unwrap()
        .as_map()
        .value(0);
    let pairs: Vec<_> = (0..attributes.len())
        .map(|at| {
            let text = |column: usize| attributes.column(column).as_string::<i32>().value(at);
            (text(0), text(1))
        })
        .collect();
    assert!(pairs.contains(&("bpmux.kind", "stream")), "{pairs:?}");
    assert!(pairs.contains(&("bpmux.opening", "all of it")), "{pairs:?}");
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_stop_waits_for_what_its_listener_has_sent() {
    let dir = tempfile::tempdir().unwrap();
    let listener = listening().await;
    let mut options = ReceiverOptions {
        connect: vec![listener.url().to_owned()],
        spool: Some(dir.path().to_owned()),
        ..ReceiverOptions::default()
    };
    options
        .set_all(json!({"ack": "committed=lake"}).as_object().unwrap())
        .unwrap();
    let receiver = receiving(&options).await;
    let link = accepted(&listener).await;
    let sink = link.open_sink("").await.unwrap();
    sink.send("a").await.unwrap();
    let closing = tokio::spawn(sink.close("1"));
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    let stopping = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receiver.stop(None).await }
    });
    until(&receiver, "draining", |stats| stats.state == "draining").await;
    let spool = ackline::spool::Spool::open(dir.path()).unwrap();
    spool.commit_mark("lake", 1).unwrap();
    within(closing).await.unwrap().unwrap();
    assert_eq!(within(stopping).await.unwrap(), 0);
}

#[tokio::test]
async fn a_wrong_url_is_told_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let tls = if cfg!(feature = "tls") {
        "/nowhere"
    } else {
        "build ackline with its feature \"tls\""
    };
    for (urls, connect, part) in [
        (
            vec!["bpmux://127.0.0.1:0?stream=x"],
            vec![],
            "stream is for",
        ),
        (vec![], vec!["bpmux://h:1?stream=x&stream=y"], "given twice"),
        (vec![], vec!["bpmux://h:1?stream=%f"], "percent-encoded"),
        (vec![], vec!["bpmux://h:1?ca=x"], "option of TLS"),
        (vec![], vec!["bpmux+tls://h:1?ca=/nowhere"], tls),
        (vec![], vec!["bpmux://h:1?streams=x"], "streams"),
        (vec![], vec!["bpmux://h"], "host and a port"),
    ] {
        let options = ReceiverOptions {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            connect: connect.iter().map(|url| (*url).to_owned()).collect(),
            spool: Some(spool.clone()),
            ..ReceiverOptions::default()
        };
        let error = Receiver::start(options).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
