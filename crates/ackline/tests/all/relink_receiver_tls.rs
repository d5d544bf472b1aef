//! A receiver's links over TLS: their owners, the peers that may go on with them, and links that
//! the receiver makes itself.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::ReconnectOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{batches, landed, line, receiving, within};
use crate::pki::{Authority, Pki};
use ackline::link::tls::TlsOptions;
use ackline::relink::{self, ChannelId, ConnectOptions, Error, Link, ListenOptions};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, RecordBatch};

const ANY: &str = "relink+tls://127.0.0.1:0/orders";

/// A receiver that wants certificates.
async fn start(url: &str, spool: &Path, tls: &TlsOptions) -> Arc<Receiver> {
    let options = ReceiverOptions {
        urls: vec![url.to_owned()],
        spool: Some(spool.to_owned()),
        tls: tls.clone(),
        ..ReceiverOptions::default()
    };
    receiving(&options).await
}

/// A link that is kept in `state`.
async fn linked(url: &str, tls: TlsOptions, state: &Path) -> Result<Link, Error> {
    let options = ConnectOptions {
        tls,
        state: Some(state.to_owned()),
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    };
    relink::connect(url, options).await
}

async fn send(link: &Link, text: &str) {
    let channel = ChannelId::from(1_u32);
    let sent = link.send(&channel, text.as_bytes().to_vec(), None);
    within(sent.await.unwrap().consumed()).await.unwrap();
}

/// The subjects of the peers' certificates in the rows.
fn subjects(spool: &Path) -> Vec<String> {
    let values = |batch: &RecordBatch| {
        let attributes = batch.column_by_name("attributes").unwrap().as_map();
        let subject = |at| {
            let pairs = attributes.value(at);
            let [names, values] = [0, 1].map(|of| pairs.column(of).as_string::<i32>().clone());
            let at = (0..names.len()).find(|at| names.value(*at) == "tls.subject");
            values.value(at.unwrap()).to_owned()
        };
        (0..batch.num_rows()).map(subject).collect::<Vec<_>>()
    };
    batches(spool).iter().flat_map(values).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_is_its_identitys_also_after_a_restart() {
    let (files, authority) = (Pki::new(), Authority::new("site"));
    let tls = files.server(&authority, &["127.0.0.1"], Some("required"));
    let dir = tempfile::tempdir().unwrap();
    let [spool, own, copy] = ["spool", "own", "copy"].map(|name| dir.path().join(name));
    let receiver = start(ANY, &spool, &tls).await;
    let url = receiver.urls()[0].clone();
    let link = linked(&url, files.client(&authority, Some("owner")), &own);
    let link = link.await.unwrap();
    send(&link, "one").await;
    within(link.kept(None)).await.unwrap();
    let key = link.key();
    drop(link);
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(own.join("link.journal"), copy.join("link.journal")).unwrap();
    receiver.stop(None).await;
    drop(receiver);

    let receiver = start(&url, &spool, &tls).await;
    // The files of the client are written anew: each connector has read its own by then.
    let thief = linked(&url, files.client(&authority, Some("thief")), &copy);
    let thief = thief.await.unwrap();
    assert_eq!(thief.key(), key);
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["code"], "relink.identity");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.ends_with("tls:CN=thief; issuer CN=site"),
        "{message}"
    );
    drop(thief);
    let link = linked(&url, files.client(&authority, Some("owner")), &own);
    let link = link.await.unwrap();
    assert_eq!(link.key(), key);
    send(&link, "two").await;
    let texts: Vec<_> = landed(&spool).into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(subjects(&spool), ["CN=owner", "CN=owner"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_out_over_tls_lands_what_its_listener_sends() {
    let (files, authority) = (Pki::new(), Authority::new("site"));
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let options = ListenOptions {
        tls: files.server(&authority, &["127.0.0.1"], Some("required")),
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, options).await.unwrap();
    let options = ReceiverOptions {
        connect: vec![listener.url().to_owned()],
        spool: Some(spool.clone()),
        tls: files.client(&authority, Some("receiver")),
        ..ReceiverOptions::default()
    };
    let receiver = Receiver::start(options).await.unwrap();
    let link = within(listener.accept()).await.unwrap();
    assert_eq!(
        &*link.peer().unwrap().sender,
        "tls:CN=receiver; issuer CN=site"
    );
    send(&link, "one").await;
    let texts: Vec<_> = landed(&spool).into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["one"]);
    receiver.stop(None).await;
}
