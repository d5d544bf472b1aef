//! Peers that flood one end and read nothing: its memory stays below a ceiling, and each violation is named.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_micromsg::text::{Properties, read_extensions};
use ackline_micromsg::{Config, Connection, Event, Filter, Role, Terms};
use bytes::{Buf as _, Bytes, BytesMut};

use crate::counting::{allocated, peak};

mod texts;
mod waiting;

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
        terms: Terms {
            supported: supported.iter().map(|name| (*name).to_owned()).collect(),
            ..Terms::default()
        },
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
        terms: Terms {
            required: read_extensions(b"json;xml").unwrap(),
            ..Terms::default()
        },
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
    let begin = Instant::now();
    let most = peak(|| {
        let mut input =
            BytesMut::from(&[handshake(b"", &list), handshake(b"", &list)].concat()[..]);
        assert_eq!(
            take(&mut end, &mut input, true),
            End::Refused("micromsg.too_many_extensions")
        );
    });
    assert!(most < 2 << 20, "{most}");
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
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
            &Bytes::from_static(b"x"),
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
                &Bytes::from_static(b"x"),
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
