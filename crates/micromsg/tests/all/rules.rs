//! Rules that the vectors leave out, or show in one case alone: each test begins with the rule's number, if it has one.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_micromsg::text::{Extension, read_extensions};
use ackline_micromsg::{AckPolicy, Config, Connection, Event, Limits, Outbound, Role, refusal};
use bytes::{Buf as _, BytesMut};

mod agreement;
mod timers;

fn list(text: &str) -> Vec<Extension> {
    read_extensions(text.as_bytes()).unwrap()
}

fn established_with(config: Config, extensions: &str) -> Connection {
    Connection::established(Instant::now(), Role::Client, config, list(extensions)).unwrap()
}

fn established(extensions: &str) -> Connection {
    established_with(Config::default(), extensions)
}

fn connecting(role: Role, config: Config) -> Connection {
    let mut end = Connection::new(Instant::now(), role, config);
    end.connect(Instant::now()).unwrap();
    end
}

fn wishes(required: &str, optional: &str, supported: &str) -> Config {
    Config {
        required: list(required),
        optional: list(optional),
        supported: supported.split_terminator(';').map(str::to_owned).collect(),
        ..Config::default()
    }
}

/// Delivers bytes; the code of the error, if they are refused.
fn take(end: &mut Connection, bytes: &[u8]) -> Option<&'static str> {
    let mut input = BytesMut::from(bytes);
    let taken = end.receive(Instant::now(), &mut input);
    taken.err().map(|error| error.kind.code())
}

fn sent(end: &mut Connection) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut out = SendQueue::new();
        end.poll_transmit(Instant::now(), &mut out);
        if out.is_empty() {
            return all;
        }
        all.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    }
}

fn events(end: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| end.poll_event()).collect()
}

fn send(end: &mut Connection, payload: &[u8]) -> Result<u16, &'static str> {
    let result = end.send(Outbound::default(), payload.to_vec().into());
    result.map_err(|error| error.code)
}

/// A message without destination and properties.
fn message(flags: u8, number: u16, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    [
        &[flags][..],
        &number.to_be_bytes(),
        &[0, 0, 0, len],
        payload,
    ]
    .concat()
}

fn ack(id: u8, number: u16) -> Vec<u8> {
    [&[2, id, 2][..], &number.to_be_bytes()].concat()
}

fn handshake(version: [u8; 2], required: &str, optional: &str) -> Vec<u8> {
    let sized = |list: &str| {
        [
            &u16::try_from(list.len()).unwrap().to_be_bytes(),
            list.as_bytes(),
        ]
        .concat()
    };
    [
        &[version[0], version[1], 0, 1, b'p'][..],
        &sized(required),
        &sized(optional),
    ]
    .concat()
}

/// Everything that one end emits goes to the other; the numbers of its messages.
fn carry(from: &mut Connection, to: &mut Connection) -> Vec<u16> {
    let mut input = BytesMut::from(&sent(from)[..]);
    let mut numbers = Vec::new();
    loop {
        let need = to.receive(Instant::now(), &mut input).unwrap();
        for event in events(to) {
            if let Event::Message(message) = event {
                numbers.push(message.sequence_number);
            }
        }
        if matches!(need, Need::Input { .. }) {
            return numbers;
        }
    }
}

/// Lets two ends finish their handshake: the codes of their errors.
fn shake(client: &mut Connection, server: &mut Connection) -> [Option<&'static str>; 2] {
    let mut codes = [None; 2];
    for _ in 0..3 {
        let bytes = sent(client);
        codes[1] = codes[1].or(take(server, &bytes));
        let bytes = sent(server);
        codes[0] = codes[0].or(take(client, &bytes));
    }
    codes
}

#[test]
fn req_mm_29_and_30_the_largest_window_is_unambiguous_across_the_wrap() {
    for first in [1, 2, 30_000, 65_534, 65_535] {
        let config = Config {
            next_send: first,
            next_receive: first,
            ..Config::default()
        };
        let [mut from, mut to] =
            [(); 2].map(|()| established_with(config.clone(), "batch-ack:max-count=65534"));
        for round in 0..3 {
            for _ in 0..65_534 {
                send(&mut from, b"").unwrap();
            }
            assert_eq!(send(&mut from, b""), Err("window_full"));
            assert_eq!(from.pending(), 65_534);
            let numbers = carry(&mut from, &mut to);
            assert_eq!(numbers.len(), 65_534);
            assert!(!numbers.contains(&0), "R-MM-6");
            assert_eq!(to.unacknowledged(), 65_534);
            // One in the middle, and then the last; across the wrap, a larger number comes before a smaller one.
            for through in [numbers[round * 10_000], numbers[65_533]] {
                to.ack(through).unwrap();
                carry(&mut to, &mut from);
            }
            assert_eq!((from.pending(), to.unacknowledged()), (0, 0));
            // The last one again: it is answered again, and the answer ignored.
            assert_eq!(take(&mut to, &message(0, numbers[65_533], b"")), None);
            let again = sent(&mut to);
            assert_eq!(again, ack(1, numbers[65_533]));
            assert_eq!((take(&mut from, &again), events(&mut from)), (None, vec![]));
        }
    }
}

#[test]
fn req_mm_5_a_message_over_the_window_is_a_violation_also_at_the_largest_window() {
    for window in [1_u16, 2, 65_534] {
        let mut end = established(&format!("batch-ack:max-count={window}"));
        let mut input = BytesMut::new();
        (1..=window).for_each(|number| input.extend_from_slice(&message(0, number, b"")));
        while !matches!(
            end.receive(Instant::now(), &mut input).unwrap(),
            Need::Input { .. }
        ) {
            events(&mut end);
        }
        let over = message(0, window + 1, b"");
        assert_eq!(take(&mut end, &over), Some("micromsg.window_exceeded"));
    }
}

#[test]
fn r_mm_v6_repeats_are_recognized_within_the_window_and_judged_before_it() {
    for (number, code) in [
        (2, None),
        (3, None),
        (4, None),
        (1, Some("micromsg.sequence_mismatch")),
        (6, Some("micromsg.sequence_mismatch")),
        (65_535, Some("micromsg.sequence_mismatch")),
    ] {
        let mut end = established("batch-ack:max-count=3");
        for number in 1..=3 {
            assert_eq!(take(&mut end, &message(0, number, b"")), None);
        }
        end.ack(3).unwrap();
        assert_eq!(take(&mut end, &message(0, 4, b"")), None);
        sent(&mut end);
        let before = events(&mut end).len();
        assert_eq!(
            (take(&mut end, &message(0, number, b"")), before),
            (code, 4),
            "{number}"
        );
        if code.is_none() {
            // A repeat of 4 is not acknowledged yet.
            let wanted = if number == 4 { vec![] } else { ack(1, 3) };
            assert_eq!((sent(&mut end), events(&mut end)), (wanted, vec![]));
        }
    }
    // Before the first message there is nothing to repeat.
    assert_eq!(
        take(&mut established("batch-ack"), &message(0, 65_535, b"")),
        Some("micromsg.sequence_mismatch")
    );
}

#[test]
fn r_mm_v6_a_repeat_in_fragments_is_answered_once_after_the_last() {
    let mut end = established("batch-ack");
    take(&mut end, &message(0, 1, b"ab"));
    end.ack(1).unwrap();
    sent(&mut end);
    assert_eq!(take(&mut end, &message(16, 1, b"a")), None);
    assert_eq!(sent(&mut end), b"");
    assert_eq!(take(&mut end, &message(0, 1, b"b")), None);
    assert_eq!(sent(&mut end), ack(1, 1));
    assert_eq!(events(&mut end).len(), 1);
}

#[test]
fn r_mm_23_an_acknowledgement_of_what_is_not_outstanding_is_a_violation() {
    for (number, code) in [
        (0, true),
        (1, true),
        (2, false),
        (3, false),
        (4, false),
        (5, true),
        (65_535, true),
    ] {
        let mut end = established("batch-ack");
        for _ in 0..4 {
            send(&mut end, b"").unwrap();
        }
        assert_eq!(take(&mut end, &ack(1, 2)), None);
        let code = code.then_some("micromsg.out_of_range");
        assert_eq!(take(&mut end, &ack(1, number)), code, "{number}");
    }
}

#[test]
fn r_mm_v5_only_messages_that_came_and_wait_can_be_acknowledged() {
    let config = Config {
        ack_policy: AckPolicy::Automatic,
        ..Config::default()
    };
    let now = Instant::now();
    let mut end = established_with(config, "batch-ack");
    for number in 1..=4 {
        take(&mut end, &message(0, number, b""));
    }
    end.ack(2).unwrap();
    for number in [0, 1, 2, 5, 65_535] {
        assert_eq!(end.ack(number), Err(refusal::OUT_OF_RANGE), "{number}");
        assert_eq!(
            end.processed(now, number),
            Err(refusal::OUT_OF_RANGE),
            "{number}"
        );
    }
    assert_eq!((end.processed(now, 4), end.ack(3)), (Ok(()), Ok(())));
    let mut manual = established("batch-ack");
    take(&mut manual, &message(0, 1, b""));
    assert_eq!(
        manual.processed(now, 1),
        Err(refusal::MANUAL),
        "R-MM-V12: manual is the default"
    );
    assert_eq!(
        established("json").ack(1),
        Err(refusal::EXTENSION_NOT_NEGOTIATED)
    );
}

#[test]
fn r_mm_14_a_fragment_of_another_message_is_a_violation_and_other_frames_are_not() {
    let first = [16, 0, 1, 1, b'q', 0, 5, b'n', b':', b'N', b'1', b';', 0];
    let other = |at: usize, byte: u8| {
        let mut frame = first;
        (frame[0], frame[at]) = (0, byte);
        frame.to_vec()
    };
    for (frame, is_sound) in [
        (other(0, 0), true),
        (other(2, 2), false),
        (other(4, b'r'), false),
        (other(10, b'2'), false),
    ] {
        let mut end = established("batch-ack;x-note");
        assert_eq!(take(&mut end, &first), None);
        assert_eq!(take(&mut end, &[2, 2, 1, 7, 1, 2, b'g', b'o']), None);
        let code = (!is_sound).then_some("micromsg.continued_mismatch");
        assert_eq!(take(&mut end, &frame), code, "{frame:?}");
        assert_eq!(events(&mut end).len(), 2 + usize::from(is_sound));
    }
}

#[test]
fn r_mm_14_small_and_large_fragments_are_joined_in_their_order() {
    let sizes = [1, 5_000, 10, 4_095, 4_096, 0, 20_000, 3, 3];
    for turn in 0..sizes.len() {
        let mut end = established("batch-ack");
        let mut whole = Vec::new();
        for (at, size) in sizes
            .iter()
            .cycle()
            .skip(turn)
            .take(sizes.len())
            .enumerate()
        {
            let part = vec![u8::try_from(at).unwrap(); *size];
            let flags = if at + 1 == sizes.len() { 8 } else { 24 };
            let len = u32::try_from(*size).unwrap().to_be_bytes();
            let frame = [&[flags, 0, 1, 0, 0, 0][..], &len, &part].concat();
            assert_eq!(take(&mut end, &frame), None);
            whole.extend_from_slice(&part);
        }
        let found = events(&mut end);
        assert!(
            matches!(&found[..], [Event::Message(one)] if one.payload.to_bytes() == whole),
            "turn {turn}"
        );
        assert_eq!((end.coming_bytes(), end.held_bytes()), (0, 0));
    }
}

#[test]
fn r_mm_14_a_fragment_whose_destination_takes_bytes_of_the_properties_is_another_message() {
    // Behind the length of the destination both have the same bytes.
    let mut end = established("");
    assert_eq!(
        take(&mut end, b"\x10\x00\x01\x00\x00\x05\x00\x03abc\x00"),
        None
    );
    let other = b"\x00\x00\x01\x02\x00\x05\x00\x03abc\x00";
    assert_eq!(take(&mut end, other), Some("micromsg.continued_mismatch"));
}

#[test]
fn r_mm_v15_a_message_has_the_type_in_force_at_its_first_fragment() {
    let mut end = established("dotnet");
    let input = [
        &b"\x02\x01\x01A"[..],
        &message(16, 1, b"x"),
        b"\x02\x01\x01B",
        &message(0, 1, b"y"),
        &message(0, 2, b""),
    ];
    assert_eq!(take(&mut end, &input.concat()), None);
    let types = events(&mut end).into_iter().map(|event| match event {
        Event::Message(message) => message.dotnet_type.unwrap().to_string(),
        other => unreachable!("{other:?}"),
    });
    assert_eq!(types.collect::<Vec<_>>(), ["A", "B"]);
}

#[test]
fn r_mm_32_a_type_is_named_when_it_changes() {
    let mut end = established("dotnet");
    for dotnet_type in [Some("A"), Some("A"), None, Some("A"), Some("B"), Some("A")] {
        let message = Outbound {
            dotnet_type,
            ..Outbound::default()
        };
        end.send(message, b"".as_slice().into()).unwrap();
    }
    let bytes = sent(&mut end);
    let named = bytes
        .windows(4)
        .filter(|window| window.starts_with(&[2, 1, 1]))
        .map(|window| window[3]);
    assert_eq!(named.collect::<Vec<_>>(), b"ABA");
}

#[test]
fn r_mm_16_reserved_flags_go_before_conflicts_and_those_before_continued() {
    for (flags, code) in [
        (0xff, "micromsg.reserved_flags"),
        (0x23, "micromsg.reserved_flags"),
        (0x17, "micromsg.conflicting_frame_types"),
        (0x12, "micromsg.continued_not_message"),
    ] {
        assert_eq!(take(&mut established(""), &[flags]), Some(code));
    }
}

#[test]
fn r_mm_v7_after_the_end_pending_answers_and_all_else_is_refused() {
    let now = Instant::now();
    let ends: [&dyn Fn(&mut Connection); 5] = [
        &|end| assert_eq!(take(end, b"\x04\x02no"), None),
        &|end| assert_eq!(take(end, &[3]), Some("micromsg.conflicting_frame_types")),
        &|end| end.fail("no").unwrap(),
        &|end| end.close().unwrap(),
        &|end| end.receive_eof(now).unwrap(),
    ];
    for (at, finish) in ends.iter().enumerate() {
        let mut end = established("batch-ack;pub-sub");
        send(&mut end, b"").unwrap();
        finish(&mut end);
        assert_eq!(end.pending(), 1);
        let closed = Err(refusal::CLOSED);
        let refused = [
            send(&mut end, b"").map_err(|_| refusal::CLOSED).map(|_| ()),
            end.ack(1),
            end.processed(now, 1),
            end.window().map(|_| ()),
            end.send_extension("pub-sub", b""),
            end.command("go", &[]),
            end.subscribe("t", None),
            end.unsubscribe("t"),
            end.fail(""),
            end.close(),
            end.connect(now),
        ];
        assert_eq!(refused, [closed; 11], "{at}");
        assert!(!end.is_running());
        assert_eq!(end.poll_timeout(), None);
        // Input behind the end is dropped, or the same error again.
        assert_eq!(take(&mut end, &[0xff]).is_some(), at == 1);
        assert_eq!(
            end.lifecycle(),
            if at == 1 {
                Lifecycle::Closed
            } else {
                Lifecycle::Draining
            }
        );
    }
}

#[test]
fn r_mm_v7_a_received_error_has_no_answer_and_its_text_may_be_no_utf_8() {
    let mut end = established("");
    assert_eq!(take(&mut end, b"\x04\x03a\xffb"), None);
    let message = "a\u{fffd}b".to_owned();
    assert_eq!(events(&mut end), [Event::Error { message }], "R-MM-V8");
    assert_eq!(sent(&mut end), b"");
}

#[test]
fn req_mm_26_own_errors_go_last_and_messages_that_wait_are_dropped_after_a_violation() {
    let mut end = established("");
    send(&mut end, b"small").unwrap();
    send(&mut end, &[7; 5_000]).unwrap();
    end.fail("enough").unwrap();
    let bytes = sent(&mut end);
    assert!(bytes.len() > 5_000 && bytes.ends_with(b"\x04\x06enough"));
    let mut end = established("");
    send(&mut end, &[7; 5_000]).unwrap();
    assert_eq!(
        take(&mut end, &[3]),
        Some("micromsg.conflicting_frame_types")
    );
    assert_eq!(end.waiting_bytes(), 0);
    let bytes = sent(&mut end);
    assert!(bytes.len() < 300 && bytes[0] == 4, "{bytes:?}");
}

#[test]
fn r_mm_v8_texts_outside_ascii_are_refused_from_both_sides() {
    let mut end = established("dotnet");
    for message in [
        Outbound {
            destination: "é",
            ..Outbound::default()
        },
        Outbound {
            properties: "a:Té;",
            ..Outbound::default()
        },
        Outbound {
            dotnet_type: Some("é"),
            ..Outbound::default()
        },
    ] {
        assert_eq!(
            end.send(message, b"".as_slice().into()),
            Err(refusal::NOT_ASCII)
        );
    }
    for frame in [
        &b"\x02\x01\x02\xc3\xa9"[..],
        b"\x01\x02\xc3\xa9",
        b"\x00\x00\x01\x01\xff",
        b"\x00\x00\x01\x00\x00\x01\x80",
    ] {
        assert_eq!(
            take(&mut established("dotnet"), frame),
            Some("micromsg.not_ascii"),
            "{frame:?}"
        );
    }
    for bytes in [
        &b"\x01\x00\x00\x01\xff"[..],
        b"\x01\x00\x00\x00\x00\x01\xff",
        b"\x01\x00\x00\x00\x00\x00\x00\x01\xff",
    ] {
        let mut server = connecting(Role::Server, Config::default());
        assert_eq!(
            take(&mut server, bytes),
            Some("micromsg.not_ascii"),
            "{bytes:?}"
        );
    }
    let mut named = Connection::new(
        Instant::now(),
        Role::Client,
        Config {
            identity: "é".into(),
            ..Config::default()
        },
    );
    assert_eq!(named.connect(Instant::now()), Err(refusal::NOT_ASCII));
    let wishes = Config {
        optional: vec![Extension {
            name: "é".to_owned(),
            ..Extension::default()
        }],
        ..Config::default()
    };
    let mut wishing = Connection::new(Instant::now(), Role::Client, wishes);
    assert_eq!(wishing.connect(Instant::now()), Err(refusal::NOT_ASCII));
}

#[test]
fn r_mm_v13_lengths_have_limits_on_both_sides() {
    let mut end = established("");
    let (long, longest) = ("a".repeat(256), "a".repeat(65_536));
    for (destination, properties, sound) in [
        (&long[..255], &longest[..65_535], true),
        (&long[..], "", false),
        ("", &longest[..], false),
    ] {
        let message = Outbound {
            destination,
            properties,
            dotnet_type: None,
        };
        let sent = end.send(message, b"".as_slice().into());
        assert_eq!(sent.is_ok(), sound);
        assert!(sound || sent == Err(refusal::OUT_OF_RANGE));
    }
    let limits = Limits {
        max_message_bytes: 4,
        ..Limits::default()
    };
    let limited = || {
        established_with(
            Config {
                limits,
                ..Config::default()
            },
            "",
        )
    };
    let over = Some("micromsg.limit_exceeded");
    assert_eq!(take(&mut limited(), &message(0, 1, b"1234")), None);
    assert_eq!(take(&mut limited(), &message(0, 1, b"12345")), over);
    let fragments = |last: &[u8]| {
        [
            message(16, 1, b"12"),
            message(16, 1, b""),
            message(0, 1, last),
        ]
        .concat()
    };
    assert_eq!(take(&mut limited(), &fragments(b"34")), None);
    assert_eq!(take(&mut limited(), &fragments(b"345")), over);
    let mut named = Connection::new(
        Instant::now(),
        Role::Client,
        Config {
            identity: long,
            ..Config::default()
        },
    );
    assert_eq!(named.connect(Instant::now()), Err(refusal::OUT_OF_RANGE));
}

#[test]
fn r_mm_v14_without_pub_sub_subscriptions_are_plain_commands() {
    let subscribe = b"\x01\x1fsubscribe;topic=t,filter=n%3EN3";
    let mut end = established("json");
    assert_eq!(take(&mut end, subscribe), None);
    assert!(
        matches!(&events(&mut end)[..], [Event::Command(command)] if command.name == "subscribe")
    );
    assert_eq!(
        end.subscribe("t", None),
        Err(refusal::EXTENSION_NOT_NEGOTIATED)
    );
    let mut end = established("pub-sub");
    assert_eq!(take(&mut end, subscribe), None);
    assert!(
        matches!(&events(&mut end)[..], [Event::Subscribe(one)] if one.filter.is_some() && one.topic == "t")
    );
    assert_eq!(
        take(&mut end, b"\x01\x0dsubscribe;a=b"),
        Some("micromsg.invalid_command")
    );
    assert_eq!(
        take(&mut established("pub-sub"), b"\x01\x0bunsubscribe"),
        Some("micromsg.invalid_command")
    );
    // R-MM-V11: the verb names bad escapes of a filter as it names any other mistake.
    assert_eq!(
        established("pub-sub").subscribe("t", Some("a=T%4")),
        Err(refusal::INVALID_FILTER)
    );
}

#[test]
fn r_mm_v16_a_version_is_judged_when_both_of_its_bytes_are_there() {
    for (role, bytes, code) in [
        (Role::Server, &[2][..], None),
        (Role::Server, &[2, 0], None),
        (Role::Server, &[0, 9], Some("micromsg.unsupported_version")),
        (Role::Server, &[0], None),
        (Role::Client, &[0, 1], Some("micromsg.unsupported_version")),
    ] {
        let mut end = connecting(role, Config::default());
        assert_eq!(take(&mut end, bytes), code, "{bytes:?}");
    }
}

#[test]
fn r_mm_33_frames_before_the_end_of_the_handshake_are_no_frames() {
    let mut server = connecting(Role::Server, Config::default());
    assert_eq!(take(&mut server, &handshake([1, 0], "", "")), None);
    // The flags of an EXTENSION frame are another version.
    assert_eq!(
        take(&mut server, &ack(1, 1)),
        Some("micromsg.unsupported_version")
    );
    let mut client = connecting(Role::Client, Config::default());
    assert_eq!(send(&mut client, b""), Err("handshake_incomplete"));
    assert_eq!(client.window(), Err(refusal::HANDSHAKE_INCOMPLETE));
    let idle = Connection::new(Instant::now(), Role::Client, Config::default());
    assert_eq!(idle.window(), Err(refusal::HANDSHAKE_INCOMPLETE));
}

#[test]
fn an_error_stands_at_the_frame_that_it_is_about() {
    let before = [message(0, 1, b"first"), message(16, 2, b"se")].concat();
    for (bad, code) in [
        (message(0, 3, b""), "micromsg.continued_mismatch"),
        (vec![0, 0, 0], "micromsg.invalid_sequence_number"),
        (vec![1, 2, b'g', 0xff], "micromsg.not_ascii"),
        (vec![1, 1, b';'], "micromsg.invalid_command"),
        (vec![2, 2, 0], "micromsg.unknown_extension"),
        (ack(1, 1), "micromsg.out_of_range"),
    ] {
        let mut end = established("batch-ack");
        let mut input = BytesMut::from(&[&before[..], &bad].concat()[..]);
        let error = end.receive(Instant::now(), &mut input).unwrap_err();
        assert_eq!(error.kind.code(), code);
        assert_eq!(error.offset, u64::try_from(before.len()).unwrap(), "{code}");
        assert_eq!(end.fault(), Some(&error));
    }
    let first = handshake([1, 0], "", "");
    let mut server = connecting(Role::Server, Config::default());
    let mut input = BytesMut::from(&[&first[..], &handshake([1, 0], "x", "")].concat()[..]);
    let error = server.receive(Instant::now(), &mut input).unwrap_err();
    assert_eq!(error.kind.code(), "micromsg.unexpected_extension");
    assert_eq!(error.offset, u64::try_from(first.len()).unwrap());
}

#[test]
fn bytes_before_the_beginning_wait_for_it() {
    let now = Instant::now();
    let mut end = Connection::new(now, Role::Server, Config::default());
    let mut input = BytesMut::from(&handshake([1, 0], "", "")[..]);
    assert_eq!(end.receive(now, &mut input), Ok(Need::Room));
    end.connect(now).unwrap();
    assert_eq!(end.connect(now), Err(refusal::CLOSED));
    end.receive(now, &mut input).unwrap();
    assert_eq!(sent(&mut end), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_handshake_goes_out_before_acknowledgements_of_what_came_behind_the_reply() {
    let mut end = connecting(Role::Client, wishes("ack", "", ""));
    sent(&mut end);
    // This server does not wait for the final handshake.
    let reply = handshake([1, 0], "", "ack");
    assert_eq!(
        take(&mut end, &[reply, message(0, 1, b"early")].concat()),
        None
    );
    end.ack(1).unwrap();
    let last = handshake([1, 0], "ack", "");
    let own = [&last[..3], &[0], &last[5..]].concat();
    assert_eq!(sent(&mut end), [own, ack(1, 1)].concat());
}

#[test]
fn acknowledgements_go_out_before_messages_that_wait() {
    let mut end = established("batch-ack");
    take(&mut end, &message(0, 1, b""));
    send(&mut end, b"x").unwrap();
    end.ack(1).unwrap();
    assert_eq!(sent(&mut end), [ack(1, 1), message(0, 1, b"x")].concat());
}

#[test]
fn after_the_peers_end_of_its_direction_messages_are_acknowledged_late_and_after_another_end_not() {
    let now = Instant::now();
    let two = [message(0, 1, b""), message(0, 2, b"")].concat();
    let mut end = established("batch-ack");
    take(&mut end, &two);
    end.receive_eof(now).unwrap();
    assert_eq!(
        (end.ack(1), end.ack_late(3)),
        (Err(refusal::CLOSED), Err(refusal::OUT_OF_RANGE))
    );
    assert_eq!((end.ack_late(1), end.ack_late(2)), (Ok(()), Ok(())));
    assert_eq!(sent(&mut end), [ack(1, 1), ack(1, 2)].concat());
    let mut detached = established("batch-ack");
    take(&mut detached, &two);
    detached.receive_eof(now).unwrap();
    assert!(!detached.detached(now));
    let ends: [&dyn Fn(&mut Connection); 3] = [
        &|end| assert!(take(end, &[3]).is_some()),
        &|end| assert_eq!(take(end, b"\x04\0"), None),
        &|end| end.close().unwrap(),
    ];
    let ended = ends.iter().map(|finish| {
        let mut end = established("batch-ack");
        take(&mut end, &two);
        finish(&mut end);
        let _ = end.receive_eof(now);
        end
    });
    for mut end in ended.chain([detached]) {
        assert_eq!(end.ack_late(1), Err(refusal::CLOSED));
    }
    // While it is open, both do the same.
    let mut open = established("ack");
    take(&mut open, &message(0, 1, b""));
    assert_eq!(open.ack_late(1), Ok(()));
}

#[test]
fn an_eof_inside_the_handshake_leaves_nothing_to_acknowledge() {
    let mut end = connecting(Role::Server, wishes("", "ack", ""));
    take(&mut end, &handshake([1, 0], "", "ack"));
    end.receive_eof(Instant::now()).unwrap();
    assert_eq!(end.ack_late(1), Err(refusal::CLOSED));
    assert_eq!((end.lifecycle(), end.fault()), (Lifecycle::Draining, None));
}
