//! Rules that the vectors leave out, or show in one case alone: each test begins with the rule's number, if it has one.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_micromsg::text::{Extension, read_extensions};
use ackline_micromsg::{
    AckPolicy, Config, Connection, DotnetFrames, Event, Limits, Outbound, Role, Terms, refusal,
};
use bytes::{Buf as _, Bytes, BytesMut};

mod agreement;
mod frames;
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
        terms: Terms {
            required: list(required),
            optional: list(optional),
            supported: supported.split_terminator(';').map(str::to_owned).collect(),
            ..Terms::default()
        },
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
    let result = end.send(Outbound::default(), &Bytes::copy_from_slice(payload));
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
            matches!(&found[..], [Event::Message(one)] if one.payload().to_bytes() == whole),
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
        end.send(message, &Bytes::from_static(b"")).unwrap();
    }
    let bytes = sent(&mut end);
    let named = bytes
        .windows(4)
        .filter(|window| window.starts_with(&[2, 1, 1]))
        .map(|window| window[3]);
    assert_eq!(named.collect::<Vec<_>>(), b"ABA");
}
