//! Admission and refusal of connections, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may panic

mod slots;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ackline_link::PerAddress;
use ackline_link::tls::Server;
use ackline_link::{
    Acceptor, AcceptorOptions, Address, Admitted, Link, Listener, PeerInfo, Refused, TurnedAway,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::toy::{Toy, frames};

const DEADLINE: Duration = Duration::from_secs(20);
const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5044\r\n";

struct BoundListener {
    acceptor: Acceptor,
    listener: Listener,
    address: SocketAddr,
}

impl BoundListener {
    async fn open(options: AcceptorOptions) -> Self {
        let address: Address = "toy://127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&address).await.unwrap();
        let Address::Tcp(host, port) = listener.local().unwrap() else {
            panic!("not TCP");
        };
        Self {
            acceptor: Acceptor::new(options),
            listener,
            address: format!("{host}:{port}").parse().unwrap(),
        }
    }

    async fn admit(&self) -> Result<Admitted, TurnedAway> {
        self.admit_by(None).await
    }

    async fn admit_with(&self, tls: &Server) -> Result<Admitted, TurnedAway> {
        self.admit_by(Some(tls)).await
    }

    async fn admit_by(&self, tls: Option<&Server>) -> Result<Admitted, TurnedAway> {
        let accepted = self.acceptor.accept(&self.listener);
        let arrived = tokio::time::timeout(DEADLINE, accepted).await.unwrap();
        let admitted = arrived.unwrap()?.admit(tls, false);
        tokio::time::timeout(DEADLINE, admitted).await.unwrap()
    }

    /// The outcome for a client that sends these bytes at once.
    async fn offer(&self, bytes: &[u8]) -> (TcpStream, Result<Admitted, TurnedAway>) {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        let admitted = self.admit().await;
        (client, admitted)
    }

    async fn refused(&self, bytes: &[u8]) -> (TcpStream, Refused) {
        let (client, admitted) = self.offer(bytes).await;
        match admitted {
            Err(TurnedAway::Refused(refused)) => (client, refused),
            other => panic!("{other:?}"),
        }
    }
}

fn proxied() -> AcceptorOptions {
    AcceptorOptions {
        proxy_from: "127.0.0.0/8".parse().unwrap(),
        ..AcceptorOptions::default()
    }
}

/// Waits until this client has received everything; its end must be a FIN.
async fn fin(mut client: TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(DEADLINE, client.read_to_end(&mut rest));
    read.await.unwrap().expect("a FIN, not a reset");
}

async fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !what() {
        assert!(Instant::now() < deadline, "it did not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_and_the_protocol_gets_the_rest() {
    let bound = BoundListener::open(proxied()).await;
    let mut wire = V1.to_vec();
    wire.extend(frames(&[b"hello"]));
    let (_client, admitted) = bound.offer(&wire).await;
    let Admitted {
        mut stream, peer, ..
    } = admitted.unwrap();
    assert_eq!(
        (&*peer.name, &*peer.sender),
        ("192.0.2.7:40000", "192.0.2.7")
    );
    let [(name, value)] = &peer.attributes[..] else {
        panic!("{peer:?}");
    };
    assert_eq!(&**name, "proxy");
    assert!(value.starts_with("127.0.0.1:"), "{value}");
    let mut rest = [0; 9];
    stream.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest[..], frames(&[b"hello"]));
}

#[tokio::test]
async fn a_header_may_come_one_byte_at_a_time() {
    let bound = BoundListener::open(proxied()).await;
    let address = bound.address;
    let client = tokio::spawn(async move {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.set_nodelay(true).unwrap();
        for byte in V1.iter().chain(b"2") {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client
    });
    let mut admitted = bound.admit().await.unwrap();
    assert_eq!(&*admitted.peer.name, "192.0.2.7:40000");
    assert_eq!(admitted.stream.read_u8().await.unwrap(), b'2');
    drop(client.await.unwrap());
}

#[tokio::test]
async fn a_local_header_leaves_the_proxys_own_address() {
    let bound = BoundListener::open(proxied()).await;
    let (client, admitted) = bound.offer(b"PROXY UNKNOWN\r\n2").await;
    let peer = admitted.unwrap().peer;
    let own = PeerInfo::tcp(client.local_addr().unwrap());
    assert_eq!(peer, own, "and no attribute");
}

#[tokio::test]
async fn each_wrong_beginning_has_its_code_its_cure_and_a_fin() {
    let long = {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
        header.resize(header.len() + 65_535, 7);
        // 7.7.7.7:1799 is an address like any other, and the bytes after it are skipped.
        header.extend(b"GET / HTTP/1.1\r\n");
        header
    };
    let twice = [V1, V1].concat();
    let wrong_tail = b"\r\n\r\n\0\r\nQUIX\n\x21\x11\0\x0c";
    let (direct, behind) = (AcceptorOptions::default(), proxied());
    let cases: [(&AcceptorOptions, &[u8], &str, Option<&str>); 8] = [
        (&direct, b"\x16\x03\x01\x02", "tls.unexpected", None),
        (&direct, b"GET / HTTP/1.1\r\n", "link.http", None),
        (&direct, V1, "proxy.untrusted", Some("--proxy-from")),
        (
            &behind,
            b"2W\0\0\0\x01",
            "proxy.missing",
            Some("--proxy-from"),
        ),
        (&behind, &twice, "proxy.twice", None),
        (&behind, wrong_tail, "proxy.malformed", Some("--proxy-from")),
        (&behind, &long, "link.http", None),
        (
            &behind,
            b"PROXY TCP9 x\r\n",
            "proxy.malformed",
            Some("--proxy-from"),
        ),
    ];
    for (options, bytes, code, option) in cases {
        let bound = BoundListener::open(options.clone()).await;
        let (client, refused) = bound.refused(bytes).await;
        assert_eq!(
            (refused.code, refused.option),
            (code, option),
            "{refused:?}"
        );
        assert_eq!(refused.times, Some(1));
        fin(client).await;
        assert_eq!(bound.acceptor.stats().turned_away[code], 1);
        until(|| bound.acceptor.connections() == 0).await;
    }
}

#[tokio::test]
async fn a_proxy_with_an_unfinished_header_or_no_byte_after_it_loses_its_slot() {
    let short = Duration::from_millis(100);
    let bound = BoundListener::open(AcceptorOptions {
        handshake_timeout: short,
        first_byte_timeout: Some(2 * short),
        max_connections: 1,
        ..proxied()
    })
    .await;
    for (bytes, option) in [
        (&V1[..V1.len() - 1], "--handshake-timeout"),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
            "--handshake-timeout",
        ),
        (b"", "--handshake-timeout"),
        (V1, "--first-byte-timeout"),
    ] {
        let (client, refused) = bound.refused(bytes).await;
        assert_eq!(
            (refused.code, refused.option),
            ("link.timeout", Some(option))
        );
        fin(client).await;
        until(|| bound.acceptor.connections() == 0).await;
    }
}

#[tokio::test]
async fn a_header_has_a_deadline_also_where_the_first_byte_has_none() {
    let bound = BoundListener::open(AcceptorOptions {
        handshake_timeout: Duration::from_millis(100),
        first_byte_timeout: None,
        ..proxied()
    })
    .await;
    let (_client, refused) = bound.refused(&V1[..20]).await;
    assert_eq!(refused.option, Some("--handshake-timeout"));
}

#[tokio::test]
async fn health_checks_are_counted_and_are_no_incident() {
    for (options, first) in [
        (AcceptorOptions::default(), &b""[..]),
        (proxied(), b""),
        (proxied(), V1),
    ] {
        let bound = BoundListener::open(options).await;
        for reset in [false, true] {
            let client = TcpStream::connect(bound.address).await.unwrap();
            let mut client = client;
            client.write_all(first).await.unwrap();
            if reset {
                client.set_zero_linger().unwrap();
            }
            drop(client);
            let admitted = bound.admit().await;
            let is_check = matches!(admitted, Err(TurnedAway::HealthCheck));
            // A reset may also destroy the header on its way.
            assert!(is_check || (reset && !first.is_empty()), "{admitted:?}");
        }
        let stats = bound.acceptor.stats();
        assert!(stats.health_checks >= 1);
        assert_eq!(bound.acceptor.connections(), 0);
        if first.is_empty() {
            assert_eq!((stats.health_checks, stats.turned_away.len()), (2, 0));
        }
    }
}

#[tokio::test]
async fn ages_are_spread_over_a_fifth_around_the_limit() {
    let limit = Duration::from_secs(100);
    let bound = BoundListener::open(AcceptorOptions {
        max_connection_age: Some(limit),
        ..AcceptorOptions::default()
    })
    .await;
    let mut ages = Vec::new();
    for _ in 0..100 {
        ages.push(bound.offer(b"2").await.1.unwrap().age.unwrap());
    }
    let (least, most) = (*ages.iter().min().unwrap(), *ages.iter().max().unwrap());
    assert!(least >= limit.mul_f64(0.8) && most <= limit.mul_f64(1.2));
    // All of a hundred on one side of these: less than once in a thousand million.
    assert!(least < limit.mul_f64(0.9) && most > limit.mul_f64(1.1));
    let bound = BoundListener::open(AcceptorOptions::default()).await;
    assert_eq!(bound.offer(b"2").await.1.unwrap().age, None);
}

#[tokio::test]
async fn only_allowed_networks_come_in_and_behind_a_proxy_its_clients_count() {
    let allow = |networks: &str| AcceptorOptions {
        allow: networks.parse().unwrap(),
        ..AcceptorOptions::default()
    };
    let bound = BoundListener::open(allow("10.0.0.0/8,127.0.0.1")).await;
    bound.offer(b"2").await.1.unwrap();
    let bound = BoundListener::open(allow("10.0.0.0/8")).await;
    let (client, refused) = bound.refused(b"2W\0\0\0\x01").await;
    assert_eq!(
        (refused.code, refused.option),
        ("link.not_allowed", Some("--allow"))
    );
    fin(client).await;
    let behind = |networks: &str| AcceptorOptions {
        proxy_from: "127.0.0.1".parse().unwrap(),
        ..allow(networks)
    };
    let wire = [V1, b"2"].concat();
    let bound = BoundListener::open(behind("192.0.2.0/24")).await;
    bound.offer(&wire).await.1.unwrap();
    let bound = BoundListener::open(behind("127.0.0.1")).await;
    assert_eq!(bound.refused(&wire).await.1.code, "link.not_allowed");
}

#[tokio::test]
async fn a_limit_turns_away_with_a_fin_and_few_lines_and_a_slot_comes_back() {
    for per_address in [false, true] {
        let bound = BoundListener::open(AcceptorOptions {
            max_connections: if per_address { 100 } else { 2 },
            max_connections_per_address: if per_address {
                PerAddress::Limit(2)
            } else {
                PerAddress::Most
            },
            ..AcceptorOptions::default()
        })
        .await;
        let (_one, first) = bound.offer(b"2").await;
        let (_two, second) = bound.offer(b"2").await;
        let (first, second) = (first.unwrap(), second.unwrap());
        let mut lines = 0;
        for _ in 0..50 {
            let (client, refused) = bound.refused(b"2W\0\0\0\x01").await;
            assert_eq!(refused.code, "link.too_many_connections");
            let hit = refused.hit.unwrap();
            assert_eq!((hit.value, hit.limit), (3, 2));
            lines += u32::from(refused.times.is_some());
            fin(client).await;
        }
        assert!((5..50).contains(&lines), "{lines}");
        assert_eq!(
            bound.acceptor.stats().turned_away["link.too_many_connections"],
            50
        );
        drop(first);
        bound.offer(b"2").await.1.unwrap();
        drop(second);
    }
}

#[tokio::test]
async fn a_limit_per_address_counts_the_clients_behind_a_proxy() {
    let bound = BoundListener::open(AcceptorOptions {
        max_connections_per_address: PerAddress::Limit(1),
        ..proxied()
    })
    .await;
    let client = |ip: &str| format!("PROXY TCP4 {ip} 10.0.0.1 1 1\r\n2").into_bytes();
    let (_one, first) = bound.offer(&client("192.0.2.1")).await;
    let (_two, second) = bound.offer(&client("192.0.2.2")).await;
    let _both = (first.unwrap(), second.unwrap());
    let (_three, refused) = bound.refused(&client("192.0.2.1")).await;
    assert_eq!(refused.option, Some("--max-connections-per-address"));
    assert_eq!(&*refused.peer, "192.0.2.1:1");
}

#[tokio::test]
async fn one_silent_connection_does_not_keep_the_next_waiting() {
    let bound = BoundListener::open(proxied()).await;
    let _silent = TcpStream::connect(bound.address).await.unwrap();
    let accepted = bound
        .acceptor
        .accept(&bound.listener)
        .await
        .unwrap()
        .unwrap();
    let silent = tokio::spawn(accepted.admit(None, false));
    let wire = [V1, b"2"].concat();
    bound.offer(&wire).await.1.unwrap();
    assert!(!silent.is_finished());
    assert_eq!(
        bound.acceptor.connections(),
        1,
        "the silent one holds its slot"
    );
    silent.abort();
}

/// A client, its connection, and the time at which it was admitted.
type Entry = (TcpStream, Admitted, Instant);
