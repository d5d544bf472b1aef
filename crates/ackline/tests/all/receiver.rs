//! The receiver over real sockets: acknowledged events are in the spool.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test, also in its helpers

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ackline::lumberjack::{Batch, Sender, SenderOptions};
use ackline::spool::{ReadOptions, Spool};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEADLINE: Duration = Duration::from_secs(20);

async fn start(dir: &Path) -> Receiver {
    let options = ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    Receiver::start(options).await.unwrap()
}

fn window(from: u32, count: u32) -> Batch {
    let event = |number| Bytes::from(format!("{{\"n\":{number}}}"));
    let events = (from..from + count).map(event).collect();
    Batch::json(events).unwrap().as_window()
}

fn sender(receiver: &Receiver, compression: Option<u32>) -> Sender {
    let mut options = SenderOptions::default();
    options.writer.compression = compression;
    Sender::open(&[&receiver.urls()[0]], options).unwrap()
}

/// Sends these windows and waits until all are acknowledged.
async fn deliver(sender: &Sender, windows: &[Batch]) {
    for window in windows {
        sender.send(window, Some(DEADLINE)).await.unwrap();
    }
    sender.flush(Some(DEADLINE)).await.unwrap();
}

/// Position, payload and repeat of every durable event.
fn landed(dir: &Path) -> Vec<(i64, String, bool)> {
    let spool = Spool::open(dir).unwrap();
    let range = spool.first_kept().unwrap()..spool.durable().unwrap();
    let columns = ["position", "payload", "repeat"]
        .map(str::to_owned)
        .to_vec();
    let options = ReadOptions {
        columns: Some(columns),
        ..ReadOptions::default()
    };
    let read = spool.read(&ackline::layouts(), range, &options).unwrap();
    read.flat_map(|batch| rows(&batch.unwrap())).collect()
}

fn rows(batch: &RecordBatch) -> Vec<(i64, String, bool)> {
    let positions = batch
        .column(0)
        .as_primitive::<arrow_array::types::Int64Type>();
    let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
    let repeats = batch.column_by_name("repeat").unwrap().as_boolean();
    let row = |row| {
        let payload = String::from_utf8(payloads.value(row).to_vec()).unwrap();
        (
            positions.value(row),
            payload,
            repeats.is_valid(row) && repeats.value(row),
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_stands_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir).await;
    for compression in [None, Some(3)] {
        let sender = sender(&receiver, compression);
        deliver(&sender, &[window(0, 10), window(10, 2_000)]).await;
        assert_eq!(sender.close(DEADLINE).await.events(), 0);
    }
    let rows = landed(&dir);
    assert_eq!(rows.len(), 4_020);
    for (at, (position, payload, repeat)) in rows.iter().enumerate() {
        assert_eq!(*position, i64::try_from(at).unwrap());
        assert_eq!(*payload, format!("{{\"n\":{}}}", at % 2_010));
        // The second sender repeats a stretch of the first one's events. Its first window is too
        // short, and may have been acknowledged before the second one came.
        if !(2_010..2_020).contains(&at) {
            assert_eq!(*repeat, at >= 2_020, "{at}");
        }
    }
    assert_eq!(receiver.stop(None).await, 0);
    let stats = receiver.stats();
    assert_eq!(
        (
            stats.received.windows,
            stats.received.events,
            stats.acked.acked_events
        ),
        (4, 4_020, 4_020)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_inside_and_across_envelopes_are_acknowledged_at_once() {
    use ackline::lumberjack::Version::V2;
    use ackline_lumberjack::frame::{Frame, encode};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir).await;
    let json = |number: u32| Frame::Json {
        version: V2,
        sequence_number: number,
        payload: Bytes::from(format!("{{\"n\":{number}}}")),
    };
    let window = |window_size| Frame::Window {
        version: V2,
        window_size,
    };
    // One envelope with a whole window and the first event of the next one.
    let frames = vec![window(1), json(1), window(2), json(2)];
    let mut bytes = Vec::new();
    encode(
        &Frame::Compressed {
            version: V2,
            frames,
        },
        3,
        &mut bytes,
    );
    let address = receiver.urls()[0]
        .trim_start_matches("lumberjack://")
        .to_owned();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut ack = [0; 6];
    socket.write_all(&bytes).await.unwrap();
    tokio::time::timeout(DEADLINE, socket.read_exact(&mut ack))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ack, *b"2A\0\0\0\x01");
    let mut rest = Vec::new();
    encode(&json(3), 3, &mut rest);
    socket.write_all(&rest).await.unwrap();
    tokio::time::timeout(DEADLINE, socket.read_exact(&mut ack))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ack, *b"2A\0\0\0\x03");
    let payloads: Vec<_> = landed(&dir)
        .into_iter()
        .map(|(_, payload, _)| payload)
        .collect();
    assert_eq!(payloads, ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sender_sends_again_after_a_start_is_a_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let first = start(&dir).await;
    let cut = sender(&first, Some(3));
    deliver(&cut, &[window(0, 5)]).await;
    first.stop(None).await;
    drop((first, cut));
    let second = start(&dir).await;
    deliver(&sender(&second, Some(3)), &[window(3, 4)]).await;
    second.stop(None).await;
    let repeats: Vec<_> = landed(&dir)
        .into_iter()
        .map(|(_, _, repeat)| repeat)
        .collect();
    assert_eq!(
        repeats,
        [false, false, false, false, false, true, true, false, false]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ended_for_its_input_is_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(&dir.path().join("spool")).await;
    let address = receiver.urls()[0]
        .trim_start_matches("lumberjack://")
        .to_owned();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(b"2W\xff\xff\xff\xff").await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, socket.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(rest.is_empty());
    let refused = tokio::task::spawn_blocking(move || {
        std::iter::from_fn(|| receiver.next_event(DEADLINE))
            .take(100)
            .find(|line| line.contains("\"event\":\"refused\""))
    });
    let line: serde_json::Value = serde_json::from_str(&refused.await.unwrap().unwrap()).unwrap();
    assert_eq!(line["code"], "lumberjack.window_too_large");
    assert_eq!(line["value"], 4_294_967_295_u64);
    assert_eq!(line["limit"], 65_536);
    assert_eq!(line["option"], "--max-window-events");
    assert_eq!(line["offset"], 0);
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_acknowledges_what_was_completely_received() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir).await;
    let sender = sender(&receiver, Some(3));
    let sent = sender.try_send(&window(0, 100)).unwrap();
    while receiver.stats().received.windows == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.stop(None).await, 0);
    sent.acknowledged(Some(DEADLINE)).await.unwrap();
    assert_eq!(landed(&dir).len(), 100);
}

/// The next line of this name, read off the runtime.
async fn line(receiver: &Arc<Receiver>, event: &str) -> serde_json::Value {
    let (receiver, name) = (Arc::clone(receiver), format!("\"event\":\"{event}\""));
    let found = tokio::task::spawn_blocking(move || {
        std::iter::from_fn(|| receiver.next_event(DEADLINE))
            .take(100)
            .find(|line| line.contains(&name))
    });
    serde_json::from_str(&found.await.unwrap().unwrap()).unwrap()
}

async fn raw(receiver: &Receiver) -> tokio::net::TcpStream {
    let address = receiver.urls()[0].trim_start_matches("lumberjack://");
    tokio::net::TcpStream::connect(address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_told_while_the_connection_still_ends() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Arc::new(start(&dir.path().join("spool")).await);
    let mut socket = raw(&receiver).await;
    let begin = std::time::Instant::now();
    socket.write_all(b"2W\xff\xff\xff\xff").await.unwrap();
    assert_eq!(
        line(&receiver, "refused").await["code"],
        "lumberjack.window_too_large"
    );
    // It goes on until the peer's end or a second: none of them has come, unless the machine was busy.
    let connections = receiver.stats().connections;
    assert!(connections == 1 || begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(receiver.stats().refusals.refused, 1);
    drop(socket);
    while receiver.stats().connections > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.stats().refusals.refused, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_a_second_for_a_peer_that_does_not_end() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(&dir.path().join("spool")).await;
    let mut socket = raw(&receiver).await;
    socket.write_all(b"2W\0\0\0\x01" as &[u8]).await.unwrap();
    socket.write_all(b"2J\0\0\0\x01\0\0\0\x02{}").await.unwrap();
    while receiver.stats().received.windows == 0 {
        tokio::task::yield_now().await;
    }
    let begin = std::time::Instant::now();
    assert_eq!(receiver.stop(None).await, 0);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    // The acknowledgement and our end had a second's time: nothing has destroyed them.
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"2A\0\0\0\x01");
}

/// A window of one event as it stands on the wire.
fn wire(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [b"2W\0\0\0\x012J\0\0\0\x01", &len[..], payload].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_spool_does_not_take_is_not_acknowledged_and_counted_at_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        spool: Some(dir.path().join("spool")),
        ..ReceiverOptions::default()
    };
    options.writer.budget = 256 << 10;
    options.writer.segment_bytes = 64 << 10;
    let receiver = Arc::new(Receiver::start(options).await.unwrap());
    let mut socket = raw(&receiver).await;
    let one = wire(&vec![b'x'; 30_000]);
    // A task of its own: it stands still when the receiver no longer reads.
    let sending = tokio::spawn(async move { while socket.write_all(&one).await.is_ok() {} });
    assert_eq!(line(&receiver, "paused").await["reason"], "budget");
    let stats = receiver.stats();
    assert!(stats.acked.acked_events <= stats.spool.durable, "{stats:?}");
    assert!(stats.received.unacked_windows > 0);
    let unacked = receiver.stop(Some(Duration::from_millis(200))).await;
    assert!(unacked > 0);
    let stats = receiver.stats();
    assert_eq!(unacked, stats.received.windows - stats.spool.durable);
    let stopped = line(&receiver, "stopped").await;
    assert_eq!(stopped["unacked_windows"], unacked);
    sending.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_connection_sent_that_was_cut_is_a_repeat_and_what_one_sent_that_was_not_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir).await;
    let in_order = sender(&receiver, Some(3));
    in_order.send(&window(100, 5), None).await.unwrap();
    assert_eq!(in_order.close(DEADLINE).await.events(), 0);
    let mut socket = raw(&receiver).await;
    socket.write_all(&wire(b"{\"n\":1}")).await.unwrap();
    // Closing with the acknowledgement unread resets the connection.
    socket.readable().await.unwrap();
    drop(socket);
    let sender = sender(&receiver, Some(3));
    deliver(&sender, &[window(1, 1), window(100, 5), window(200, 5)]).await;
    sender.close(DEADLINE).await;
    let repeats: Vec<_> = landed(&dir)
        .into_iter()
        .filter_map(|(_, payload, repeat)| repeat.then_some(payload))
        .collect();
    assert_eq!(repeats, ["{\"n\":1}"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_a_connection_that_was_refused_do_not_stay_unacknowledged() {
    let receiver = Receiver::start(ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    })
    .await
    .unwrap();
    let mut socket = raw(&receiver).await;
    let good = wire(b"{}");
    socket.write_all(&good).await.unwrap();
    let mut ack = [0; 6];
    socket.read_exact(&mut ack).await.unwrap();
    // The window frame is no part of an event.
    assert_eq!(receiver.stats().received.bytes, good.len() as u64 - 6);
    // Both in one piece: the window is complete, and is refused with the bytes behind it.
    socket.write_all(&[&good[..], b"3"].concat()).await.unwrap();
    socket.read_to_end(&mut Vec::new()).await.unwrap();
    drop(socket);
    while receiver.stats().connections > 0 {
        tokio::task::yield_now().await;
    }
    let stats = receiver.stats();
    assert_eq!(
        (stats.refusals.refused, stats.received.unacked_windows),
        (1, 0)
    );
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_memory_can_never_hold_is_refused_by_its_option() {
    let receiver = Receiver::start(ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        memory: 1 << 20,
        ..ReceiverOptions::default()
    });
    let receiver = Arc::new(receiver.await.unwrap());
    let mut socket = raw(&receiver).await;
    let head = b"2W\0\0\0\x012C\0\x80\0\0";
    socket.write_all(head).await.unwrap();
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["option"], "--memory");
    assert_eq!(refused["protocol"], "lumberjack");
    assert!(refused["value"].as_u64() > refused["limit"].as_u64());
}

#[tokio::test]
async fn wrong_urls_are_named() {
    for (url, part) in [
        ("bpmux://127.0.0.1", "host and a port"),
        ("relink://127.0.0.1", "host and a port"),
        ("lumberjack://127.0.0.1", "host and a port"),
        ("lumberjack+tls://127.0.0.1:1", "TLS"),
    ] {
        let options = ReceiverOptions {
            urls: vec![url.to_owned()],
            ..ReceiverOptions::default()
        };
        let error = Receiver::start(options).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
