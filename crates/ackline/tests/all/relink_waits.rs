//! Waits on a link: each is woken by its own change, and by no other one.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::cutter::{Cutter, soon, until};
use ackline::relink::LinkConfig;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Interest, Link, LinkOptions, ListenOptions, Listener,
    Parameters, Session,
};

const ANY: &str = "relink://127.0.0.1:0/orders";

/// The times that a wait was woken, and the task that is woken too.
struct Wakes {
    count: AtomicU32,
    task: Waker,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.task.wake_by_ref();
    }
}

/// A wait that has begun. It is looked at again only when it was woken.
struct Begun<'a> {
    wait: Pin<Box<dyn Future<Output = ()> + 'a>>,
    wakes: Arc<Wakes>,
}

impl<'a> Begun<'a> {
    async fn new<R>(wait: impl Future<Output = R> + 'a) -> Self {
        let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let count = AtomicU32::new(0);
        let mut begun = Self {
            wait: Box::pin(async move {
                wait.await;
            }),
            wakes: Arc::new(Wakes { count, task }),
        };
        assert!(!begun.is_over(), "it is not true yet");
        begun
    }

    fn is_over(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let polled = self.wait.as_mut().poll(&mut Context::from_waker(&waker));
        polled.is_ready()
    }

    fn woken(&self) -> u32 {
        self.wakes.count.load(Ordering::Relaxed)
    }

    /// Waits until it is woken and over.
    async fn done(mut self) {
        let mut seen = self.woken();
        if seen > 0 && self.is_over() {
            return;
        }
        let over = poll_fn(|_| {
            let woken = self.woken();
            if woken != std::mem::replace(&mut seen, woken) && self.is_over() {
                return Poll::Ready(());
            }
            Poll::Pending
        });
        soon(over).await;
    }
}

fn channel(number: u32) -> ChannelId {
    ChannelId::from(number)
}

async fn pair(connect: ConnectOptions) -> (Link, Link, Listener) {
    let listener = relink::listen(ANY, ListenOptions::default()).await.unwrap();
    let one = relink::connect(listener.url(), connect).await.unwrap();
    let other = soon(listener.accept()).await.unwrap();
    (one, other, listener)
}

fn narrow() -> ConnectOptions {
    let link = LinkOptions {
        machine: LinkConfig {
            send_window: 1,
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    };
    ConnectOptions {
        link,
        ..ConnectOptions::default()
    }
}

#[tokio::test]
async fn a_wait_is_woken_by_its_own_change_and_by_no_other() {
    let (one, other, _listener) = pair(narrow()).await;
    soon(other.event()).await.unwrap();
    let message = Begun::new(other.ready(Interest::Message)).await;
    let event = Begun::new(other.ready(Interest::Event)).await;
    let decision = Begun::new(other.ready(Interest::Decision)).await;
    let end = Begun::new(other.ready(Interest::End)).await;
    let first = one.try_send(&channel(1), b"1".as_slice()).unwrap();
    message.done().await;
    let second = one.try_send(&channel(2), b"2".as_slice()).unwrap();
    until(|| other.stats().waiting == 2).await;
    assert_eq!([event.woken(), decision.woken(), end.woken()], [0; 3]);

    let room = Begun::new(one.ready(Interest::Room(channel(1)))).await;
    let consumed = Begun::new(first.consumed()).await;
    let of_another = Begun::new(second.consumed()).await;
    let message = soon(other.receive()).await.unwrap().unwrap();
    other.consume(&message.channel, message.sequence).unwrap();
    room.done().await;
    consumed.done().await;
    assert_eq!(of_another.woken(), 0, "nothing was said of its channel");

    let ping = one.driven().call(Session::ping).unwrap();
    Begun::new(one.ready(Interest::Pong(ping)))
        .await
        .done()
        .await;
    assert_eq!(of_another.woken(), 0);
    one.close_channel(&channel(1)).unwrap();
    event.done().await;
    assert_eq!([decision.woken(), end.woken()], [0; 2]);

    other.discard().unwrap();
    for wait in [decision, end, of_another] {
        wait.done().await;
    }
}

#[tokio::test]
async fn a_decision_wakes_the_wait_for_decisions() {
    let parameters = Parameters {
        connector_transactions: true,
        ..relink::PARAMETERS
    };
    let listen = ListenOptions {
        parameters,
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, listen).await.unwrap();
    let connect = ConnectOptions {
        parameters,
        ..ConnectOptions::default()
    };
    let one = relink::connect(listener.url(), connect).await.unwrap();
    let other = soon(listener.accept()).await.unwrap();
    let decision = Begun::new(other.ready(Interest::Decision)).await;
    let receipt = one.try_send(&channel(1), b"1".as_slice()).unwrap();
    soon(other.ready(Interest::Message)).await;
    assert_eq!(decision.woken(), 0);
    one.commit(&channel(1), None).unwrap();
    decision.done().await;
    let outcome = Begun::new(receipt.committed()).await;
    other.committed(&channel(1), None).unwrap();
    outcome.done().await;
}

#[tokio::test]
async fn the_last_message_wakes_those_that_wait_for_one_more() {
    let (one, other, _listener) = pair(ConnectOptions::default()).await;
    one.try_send(&channel(1), b"1".as_slice()).unwrap();
    let message = soon(other.receive()).await.unwrap().unwrap();
    one.begin_shutdown().unwrap();
    let more = Begun::new(other.receive()).await;
    soon(other.event()).await.unwrap();
    other.consume(&message.channel, message.sequence).unwrap();
    more.done().await;
}

#[tokio::test]
async fn a_transport_wakes_the_waits_for_one_and_for_a_pong() {
    let listener = relink::listen(ANY, ListenOptions::default()).await.unwrap();
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let connected = relink::connect(&url, ConnectOptions::default()).await;
    let one = connected.unwrap();
    let ping = one.driven().call(Session::ping).unwrap();
    let pong = Begun::new(one.ready(Interest::Pong(ping))).await;
    cutter.cut();
    pong.done().await;
    let connected = Begun::new(one.ready(Interest::Connected)).await;
    connected.done().await;
}

#[tokio::test]
async fn the_disk_wakes_those_that_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let connect = ConnectOptions {
        state: Some(dir.path().join("state")),
        ..ConnectOptions::default()
    };
    let (one, _other, _listener) = pair(connect).await;
    let receipt = one.try_send(&channel(1), b"1".as_slice()).unwrap();
    let kept = Begun::new(receipt.kept()).await;
    let all = Begun::new(one.kept(Some(Duration::from_secs(60)))).await;
    kept.done().await;
    all.done().await;
}

#[tokio::test]
async fn a_receipt_outlives_its_link_and_does_not_keep_it() {
    let (one, other, _listener) = pair(ConnectOptions::default()).await;
    let receipt = one.try_send(&channel(1), b"1".as_slice()).unwrap();
    let link = one.driven().downgrade();
    let wait = tokio::spawn({
        let receipt = receipt.clone();
        async move { receipt.consumed().await }
    });
    tokio::task::yield_now().await;
    drop(one);
    soon(wait).await.unwrap().unwrap_err();
    until(|| link.upgrade().is_none()).await;
    receipt.consumed().await.unwrap_err();
    drop(other);
}
