//! Admission and refusal of connections, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may panic

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

/// Connects from this address and sends a byte.
async fn entering(bound: &BoundListener, host: &str) -> JoinHandle<Entry> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{host}:0").parse().unwrap()).unwrap();
    let mut client = socket.connect(bound.address).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let arrived = bound
        .acceptor
        .accept(&bound.listener)
        .await
        .unwrap()
        .unwrap();
    tokio::spawn(async move {
        let admitted = arrived.admit(None, false).await.unwrap();
        (client, admitted, Instant::now())
    })
}

/// Waits until all are admitted; their connections are open until they are dropped.
async fn all_in(waiting: Vec<JoinHandle<Entry>>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for one in waiting {
        entries.push(one.await.unwrap());
    }
    entries
}

fn last_of(entries: &[Entry]) -> Instant {
    entries.iter().map(|(_, _, at)| *at).max().unwrap()
}

fn at_400_a_second() -> AcceptorOptions {
    AcceptorOptions {
        accept_rate: Some(400),
        ..AcceptorOptions::default()
    }
}

#[tokio::test]
async fn a_burst_of_connects_is_admitted_at_the_rate_and_none_is_refused() {
    let bound = BoundListener::open(at_400_a_second()).await;
    let begin = Instant::now();
    let mut waiting = Vec::new();
    for at in 0..1_000 {
        waiting.push(entering(&bound, &format!("127.0.0.{}", 2 + at % 5)).await);
    }
    let entries = all_in(waiting).await;
    let last = last_of(&entries);
    // 400 at once, then 600 at 400 a second.
    assert!(
        last - begin >= Duration::from_millis(1_450),
        "{:?}",
        last - begin
    );
    assert_eq!(bound.acceptor.connections(), 1_000);
}

#[tokio::test]
async fn an_address_that_comes_faster_than_its_rate_makes_no_other_wait() {
    let bound = BoundListener::open(at_400_a_second()).await;
    let begin = Instant::now();
    let mut storm = Vec::new();
    // 200 at once, then 600 at 200 a second.
    for _ in 0..800 {
        storm.push(entering(&bound, "127.0.0.2").await);
    }
    let (_client, _admitted, at) = entering(&bound, "127.0.0.3").await.await.unwrap();
    assert!(
        at - begin < Duration::from_millis(1_500),
        "{:?}",
        at - begin
    );
    let last = last_of(&all_in(storm).await);
    assert!(
        last - begin >= Duration::from_millis(2_950),
        "{:?}",
        last - begin
    );
}

#[tokio::test]
async fn a_sender_above_its_rate_is_read_later_and_not_closed() {
    let bound = BoundListener::open(AcceptorOptions {
        max_bytes_per_second: Some(200_000),
        ..AcceptorOptions::default()
    })
    .await;
    let mut writers = Vec::new();
    let mut links = Vec::new();
    let begin = Instant::now();
    for _ in 0..2 {
        let (mut client, admitted) = bound.offer(&frames(&[b"x"])).await;
        let admitted = admitted.unwrap();
        let link = Link::new(Toy {
            echo: false,
            room: usize::MAX,
            ..Toy::default()
        });
        link.limit_rate(admitted.rate.unwrap());
        let driven = link.clone();
        tokio::spawn(async move { driven.drive(admitted.stream).await });
        links.push(link);
        writers.push(tokio::spawn(async move {
            for _ in 0..250 {
                client.write_all(&frames(&[&[7; 1_000]])).await.unwrap();
            }
            client
        }));
    }
    let all = |link: &Link<Toy>| link.call(|toy, _| toy.events.len()) == 251;
    until(|| links.iter().all(all)).await;
    // Both connections are of one sender: 502,000 bytes, 200,000 of them at once.
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(1_300), "{took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    for link in &links {
        assert!(!link.is_ended());
        let told = link.call(|toy, _| toy.reading.clone());
        assert!(
            told.contains(&false),
            "the protocol knows that it is not its peer's silence"
        );
    }
    drop(writers);
}

#[tokio::test]
async fn a_proxys_own_connection_needs_the_same_permission_as_a_client() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".as_slice();
    for header in [b"PROXY UNKNOWN\r\n".as_slice(), local] {
        let events = [header, b"2W"].concat();
        let only_clients = AcceptorOptions {
            allow: "192.0.2.0/24".parse().unwrap(),
            ..proxied()
        };
        let bound = BoundListener::open(only_clients).await;
        let (client, refused) = bound.refused(&events).await;
        assert_eq!(
            (refused.code, refused.option),
            ("link.not_allowed", Some("--allow"))
        );
        fin(client).await;
        let client = [V1, b"2W"].concat();
        bound.offer(&client).await.1.unwrap();
        // The proxy's health checks carry nothing.
        let mut check = TcpStream::connect(bound.address).await.unwrap();
        check.write_all(header).await.unwrap();
        check.shutdown().await.unwrap();
        assert!(matches!(bound.admit().await, Err(TurnedAway::HealthCheck)));

        let also_itself = AcceptorOptions {
            allow: "192.0.2.0/24,127.0.0.1".parse().unwrap(),
            ..proxied()
        };
        let bound = BoundListener::open(also_itself).await;
        let admitted = bound.offer(&events).await.1.unwrap();
        assert_eq!(&*admitted.peer.sender, "127.0.0.1");
    }
}

/// A client of a proxy, with the first byte of its protocol.
fn client(last: u8) -> Vec<u8> {
    format!("PROXY TCP4 192.0.2.{last} 10.0.0.1 1 1\r\n2").into_bytes()
}

#[tokio::test]
async fn a_client_behind_a_proxy_gets_a_place_where_others_hold_all() {
    let bound = BoundListener::open(AcceptorOptions {
        max_connections: 8,
        max_connections_per_address: PerAddress::Limit(0),
        ..proxied()
    })
    .await;
    let mut held = Vec::new();
    for number in 0..8 {
        let (client, admitted) = bound.offer(&client(1 + number % 2)).await;
        held.push((client, admitted.unwrap()));
    }
    let (more, refused) = bound.refused(&client(1)).await;
    let hit = refused.hit.unwrap();
    assert_eq!(
        (refused.code, hit.value, hit.limit),
        ("link.too_many_connections", 9, 8)
    );
    assert_eq!(&*refused.peer, "192.0.2.1:1");
    fin(more).await;
    let (_third, admitted) = bound.offer(&client(3)).await;
    assert!(!admitted.unwrap().slot.is_displaced());
    let displaced = held.iter().filter(|(_, one)| one.slot.is_displaced());
    assert_eq!(displaced.count(), 1);
}

#[tokio::test]
async fn connections_without_a_header_keep_no_client_out_and_are_few() {
    let short = Duration::from_millis(500);
    let bound = BoundListener::open(AcceptorOptions {
        max_connections: 2,
        handshake_timeout: short,
        ..proxied()
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..66 {
        let client = TcpStream::connect(bound.address).await.unwrap();
        let arrived = bound
            .acceptor
            .accept(&bound.listener)
            .await
            .unwrap()
            .unwrap();
        silent.push((client, tokio::spawn(arrived.admit(None, false))));
    }
    let more = TcpStream::connect(bound.address).await.unwrap();
    let Err(TurnedAway::Refused(refused)) = bound.admit().await else {
        panic!("67 connections without a header");
    };
    let hit = refused.hit.unwrap();
    assert_eq!(
        (refused.code, hit.value, hit.limit),
        ("link.too_many_connections", 67, 66)
    );
    fin(more).await;
    for (client, admitted) in silent {
        let Err(TurnedAway::Refused(refused)) = admitted.await.unwrap() else {
            panic!("a header came");
        };
        assert_eq!(refused.option, Some("--handshake-timeout"));
        fin(client).await;
    }
    bound.offer(&client(1)).await.1.unwrap();
}

#[tokio::test]
async fn a_proxys_own_connection_takes_a_slot_with_its_first_byte_or_in_time() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".as_slice();
    let bound = BoundListener::open(AcceptorOptions {
        max_connections: 3,
        max_connections_per_address: PerAddress::Limit(0),
        handshake_timeout: Duration::from_millis(300),
        first_byte_timeout: None,
        ..proxied()
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let (client, admitted) = bound.offer(&client(1)).await;
        held.push((client, admitted.unwrap()));
    }
    let displaced = || {
        let displaced = held.iter().filter(|(_, one)| one.slot.is_displaced());
        displaced.count()
    };
    for _ in 0..3 {
        let mut check = TcpStream::connect(bound.address).await.unwrap();
        check.write_all(local).await.unwrap();
        drop(check);
        assert!(matches!(bound.admit().await, Err(TurnedAway::HealthCheck)));
    }
    assert_eq!(displaced(), 0, "a health check takes no slot");
    let (own, admitted) = bound.offer(&[local, b"2"].concat()).await;
    let _own = (own, admitted.unwrap());
    assert_eq!(displaced(), 1);
    // A connection that is silent for longer is no health check: it counts as the proxy's.
    let mut silent = TcpStream::connect(bound.address).await.unwrap();
    silent.write_all(local).await.unwrap();
    let (code, refused) = match bound.admit().await {
        Err(TurnedAway::Refused(refused)) => (refused.code, refused.hit),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (code, refused.unwrap().limit),
        ("link.too_many_connections", 3)
    );
}

#[tokio::test]
async fn peers_on_a_unix_socket_count_by_their_user() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = Listener::bind(&Address::Unix(path.clone())).await.unwrap();
    let acceptor = Acceptor::new(AcceptorOptions {
        max_connections: 16,
        ..AcceptorOptions::default()
    });
    let admit = async || {
        let client = tokio::net::UnixStream::connect(&path).await.unwrap();
        let arrived = acceptor.accept(&listener).await.unwrap()?;
        Ok((client, arrived.admit(None, false).await?))
    };
    let mut held = Vec::new();
    for _ in 0..14 {
        held.push(admit().await.unwrap());
    }
    let Err(TurnedAway::Refused(refused)) = admit().await else {
        panic!("one user has all");
    };
    let hit = refused.hit.unwrap();
    assert_eq!((hit.value, hit.limit), (15, 14));
    assert_eq!(refused.option, Some("--max-connections-per-address"));
    held.pop();
    admit().await.unwrap();
}
