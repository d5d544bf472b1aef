//! When the close of a sink or duplex is acknowledged: not before the other end has accepted it, and not before the
//! hold is dropped where the other end asked for one.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::time::Duration;

use ackline::bpmux::{
    self, ConnectOptions, Connection, CreditPolicy, Error, HeldClose, Incoming, LinkOptions,
    ListenOptions, Sink, Stream,
};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

async fn pair() -> (Connection, Connection) {
    pair_with(CreditPolicy::AUTOMATIC).await
}

/// A pair of which the second gives credit in this way.
async fn pair_with(credit: CreditPolicy) -> (Connection, Connection) {
    let link = LinkOptions {
        credit: credit.into(),
        ..LinkOptions::default()
    };
    let options = ListenOptions {
        link,
        ..ListenOptions::default()
    };
    let listening = bpmux::listen("bpmux://127.0.0.1:0", options);
    let listener = listening.await.unwrap();
    let connecting = bpmux::connect(listener.url(), ConnectOptions::default());
    let left = connecting.await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    (left, right)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

/// The sink that the peer opened, with the hold on its close.
async fn held(connection: &Connection) -> (Stream, HeldClose) {
    let accepted = soon(connection.accept_held()).await.unwrap();
    let Some((Incoming::Sink(stream, _), Some(hold))) = accepted else {
        panic!("a sink was opened");
    };
    (stream, hold)
}

/// The close of a sink with one message, begun and still without its acknowledgement.
async fn closing(sink: Sink) -> tokio::task::JoinHandle<Result<(), Error>> {
    sink.send("message").await.unwrap();
    let mut closing = tokio::spawn(sink.close(""));
    let early = timeout(SHORT, &mut closing).await;
    assert!(early.is_err(), "it was acknowledged too early: {early:?}");
    closing
}

#[tokio::test]
async fn a_close_is_not_acknowledged_before_its_sink_is_accepted() {
    let (left, right) = pair().await;
    let closing = closing(left.open_sink("").await.unwrap()).await;
    let Some(Incoming::Sink(stream, _)) = soon(right.accept()).await.unwrap() else {
        panic!("a sink was opened");
    };
    soon(closing).await.unwrap().unwrap();
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "message"
    );
    assert!(soon(stream.receive()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_held_close_is_acknowledged_when_the_hold_is_dropped_and_not_when_the_stream_is() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let (stream, hold) = held(&right).await;
    let mut closing = closing(sink).await;
    assert!(soon(stream.receive()).await.unwrap().is_some());
    assert!(soon(stream.receive()).await.unwrap().is_none());
    drop(stream);
    assert!(timeout(SHORT, &mut closing).await.is_err());
    drop(hold);
    soon(closing).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_hold_lets_the_close_that_comes_later_be_acknowledged() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let (_stream, hold) = held(&right).await;
    drop(hold);
    soon(sink.close("")).await.unwrap();
}

#[tokio::test]
async fn a_sink_whose_close_is_held_can_be_cancelled_and_its_writer_hears_of_nothing_else() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let (stream, hold) = held(&right).await;
    let closing = closing(sink).await;
    soon(stream.cancel("no disk")).await.unwrap();
    drop((stream, hold));
    let closed = soon(closing).await.unwrap();
    assert!(matches!(closed, Err(Error::Cancelled(why)) if why == "no disk"));
}

#[tokio::test]
async fn a_sink_that_was_read_out_and_dropped_can_still_be_refused() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let (stream, hold) = held(&right).await;
    let closing = closing(sink).await;
    while soon(stream.receive()).await.unwrap().is_some() {}
    drop(stream);
    hold.refuse("no disk");
    let closed = soon(closing).await.unwrap();
    assert!(matches!(closed, Err(Error::Cancelled(why)) if why == "no disk"));
}

#[tokio::test]
async fn messages_that_nobody_reads_cancel_a_sink_whose_close_is_held() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let (stream, hold) = held(&right).await;
    let closing = closing(sink).await;
    drop((stream, hold));
    let closed = soon(closing).await.unwrap();
    assert!(matches!(closed, Err(Error::Cancelled(why)) if why.is_empty()));
}

#[tokio::test]
async fn closes_of_what_this_end_opened_are_acknowledged_at_once() {
    let (left, right) = pair().await;
    let stream = left.open_stream("").await.unwrap();
    let Some(Incoming::Stream(sink, _)) = soon(right.accept()).await.unwrap() else {
        panic!("a stream was opened");
    };
    sink.send("message").await.unwrap();
    soon(sink.close("")).await.unwrap();
    assert!(soon(stream.receive()).await.unwrap().is_some());

    let (to, back) = left.open_duplex("").await.unwrap();
    let accepted = soon(right.accept_held()).await.unwrap();
    let Some((Incoming::Duplex(sink, _stream, _), Some(_hold))) = accepted else {
        panic!("a duplex was opened");
    };
    soon(sink.close("")).await.unwrap();
    assert!(soon(back.receive()).await.unwrap().is_none());
    let held = timeout(SHORT, to.close("")).await;
    assert!(
        held.is_err(),
        "only the half that the other end reads is held"
    );
}

#[tokio::test]
async fn so_are_those_of_an_opening_that_waited_for_credit() {
    let (left, right) = pair_with(CreditPolicy::Manual).await;
    let mut opening = Box::pin(left.open_stream("named"));
    assert!(timeout(SHORT, &mut opening).await.is_err());
    right.stream().grant_credit(100).unwrap();
    let stream = soon(opening).await.unwrap();
    let Some(Incoming::Stream(sink, _)) = soon(right.accept()).await.unwrap() else {
        panic!("a stream was opened");
    };
    soon(sink.close("")).await.unwrap();
    assert!(soon(stream.receive()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_sink_that_nobody_accepts_is_cancelled_by_the_shutdown_and_not_acknowledged() {
    let (left, right) = pair().await;
    let closing = closing(left.open_sink("").await.unwrap()).await;
    let ended = tokio::spawn(async move { right.shutdown(Some(LONG)).await });
    let refused = soon(closing).await.unwrap().unwrap_err();
    assert!(
        matches!(&refused, Error::Cancelled(why) if why == "not accepted"),
        "{refused:?}"
    );
    soon(left.shutdown(Some(LONG))).await.unwrap();
    soon(ended).await.unwrap().unwrap();
}
