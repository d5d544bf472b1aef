//! Filters, commands, texts and lengths of a hostile peer.

use super::*;

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
fn filters_are_tried_without_allocations() {
    let texts = [
        "a=N1;a!=N2;a<N9;a>N0.5;a<=N1;a>=N1",
        "d=D1600000000;d<D1700000000",
        "t=Ta%20b;t!=Tc;t<Ta;t>Tb",
        "t&T%20;t~Tc;none~Tc;none!=N1",
    ];
    let filters = texts.map(|text| Filter::read(text.as_bytes()).unwrap());
    let raw = format!(
        "a:N1;t:Ta%20b;d:D1600000000;{}",
        "other:Tx%20y;".repeat(100)
    );
    let mut matched = 0;
    let bytes = allocated(|| {
        for filter in &filters {
            let properties = Properties::new(raw.as_bytes());
            matched += usize::from(filter.matches(&properties));
        }
    });
    assert_eq!(bytes, 0);
    assert_eq!(matched, filters.len());
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
            assert!(message.payload_bytes() >= MIB);
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
        terms: Terms {
            supported: known.map(str::to_owned).collect(),
            ..Terms::default()
        },
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
