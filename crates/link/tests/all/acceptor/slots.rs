//! Rates and slots: many addresses, proxies and users.

use super::*;

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
