//! A peer that has stopped reading is detected even while output waits for it, no matter which end
//! connected.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::time::Duration;

use crate::cutter::{Cutter, soon, until};
use ackline::{bpmux, relink};
use ackline_link::End;
use bytes::Bytes;

const SOON: Option<Duration> = Some(Duration::from_millis(500));

/// Sends more than the systems of both ends take, as fast as it may.
fn flood(link: &relink::Link) {
    let link = link.clone();
    tokio::spawn(async move {
        let part = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..64 {
            let payload = relink::Payload::from_parts(vec![part.clone()]);
            let sent = link
                .send(&relink::ChannelId::from(1_u32), payload, None)
                .await;
            if sent.is_err() {
                return;
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relink_transport_whose_peer_is_stopped_is_given_up_while_output_waits() {
    for is_connector in [true, false] {
        let link = relink::LinkOptions {
            machine: relink::LinkConfig {
                ping_after: SOON,
                pong_timeout: SOON,
                ..relink::LinkOptions::default().machine
            },
            ..relink::LinkOptions::default()
        };
        let listen = relink::ListenOptions {
            link: link.clone(),
            ..relink::ListenOptions::default()
        };
        let connect = relink::ConnectOptions {
            link,
            ..relink::ConnectOptions::default()
        };
        let listener = relink::listen("relink://127.0.0.1:0/orders", listen)
            .await
            .unwrap();
        let cutter = Cutter::new(listener.url()).await;
        let connector = relink::connect(&cutter.url(listener.url()), connect)
            .await
            .unwrap();
        let accepted = soon(listener.accept()).await.unwrap();
        let sender = if is_connector { &connector } else { &accepted };
        assert!(sender.is_connected());
        cutter.freeze();
        flood(sender);
        until(|| !sender.is_connected()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bpmux_connection_whose_peer_is_stopped_is_given_up_while_output_waits() {
    for is_connector in [true, false] {
        let link = bpmux::LinkOptions {
            credit: bpmux::CreditPolicy::Automatic {
                floor: 64 << 20,
                ceiling: 64 << 20,
                budget: 1 << 30,
            }
            .into(),
            machine: bpmux::Config {
                ping_after: SOON,
                pong_timeout: SOON,
                ..bpmux::LinkOptions::default().machine
            },
            ..bpmux::LinkOptions::default()
        };
        let listen = bpmux::ListenOptions {
            link: link.clone(),
            ..bpmux::ListenOptions::default()
        };
        let connect = bpmux::ConnectOptions {
            link,
            ..bpmux::ConnectOptions::default()
        };
        let listener = bpmux::listen("bpmux://127.0.0.1:0", listen).await.unwrap();
        let cutter = Cutter::new(listener.url()).await;
        let connector = bpmux::connect(&cutter.url(listener.url()), connect)
            .await
            .unwrap();
        let accepted = soon(listener.accept()).await.unwrap();
        let sender = if is_connector { &connector } else { &accepted };
        // Opened, with credit to send, before the peer is stopped.
        let sink = soon(sender.open_sink("")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        cutter.freeze();
        let flooding =
            tokio::spawn(
                async move { while sink.send(Bytes::from(vec![7; 1 << 20])).await.is_ok() {} },
            );
        let end = soon(sender.ended()).await;
        assert!(matches!(end, End::Io(_)), "{end}");
        flooding.await.unwrap();
    }
}
