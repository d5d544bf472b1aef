//! Handshakes that the application answers, and proxies.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::time::{Duration, Instant};

use ackline::micromsg::{
    self, AckPolicy, Arrival, Config, ConnectOptions, Connection, Error, Extension, Filter,
    ListenOptions, Listener, Message, Negotiation, Number, Offer, Property, Terms,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::micromsg::{LONG, MOMENT, listener_with, pair_with, soon, text, with};

fn extension(name: &str, properties: &[(&str, &str)]) -> Extension {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Extension {
        name: name.to_owned(),
        properties: properties.iter().map(owned).collect(),
    }
}

/// Settings of an end whose application answers the handshake.
fn by_hand() -> Config {
    Config {
        terms: Terms {
            negotiation: Negotiation::Manual,
            ..Terms::default()
        },
        ..Config::with_timers()
    }
}

fn offering(required: &str, optional: &str) -> Offer {
    Offer {
        name: Some("sensor 7".to_owned()),
        required_extensions: Some(required.to_owned()),
        optional_extensions: Some(optional.to_owned()),
        ..Offer::default()
    }
}

fn connecting(offer: Offer, link: Config) -> ConnectOptions {
    ConnectOptions {
        offer,
        link,
        ..ConnectOptions::default()
    }
}

#[tokio::test]
async fn an_application_answers_the_handshake_at_both_ends() {
    let (listener, _) = listener_with((Offer::default(), by_hand())).await;
    let offer = offering("json", "batch-ack:max-count=50;x-trace:level=2;x-other");
    let client = tokio::spawn({
        let url = listener.url().to_owned();
        async move { micromsg::connect(&url, connecting(offer, by_hand())).await }
    });
    let server = soon(listener.accept()).await.unwrap();
    let asked = soon(server.proposal()).await.unwrap();
    assert_eq!(
        (asked.version.major, asked.version.minor, &*asked.identity),
        (1, 0, "sensor 7")
    );
    assert_eq!(asked.required, [extension("json", &[])]);
    assert_eq!(
        asked.optional,
        [
            extension("batch-ack", &[("max-count", "50")]),
            extension("x-trace", &[("level", "2")]),
            extension("x-other", &[]),
        ]
    );
    let blocked = server.try_connected().unwrap_err();
    assert!(matches!(blocked, Error::Blocked));
    // A wrong answer changes nothing.
    let twice = vec![extension("x-trace", &[]); 2];
    let named = |name: &str| vec![extension(name, &[])];
    let zero = vec![extension("batch-ack", &[("max-count", "0")])];
    for (required, optional) in [
        (twice, vec![]),
        (named("x-trace"), named("x-trace")),
        (zero, vec![]),
        (named("a;b"), vec![]),
        (named("\u{e9}"), vec![]),
    ] {
        let refused = server.answer(required, optional).unwrap_err();
        assert_eq!(refused.code(), "invalid_answer");
    }
    let long = vec![extension("x-trace", &[("of", &"a".repeat(65_536))])];
    assert_eq!(
        server.answer(long, vec![]).unwrap_err().code(),
        "out_of_range"
    );
    assert_eq!(server.proposal().await.unwrap(), asked, "it stays");
    let window = extension("batch-ack", &[("max-count", "3")]);
    let trace = extension("x-trace", &[("level", "1")]);
    server
        .answer(vec![trace.clone()], vec![window.clone()])
        .unwrap();
    let again = server.answer(vec![], vec![]).unwrap_err();
    assert_eq!(again.code(), "nothing_proposed");
    let client = soon(client).await.unwrap().unwrap();
    let offered = soon(client.proposal()).await.unwrap();
    assert_eq!(offered.required, std::slice::from_ref(&trace));
    assert_eq!(offered.optional, std::slice::from_ref(&window));
    // The client lacks what an end requires, has what was not offered, or states a larger count.
    let large = extension("batch-ack", &[("max-count", "4")]);
    let json = extension("json", &[]);
    for chosen in [
        vec![json.clone()],
        vec![trace.clone()],
        vec![json.clone(), trace.clone(), extension("x-other", &[])],
        vec![json.clone(), trace.clone(), large],
    ] {
        let refused = client.answer(chosen, vec![]).unwrap_err();
        assert_eq!(refused.code(), "invalid_answer");
    }
    client.answer(vec![trace, json], vec![window]).unwrap();
    for end in [&client, &server] {
        let connected = soon(end.connected()).await.unwrap();
        assert_eq!(connected.extensions, ["x-trace", "json", "batch-ack"]);
        assert_eq!(end.window(), Some(3));
        let late = soon(end.proposal()).await.unwrap_err();
        assert_eq!(late.code(), "nothing_proposed");
    }
    soon(client.send(&Message::new("t", "1"))).await.unwrap();
    assert_eq!(text(&server).await, "1");
}

#[tokio::test]
async fn a_server_refuses_a_client_with_its_own_reason() {
    let (listener, _) = listener_with((Offer::default(), by_hand())).await;
    let client = tokio::spawn({
        let url = listener.url().to_owned();
        async move { micromsg::connect(&url, ConnectOptions::default()).await }
    });
    let server = soon(listener.accept()).await.unwrap();
    let asked = soon(server.proposal()).await.unwrap();
    assert_eq!(asked.identity, "");
    server.fail("nobody without a name").unwrap();
    let refused = soon(client).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), "micromsg.failed");
    assert!(refused.to_string().contains("nobody without a name"));
    assert_eq!(
        server.answer(vec![], vec![]).unwrap_err().code(),
        "micromsg.ended"
    );
}

#[tokio::test]
async fn a_connection_that_answers_by_itself_proposes_nothing() {
    let (left, right) = pair_with(with(AckPolicy::Manual, None, 10)).await;
    for end in [&left, &right] {
        assert_eq!(
            soon(end.proposal()).await.unwrap_err().code(),
            "nothing_proposed"
        );
    }
}

#[tokio::test]
async fn the_codec_of_the_first_extension_that_has_one_is_that_of_a_connection() {
    let (left, right) = pair_with(with(AckPolicy::Manual, Some("batch-ack;x-rot;json"), 10)).await;
    let decode = |payload: &[u8]| String::from_utf8(payload.to_vec()).map_err(|_| "UTF-8");
    let plain = micromsg::Codec {
        encode: |value: &String| Ok(value.clone().into_bytes()),
        decode,
    };
    let swapped = micromsg::Codec {
        encode: |value: &String| Ok(value.bytes().rev().collect()),
        decode: |payload: &[u8]| {
            let bytes = payload.iter().rev().copied().collect();
            String::from_utf8(bytes).map_err(|_| "UTF-8")
        },
    };
    let codecs = micromsg::Codecs::default().with("json", plain);
    let codec = codecs.agreed(&left.extensions()).unwrap();
    assert_eq!((codec.encode)(&"ab".to_owned()).unwrap(), b"ab");
    let codecs = codecs.with("x-rot", plain).with("x-rot", swapped);
    let codec = codecs.agreed(&left.extensions()).unwrap();
    let payload = (codec.encode)(&"ab".to_owned()).unwrap();
    soon(left.send(&Message::new("t", payload))).await.unwrap();
    let came = soon(right.receive()).await.unwrap().unwrap();
    let payload = came.message.payload().to_bytes();
    assert_eq!(payload, "ba");
    assert_eq!((codec.decode)(&payload), Ok("ab".to_owned()));
    assert!(codecs.agreed(&[extension("xml", &[])]).is_none());
}

/// A proxy with all defaults in front of a server: its URL, and how it ends with its first client.
async fn proxy(server: &str) -> (String, JoinHandle<Result<(), Error>>) {
    proxy_with(server, ListenOptions::default()).await
}

async fn proxy_with(
    server: &str,
    options: ListenOptions,
) -> (String, JoinHandle<Result<(), Error>>) {
    let url = "micromsg://127.0.0.1:0";
    let listener = soon(micromsg::listen_as_proxy(url, options)).await.unwrap();
    let (url, server) = (listener.url().to_owned(), server.to_owned());
    let serving = tokio::spawn(async move {
        let client = listener.accept().await.unwrap();
        client.pass_to(&server, ConnectOptions::default()).await
    });
    (url, serving)
}

/// A client and a server, with a proxy between them.
async fn joined(
    client: ConnectOptions,
    server: (Offer, Config),
) -> (Connection, Connection, JoinHandle<Result<(), Error>>) {
    let (listener, _) = listener_with(server).await;
    let (url, serving) = proxy(listener.url()).await;
    let client = soon(micromsg::connect(&url, client)).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    soon(server.connected()).await.unwrap();
    (client, server, serving)
}

fn manual(optional: &str) -> (Offer, Config) {
    let (offer, config) = with(AckPolicy::Manual, Some(optional), 10);
    (offer, config)
}

async fn joined_manual(optional: &str) -> (Connection, Connection, JoinHandle<Result<(), Error>>) {
    let (offer, link) = manual(optional);
    joined(connecting(offer, link), manual(optional)).await
}

#[tokio::test]
async fn a_proxy_joins_ends_whose_extensions_it_does_not_know() {
    let theirs = "x-vendor:mode=fast;batch-ack:max-count=7;pub-sub";
    let offer = offering("x-vendor:mode=fast", "batch-ack:max-count=9;x-unknown");
    let server = Offer {
        name: Some("server".to_owned()),
        ..offering("", theirs)
    };
    let (client, server, serving) = joined(
        connecting(offer, Config::with_timers()),
        (server, Config::with_timers()),
    )
    .await;
    let [at_client, at_server] = [&client, &server].map(|end| end.try_connected().unwrap());
    assert_eq!(
        (at_client.identity.as_str(), at_server.identity.as_str()),
        ("server", "sensor 7")
    );
    assert_eq!(at_client.extensions, ["x-vendor", "batch-ack", "pub-sub"]);
    assert_eq!(at_client.extensions, at_server.extensions);
    assert_eq!((client.window(), server.window()), (Some(7), Some(7)));
    for (from, to) in [(&client, &server), (&server, &client)] {
        for (extension, payload) in [("type=a", vec![7; 3_000_000]), ("type=b", vec![])] {
            soon(from.send_extension("x-vendor", extension.as_bytes()))
                .await
                .unwrap();
            let last = soon(from.send(&Message::new("t", payload.clone())))
                .await
                .unwrap();
            let (name, bytes) = soon(to.receive_extension()).await.unwrap().unwrap();
            assert_eq!((&*name, &bytes[..]), ("x-vendor", extension.as_bytes()));
            let came = soon(to.receive()).await.unwrap().unwrap();
            assert_eq!(came.message.payload().to_bytes(), payload);
            // It is processed when the next one is asked for.
            assert!(to.try_receive().is_err());
            soon(from.acknowledged(last)).await.unwrap();
        }
    }
    soon(client.close(Some(LONG))).await.unwrap();
    assert!(soon(server.receive()).await.unwrap().is_none());
    drop(server);
    soon(serving).await.unwrap().unwrap();
}

/// The bytes of a handshake of version 1.0.
fn handshake(required: &str, optional: &str) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0];
    for list in [required, optional] {
        bytes.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
        bytes.extend(list.as_bytes());
    }
    bytes
}

/// Raw ends of a proxied connection, behind their handshake with these lists.
async fn raw_ends(
    lists: [&str; 2],
    reply: [&str; 2],
) -> ([TcpStream; 2], JoinHandle<Result<(), Error>>) {
    raw_ends_with(lists, reply, ListenOptions::default()).await
}

async fn raw_ends_with(
    lists: [&str; 2],
    reply: [&str; 2],
    options: ListenOptions,
) -> ([TcpStream; 2], JoinHandle<Result<(), Error>>) {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("micromsg://{}", server.local_addr().unwrap());
    let (proxy, serving) = proxy_with(&url, options).await;
    let address = proxy.trim_start_matches("micromsg://").to_owned();
    let mut client = TcpStream::connect(address).await.unwrap();
    let first = handshake(lists[0], lists[1]);
    // A client is accepted with its first byte.
    client.write_all(&first[..1]).await.unwrap();
    let (mut server, _) = soon(server.accept()).await.unwrap();
    client.write_all(&first[1..]).await.unwrap();
    let mut came = vec![0; first.len()];
    soon(server.read_exact(&mut came)).await.unwrap();
    assert_eq!(came, first);
    let reply = handshake(reply[0], reply[1]);
    passes(&mut server, &mut client, &reply).await;
    let last = lists.join(";");
    let last = handshake(last.trim_matches(';'), "");
    passes(&mut client, &mut server, &last).await;
    ([client, server], serving)
}

/// Bytes of one end come to the other as they are.
async fn passes(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    let mut came = vec![0; bytes.len()];
    soon(to.read_exact(&mut came)).await.unwrap();
    assert_eq!(came, bytes);
}

/// Everything that comes until the end.
async fn rest(end: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset ends it too.
    let _ = soon(end.read_to_end(&mut all)).await;
    all
}

#[tokio::test]
async fn every_sound_frame_goes_through_a_proxy_as_it_came() {
    let lists = ["json;X-Foo", "first_name;batch-ack"];
    let ([mut client, mut server], serving) = raw_ends(lists, ["json;X-Foo", "json"]).await;
    for frame in [
        // Extensions with numbers that no extension has, with names of any form, and one of 300 bytes.
        b"\x02\xc8\x02hi".to_vec(),
        b"\x02\x00\x00".to_vec(),
        b"\x02\x02\x01x".to_vec(),
        [&b"\x0a\x09\x00\x00\x01\x2c"[..], &[7; 300]].concat(),
        // Commands with names of any form.
        b"\x01\x17CommandName;First_key=v".to_vec(),
        b"\x01\x00".to_vec(),
        // Messages: whole, with a long length in front of a short payload, and in fragments.
        b"\x00\x00\x07\x01t\x00\x05a:N1;\x01x".to_vec(),
        b"\x08\x00\x08\x01t\x00\x00\x00\x00\x00\x01y".to_vec(),
        b"\x10\x00\x09\x01t\x00\x00\x01a".to_vec(),
        b"\x00\x00\x09\x01t\x00\x00\x01b".to_vec(),
        // An acknowledgement of several messages.
        b"\x02\x04\x02\x00\x09".to_vec(),
    ] {
        for byte in frame.chunks(1) {
            client.write_all(byte).await.unwrap();
        }
        let mut came = vec![0; frame.len()];
        soon(server.read_exact(&mut came)).await.unwrap();
        assert_eq!(came, frame);
        passes(&mut server, &mut client, &frame).await;
    }
    server.write_all(b"\x04\x03bye").await.unwrap();
    drop(server);
    assert_eq!(
        rest(&mut client).await,
        b"\x04\x03bye",
        "the error, then the end"
    );
    drop(client);
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn jobs_that_a_worker_acknowledged_before_it_left_are_acknowledged() {
    for _ in 0..20 {
        let (worker, server, serving) = joined_manual("batch-ack").await;
        for number in 0..5 {
            let message = Message::new("jobs", number.to_string());
            soon(server.send(&message)).await.unwrap();
        }
        for _ in 0..5 {
            let job = soon(worker.receive()).await.unwrap().unwrap();
            worker.ack(job.position).unwrap();
        }
        soon(worker.close(Some(LONG))).await.unwrap();
        soon(server.acknowledged(5)).await.unwrap();
        soon(server.close(Some(LONG))).await.unwrap();
        soon(serving).await.unwrap().unwrap();
    }
}

/// The client and the server, or the other way round.
fn in_order<T>([client, server]: [T; 2], swapped: bool) -> [T; 2] {
    if swapped {
        [server, client]
    } else {
        [client, server]
    }
}

/// The sender and the receiver of a message that is not acknowledged.
async fn one_unacknowledged(swapped: bool) -> ([TcpStream; 2], JoinHandle<Result<(), Error>>) {
    let (ends, serving) = raw_ends(["batch-ack", ""], ["batch-ack", ""]).await;
    let [mut sender, mut receiver] = in_order(ends, swapped);
    passes(&mut sender, &mut receiver, b"\x00\x00\x01\x00\x00\x00\x01x").await;
    ([sender, receiver], serving)
}

#[tokio::test]
async fn a_sender_that_has_ended_its_direction_is_still_acknowledged() {
    for swapped in [false, true] {
        let ([mut sender, mut receiver], serving) = one_unacknowledged(swapped).await;
        sender.shutdown().await.unwrap();
        tokio::time::sleep(MOMENT).await;
        receiver.write_all(b"\x02\x01\x02\x00\x01").await.unwrap();
        let begun = Instant::now();
        assert_eq!(rest(&mut receiver).await, b"", "then the end comes");
        assert!(begun.elapsed().as_secs() < 4, "without a wait");
        drop(receiver);
        assert_eq!(rest(&mut sender).await, b"\x02\x01\x02\x00\x01");
        drop(sender);
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_end_that_holds_an_unacknowledged_message_is_told_soon_that_the_other_one_is_gone() {
    for swapped in [false, true] {
        let ([sender, mut receiver], serving) = one_unacknowledged(swapped).await;
        drop(sender);
        assert_eq!(rest(&mut receiver).await, b"");
        drop(receiver);
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn subscriptions_filters_and_windows_are_those_of_both_ends() {
    let (client, server, serving) = joined_manual("batch-ack:max-count=5;pub-sub;x-trace").await;
    let filter = Filter::read(b"age>=N18").unwrap();
    soon(client.subscribe("people", Some(&filter)))
        .await
        .unwrap();
    let Some(Arrival::Subscribe(wanted)) = soon(server.receive_command()).await.unwrap() else {
        panic!("a subscription");
    };
    assert_eq!(
        (wanted.topic.as_str(), wanted.filter.as_deref()),
        ("people", Some(&filter))
    );
    let message = |number: u64| {
        Message::new("t", number.to_string()).with("a", Property::Number(Number::Whole(1)))
    };
    for number in 1..=5 {
        soon(server.send(&message(number))).await.unwrap();
    }
    assert!(timeout(MOMENT, server.send(&message(6))).await.is_err());
    for number in 1..=5 {
        let received = soon(client.receive()).await.unwrap().unwrap();
        assert_eq!(received.message.raw_properties(), "a:N1;");
        assert_eq!(received.message.payload().to_bytes(), number.to_string());
        assert!(
            matches!(server.try_acknowledged(number), Err(Error::Blocked)),
            "not before its receiver"
        );
        client.ack(received.position).unwrap();
        soon(server.acknowledged(number)).await.unwrap();
    }
    soon(client.close(Some(LONG))).await.unwrap();
    soon(server.close(Some(LONG))).await.unwrap();
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_proxy_holds_back_an_end_whose_peer_does_not_read() {
    let ([mut client, mut server], serving) = raw_ends(["json", ""], ["", "json"]).await;
    let frame = [&b"\x0a\x01\x00\x01\x00\x00"[..], &vec![7; 65_536]].concat();
    let mut sent = 0;
    while timeout(5 * MOMENT, client.write_all(&frame)).await.is_ok() {
        sent += frame.len();
        assert!(sent < 64 << 20, "there is room without an end");
    }
    client.shutdown().await.unwrap();
    // It goes on once the other end reads, also when the time for answers to the first one is over.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let reading = tokio::spawn(async move { rest(&mut server).await.len() });
    let came = soon(reading).await.unwrap();
    assert!(came >= sent, "{came} of {sent}");
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn both_ends_are_told_of_a_frame_that_breaks_a_rule() {
    for swapped in [false, true] {
        let (ends, serving) = raw_ends(["json", ""], ["", "json"]).await;
        let [mut wrong, mut other] = in_order(ends, swapped);
        wrong.write_all(b"\x40").await.unwrap();
        let told = rest(&mut wrong).await;
        assert!(told.starts_with(b"\x04"), "{told:?}");
        assert!(String::from_utf8_lossy(&told).contains("without a meaning"));
        let told = rest(&mut other).await;
        assert!(told.starts_with(b"\x04"), "{told:?}");
        assert!(String::from_utf8_lossy(&told).contains("the other end of the proxy"));
        drop((wrong, other));
        let ended = soon(serving).await.unwrap().unwrap_err();
        assert_eq!(ended.code(), "micromsg.reserved_flags");
    }
}

#[tokio::test]
async fn a_proxy_passes_on_why_an_end_refuses() {
    // The server lacks what the client requires, and then the other way round.
    for (client, server) in [("x-vendor", ""), ("", "x-vendor")] {
        let (listener, _): (Listener, _) =
            listener_with((offering(server, ""), Config::with_timers())).await;
        let (url, serving) = proxy(listener.url()).await;
        let wants = connecting(offering(client, ""), Config::with_timers());
        let accepting = tokio::spawn(async move {
            let server = listener.accept().await.unwrap();
            server.connected().await.unwrap_err()
        });
        let at_client = soon(micromsg::connect(&url, wants)).await.unwrap_err();
        let at_server = soon(accepting).await.unwrap();
        let codes = [at_client.code(), at_server.code()];
        let wanted = if client.is_empty() {
            ["micromsg.missing_extension", "micromsg.failed"]
        } else {
            ["micromsg.failed", "micromsg.missing_extension"]
        };
        assert_eq!(codes, wanted);
        for told in [at_client, at_server] {
            assert!(told.to_string().contains("x-vendor"), "{told}");
        }
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_client_is_told_that_the_server_cannot_be_reached() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("micromsg://{}", nobody.local_addr().unwrap());
    drop(nobody);
    for _ in 0..20 {
        let (url, serving) = proxy(&server).await;
        let refused = soon(micromsg::connect(&url, ConnectOptions::default()))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), "micromsg.failed");
        let text = refused.to_string();
        assert!(text.contains("the server cannot be reached"), "{text}");
        let ended = soon(serving).await.unwrap().unwrap_err();
        assert!(matches!(ended, Error::Open(_)), "{ended}");
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_is_ended() {
    let mut options = ListenOptions::default();
    options.link.handshake_timeout = Some(MOMENT);
    let listener = soon(micromsg::listen_as_proxy("micromsg://127.0.0.1:0", options))
        .await
        .unwrap();
    let address = listener.url().trim_start_matches("micromsg://").to_owned();
    let (server, _) = listener_with((Offer::default(), Config::with_timers())).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    silent.write_all(b"\x01").await.unwrap();
    let client = soon(listener.accept()).await.unwrap();
    assert!(client.peer().name.starts_with("127.0.0.1"));
    let ended = soon(client.pass_to(server.url(), ConnectOptions::default())).await;
    assert_eq!(ended.unwrap_err().code(), "micromsg.timeout");
    let told = rest(&mut silent).await;
    assert!(String::from_utf8_lossy(&told).contains("--handshake-timeout"));
}

#[tokio::test]
async fn the_other_end_is_told_of_a_frame_that_the_memory_cannot_hold() {
    let options = ListenOptions {
        memory: 1 << 20,
        ..ListenOptions::default()
    };
    let (ends, serving) = raw_ends_with(["json", ""], ["", "json"], options).await;
    let [mut client, mut server] = ends;
    client.write_all(b"\x0a\x01\x00\x20\x00\x00").await.unwrap();
    let told = rest(&mut server).await;
    let text = String::from_utf8_lossy(&told);
    assert!(
        told.starts_with(b"\x04") && text.contains("memory"),
        "{text}"
    );
    drop((client, server));
    let ended = soon(serving).await.unwrap().unwrap_err();
    assert_eq!(ended.code(), "micromsg.ended");
}
