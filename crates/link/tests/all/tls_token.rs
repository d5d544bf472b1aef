//! Clients that are identified by tokens.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;

use ackline_link::tls::{Client, Server, TlsError, TlsOptions};
use ackline_link::{Endpoint, ListenSpec, Networks, PeerInfo};
use tokio::io::AsyncReadExt;

use crate::pki::meeting::{DEADLINE, Pair, meet, tell};
use crate::pki::{Authority, Pki};

const ONE: &str = "0123456789abcdef";
const OTHER: &str = "fedcba9876543210";

fn listening(pki: &Pki, ca: &Authority, tokens: &str) -> TlsOptions {
    TlsOptions {
        ca: None,
        tokens_file: Some(pki.write("tokens", tokens)),
        ..pki.server(ca, &["localhost"], None)
    }
}

fn connecting(pki: &Pki, ca: &Authority, token: Option<&str>) -> TlsOptions {
    TlsOptions {
        token_file: token.map(|token| pki.write("token", token)),
        ..pki.client(ca, None)
    }
}

async fn pair(server: &TlsOptions, client: &TlsOptions) -> Pair {
    let (server, client) = (Server::new(server).unwrap(), Client::new(client).unwrap());
    meet(&server, &client, "localhost").await
}

fn code(result: Result<impl Sized, TlsError>) -> &'static str {
    result.map(drop).unwrap_err().code()
}

#[tokio::test]
async fn a_client_with_a_token_is_known_by_its_name_and_speaks_its_protocol_behind_it() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = listening(&pki, &ca, &format!("web-1 {ONE}\ndb {OTHER}"));
    let client = connecting(&pki, &ca, Some(OTHER));
    let Pair { server, client } = pair(&server, &client).await;
    let ((mut at_server, session), (mut at_client, _)) = (server.unwrap(), client.unwrap());
    let peer = PeerInfo::unix(None).with_session(&session);
    assert_eq!(&*peer.sender, "token:db");
    tell(&mut at_client, &mut at_server, b"2W\0\0\0\x01").await;
    tell(&mut at_server, &mut at_client, b"2A\0\0\0\x01").await;
}

#[tokio::test]
async fn a_client_with_an_unknown_token_is_told_and_one_without_a_token_is_closed() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = listening(&pki, &ca, &format!("web-1 {ONE}"));
    let wrong = connecting(&pki, &ca, Some(OTHER));
    let (serving, calling) = (Server::new(&server).unwrap(), Client::new(&wrong).unwrap());
    let listener = crate::pki::meeting::listener().await;
    let at = listener.local().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        serving.accept(stream).await
    };
    let dial = async {
        let plain = crate::pki::meeting::plain(at);
        let stream = ackline_link::connect(&plain, DEADLINE).await.unwrap();
        let (mut stream, _) = calling.connect(stream, "localhost").await.unwrap();
        stream.read(&mut [0; 100]).await.unwrap_err()
    };
    let (accepted, heard) = tokio::join!(accept, dial);
    assert_eq!(code(accepted), "token.wrong");
    let heard = TlsError::of(&heard).unwrap();
    assert_eq!(heard.code(), "token.refused");
    assert!(heard.to_string().contains("token_file"), "{heard}");

    let serving = serving.within(std::time::Duration::from_millis(200));
    let silent = Client::new(&connecting(&pki, &ca, None)).unwrap();
    let silent = meet(&serving, &silent, "localhost").await;
    assert_eq!(code(silent.server), "tls.timeout");
}

#[tokio::test]
async fn a_token_that_is_taken_out_of_the_file_counts_no_more() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let options = listening(&pki, &ca, &format!("web-1 {ONE}\nweb-1 {OTHER}"));
    let server = Server::new(&options).unwrap();
    let one = Client::new(&connecting(&pki, &ca, Some(ONE))).unwrap();
    assert!(meet(&server, &one, "localhost").await.server.is_ok());
    pki.write("tokens", &format!("web-1 {OTHER}"));
    assert_eq!(
        code(meet(&server, &one, "localhost").await.server),
        "token.wrong"
    );
    // The client reads its own file again too.
    pki.write("token", OTHER);
    assert!(meet(&server, &one, "localhost").await.server.is_ok());
    // A file that cannot be used leaves the last good one in place.
    pki.write("tokens", "web-1");
    assert!(meet(&server, &one, "localhost").await.server.is_ok());
}

#[tokio::test]
async fn with_tokens_a_certificate_alone_is_not_enough_and_both_are_known_by_the_certificate() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = TlsOptions {
        tokens_file: Some(pki.write("tokens", &format!("web-1 {ONE}"))),
        ..pki.server(&ca, &["localhost"], Some("required"))
    };
    let both = TlsOptions {
        token_file: Some(pki.write("token", ONE)),
        ..pki.client(&ca, Some("a"))
    };
    let (_, session) = pair(&server, &both).await.server.unwrap();
    let peer = PeerInfo::unix(None).with_session(&session);
    assert!(peer.sender.starts_with("tls:CN=a"), "{}", peer.sender);
    assert!(
        peer.attributes
            .iter()
            .any(|(name, value)| (&**name, &**value) == ("tls.token", "web-1"))
    );
    let server = Server::new(&server)
        .unwrap()
        .within(std::time::Duration::from_millis(200));
    let alone = Client::new(&pki.client(&ca, Some("a"))).unwrap();
    assert_eq!(
        code(meet(&server, &alone, "localhost").await.server),
        "tls.timeout"
    );
}

#[tokio::test]
async fn each_end_has_its_own_option_and_a_listener_with_tokens_is_not_exposed() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let tokens = listening(&pki, &ca, &format!("web-1 {ONE}"));
    let own = TlsOptions {
        token_file: Some(pki.write("token", ONE)),
        ..tokens.clone()
    };
    let error = Server::new(&own).unwrap_err();
    assert!(
        error.to_string().contains("token_file is for clients"),
        "{error}"
    );
    let error = Client::new(&TlsOptions {
        cert: None,
        key: None,
        ..tokens.clone()
    })
    .unwrap_err();
    assert!(
        error.to_string().contains("tokens_file is for listeners"),
        "{error}"
    );
    let missing = TlsOptions {
        tokens_file: Some(Path::new("/no/such").into()),
        ..tokens.clone()
    };
    let error = Server::new(&missing).unwrap_err().to_string();
    assert!(
        error.starts_with("tokens_file /no/such cannot be read"),
        "{error}"
    );
    let mut endpoint = Endpoint::parse("toy+tls://0.0.0.0:0").unwrap();
    Endpoint::fill(std::slice::from_mut(&mut endpoint), &tokens).unwrap();
    let listener = ListenSpec::new(endpoint, DEADLINE)
        .unwrap()
        .bind()
        .await
        .unwrap();
    assert!(!listener.is_exposed(&Networks::default()));
}
