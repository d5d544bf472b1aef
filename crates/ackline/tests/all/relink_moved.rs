//! Links of a receiver that comes back at another address, and the state that it still has of them;
//! a connector that waits for its listener.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::ReconnectOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{DEADLINE, at_socket, batches, landed, receiving, within};
use ackline::relink::{self, ChannelId, ConnectOptions, Error, Link, ListenOptions};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use tokio::net::UnixListener;

/// A receiver at these URLs.
async fn start(urls: &[&str], spool: &Path) -> Arc<Receiver> {
    let options = ReceiverOptions {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        spool: Some(spool.to_owned()),
        ..ReceiverOptions::default()
    };
    receiving(&options).await
}

async fn linked(url: &str) -> Link {
    let options = ConnectOptions {
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    };
    relink::connect(url, options).await.unwrap()
}

/// Sends a message and waits until it is kept.
async fn send(link: &Link, text: &str) {
    let channel = ChannelId::from(1_u32);
    let sent = link.send(&channel, text.as_bytes().to_vec(), None);
    let receipt = sent.await.unwrap();
    within(receipt.consumed()).await.unwrap();
}

fn texts(spool: &Path) -> Vec<String> {
    landed(spool).into_iter().map(|(text, _)| text).collect()
}

/// The values of a column of text.
fn column(spool: &Path, name: &str) -> Vec<String> {
    let values = |batch: &arrow_array::RecordBatch| {
        let column = batch.column_by_name(name).unwrap();
        let column = column.as_string::<i32>();
        (0..column.len())
            .map(|at| column.value(at).to_owned())
            .collect::<Vec<_>>()
    };
    batches(spool).iter().flat_map(values).collect()
}

/// A receiver that took "one" and has stopped: the URL that it chose, and the link.
async fn once(spool: &Path) -> (String, Link) {
    let receiver = start(&["relink://127.0.0.1:0/n"], spool).await;
    let chosen = receiver.urls()[0].clone();
    let link = linked(&chosen).await;
    send(&link, "one").await;
    receiver.stop(None).await;
    (chosen, link)
}

/// The directories in which links are kept, by name.
fn kept(spool: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(spool.join("relink")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_belong_to_the_spool_and_the_name_whatever_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let (chosen, link) = once(&spool).await;
    let receiver = start(&[&chosen], &spool).await;
    send(&link, "two").await;
    assert_eq!(texts(&spool), ["one", "two"]);
    assert_eq!(kept(&spool), ["at-n"]);
    // Rows received after the restart have the link's earlier peer.
    let peers = column(&spool, "peer");
    assert!(peers[1].starts_with("127.0.0.1:"), "{peers:?}");
    receiver.stop(None).await;
    drop(receiver);
    let receiver = start(&[&chosen], &spool).await;
    send(&link, "three").await;
    // The connection that carried "two" was another one than the first.
    let peers = column(&spool, "peer");
    assert_eq!(peers[0], peers[1]);
    assert_ne!(peers[1], peers[2], "{peers:?}");
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_were_kept_by_an_address_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let (chosen, link) = once(&spool).await;
    let place = |name: &str| spool.join("relink").join(name);
    std::fs::rename(place("at-n"), place("127.0.0.1%3A5100")).unwrap();
    // Another name's links are left where they are.
    let other = start(&["relink://127.0.0.1:0/other"], &spool).await;
    assert_eq!(kept(&spool), ["127.0.0.1%3A5100", "at-other"]);
    other.stop(None).await;
    drop(other);
    let receiver = start(&[&chosen], &spool).await;
    send(&link, "two").await;
    assert_eq!(kept(&spool), ["at-n", "at-other"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_at_two_addresses_has_two_states() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let unix = at_socket(dir.path());
    let urls = ["relink://127.0.0.1:0/n", &unix, "relink://127.0.0.1:0/m"];
    let receiver = start(&urls, &spool).await;
    for url in receiver.urls() {
        send(&linked(url).await, "one").await;
    }
    let kept = kept(&spool);
    assert_eq!(kept.len(), 3, "{kept:?}");
    assert_eq!(kept[0], "at-m");
    assert!(
        kept[1..]
            .iter()
            .all(|name| name.starts_with("at-n%40relink"))
    );
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_keeps_its_links_when_an_address_is_added_and_when_it_goes_again() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let unix = at_socket(dir.path());
    let receiver = start(&["relink://127.0.0.1:0/n"], &spool).await;
    let chosen = receiver.urls()[0].clone();
    let link = linked(&chosen).await;
    send(&link, "one").await;
    receiver.stop(None).await;
    drop(receiver);
    // A port that the system chose beside another address, then the port itself, then alone again.
    for (urls, text) in [
        (&[&chosen, unix.as_str()][..], "two"),
        (&[&chosen], "three"),
        (&[&unix, &chosen], "four"),
        (&[&chosen, &unix], "five"),
    ] {
        let receiver = start(urls, &spool).await;
        send(&link, text).await;
        receiver.stop(None).await;
    }
    assert_eq!(texts(&spool), ["one", "two", "three", "four", "five"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sockets_of_any_port_do_not_share_the_links_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let urls = ["relink://127.0.0.1:0/n", "relink://127.0.0.1:0/n"];
    let options = ReceiverOptions {
        urls: urls.map(str::to_owned).to_vec(),
        spool: Some(dir.path().join("spool")),
        ..ReceiverOptions::default()
    };
    let error = Receiver::start(options).await.unwrap_err().to_string();
    assert!(error.contains("is given twice"), "{error}");
}

/// A directory, the path of a socket in it that nobody listens on, and its URL.
fn nobody() -> (tempfile::TempDir, PathBuf, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let url = format!("relink+unix://{}?endpoint=n", path.display());
    (dir, path, url)
}

#[tokio::test]
async fn a_connector_with_a_timeout_waits_for_its_listener() {
    let (_dir, path, url) = nobody();
    // The socket that ends the first attempts is no listener of Relink yet.
    let stub = UnixListener::bind(&path).unwrap();
    let options = ConnectOptions {
        timeout: Some(DEADLINE),
        ..ConnectOptions::default()
    };
    let connecting = tokio::spawn({
        let url = url.clone();
        async move { relink::connect(&url, options).await }
    });
    for _ in 0..2 {
        drop(stub.accept().await.unwrap());
    }
    drop(stub);
    std::fs::remove_file(&path).unwrap();
    let _listener = relink::listen(&url, ListenOptions::default())
        .await
        .unwrap();
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_timeout_there_is_one_attempt_and_with_one_the_last_reason_is_told() {
    let (_dir, _, url) = nobody();
    let error = |options| async {
        let Err(Error::Connect(why)) = relink::connect(&url, options).await else {
            panic!("nobody listens there");
        };
        why.to_string()
    };
    let why = error(ConnectOptions::default()).await;
    assert!(why.contains("No such file"), "{why}");
    let why = error(ConnectOptions {
        timeout: Some(Duration::from_millis(50)),
        ..ConnectOptions::default()
    });
    let why = why.await;
    assert!(
        why.starts_with("not connected within 50ms (timeout): "),
        "{why}"
    );
    assert!(why.contains("No such file"), "{why}");
}

#[tokio::test]
async fn a_memory_that_hardly_a_message_fits_into_is_refused() {
    let (_dir, _, url) = nobody();
    let says = |error: Error| {
        let text = error.to_string();
        assert_eq!(text, "memory is 1; it is at least 65536 bytes (64KiB)");
    };
    let options = ConnectOptions {
        memory: 1,
        ..ConnectOptions::default()
    };
    says(relink::connect(&url, options).await.err().unwrap());
    let options = ListenOptions {
        memory: 1,
        ..ListenOptions::default()
    };
    says(relink::listen(&url, options).await.err().unwrap());
}

#[tokio::test]
async fn an_id_of_another_size_is_told_with_both_sizes() {
    let (_dir, _, url) = nobody();
    let _listener = relink::listen(&url, ListenOptions::default())
        .await
        .unwrap();
    let link = linked(&url).await;
    let [right, wrong] = [&[7; 4][..], &[7; 3]].map(ChannelId::from);
    let both = [right, wrong];
    let one = link.try_send(&both[1], b"x".as_slice()).err().unwrap();
    let several = link.send_to(&both, b"x".as_slice(), None).await;
    let run = link.try_send_many(&both[1], &[b"x".as_slice().into()]);
    for error in [one, several.err().unwrap(), run.err().unwrap()] {
        assert_eq!(error.code(), "invalid_channel_id");
        assert_eq!(
            error.to_string(),
            "channel 070707 has 3 bytes; the ids of this end's channels have 4"
        );
    }
}
