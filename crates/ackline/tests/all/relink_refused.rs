//! A receiver's reports of connections that get no link, or that send wrong packets.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::sync::Arc;

use crate::common::{DEADLINE, line, until};
use ackline::relink::{EndpointName, Parameters};
use ackline::{Receiver, ReceiverOptions};
use ackline_relink::frame::{EndpointBlock, Version};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A receiver of the endpoint `orders`.
async fn start(dir: &Path, options: &Value) -> Arc<Receiver> {
    let mut all = ReceiverOptions {
        urls: vec!["relink://127.0.0.1:0/orders".to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    all.set_all(options.as_object().unwrap()).unwrap();
    Arc::new(Receiver::start(all).await.unwrap())
}

async fn connected(receiver: &Receiver) -> TcpStream {
    let url = receiver.urls()[0].trim_start_matches("relink://");
    let place = url.split('/').next().unwrap();
    TcpStream::connect(place).await.unwrap()
}

/// A connector's blocks.
fn asking(name: &str, parameters: Parameters) -> Vec<u8> {
    let mut blocks = Vec::new();
    Version::CURRENT.encode(&mut blocks);
    EndpointBlock {
        endpoint_name: EndpointName::try_from(name).unwrap(),
        parameters,
        require_old_link_id: false,
        wants_hints: false,
        old_epoch: 0,
        old_link_id: 0,
    }
    .encode(&mut blocks);
    blocks
}

const FOUR: Parameters = Parameters {
    connector_channel_id_size: 4,
    listener_channel_id_size: 4,
    connector_transactions: false,
    listener_transactions: false,
};

/// The `refused` line for a connection that sends these bytes.
async fn refused(receiver: &Arc<Receiver>, bytes: &[u8]) -> Value {
    let mut connection = connected(receiver).await;
    connection.write_all(bytes).await.unwrap();
    line(receiver, "refused").await
}

#[tokio::test]
async fn offsets_count_from_the_first_byte_of_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let blocks = asking("orders", FOUR);
    // A nop, then a packet of no meaning.
    let wrong = [&blocks[..], &[0; 8], &[0xff; 8]].concat();
    let told = refused(&receiver, &wrong).await;
    assert_eq!(told["code"], "relink.unused_enumeration");
    assert_eq!(told["offset"], blocks.len() + 8);
    let told = refused(&receiver, &asking("odres", FOUR)).await;
    assert_eq!(told["code"], "relink.unknown_endpoint");
    assert_eq!(told["offset"], asking("odres", FOUR).len());
    receiver.stop(None).await;
}

#[tokio::test]
async fn what_was_asked_for_is_told_beside_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let told = refused(&receiver, &asking("a\n\u{202e}\"b", FOUR)).await;
    assert_eq!(
        told["message"],
        "no endpoint \"a\\n\\u{202e}\\\"b\" here; served: \"orders\""
    );
    let other = Parameters {
        connector_channel_id_size: 8,
        ..FOUR
    };
    let told = refused(&receiver, &asking("orders", other)).await;
    assert_eq!(told["code"], "relink.parameters_disagree");
    let message = told["message"].as_str().unwrap();
    let both = "connector_channel_id_size is 4 at the listener, 8 at the connector";
    assert!(message.ends_with(both), "{message}");
    receiver.stop(None).await;
}

#[tokio::test]
async fn connections_that_never_end_their_handshake_have_few_lines() {
    const MANY: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"handshake_timeout_ms": 50})).await;
    let mut open = Vec::new();
    for _ in 0..MANY {
        let mut connection = connected(&receiver).await;
        connection.write_all(&[0; 8]).await.unwrap();
        open.push(connection);
    }
    let (mut lines, mut told) = (0, 0);
    while told < MANY {
        let line = line(&receiver, "refused").await;
        assert_eq!(line["code"], "relink.timeout");
        assert_eq!(line["option"], "--handshake-timeout");
        assert_eq!(line["offset"], 8);
        lines += 1;
        told += line["times"].as_u64().unwrap_or(1);
    }
    assert_eq!(told, MANY);
    assert!(lines < MANY, "{lines} lines");
    let stats = until(&receiver, "all refused", |stats| {
        stats.refusals.refused == MANY
    })
    .await;
    assert_eq!(stats.refusals.turned_away["relink.timeout"], MANY);
    for mut connection in open {
        let mut rest = Vec::new();
        let reading = tokio::time::timeout(DEADLINE, connection.read_to_end(&mut rest));
        reading.await.expect("it is ended").ok();
    }
    receiver.stop(None).await;
}
