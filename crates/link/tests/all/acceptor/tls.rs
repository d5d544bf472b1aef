//! The acceptor with TLS.

use ackline_link::tls::Client;
use ackline_link::{Endpoint, connect};

use super::*;
use crate::pki::{Authority, Pki};

#[tokio::test]
async fn behind_a_proxy_and_over_tls_the_certificate_is_the_identity() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], Some("required"))).unwrap();
    let client = Client::new(&pki.client(&ca, Some("web-1"))).unwrap();
    let bound = BoundListener::open(proxied()).await;
    let endpoint = Endpoint::parse(&format!("toy://{}", bound.address)).unwrap();
    let connecting = async {
        let mut stream = connect(&endpoint, DEADLINE).await.unwrap();
        stream.write_all(V1).await.unwrap();
        let (mut stream, _) = Box::pin(client.connect(stream, "localhost")).await.unwrap();
        stream.write_all(b"2").await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let admitting = bound.admit_with(&server);
    let (_client, admitted) = tokio::join!(Box::pin(connecting), Box::pin(admitting));
    let Admitted {
        mut stream, peer, ..
    } = admitted.unwrap();
    assert_eq!(&*peer.name, "192.0.2.7:40000");
    assert_eq!(&*peer.sender, "tls:CN=web-1; issuer CN=ca");
    let names: Vec<&str> = peer.attributes.iter().map(|(name, _)| &**name).collect();
    assert!(names.starts_with(&["proxy", "tls.subject"]), "{names:?}");
    assert_eq!(stream.read_u8().await.unwrap(), b'2');
}

#[tokio::test]
async fn on_a_port_of_tls_each_wrong_beginning_has_its_code_and_frees_its_slot() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let server = server.within(Duration::from_millis(200));
    let cases: [(&[u8], &str); 4] = [
        (b"2W\0\0\0\x01", "tls.plaintext"),
        (b"GET / HTTP/1.1\r\n", "tls.plaintext"),
        (V1, "proxy.untrusted"),
        (b"\x16\x03\x01\x02\x00", "tls.timeout"),
    ];
    for (bytes, code) in cases {
        let bound = BoundListener::open(AcceptorOptions::default()).await;
        let mut client = TcpStream::connect(bound.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        let admitted = Box::pin(bound.admit_with(&server)).await;
        let Err(TurnedAway::Refused(refused)) = admitted else {
            panic!("{admitted:?}");
        };
        assert_eq!(refused.code, code);
        assert_eq!(bound.acceptor.connections(), 0);
        fin(client).await;
    }
    let bound = BoundListener::open(AcceptorOptions::default()).await;
    drop(TcpStream::connect(bound.address).await.unwrap());
    let admitted = Box::pin(bound.admit_with(&server)).await;
    assert!(
        matches!(admitted, Err(TurnedAway::HealthCheck)),
        "{admitted:?}"
    );
}
