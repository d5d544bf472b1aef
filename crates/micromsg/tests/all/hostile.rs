//! Peers that flood one end and read nothing: its memory stays below a ceiling, and each violation is named.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_micromsg::text::{Properties, read_extensions};
use ackline_micromsg::{Config, Connection, Event, Filter, Role};
use bytes::{Buf as _, BytesMut};

use crate::counting::{allocated, peak};

/// Bytes that an end may take for one largest frame or message: its input, the message, and copies of both.
const CEILING: isize = 80 << 20;
/// Bytes of a flood.
const FLOOD: usize = 100 << 20;
const MIB: usize = 1 << 20;

fn established(extensions: &str) -> Connection {
    let table = read_extensions(extensions.as_bytes()).unwrap();
    Connection::established(Instant::now(), Role::Client, Config::default(), table).unwrap()
}

fn server(supported: &[&str]) -> Connection {
    let config = Config {
        supported: supported.iter().map(|name| (*name).to_owned()).collect(),
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), Role::Server, config);
    end.connect(Instant::now()).unwrap();
    end
}

fn handshake(required: &[u8], optional: &[u8]) -> Vec<u8> {
    let sized = |list: &[u8]| [&u16::try_from(list.len()).unwrap().to_be_bytes(), list].concat();
    [vec![1, 0, 0, 0], sized(required), sized(optional)].concat()
}

/// A payload behind four bytes of length.
fn large(payload: &[u8]) -> Vec<u8> {
    [
        &u32::try_from(payload.len()).unwrap().to_be_bytes(),
        payload,
    ]
    .concat()
}

/// A MESSAGE frame with a large length.
fn message(flags: u8, number: u16, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(properties.len()).unwrap().to_be_bytes();
    let head = [
        &[flags | 8][..],
        &number.to_be_bytes(),
        &[1, b'q'],
        &len,
        properties,
    ];
    [head.concat(), large(payload)].concat()
}

/// The way in which a flood ends: by an error, or with input that is not taken.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Refused(&'static str),
    Held,
    Taken,
}

/// Receives everything that `input` holds; nothing that the end emits is read. Events are taken or kept waiting.
fn take(end: &mut Connection, input: &mut BytesMut, takes: bool) -> End {
    loop {
        let need = end.receive(Instant::now(), input);
        let mut has_event = false;
        while takes && end.poll_event().is_some() {
            has_event = true;
        }
        match need {
            Ok(Need::Input { .. }) => return End::Taken,
            Ok(Need::Again) => {}
            Ok(Need::Room) if has_event => {}
            Ok(Need::Room) => return End::Held,
            Err(error) => return End::Refused(error.kind.code()),
        }
    }
}

/// Sends the frames of `more` until there were enough. Returns the peak of allocated bytes, and the end of the flood.
fn flood(end: &mut Connection, takes: bool, mut more: impl FnMut(u64) -> Vec<u8>) -> (isize, End) {
    let mut with = End::Taken;
    let most = peak(|| {
        let mut input = BytesMut::new();
        let (mut sent, mut number) = (0, 0);
        while sent < FLOOD && with == End::Taken {
            let frame = more(number);
            number += 1;
            sent += frame.len();
            input.extend_from_slice(&frame);
            with = take(end, &mut input, takes);
            // Those who read give up a buffer that shares its memory with frames that are kept.
            input = BytesMut::from(&input[..]);
        }
    });
    (most, with)
}

/// Fragments of a message without end; messages in tiny ones have a smaller limit, which takes less time.
fn endless(extensions: &str, properties: &[u8], part: usize) -> (isize, End) {
    let mut config = Config::default();
    if part <= 100 {
        config.limits.max_message_bytes = 1 << 20;
    }
    let table = read_extensions(extensions.as_bytes()).unwrap();
    let mut end = Connection::established(Instant::now(), Role::Client, config, table).unwrap();
    endless_at(&mut end, properties, part)
}

fn endless_at(end: &mut Connection, properties: &[u8], part: usize) -> (isize, End) {
    let frame = message(16, 1, properties, &vec![7; part]);
    let together = frame.repeat((100_000 / frame.len()).max(1));
    flood(end, true, |_| together.clone())
}

/// The bytes of live memory that `end` holds, at most, after `fill`, and those that it says.
fn held(mut end: Connection, fill: impl FnOnce(&mut Connection)) -> (usize, usize) {
    let mut said = 0;
    let most = peak(|| {
        fill(&mut end);
        said = end.held_bytes();
    });
    (usize::try_from(most).unwrap(), said)
}

#[test]
fn extension_strings_of_ten_thousands_of_names_are_limited() {
    let names = |entry: &str| entry.repeat(65_535 / entry.len()).into_bytes();
    let texts = [
        names("a;"),
        names("abc;"),
        [&b"x:"[..], &names("a=1,")[..65_000]].concat(),
        names("batch-ack:count=1;"),
    ];
    for list in &texts {
        for (required, optional) in [(&list[..], &b""[..]), (b"", list), (list, list)] {
            let mut end = server(&["a", "abc", "x", "batch-ack"]);
            let mut with = End::Taken;
            let most = peak(|| {
                let mut input = BytesMut::from(&handshake(required, optional)[..]);
                with = take(&mut end, &mut input, true);
            });
            assert_eq!(with, End::Refused("micromsg.limit_exceeded"));
            assert!(most < 1 << 20, "{most}");
        }
    }
}

#[test]
fn one_name_of_65_535_bytes_is_refused_and_the_reason_fits_a_frame() {
    let mut end = server(&[]);
    let most = peak(|| {
        let mut input = BytesMut::from(&handshake(&vec![b'x'; 65_535], &vec![b'y'; 65_535])[..]);
        let with = take(&mut end, &mut input, true);
        assert_eq!(with, End::Refused("micromsg.missing_extension"));
    });
    assert!(most < 1 << 20, "{most}");
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    assert_eq!(
        out.copy_to_bytes(1)[..],
        [12],
        "an ERROR frame with a large length"
    );
}

#[test]
fn a_reply_whose_escapes_outgrow_the_final_handshake_is_refused() {
    let config = Config {
        required: read_extensions(b"json;xml").unwrap(),
        ..Config::default()
    };
    let values = [vec![b'!'; 30_000], vec![b'a'; 65_000]];
    for value in &values {
        let list = |name: &str| [name.as_bytes(), b":p=", value].concat();
        let mut end = Connection::new(Instant::now(), Role::Client, config.clone());
        end.connect(Instant::now()).unwrap();
        end.poll_transmit(Instant::now(), &mut SendQueue::new());
        let mut input = BytesMut::from(&handshake(&list("json"), &list("xml"))[..]);
        assert_eq!(
            take(&mut end, &mut input, true),
            End::Refused("micromsg.invalid_extension_list")
        );
        let mut out = SendQueue::new();
        end.poll_transmit(Instant::now(), &mut out);
        assert!(
            out.remaining() < 500 && out.get_u8() & 4 == 4,
            "one ERROR frame"
        );
    }
}

#[test]
fn a_thousand_names_on_each_side_are_agreed_on_or_refused_quickly() {
    let names: Vec<_> = (0..1_000).map(|name| format!("x-{name}")).collect();
    let list = names.join(";").into_bytes();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut end = server(&names);
    let most = peak(|| {
        let mut input =
            BytesMut::from(&[handshake(b"", &list), handshake(b"", &list)].concat()[..]);
        assert_eq!(
            take(&mut end, &mut input, true),
            End::Refused("micromsg.too_many_extensions")
        );
    });
    assert!(most < 2 << 20, "{most}");
}

#[test]
fn endless_fragments_end_at_the_limit_or_take_no_memory() {
    let properties = vec![b'a'; 65_535];
    for extensions in ["", "batch-ack"] {
        for (properties, part) in [
            (&b""[..], 1),
            (b"", 100),
            (b"", 4_095),
            (b"", 4_096),
            (b"", 60_000),
            (b"", MIB),
        ] {
            let (most, with) = endless(extensions, properties, part);
            assert_eq!(with, End::Refused("micromsg.limit_exceeded"), "{part}");
            assert!(most < CEILING, "{part}: {most}");
        }
        // Each fragment repeats the properties, which are kept once.
        for part in [1_000, 4_095, 4_096, 10_000] {
            let (most, with) = endless(extensions, &properties, part);
            assert!(matches!(
                with,
                End::Refused("micromsg.limit_exceeded") | End::Taken
            ));
            assert!(most < CEILING, "{part}: {most}");
        }
    }
    let (most, with) = flood(&mut established(""), true, |_| {
        [16, 0, 1, 0, 0, 0, 0].repeat(100_000)
    });
    assert_eq!(with, End::Taken);
    assert!(most < 4 << 20, "{most}");
}

#[test]
fn fragments_are_charged_for_the_memory_that_they_hold() {
    let properties = vec![b'a'; 60_000];
    for (properties, part) in [
        (&b""[..], 1),
        (b"", 300),
        (b"", 4_096),
        (b"", 10_000),
        (&properties, 5_000),
        (&properties, 1),
    ] {
        let frame = message(16, 1, properties, &vec![7; part]);
        let (most, said) = held(established("ack"), |end| {
            for _ in 0..1_000 {
                let mut input = BytesMut::from(&frame[..]);
                assert_eq!(take(end, &mut input, true), End::Taken);
            }
        });
        // A frame that is taken, and blocks for several copies.
        let beside = 8 * (properties.len() + part) + (16 << 10);
        assert!(
            most <= said * 2 + beside,
            "{part}: {said} bytes are charged of {most}"
        );
        assert!(
            said <= most + beside,
            "{part}: {said} bytes are charged of {most}"
        );
    }
}

#[test]
fn repeats_in_fragments_hold_nothing_and_have_the_limit_of_a_message() {
    let mut end = established("batch-ack");
    let mut input = BytesMut::from(&message(0, 1, b"", b"first")[..]);
    assert_eq!(take(&mut end, &mut input, true), End::Taken);
    end.ack(1).unwrap();
    let (most, with) = endless_at(&mut end, b"", 60_000);
    assert_eq!(with, End::Refused("micromsg.limit_exceeded"));
    assert!(most < MIB.cast_signed(), "{most}");
}

#[test]
fn repeats_that_nobody_reads_the_answers_of_stop_the_peer() {
    let mut end = established("batch-ack");
    let mut input = BytesMut::from(&message(0, 1, b"", b"first")[..]);
    assert_eq!(take(&mut end, &mut input, true), End::Taken);
    end.ack(1).unwrap();
    let (most, with) = flood(&mut end, true, |_| message(0, 1, b"", b"").repeat(100));
    assert_eq!(with, End::Held);
    assert!(most < MIB.cast_signed(), "{most}");
    assert!(
        (64 << 10..66 << 10).contains(&end.held_bytes()),
        "{}",
        end.held_bytes()
    );
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    assert!(out.remaining() >= 64 << 10);
    assert_eq!(end.held_bytes(), 0);
}

#[test]
fn a_peer_that_reads_no_acknowledgement_and_sends_on_takes_no_memory() {
    for extensions in ["ack", "batch-ack", "batch-ack:max-count=65534"] {
        let mut end = established(extensions);
        let mut number = 0_u16;
        let most = peak(|| {
            for _ in 0..1_000_000 {
                number = if number == u16::MAX { 1 } else { number + 1 };
                let [high, low] = number.to_be_bytes();
                let mut input = BytesMut::from(&[0, high, low, 0, 0, 0, 0][..]);
                assert_eq!(take(&mut end, &mut input, true), End::Taken);
                end.ack(number).unwrap();
            }
        });
        assert!(most < MIB.cast_signed(), "{most}");
        // The last acknowledgement covers all.
        let mut out = SendQueue::new();
        end.poll_transmit(Instant::now(), &mut out);
        let sent = out.copy_to_bytes(out.remaining());
        assert!(sent.ends_with(&number.to_be_bytes()) && sent.len() <= 70 << 10);
    }
}

#[test]
fn acknowledgements_that_repeat_or_lie_cost_nothing() {
    let mut end = established("batch-ack");
    for _ in 0..3 {
        end.send(
            ackline_micromsg::Outbound::default(),
            b"x".as_slice().into(),
        )
        .unwrap();
    }
    let (most, with) = flood(&mut end, false, |_| [2, 1, 2, 0, 2].repeat(10_000));
    assert_eq!((with, end.pending()), (End::Taken, 1));
    assert!(most < MIB.cast_signed(), "{most}");
    for number in [0_u16, 1, 4, 30_000, 65_535] {
        let mut end = established("batch-ack");
        for _ in 0..3 {
            end.send(
                ackline_micromsg::Outbound::default(),
                b"x".as_slice().into(),
            )
            .unwrap();
        }
        let [high, low] = number.to_be_bytes();
        let mut input = BytesMut::from(&[2, 1, 2, 0, 2, 2, 1, 2, high, low][..]);
        assert_eq!(
            take(&mut end, &mut input, true),
            End::Refused("micromsg.out_of_range"),
            "{number}"
        );
    }
}

#[test]
fn frames_that_nobody_takes_stop_the_peer() {
    let command = [&[1, 13][..], b"go;key-1=abcd"].concat();
    let subscribe = [&[1, 31][..], b"subscribe;topic=t,filter=n%3EN3"].concat();
    let frames = [
        message(0, 1, b"", b""),
        message(0, 1, b"n:N1;", &[7; 1_000]),
        message(0, 1, &vec![b'a'; 65_535], &[7; 10]),
        message(0, 1, b"", &vec![7; MIB]),
        vec![2, 1, 0],
        [vec![10, 1], large(&vec![7; 100_000])].concat(),
        command,
        subscribe,
    ];
    for frame in frames {
        let mut end = established("x-note;pub-sub");
        let (most, with) = flood(&mut end, false, |_| frame.clone());
        assert_eq!(with, End::Held);
        assert!(most < 4 * MIB.cast_signed(), "{most} {:?}", &frame[..3]);
        assert!(end.held_bytes() <= 3 * MIB);
    }
}

#[test]
fn subscribe_floods_are_events_and_nothing_stays() {
    let mut end = established("pub-sub");
    let (most, with) = flood(&mut end, true, |number| {
        let text = format!(
            "subscribe;topic=t{number},filter=n%3DN{number}%3Bm~T{}",
            "a".repeat(100)
        );
        [vec![9], large(text.as_bytes())].concat().repeat(500)
    });
    assert_eq!((with, end.held_bytes()), (End::Taken, 0));
    assert!(most < 2 * MIB.cast_signed(), "{most}");
}

#[test]
fn filters_of_many_conditions_are_limited_like_names() {
    for (condition, size) in [
        ("a%3DN1%3B", 64 << 10),
        ("a=N1%3B", 64 << 10),
        ("a=N1%3B", 8 * MIB),
        ("a%26Tx%3B", 8 * MIB),
    ] {
        let mut end = established("pub-sub");
        let text = format!(
            "subscribe;topic=t,filter={}",
            condition.repeat(size / condition.len())
        );
        let frame = [vec![9], large(text.as_bytes())].concat();
        let most = peak(|| {
            let mut input = BytesMut::from(&frame[..]);
            assert_eq!(
                take(&mut end, &mut input, true),
                End::Refused("micromsg.limit_exceeded")
            );
        });
        assert!(most < CEILING, "{most}");
    }
}

#[test]
fn one_filter_as_long_as_a_frame_stays_below_the_ceiling_and_is_charged() {
    for operator in ["=", "~", "%26"] {
        let text = format!(
            "subscribe;topic=t,filter=a{operator}T{}",
            "x".repeat(15 * MIB)
        );
        let frame = [vec![9], large(text.as_bytes())].concat();
        let (most, said) = held(established("pub-sub"), |end| {
            let mut input = BytesMut::from(&frame[..]);
            let need = end.receive(Instant::now(), &mut input).unwrap();
            assert_eq!(need, Need::Room);
        });
        assert!(most < CEILING.cast_unsigned() * 3 / 2, "{operator} {most}");
        // The text of the filter, and its value.
        assert!(
            said >= 30 * MIB,
            "{operator}: {said} bytes are charged of {most}"
        );
    }
}

#[test]
fn filters_of_a_thousand_conditions_are_tried_on_the_longest_properties() {
    let filter = (0..1_000).map(|_| "zz~Tyy;").collect::<String>();
    let filter = Filter::read(filter.as_bytes()).unwrap();
    let properties = "a:N1;".repeat(13_000);
    let begin = Instant::now();
    assert!(filter.matches(&Properties::new(properties.as_bytes())));
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn values_that_are_no_numbers_match_nothing_but_are_no_violation() {
    let mut end = established("");
    let properties = b"a:NNaN;b:DInfinity;c:D1e400;d:N99999999999999999999;e:T%;f:N-;:;;";
    let mut input = BytesMut::from(&message(0, 1, properties, b"")[..]);
    end.receive(Instant::now(), &mut input).unwrap();
    let Some(Event::Message(message)) = end.poll_event() else {
        unreachable!()
    };
    for name in ["a", "b", "c", "d", "e", "f"] {
        for kind in ["N", "D"] {
            let filter =
                Filter::read(format!("{name}>={kind}0;{name}<={kind}0").as_bytes()).unwrap();
            assert!(!filter.matches(&message.properties()), "{name} {kind}");
        }
    }
    for filter in ["a=NNaN", "a<DInfinity", "a=D-Infinity", "a=N1e3", "a=Dinf"] {
        assert!(Filter::read(filter.as_bytes()).is_err(), "{filter}");
    }
}

#[test]
fn flags_that_conflict_or_mean_nothing_are_named_before_anything_else_comes() {
    for flags in 0..=u8::MAX {
        let mut end = established("x-note");
        let mut input = BytesMut::from(&[flags][..]);
        let with = take(&mut end, &mut input, true);
        let kinds = (flags & 7).count_ones();
        let wanted = match flags {
            32.. => End::Refused("micromsg.reserved_flags"),
            _ if kinds > 1 => End::Refused("micromsg.conflicting_frame_types"),
            16.. if kinds == 1 => End::Refused("micromsg.continued_not_message"),
            _ => End::Taken,
        };
        assert_eq!(with, wanted, "{flags}");
        assert_eq!(end.lifecycle() == Lifecycle::Open, wanted == End::Taken);
    }
}

#[test]
fn giant_lengths_are_refused_before_their_bytes_come_and_allocate_nothing() {
    let ends = [
        &[9_u8, 0xff, 0xff, 0xff, 0xff][..],
        &[10, 1, 0xff, 0xff, 0xff, 0xff],
        &[12, 0xff, 0xff, 0xff, 0xff],
        &[8, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        &[24, 0, 1, 0, 0, 0, 1, 0, 0, 1],
    ];
    for frame in ends {
        let mut end = established("x-note");
        let most = peak(|| {
            let mut input = BytesMut::from(frame);
            assert_eq!(
                take(&mut end, &mut input, true),
                End::Refused("micromsg.limit_exceeded")
            );
        });
        assert!(most < 4_096, "{most}");
    }
    // And one below the limit waits for its bytes without memory for them.
    let mut end = established("x-note");
    let most = peak(|| {
        let mut input = BytesMut::from(&[10, 1, 1, 0, 0, 0][..]);
        let need = end.receive(Instant::now(), &mut input);
        assert_eq!(
            need,
            Ok(Need::Input {
                at_least: (16 << 20) + 6
            })
        );
    });
    assert!(most < 1_024, "{most}");
}

#[test]
fn commands_with_ten_thousands_of_pairs_are_limited() {
    for pair in ["a=b,", "key=%41,", "=,", ","] {
        let text = format!("go;{}", pair.repeat(40_000));
        let mut end = established("");
        let most = peak(|| {
            let mut input = BytesMut::from(&[vec![9], large(text.as_bytes())].concat()[..]);
            assert_eq!(
                take(&mut end, &mut input, true),
                End::Refused("micromsg.limit_exceeded")
            );
        });
        assert!(most < 2 * MIB.cast_signed(), "{most}");
    }
}

#[test]
fn a_command_is_charged_for_its_pairs() {
    let text = format!("go;{}", "a=b,".repeat(1_000).trim_end_matches(','));
    let frame = [vec![9], large(text.as_bytes())].concat();
    let (most, said) = held(established(""), |end| {
        for _ in 0..10 {
            let mut input = BytesMut::from(&frame[..]);
            end.receive(Instant::now(), &mut input).unwrap();
        }
    });
    assert!(
        said >= 10 * 1_000 * 48 && most < said * 2,
        "{said} of {most}"
    );
}

#[test]
fn the_beginning_of_an_error_of_16_mib_is_kept() {
    for character in ["x", "\u{e5}", "\u{ff}"] {
        let mut end = established("");
        let frame = [
            vec![12],
            large(character.repeat(16 * MIB / character.len()).as_bytes()),
        ]
        .concat();
        let most = peak(|| {
            let mut input = BytesMut::from(&frame[..]);
            assert_eq!(take(&mut end, &mut input, false), End::Taken);
        });
        assert!(most < 20 * MIB.cast_signed(), "{most}");
        assert!(
            end.held_bytes() <= (64 << 10) + 1_000,
            "{}",
            end.held_bytes()
        );
        let Some(Event::Error { message }) = end.poll_event() else {
            unreachable!()
        };
        assert!(message.starts_with(&character.repeat(1_000)));
        assert_eq!(
            (end.held_bytes(), end.lifecycle()),
            (0, Lifecycle::Draining)
        );
    }
}

#[test]
fn giant_dotnet_types_are_charged_while_messages_or_the_connection_hold_them() {
    let mut end = established("dotnet");
    let (most, _) = flood(&mut end, false, |number| {
        let kind = [
            vec![10, 1],
            large(&vec![b'a' + u8::try_from(number % 26).unwrap(); 4 * MIB]),
        ]
        .concat();
        [kind, message(0, 1, b"", b"")].concat()
    });
    assert!(most < CEILING, "{most}");
    assert!(end.held_bytes() >= 4 * MIB, "{}", end.held_bytes());
}

#[test]
fn bytes_behind_the_end_are_dropped() {
    let mut end = established("batch-ack");
    end.close().unwrap();
    let (most, with) = flood(&mut end, false, |_| vec![0xff; MIB]);
    assert_eq!(with, End::Taken);
    assert!(
        most < 4 * MIB.cast_signed() && end.held_bytes() == 0,
        "{most}"
    );
}

#[test]
fn large_payloads_are_handed_on_without_a_copy() {
    for flags in [0, 16] {
        let mut end = established("");
        let parts = [
            message(flags, 1, b"n:N1;", &vec![7; MIB]),
            message(0, 1, b"n:N1;", &vec![8; MIB]),
        ];
        let mut inputs = parts.map(|part| BytesMut::from(&part[..]));
        let bytes = allocated(|| {
            for input in &mut inputs {
                end.receive(Instant::now(), input).unwrap();
            }
            let Some(Event::Message(message)) = end.poll_event() else {
                unreachable!()
            };
            assert!(message.payload.bytes() >= MIB);
        });
        assert!(bytes < 16 << 10, "{bytes}");
    }
}

#[test]
fn a_transport_that_is_cut_at_any_byte_has_delivered_the_whole_messages_before() {
    let small = |flags, number, payload: &[u8]| {
        let mut frame = vec![flags];
        frame.extend_from_slice(&u16::to_be_bytes(number));
        frame.extend_from_slice(&[0, 0, 0, u8::try_from(payload.len()).unwrap()]);
        frame.extend_from_slice(payload);
        frame
    };
    let frames = [
        small(0, 1, b"one"),
        small(16, 2, b"tw"),
        small(16, 2, b""),
        small(0, 2, b"o"),
        small(0, 3, b""),
    ];
    let ends = [
        frames[0].len(),
        frames[..4].concat().len(),
        frames.concat().len(),
    ];
    let all = frames.concat();
    for cut in 0..=all.len() {
        let mut end = established("batch-ack");
        let mut input = BytesMut::from(&all[..cut]);
        assert_eq!(take(&mut end, &mut input, false), End::Taken);
        assert_eq!(end.receive_eof(Instant::now()), Ok(()));
        let whole = ends.iter().filter(|whole| **whole <= cut).count();
        assert_eq!(
            std::iter::from_fn(|| end.poll_event()).count(),
            whole,
            "{cut}"
        );
        assert_eq!(
            (usize::from(end.unacknowledged()), end.held_bytes()),
            (whole, 0)
        );
    }
}

#[test]
fn escapes_may_stand_for_control_characters_and_no_character_ends_a_text() {
    let mut end = established("pub-sub");
    let text = b"subscribe;topic=a%00%0A%1B%2E%2E%2Fb";
    let mut input =
        BytesMut::from(&[&[1, u8::try_from(text.len()).unwrap()], &text[..]].concat()[..]);
    assert_eq!(take(&mut end, &mut input, false), End::Taken);
    let Some(Event::Subscribe(one)) = end.poll_event() else {
        unreachable!()
    };
    assert_eq!(one.topic, "a\0\n\u{1b}../b");
}

#[test]
fn long_lists_are_charged_while_the_final_handshake_is_missing_and_behind_it() {
    let names = |letter: &str| {
        let names = (0..120).map(|at| format!("{letter}{at}:k={}", "v".repeat(500)));
        names.collect::<Vec<_>>()
    };
    let (one, other) = (names("a"), names("b"));
    let known = one
        .iter()
        .chain(&other)
        .filter_map(|one| one.split(':').next());
    let config = Config {
        supported: known.map(str::to_owned).collect(),
        ..Config::default()
    };
    let [one, other] = [one, other].map(|list| list.join(";").into_bytes());
    let mut end = Connection::new(Instant::now(), Role::Server, config);
    end.connect(Instant::now()).unwrap();
    let (most, said) = held(end, |end| {
        let mut input = BytesMut::from(&handshake(&one, &other)[..]);
        assert_eq!(take(end, &mut input, true), End::Taken);
        end.poll_transmit(Instant::now(), &mut SendQueue::new());
        assert!(end.held_bytes() > 120_000, "{}", end.held_bytes());
        let mut input = BytesMut::from(&handshake(&one, &other)[..]);
        assert_eq!(take(end, &mut input, true), End::Taken);
        assert!(end.is_running());
    });
    assert!(said > 110_000 && most < 8 * said, "{said} of {most}");
    // Usual ones are part of the connection.
    let mut end = server(&["json", "ack"]);
    let mut input = BytesMut::from(&handshake(b"json", b"ack").repeat(2)[..]);
    assert_eq!(take(&mut end, &mut input, true), End::Taken);
    assert_eq!((end.is_running(), end.held_bytes()), (true, 0));
}
