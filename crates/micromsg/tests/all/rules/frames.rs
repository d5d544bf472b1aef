//! Rules about flags, texts, lengths and the end.

use super::*;

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
            end.send(message, &Bytes::from_static(b"")),
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
            terms: Terms {
                identity: "é".into(),
                ..Terms::default()
            },
            ..Config::default()
        },
    );
    assert_eq!(named.connect(Instant::now()), Err(refusal::NOT_ASCII));
    let wishes = Config {
        terms: Terms {
            optional: vec![Extension {
                name: "é".to_owned(),
                ..Extension::default()
            }],
            ..Terms::default()
        },
        ..Config::default()
    };
    let mut wishing = Connection::new(Instant::now(), Role::Client, wishes);
    assert_eq!(wishing.connect(Instant::now()), Err(refusal::NOT_ASCII));
}

#[test]
fn r_mm_v13_lengths_have_limits_on_both_sides() {
    let mut end = established("");
    let (long, longest) = ("a".repeat(256), "a".repeat(65_536));
    for (destination, properties, refused) in [
        (&long[..255], &longest[..65_535], None),
        (&long[..], "", Some(refusal::DESTINATION_TOO_LONG)),
        ("", &longest[..], Some(refusal::PROPERTIES_TOO_LONG)),
    ] {
        let message = Outbound {
            destination,
            properties,
            dotnet_type: None,
        };
        let sent = end.send(message, &Bytes::from_static(b""));
        assert_eq!(sent.err(), refused);
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
            terms: Terms {
                identity: long,
                ..Terms::default()
            },
            ..Config::default()
        },
    );
    assert_eq!(
        named.connect(Instant::now()),
        Err(refusal::HANDSHAKE_TOO_LONG)
    );
    let codes = [
        refusal::OUT_OF_RANGE,
        refusal::NOT_SENT,
        refusal::DESTINATION_TOO_LONG,
        refusal::PROPERTIES_TOO_LONG,
        refusal::PAYLOAD_TOO_LONG,
        refusal::HANDSHAKE_TOO_LONG,
    ];
    assert!(codes.iter().all(|one| one.code == "out_of_range"));
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

#[test]
fn a_type_is_named_with_each_message_where_that_is_set_and_where_it_is_too_long_to_keep() {
    let long = "T".repeat(1_025);
    for (dotnet_frames, name, frames) in [
        (DotnetFrames::OnChange, "T", 1),
        (DotnetFrames::Always, "T", 3),
        (DotnetFrames::OnChange, &long[1..], 1),
        (DotnetFrames::OnChange, &long[..], 3),
    ] {
        let config = Config {
            dotnet_frames,
            ..Config::default()
        };
        let mut end = established_with(config, "dotnet");
        for _ in 0..3 {
            let message = Outbound {
                dotnet_type: Some(name),
                ..Outbound::default()
            };
            end.send(message, &Bytes::new()).unwrap();
        }
        let bytes = sent(&mut end);
        let named = bytes.windows(name.len());
        let named = named.filter(|part| *part == name.as_bytes()).count();
        assert_eq!(named, frames, "{dotnet_frames:?} {}", name.len());
    }
}

#[test]
fn r_mm_14_texts_of_a_message_in_fragments_count_as_memory() {
    let config = Config {
        most_incomplete: 1_000,
        ..Config::default()
    };
    for (properties, code) in [(500, None), (1_000, Some("micromsg.limit_exceeded"))] {
        let mut end = established_with(config.clone(), "");
        let text = format!("a:T{};", "x".repeat(properties - 4));
        let [high, low] = u16::try_from(properties).unwrap().to_be_bytes();
        let frame = [&[16, 0, 1, 0, high, low][..], text.as_bytes(), b"\x01y"].concat();
        assert_eq!(take(&mut end, &frame), code);
    }
}
