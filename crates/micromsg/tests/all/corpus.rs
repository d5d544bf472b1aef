//! The seed corpora of the fuzz targets, replayed, and random scripts.

use std::time::Instant;

use ackline_micromsg::fuzzing;
use ackline_testkit::seeds;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    #[allow(clippy::disallowed_methods)] // a test needs some instant
    fn any_script_and_any_bytes_keep_the_promises(
        data in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let start = Instant::now();
        fuzzing::ops(start, &data);
        fuzzing::receive(start, &data);
        fuzzing::roundtrip(&data);
    }

    /// Few topics, many subscriptions and messages.
    #[test]
    #[allow(clippy::disallowed_methods)] // a test needs some instant
    fn subscriptions_keep_the_promises(setup in 4_u8..128, script in subscriptions()) {
        let mut data = vec![setup | 4, 0];
        data.extend(script.concat());
        fuzzing::ops(Instant::now(), &data);
    }

    /// Bytes of which most are frames, or near to them.
    #[test]
    #[allow(clippy::disallowed_methods)] // a test needs some instant
    fn frames_that_are_nearly_sound_keep_the_promises(choice in any::<u8>(), frames in frames()) {
        let mut data = vec![choice];
        data.extend(frames.concat());
        fuzzing::receive(Instant::now(), &data);
        fuzzing::roundtrip(&data);
    }

    #[test]
    fn texts_that_are_nearly_sound_keep_the_promises(
        choice in 3_u8..8,
        text in "([a-c]?[=<>!~&:;,]{0,2}[NDT]?(%[0-9A-F]{2})?[-0-9.%]{0,3}[;,]?){0,5}",
    ) {
        fuzzing::roundtrip(&[&[choice], text.as_bytes()].concat());
    }
}

/// Calls of one end that subscribes, of the other that publishes, and the bytes between them.
fn subscriptions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let call = |call: u8, end: u8| call << 1 | end;
    let subscribe = (any::<u8>(), any::<[u8; 6]>()).prop_map(move |(choice, conditions)| {
        let bytes = usize::from(choice & 0b1100 != 0b1100) * usize::from(choice >> 4 & 3) * 2;
        [&[call(9, 0), choice], &conditions[..bytes]].concat()
    });
    let publish = (any::<u8>(), any::<[u8; 6]>()).prop_map(move |(choice, properties)| {
        let bytes = usize::from(choice >> 2 & 3) * 2;
        [&[call(3, 1), choice], &properties[..bytes]].concat()
    });
    let acknowledge = any::<u8>().prop_map(move |choice| vec![call(5, 0), choice]);
    // Both ends transmit, and both receive everything.
    let carry = Just(
        [0, 1]
            .map(|end| [call(13, end), call(10, 1 - end), 255])
            .concat(),
    );
    let one = prop_oneof![4 => subscribe, 6 => publish, 2 => acknowledge, 3 => carry];
    proptest::collection::vec(one, 0..120)
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let number = prop_oneof![
        6 => Just([0xff, 0xfe]),
        4 => Just([0xff, 0xff]),
        4 => (1_u8..5).prop_map(|number| [0, number]),
        1 => any::<[u8; 2]>(),
    ];
    let text = proptest::collection::vec(prop_oneof![9 => b'a'..=b'c', 1 => any::<u8>()], 0..12);
    let head = prop_oneof![Just(b"\0\0\0".to_vec()), Just(b"\x01q\0\x05n:N1;".to_vec())];
    let message = (number.clone(), head, text.clone(), any::<[bool; 2]>()).prop_map(
        |(number, head, payload, [is_large, is_continued])| {
            let flags = 8 * u8::from(is_large) + 16 * u8::from(is_continued);
            [
                vec![flags],
                number.to_vec(),
                head,
                sized(is_large, &payload),
            ]
            .concat()
        },
    );
    let ack = (1_u8..5, number).prop_map(|(id, [high, low])| vec![2, id, 2, high, low]);
    let extension = (0_u8..6, text.clone())
        .prop_map(|(id, payload)| [vec![2, id], sized(false, &payload)].concat());
    let command = prop_oneof![
        Just("go"),
        Just("subscribe;topic=t,filter=n%3EN3"),
        Just("unsubscribe;topic=t"),
        Just("subscribe;a=b"),
    ];
    let command = command.prop_map(|text| [vec![1], sized(false, text.as_bytes())].concat());
    let lists = prop_oneof![
        Just(["json", "batch-ack:max-count=2;dotnet"]),
        Just(["json", "batch-ack:count=9;ack;x-note"]),
        Just(["", ""]),
        Just(["json;batch-ack", "pub-sub"]),
    ];
    let handshake = (lists, 0_u8..3).prop_map(|([required, optional], minor)| {
        let lengths = [required, optional].map(|list| u8::try_from(list.len()).unwrap_or(0));
        let [one, other] = lengths;
        [
            &[1, minor, 0, 1, b'p', 0, one],
            required.as_bytes(),
            &[0, other],
            optional.as_bytes(),
        ]
        .concat()
    });
    let other = (any::<u8>(), text).prop_map(|(flags, text)| [vec![flags], text].concat());
    let one = prop_oneof![8 => message, 5 => ack, 2 => extension, 2 => command, 3 => handshake, 1 => other];
    proptest::collection::vec(one, 0..12)
}

/// A payload behind its length.
fn sized(is_large: bool, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap_or(0);
    let len = if is_large {
        vec![0, 0, 0, len]
    } else {
        vec![len]
    };
    [&len, payload].concat()
}

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [seeds::Target<'_>; 3] = [
        ("micromsg_ops", &|seed| fuzzing::ops(start, seed)),
        ("micromsg_receive", &|seed| fuzzing::receive(start, seed)),
        ("micromsg_roundtrip", &fuzzing::roundtrip),
    ];
    seeds::replay("micromsg", &targets);
}
