//! Handshakes that the application answers, and proxies.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use ackline::micromsg::{
    self, AckPolicy, Arrival, Config, ConnectOptions, Connection, Error, Extension, ExtensionFrame,
    Filter, ListenOptions, Listener, Message, Negotiation, Next, Number, Offer, Property, Terms,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
async fn what_came_is_taken_in_the_order_of_the_wire() {
    let own = with(AckPolicy::Manual, Some("batch-ack;x-trace;pub-sub"), 10);
    let (left, right) = pair_with(own).await;
    for number in 0..3 {
        let text = number.to_string();
        soon(left.send_extension("x-trace", text.as_bytes()))
            .await
            .unwrap();
        soon(left.send(&Message::new("t", text.clone())))
            .await
            .unwrap();
        soon(left.send(&Message::new("t", text))).await.unwrap();
        soon(left.subscribe("t", None)).await.unwrap();
    }
    soon(left.send_extension("x-trace", b"last")).await.unwrap();
    let mut came = Vec::new();
    while came.last().is_none_or(|last| last != "x last") {
        came.extend(soon(next(&right)).await);
    }
    let wanted: Vec<_> = (0..3)
        .flat_map(|number| {
            let message = format!("message {number}");
            [
                format!("x {number}"),
                message.clone(),
                message,
                "command".into(),
            ]
        })
        .chain(["x last".to_owned()])
        .collect();
    assert_eq!(came, wanted);
    drop(left);
    // The end comes behind everything, and takes no longer than that.
    let _ = soon(right.receive_next(9, 9)).await;
}

/// What came next, in words.
async fn next(connection: &Connection) -> Vec<String> {
    match connection.receive_next(usize::MAX, usize::MAX).await {
        Ok(Some(Next::Messages(messages))) => {
            let each = messages.iter().map(|one| one.message.payload().to_bytes());
            let each = each.map(|payload| format!("message {}", String::from_utf8_lossy(&payload)));
            each.collect()
        }
        Ok(Some(Next::Extension(frame))) => {
            vec![format!("x {}", String::from_utf8_lossy(&frame.payload))]
        }
        Ok(Some(Next::Arrival(_))) => vec!["command".to_owned()],
        other => panic!("{other:?}"),
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

/// A proxy with all defaults in front of a server: its listener.
async fn proxy() -> Listener {
    let mut listening = ListenOptions::default();
    micromsg::for_proxy(&mut listening.link);
    soon(micromsg::listen("micromsg://127.0.0.1:0", listening))
        .await
        .unwrap()
}

/// Accepts one client and joins it with the server.
async fn serve_one(proxy: Listener, server: String) -> Result<(), Error> {
    let client = soon(proxy.accept()).await.unwrap();
    let server = micromsg::mirror(&client, &server, ConnectOptions::default()).await?;
    micromsg::bridge(&client, &server).await?;
    server.close(Some(LONG)).await?;
    client.close(Some(LONG)).await
}

#[tokio::test]
async fn a_proxy_joins_ends_whose_extensions_it_does_not_know() {
    let theirs = "x-vendor:mode=fast;batch-ack:max-count=7;pub-sub";
    let (server, _) = listener_with((offering("", theirs), Config::with_timers())).await;
    let proxy = proxy().await;
    let url = proxy.url().to_owned();
    let serving = tokio::spawn(serve_one(proxy, server.url().to_owned()));
    let offer = offering("x-vendor:mode=fast", "batch-ack:max-count=9;x-unknown");
    let client = connecting(offer, Config::with_timers());
    let client = soon(micromsg::connect(&url, client)).await.unwrap();
    let server = soon(server.accept()).await.unwrap();
    let connected = soon(server.connected()).await.unwrap();
    assert_eq!(connected.identity, "sensor 7", "the client's name");
    assert_eq!(connected.extensions, ["x-vendor", "batch-ack", "pub-sub"]);
    assert_eq!(client.extensions(), server.extensions());
    assert_eq!((client.window(), server.window()), (Some(7), Some(7)));
    for (from, to) in [(&client, &server), (&server, &client)] {
        soon(from.send_extension("x-vendor", b"type=a"))
            .await
            .unwrap();
        soon(from.send(&Message::new("t", "a"))).await.unwrap();
        soon(from.send_extension("x-vendor", b"type=b"))
            .await
            .unwrap();
        soon(from.send(&Message::new("t", "b"))).await.unwrap();
        let mut came = Vec::new();
        while came.len() < 4 {
            came.extend(soon(next(to)).await);
        }
        assert_eq!(came, ["x type=a", "message a", "x type=b", "message b"]);
    }
    // The last message is acknowledged when the next one is asked for.
    let ending = tokio::spawn(async move { server.receive().await.map(|next| next.is_none()) });
    soon(client.close(Some(LONG))).await.unwrap();
    soon(serving).await.unwrap().unwrap();
    assert!(
        soon(ending).await.unwrap().unwrap(),
        "it has ended in order"
    );
}

#[tokio::test]
async fn a_proxy_passes_on_frames_with_numbers_that_were_not_agreed_on() {
    let mut link = Config::with_timers();
    link.terms.forwards = true;
    let (server, _) = listener_with((offering("", "json"), link)).await;
    let proxy = proxy().await;
    let address = proxy.url().trim_start_matches("micromsg://").to_owned();
    let serving = tokio::spawn(serve_one(proxy, server.url().to_owned()));
    let mut client = tokio::net::TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"\x01\0\0\x01p\0\0\0\x04json")
        .await
        .unwrap();
    let reply = b"\x01\0\0\0\0\0\0\x04json";
    let mut read = vec![0; reply.len()];
    soon(client.read_exact(&mut read)).await.unwrap();
    assert_eq!(read, reply);
    let mut bytes = b"\x01\0\0\x01p\0\0\0\x04json".to_vec();
    bytes.extend_from_slice(b"\x02\xc8\x02hi\x02\0\x00\x02\x01\x01j");
    client.write_all(&bytes).await.unwrap();
    let server = soon(server.accept()).await.unwrap();
    let mut came = Vec::new();
    for _ in 0..3 {
        let frame = soon(server.receive_extension()).await.unwrap().unwrap();
        came.push((frame.id, frame.name.to_string(), frame.payload.to_vec()));
    }
    let frame = |id, name: &str, bytes: &[u8]| (id, name.to_owned(), bytes.to_vec());
    assert_eq!(
        came,
        [
            frame(200, "", b"hi"),
            frame(0, "", b""),
            frame(1, "json", b"j")
        ]
    );
    // And in the other direction.
    soon(server.forward_extension(9, b"back")).await.unwrap();
    let mut frame = [0; 7];
    soon(client.read_exact(&mut frame)).await.unwrap();
    assert_eq!(&frame, b"\x02\x09\x04back");
    let own = soon(server.forward_extension(1, b"")).await.unwrap_err();
    assert_eq!(own.code(), "reserved_extension");
    drop(client);
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_proxy_tells_each_end_why_the_other_one_refuses() {
    // The server lacks what the client requires.
    let (server, _) = listener_with((offering("", ""), Config::with_timers())).await;
    let front = proxy().await;
    let url = front.url().to_owned();
    let serving = tokio::spawn(serve_one(front, server.url().to_owned()));
    let accepted = tokio::spawn(async move {
        let server = server.accept().await.unwrap();
        server.connected().await.unwrap_err().code()
    });
    let wants = connecting(offering("x-vendor", ""), Config::with_timers());
    let refused = soon(micromsg::connect(&url, wants)).await.unwrap_err();
    assert_eq!(refused.code(), "micromsg.failed");
    assert!(refused.to_string().contains("x-vendor"), "{refused}");
    assert_eq!(
        soon(serving).await.unwrap().unwrap_err().code(),
        "micromsg.failed"
    );
    assert_eq!(soon(accepted).await.unwrap(), "micromsg.missing_extension");
    // The client lacks what the server requires.
    let (server, _) = listener_with((offering("x-server", ""), Config::with_timers())).await;
    let front = proxy().await;
    let url = front.url().to_owned();
    let serving = tokio::spawn(serve_one(front, server.url().to_owned()));
    let wants = connecting(offering("", ""), Config::with_timers());
    let refused = soon(micromsg::connect(&url, wants)).await.unwrap_err();
    assert_eq!(refused.code(), "micromsg.missing_extension");
    let server = soon(server.accept()).await.unwrap();
    let told = soon(server.connected()).await.unwrap_err();
    assert_eq!(told.code(), "micromsg.failed");
    assert!(told.to_string().contains("x-server"), "{told}");
    assert!(soon(serving).await.unwrap().is_err());
}

#[tokio::test]
async fn a_proxy_without_a_server_keeps_its_client_waiting() {
    let front = proxy().await;
    let url = front.url().to_owned();
    let client =
        tokio::spawn(async move { micromsg::connect(&url, ConnectOptions::default()).await });
    let accepted = soon(front.accept()).await.unwrap();
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("micromsg://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let error = soon(micromsg::mirror(&accepted, &url, ConnectOptions::default()))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Open(_)), "{error}");
    assert!(accepted.try_proposal().is_ok(), "it can be tried again");
    accepted.fail("no server").unwrap();
    let refused = soon(client).await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("no server"), "{refused}");
}

#[tokio::test]
async fn a_bridge_passes_on_what_it_does_not_know_and_acknowledges_end_to_end() {
    let own = || {
        with(
            AckPolicy::Manual,
            Some("batch-ack:max-count=5;pub-sub;x-trace"),
            10,
        )
    };
    let ((client, near), (far, server)) = (pair_with(own()).await, pair_with(own()).await);
    let bridging = tokio::spawn({
        let (near, far) = (near.clone(), far.clone());
        async move { micromsg::bridge(&near, &far).await }
    });
    soon(client.send_extension("x-trace", b"\0\x01"))
        .await
        .unwrap();
    let ExtensionFrame { id, name, payload } =
        soon(server.receive_extension()).await.unwrap().unwrap();
    assert_eq!((id, &*name, &payload[..]), (3, "x-trace", &b"\0\x01"[..]));
    let filter = Filter::read(b"age>=N18").unwrap();
    soon(client.subscribe("people", Some(&filter)))
        .await
        .unwrap();
    soon(client.command("hello", &[])).await.unwrap();
    let Some(Arrival::Subscribe(wanted)) = soon(server.receive_command()).await.unwrap() else {
        panic!("a subscription");
    };
    assert_eq!(
        (wanted.topic.as_str(), wanted.filter.as_deref()),
        ("people", Some(&filter))
    );
    assert!(matches!(
        soon(server.receive_command()).await.unwrap(),
        Some(Arrival::Command(_))
    ));
    // The window of the other side holds the sender back: five there, and five on the way.
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
    soon(bridging).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_bridge_ends_where_the_other_end_lacks_an_extension() {
    let (client, near) = pair_with(with(AckPolicy::Manual, Some("x-trace"), 10)).await;
    let (far, _server) = pair_with(with(AckPolicy::Manual, None, 10)).await;
    soon(client.send_extension("x-trace", b"1")).await.unwrap();
    let ended = soon(micromsg::bridge(&near, &far)).await.unwrap_err();
    assert_eq!(ended.code(), "extension_not_negotiated");
}
