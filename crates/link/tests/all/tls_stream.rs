//! An established session: ends, cuts, much data, little memory, and certificates that change.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may panic

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::pki::meeting::{DEADLINE, listener, meet, plain, tell};
use crate::pki::{Authority, Pki, params};
use crate::toy::{self, Toy};
use ackline_link::tls::{Client, Server, Session, TlsError};
use ackline_link::{Endpoint, Link, Stream, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A pair of streams, ours with TLS; the caller may cut the bytes of the other direction.
async fn pair() -> (Stream, Stream) {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let pair = meet(&server, &client, "localhost").await;
    (pair.server.unwrap().0, pair.client.unwrap().0)
}

#[tokio::test]
async fn an_orderly_end_is_an_end_and_half_of_it_stays_open() {
    let (mut there, mut here) = pair().await;
    here.write_all(b"question").await.unwrap();
    here.shutdown().await.unwrap();
    let mut question = Vec::new();
    there.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    tell(&mut there, &mut here, b"answer").await;
    there.shutdown().await.unwrap();
    assert_eq!(here.read(&mut [0]).await.unwrap(), 0);
}

/// A relay that cuts the bytes from the client to the server when told to.
async fn through_a_relay(server: &Server, client: &Client) -> (Stream, Stream, Arc<AtomicBool>) {
    let (front, back) = (listener().await, listener().await);
    let (near, far) = (front.local().unwrap(), back.local().unwrap());
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    tokio::spawn(async move {
        let (mut from, _) = front.accept().await.unwrap();
        let mut to = connect(&plain(far), DEADLINE).await.unwrap();
        let (mut forth, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        while !is_cut.load(Ordering::Relaxed) {
            tokio::select! {
                Ok(count @ 1..) = from.read(&mut forth) => to.write_all(&forth[..count]).await.unwrap(),
                Ok(count @ 1..) = to.read(&mut back) => from.write_all(&back[..count]).await.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        // A FIN of TCP without the one of TLS.
        to.shutdown().await.unwrap();
    });
    let accept = async {
        server
            .accept(back.accept().await.unwrap().0)
            .await
            .unwrap()
            .0
    };
    let dial = async {
        let stream = connect(&plain(near), DEADLINE).await.unwrap();
        client.connect(stream, "localhost").await.unwrap().0
    };
    let (there, here) = tokio::join!(accept, dial);
    (there, here, cut)
}

#[tokio::test]
async fn a_cut_is_no_orderly_end() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let (mut there, mut here, cut) = through_a_relay(&server, &client).await;
    tell(&mut here, &mut there, b"an event").await;
    cut.store(true, Ordering::Relaxed);
    let read = tokio::time::timeout(DEADLINE, there.read_u8());
    let error = read.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(
        error.to_string().contains("without the close_notify"),
        "{error}"
    );
}

#[tokio::test]
async fn a_link_that_is_cut_ends_with_an_error_and_one_that_is_closed_in_order() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    for cuts in [true, false] {
        let (there, mut here, cut) = through_a_relay(&server, &client).await;
        let link = Link::new(Toy::default());
        let drive = async { link.drive(there).await.end };
        let ends = async {
            here.write_all(&toy::frames(&[b"event"])).await.unwrap();
            let mut echo = [0; 9];
            here.read_exact(&mut echo).await.unwrap();
            if cuts {
                cut.store(true, Ordering::Relaxed);
            } else {
                here.shutdown().await.unwrap();
                assert_eq!(here.read(&mut [0]).await.unwrap(), 0);
            }
        };
        let both = async { tokio::join!(drive, ends) };
        let (end, ()) = tokio::time::timeout(DEADLINE, both).await.unwrap();
        let is_io = matches!(&end, ackline_link::End::Io(_));
        assert_eq!(is_io, cuts, "{end}");
    }
}

#[tokio::test]
async fn much_data_passes_both_ways_at_once() {
    const BYTES: usize = 20_000_000;
    let (there, here) = pair().await;
    let echo = Link::new(Toy::default());
    let ask = Link::new(Toy {
        echo: false,
        ..Toy::default()
    });
    let payload: Vec<u8> = (0..=250).cycle().take(BYTES / 10).collect();
    for _ in 0..10 {
        ask.call(|toy, _| toy.send(payload.clone()));
    }
    let serve = tokio::spawn({
        let link = echo.clone();
        async move { link.drive(there).await.end }
    });
    tokio::spawn({
        let link = ask.clone();
        async move { link.drive(here).await.end }
    });
    for _ in 0..10 {
        let back = tokio::time::timeout(DEADLINE, ask.when(0, Toy::take)).await;
        assert!(back.unwrap().unwrap() == payload);
    }
    ask.call(|toy, _| toy.lifecycle = ackline_core::Lifecycle::Draining);
    let end = tokio::time::timeout(DEADLINE, serve)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(end, ackline_link::End::Eof), "{end}");
    assert!(ask.stats().bytes_in > 20_000_000 && ask.stats().bytes_out > 20_000_000);
}

async fn met(server: &Server, client: &Client) -> Result<Session, TlsError> {
    let pair = meet(server, client, "localhost").await;
    pair.client.map(|(_, session)| session)
}

#[tokio::test]
async fn new_certificates_are_served_at_the_next_handshake_and_sessions_stay() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let old = meet(&server, &client, "localhost").await;
    let (mut there, mut here) = (old.server.unwrap().0, old.client.unwrap().0);
    let next = ca.issue_with(&params("next", &["localhost"]));
    pki.write("server.pem", &next.cert);
    pki.write("server.key", &next.key);
    let session = met(&server, &client).await.unwrap();
    assert_eq!(session.subject.as_deref(), Some("CN=next"));
    tell(&mut here, &mut there, b"still here").await;
}

#[tokio::test]
async fn a_broken_new_file_leaves_the_old_one_in_use_until_it_is_mended() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let before = met(&server, &client).await.unwrap();
    let next = ca.issue_with(&params("next", &["localhost"]));
    // The certificate alone: its key is still missing.
    pki.write("server.pem", &next.cert);
    assert_eq!(met(&server, &client).await.unwrap(), before);
    pki.write("server.key", "half a k");
    assert_eq!(met(&server, &client).await.unwrap(), before);
    std::fs::remove_file(pki.path("server.key")).unwrap();
    assert_eq!(met(&server, &client).await.unwrap(), before);
    pki.write("server.key", &next.key);
    let session = met(&server, &client).await.unwrap();
    assert_eq!(session.subject.as_deref(), Some("CN=next"));
}

#[tokio::test]
async fn trust_changes_with_the_file_on_both_sides() {
    let (pki, ca, other) = (Pki::new(), Authority::new("ca"), Authority::new("other"));
    let server = Server::new(&pki.server(&ca, &["localhost"], Some("required"))).unwrap();
    let client = Client::new(&pki.client(&ca, Some("web-1"))).unwrap();
    let seen = async || {
        let pair = meet(&server, &client, "localhost").await;
        pair.server.map(|(_, session)| session)
    };
    assert!(seen().await.is_ok());
    pki.write("client-ca.pem", &other.pem);
    assert_eq!(seen().await.unwrap_err().code(), "tls.certificate");
    let moved = other.issue("web-2", &["web-2"]);
    pki.write("client.pem", &moved.cert);
    pki.write("client.key", &moved.key);
    assert_eq!(
        seen().await.unwrap().identity().as_deref(),
        Some("CN=web-2; issuer CN=other")
    );
    pki.write("ca.pem", &other.pem);
    assert_eq!(
        met(&server, &client).await.unwrap_err().code(),
        "tls.certificate"
    );
}

/// A link of a directory that an orchestrator changes as a whole.
#[tokio::test]
async fn a_link_that_points_elsewhere_is_a_change() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut options = pki.server(&ca, &["localhost"], None);
    for (dir, name) in [("one", "first"), ("two", "second")] {
        std::fs::create_dir(pki.path(dir)).unwrap();
        let own = ca.issue(name, &["localhost"]);
        pki.write(&format!("{dir}/tls.crt"), &own.cert);
        pki.write(&format!("{dir}/tls.key"), &own.key);
    }
    std::os::unix::fs::symlink("one", pki.path("now")).unwrap();
    options.cert = Some(pki.path("now/tls.crt"));
    options.key = Some(pki.path("now/tls.key"));
    let server = Server::new(&options).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let subject = async || met(&server, &client).await.unwrap().subject.unwrap();
    assert_eq!(subject().await, "CN=first");
    std::os::unix::fs::symlink("two", pki.path("next")).unwrap();
    std::fs::rename(pki.path("next"), pki.path("now")).unwrap();
    assert_eq!(subject().await, "CN=second");
}

/// Connections come all the time while the files change, sometimes in the wrong order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_refuses_no_client() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Arc::new(Server::new(&pki.server(&ca, &["127.0.0.1"], None)).unwrap());
    let listener = listener().await;
    let at = listener.local().unwrap();
    let endpoint = Endpoint::new("toy", vec![at], Some(pki.client(&ca, None)));
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let (mut stream, _) = server.accept(stream).await.unwrap();
                stream.write_all(b"served").await.unwrap();
                stream.shutdown().await.unwrap();
                let _ = stream.read(&mut [0]).await;
            });
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let endpoint = endpoint.clone();
        clients.spawn(async move {
            for _ in 0..50 {
                let mut stream = connect(&endpoint, DEADLINE).await.unwrap();
                let mut word = Vec::new();
                stream.read_to_end(&mut word).await.unwrap();
                assert_eq!(word, b"served");
                stream.shutdown().await.unwrap();
            }
        });
    }
    for number in 0..20 {
        let next = ca.issue(&format!("server-{number}"), &["127.0.0.1"]);
        pki.write("server.pem", &next.cert);
        tokio::time::sleep(Duration::from_millis(10)).await;
        pki.write("server.key", &next.key);
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    assert!(!serving.is_finished());
    serving.abort();
}

/// Bytes after our end are dropped: it does not matter how they end.
#[tokio::test]
async fn after_our_end_a_cut_is_the_peers_end() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let (there, mut here, cut) = through_a_relay(&server, &client).await;
    let link = Link::new(Toy {
        lifecycle: ackline_core::Lifecycle::Draining,
        ..Toy::default()
    });
    let drive = async { link.drive(there).await.end };
    let ends = async {
        assert_eq!(here.read(&mut [0]).await.unwrap(), 0);
        cut.store(true, Ordering::Relaxed);
    };
    let both = async { tokio::join!(drive, ends) };
    let (end, ()) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert!(matches!(end, ackline_link::End::Closed), "{end}");
}
