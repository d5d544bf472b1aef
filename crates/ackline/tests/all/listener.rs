//! The listener of Rust applications, by all its options.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::io::ErrorKind;
use std::time::Duration;

use ackline::link::AcceptorOptions;
use ackline::link::tls::TlsOptions;
use ackline::lumberjack::{Batch, ListenerOptions, Sender, SenderOptions, listen_with};
use bytes::Bytes;

use crate::pki::{Authority, Pki};

const DEADLINE: Duration = Duration::from_secs(20);

async fn refused(url: &str, tls: TlsOptions) -> String {
    let options = ListenerOptions {
        tls,
        ..ListenerOptions::default()
    };
    let error = listen_with(url, options).await;
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    error.to_string()
}

#[tokio::test]
async fn options_of_tls_complete_the_url_and_a_connection_ends_at_its_age() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let options = ListenerOptions {
        tls: pki.server(&ca, &["127.0.0.1"], Some("required")),
        acceptor: AcceptorOptions {
            max_connection_age: Some(Duration::from_secs(2)),
            ..AcceptorOptions::default()
        },
        ..ListenerOptions::default()
    };
    let url = "lumberjack+tls://127.0.0.1:0";
    let listener = listen_with(url, options).await.unwrap();
    assert!(listener.url().starts_with("lumberjack+tls://127.0.0.1:"));
    let options = SenderOptions {
        tls: pki.client(&ca, Some("web-1")),
        ..SenderOptions::default()
    };
    let sender = Sender::open(&[listener.url()], options).unwrap();
    let batch = Batch::json(vec![Bytes::from_static(b"{}")]).unwrap();
    let sent = sender.send(&batch, Some(DEADLINE)).await.unwrap();
    let accepted = tokio::time::timeout(DEADLINE, listener.accept());
    let connection = accepted.await.unwrap().unwrap();
    assert_eq!(&*connection.info().sender, "tls:CN=web-1; issuer CN=ca");
    let window = connection.window().await.unwrap();
    connection.ack(window.id).unwrap();
    sent.acknowledged(Some(DEADLINE)).await.unwrap();
    let ended = tokio::time::timeout(DEADLINE, connection.window()).await;
    assert!(ended.unwrap().is_err());
}

#[tokio::test]
async fn options_of_tls_that_do_not_fit_are_refused_by_name() {
    let mut tls = TlsOptions::default();
    tls.set_text("cert", "/no").unwrap();
    let said = refused("lumberjack://127.0.0.1:0", tls.clone()).await;
    assert_eq!(said, "cert is an option of TLS, and no URL is +tls");
    let said = refused("lumberjack+tls://127.0.0.1:0", tls.clone()).await;
    assert!(said.contains("needs cert and key"), "{said}");
    tls.set_text("key", "/no").unwrap();
    let said = refused("lumberjack+tls://127.0.0.1:0", tls.clone()).await;
    assert!(said.contains("cert /no cannot be read"), "{said}");
    let said = refused("lumberjack+tls://127.0.0.1:0,127.0.0.1:1", tls).await;
    assert!(said.contains("several hosts"), "{said}");
}
