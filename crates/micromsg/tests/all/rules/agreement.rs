//! Both ends together: their defaults, any wishes, and the habits of the other implementation.

use std::time::Instant;

use ackline_core::{Connection as _, Need};
use ackline_micromsg::text::Extension;
use ackline_micromsg::{Config, Connection, Event, Negotiation, Role, Terms, refusal};
use bytes::BytesMut;
use proptest::prelude::*;

use super::{
    ack, carry, connecting, events, handshake, list, message, send, sent, shake, take, wishes,
};

#[test]
fn both_ends_with_their_defaults_agree_on_nothing_and_send_both_ways() {
    let [mut client, mut server] =
        [Role::Client, Role::Server].map(|role| connecting(role, Config::with_timers()));
    assert_eq!(shake(&mut client, &mut server), [None; 2]);
    for (one, other) in [(&mut client, &mut server)] {
        assert_eq!((one.window(), other.window()), (Ok(0), Ok(0)));
        for _ in 0..100 {
            send(one, b"x").unwrap();
            send(other, b"y").unwrap();
        }
        let counts = [carry(one, other).len(), carry(other, one).len()];
        assert_eq!(
            (counts, one.pending(), other.pending()),
            ([100, 100], 0, 0),
            "REQ-MM-4"
        );
        assert_eq!((one.poll_timeout(), other.poll_timeout()), (None, None));
    }
}

/// The version, identity and extensions that the end was told.
fn told(end: &mut Connection) -> Option<Vec<String>> {
    events(end).into_iter().find_map(|event| match event {
        Event::Connected(connected) => Some(connected.extensions),
        _ => None,
    })
}

#[test]
fn a_server_of_sharp_messaging_replies_with_the_union_in_version_1_1() {
    let mut client = connecting(
        Role::Client,
        wishes("json", "batch-ack:max-count=20;dotnet", ""),
    );
    sent(&mut client);
    // Required and optional are those of both sides; its counts have other names; it ends lists with a semicolon.
    let reply = handshake(
        [1, 1],
        "json;",
        "batch-ack:MessagesPerAck=15,AckExpireTime=500;dotnet;",
    );
    assert_eq!(take(&mut client, &reply), None);
    let last = sent(&mut client);
    assert_eq!(last[..2], [1, 0], "the lower version");
    let lists = b"\x00\x04json\x00\x1dbatch-ack:max-count=15;dotnet";
    assert!(last.ends_with(lists), "{}", String::from_utf8_lossy(&last));
    let Some(Event::Connected(connected)) = client.poll_event() else {
        unreachable!()
    };
    assert_eq!((connected.version.major, connected.version.minor), (1, 0));
    assert_eq!(connected.extensions, ["json", "batch-ack", "dotnet"]);
    assert_eq!(client.window(), Ok(15));
}

#[test]
fn a_client_of_sharp_messaging_requires_everything_in_its_final_handshake() {
    for version in [[1, 1], [1, 0]] {
        let mut server = connecting(
            Role::Server,
            wishes("", "batch-ack:max-count=5", "json;dotnet"),
        );
        let first = handshake(
            [1, 1],
            "json",
            "dotnet;ack:MessagesPerAck=10,AckExpireTime=500",
        );
        assert_eq!(take(&mut server, &first), None);
        assert_eq!(sent(&mut server)[..2], [1, 0]);
        let last = handshake(version, "json;dotnet;batch-ack:MessagesPerAck=5;", "");
        assert_eq!(take(&mut server, &last), None, "{version:?}");
        assert_eq!(
            told(&mut server),
            Some(["json", "dotnet", "batch-ack"].map(str::to_owned).to_vec())
        );
        assert_eq!(server.window(), Ok(5));
        assert_eq!(
            take(&mut server, &[ack(3, 1)].concat()),
            Some("micromsg.out_of_range")
        );
    }
    // The final handshake of a third version is none (R-MM-18).
    let mut server = connecting(Role::Server, Config::default());
    take(&mut server, &handshake([1, 2], "", ""));
    assert_eq!(
        take(&mut server, &handshake([1, 1], "", "")),
        Some("micromsg.unsupported_version")
    );
}

#[test]
fn r_mm_8_a_final_handshake_without_a_count_has_the_smallest_that_was_stated_before() {
    for (own, first, last, window) in [
        ("batch-ack:max-count=5", "batch-ack", "batch-ack", 5),
        ("batch-ack:max-count=5", "batch-ack:count=3", "batch-ack", 3),
        ("batch-ack", "batch-ack:count=12", "batch-ack", 12),
        (
            "batch-ack:max-count=5",
            "batch-ack:count=12",
            "batch-ack:count=2",
            2,
        ),
        ("batch-ack", "batch-ack", "batch-ack", 10),
    ] {
        let mut server = connecting(Role::Server, wishes("", own, ""));
        assert_eq!(take(&mut server, &handshake([1, 0], "", first)), None);
        assert_eq!(take(&mut server, &handshake([1, 0], "", last)), None);
        assert_eq!(server.window(), Ok(window), "{own} {first} {last}");
    }
}

/// A server whose application answers a client, which has said this.
fn asked_by_hand(first: &[u8]) -> Connection {
    let terms = Terms {
        negotiation: Negotiation::Manual,
        ..Terms::default()
    };
    let config = Config {
        terms,
        ..Config::default()
    };
    let mut server = connecting(Role::Server, config);
    assert_eq!(take(&mut server, first), None);
    server
}

#[test]
fn the_lists_of_a_proposal_and_of_its_answer_are_counted_as_memory_until_the_end() {
    let long = format!("x-a:k={}", "v".repeat(20_000));
    let mut server = asked_by_hand(&handshake([1, 1], "", &long));
    let held = server.held_bytes();
    assert!(
        held > 35_000,
        "the connection and the event hold it: {held}"
    );
    let [Event::Proposed(proposal)] = &events(&mut server)[..] else {
        panic!("a proposal");
    };
    assert_eq!(
        (proposal.version.major, proposal.version.minor),
        (1, 0),
        "the version that both ends speak"
    );
    let held = server.held_bytes();
    assert!((15_000..25_000).contains(&held), "{held}");
    server
        .answer(Instant::now(), Vec::new(), list(&long))
        .unwrap();
    sent(&mut server);
    let held = server.held_bytes();
    assert!((35_000..45_000).contains(&held), "{held}");
    server.fail("no").unwrap();
    sent(&mut server);
    assert_eq!(server.held_bytes(), 0);
}

#[test]
fn input_behind_a_proposal_waits_for_the_answer() {
    let now = Instant::now();
    let mut server = asked_by_hand(b"");
    let input = [
        handshake([1, 0], "", "json"),
        handshake([1, 0], "json", ""),
        message(0, 1, b"early"),
    ];
    let mut input = BytesMut::from(&input.concat()[..]);
    assert_eq!(server.receive(now, &mut input), Ok(Need::Room));
    assert!(matches!(&events(&mut server)[..], [Event::Proposed(_)]));
    server.answer(now, list("json"), Vec::new()).unwrap();
    server.receive(now, &mut input).unwrap();
    assert!(matches!(
        &events(&mut server)[..],
        [Event::Connected(_), Event::Message(_)]
    ));
}

#[test]
fn both_lists_of_an_answer_are_limited_in_bytes_and_not_in_names() {
    let now = Instant::now();
    let mut server = asked_by_hand(&handshake([1, 0], "", ""));
    let long = vec![Extension {
        name: "x-a".to_owned(),
        properties: vec![("k".to_owned(), "v".repeat(65_536))],
    }];
    for [required, optional] in [[long.clone(), vec![]], [vec![], long]] {
        let answered = server.answer(now, required, optional);
        assert_eq!(answered, Err(refusal::LIST_TOO_LONG));
    }
    let pairs = (0..2_000).map(|number| (format!("k{number}"), String::new()));
    let many = Extension {
        name: "x-a".to_owned(),
        properties: pairs.collect(),
    };
    assert_eq!(server.answer(now, vec![many], vec![]), Ok(()));
}

fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("json".to_owned()),
        3 => Just("x-a".to_owned()),
        2 => Just("x-b:k=%C3%A5,l=1".to_owned()),
        2 => Just("x-b:k=2".to_owned()),
        2 => Just("ack".to_owned()),
        2 => Just("batch-ack".to_owned()),
        3 => prop_oneof![
            Just("max-count"), Just("count"), Just("batch-max"), Just("MessagesPerAck"),
        ].prop_flat_map(|name| (1_u16..=40).prop_map(move |count| format!("batch-ack:{name}={count},x=1"))),
        1 => Just("batch-ack:count=65535".to_owned()),
    ]
}

fn entries() -> impl Strategy<Value = String> {
    proptest::collection::vec(entry(), 0..4).prop_map(|entries| entries.join(";"))
}

fn end() -> impl Strategy<Value = Config> {
    let known = Just(vec!["json", "x-a", "x-b", "ack", "batch-ack"]);
    let supported = known.prop_flat_map(|names| proptest::sample::subsequence(names, 0..=5));
    let required = prop_oneof![3 => Just(String::new()), 2 => entries()];
    (required, entries(), supported).prop_map(|(required, optional, supported)| {
        wishes(&required, &optional, &supported.join(";"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn two_ends_with_any_wishes_agree_on_the_same_or_both_end_with_an_error(client in end(), server in end()) {
        let required = client.terms.required.iter().chain(&server.terms.required);
        let required: Vec<_> = required.map(|one| one.name.clone()).collect();
        let (mut client, mut server) = (connecting(Role::Client, client), connecting(Role::Server, server));
        let codes = shake(&mut client, &mut server);
        let [at_client, at_server] = [told(&mut client), told(&mut server)];
        if codes == [None; 2] {
            prop_assert!(client.is_running() && server.is_running());
            prop_assert_eq!(client.window(), server.window());
            prop_assert_eq!(client.extensions(), server.extensions());
            prop_assert_eq!(&at_client, &at_server);
            let names = at_client.unwrap();
            prop_assert!(required.iter().all(|name| names.contains(name)));
            prop_assert!(names.iter().all(|name| client.has_extension(name)));
            let window = client.window().unwrap();
            prop_assert_eq!(window > 0, names.iter().any(|name| name.ends_with("ack")));
            // Both send as much as the window allows, and acknowledge it.
            let count = if window == 0 { 20 } else { window };
            for _ in 0..count {
                send(&mut client, b"c").unwrap();
                send(&mut server, b"s").unwrap();
            }
            prop_assert_eq!(carry(&mut client, &mut server).len(), usize::from(count));
            prop_assert_eq!(carry(&mut server, &mut client).len(), usize::from(count));
            if window > 0 {
                server.ack(count).unwrap();
                carry(&mut server, &mut client);
                prop_assert_eq!((client.pending(), server.pending()), (0, count));
            }
        } else {
            // One names the violation, the other is told by an ERROR frame.
            prop_assert!(!client.is_running() && !server.is_running(), "{:?}", codes);
            prop_assert!(codes.contains(&None), "{:?}", codes);
        }
    }
}
