//! The journal of a link, and the ends of links.

use super::*;

#[test]
fn nothing_leaves_before_the_journal_holds_it() {
    let mut config = bare(1, true);
    config.journal = true;
    let mut end = OneEnd::new(config);
    let keep = |end: &mut OneEnd| {
        let changes = std::iter::from_fn(|| end.link.poll_journal()).count();
        assert_eq!(end.sent(), b"", "taken is not kept");
        end.link.journaled(end.now);
        changes
    };
    assert_eq!(keep(&mut end), 1);
    end.link.send(end.now, &[id(1), id(2)], text("m")).unwrap();
    end.link.commit(end.now, &id(1), None).unwrap();
    end.take(&message(&[id(3)], &text("m"))).unwrap();
    end.take(&operation(3, Operation::Commit, None)).unwrap();
    end.link.consume(end.now, &id(3), Sequence(0)).unwrap();
    end.link.committed(end.now, &id(3), None).unwrap();
    assert!(end.link.is_journaling());
    assert_eq!(end.sent(), b"");
    assert_eq!(keep(&mut end), 5);
    let sent = end.sent();
    // The output is consumed, committed, the multicast and the commit.
    assert_eq!(sent.len(), 8 + 8 + 24 + 8);
    // A pong leaves at once if all changes before it are kept.
    end.take(&general(Packet::Ping)).unwrap();
    assert_eq!(end.sent(), general(Packet::Pong));
    end.take(&acknowledgement(1, Acknowledgement::Consumed, 0))
        .unwrap();
    end.take(&acknowledgement(1, Acknowledgement::Committed, 0))
        .unwrap();
    end.take(&general(Packet::Ping).repeat(3)).unwrap();
    assert_eq!(keep(&mut end), 2);
    assert_eq!(end.sent(), general(Packet::Pong).repeat(3));
    end.link.close_channel(end.now, &id(1)).unwrap();
    assert_eq!((keep(&mut end), keep(&mut end)), (1, 1));
    assert_eq!(end.sent(), operation(1, Operation::Close, None));
    end.take(&operation(3, Operation::Close, None)).unwrap();
    assert_eq!(keep(&mut end), 1);
    assert_eq!(end.sent().len(), 8);
    assert!(!end.link.is_journaling());
}

fn keep(end: &mut OneEnd) -> Vec<Change> {
    let changes = std::iter::from_fn(|| end.link.poll_journal()).collect();
    end.link.journaled(end.now);
    changes
}

#[test]
fn a_close_that_may_be_known_is_not_taken_back_by_a_restart() {
    let sent = Change::Sent {
        channel: id(1),
        sequence: Sequence(0),
        payload: text("m"),
    };
    let mut changes = vec![
        Change::Established(KEY),
        sent,
        Change::Closing { channel: id(1) },
    ];
    // The close was not emitted, so the peer cannot know of it, and gets the message.
    for known in [false, true] {
        let mut end = OneEnd::new(bare(1, false));
        end.link = Link::restore(bare(1, false), changes.clone()).unwrap();
        assert_eq!(end.link.snapshot(), changes);
        end.link.attach(end.now, Attach::Resumed);
        end.sent();
        let events = end.take(&general(Packet::Resume)).unwrap();
        let again = [
            message(&[id(1)], &text("m")),
            operation(1, Operation::Close, None),
        ];
        let closed = Event::Closed {
            channel: id(1),
            unacknowledged: 1,
        };
        if known {
            assert_eq!(events, [closed, Event::Resumed]);
            assert_eq!(end.sent(), b"");
        } else {
            assert_eq!(events, [Event::Resumed]);
            assert_eq!(end.sent(), again.concat());
        }
        changes.push(Change::CloseLeaves { channel: id(1) });
    }
}

#[test]
fn a_channel_ends_in_the_journal_when_the_close_that_is_answered_has_come() {
    let mut config = bare(1, false);
    config.journal = true;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1)], &text("m"))).unwrap();
    end.take(&operation(1, Operation::Close, None)).unwrap();
    end.resume();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    let consumed = Change::Consumed {
        channel: id(1),
        through: Sequence(0),
    };
    assert_eq!(keep(&mut end), [Change::Established(KEY), consumed]);
    end.take(&operation(1, Operation::Close, None)).unwrap();
    let closed = Change::Closed {
        side: Side::Incoming,
        channel: id(1),
    };
    assert_eq!(keep(&mut end), [closed]);
    assert!(
        end.sent()
            .ends_with(&about(&[1], Body::Acknowledgement(Acknowledgement::Closed)))
    );
}

#[test]
fn a_pong_that_waits_for_the_journal_does_not_survive_the_transport() {
    let mut config = bare(1, false);
    config.journal = true;
    let mut end = OneEnd::new(config);
    end.take(&general(Packet::Ping)).unwrap();
    end.resume();
    while end.link.poll_journal().is_some() {}
    end.link.journaled(end.now);
    assert_eq!(end.sent(), general(Packet::Resume));
}

#[test]
fn a_journal_that_is_not_one_is_refused() {
    let sent = |sequence| Change::Sent {
        channel: id(1),
        sequence: Sequence(sequence),
        payload: text("m"),
    };
    let restore = |changes: Vec<Change>| Link::restore(bare(1, false), changes);
    assert_eq!(restore(vec![]).unwrap_err().code, "journal_inconsistent");
    assert!(restore(vec![Change::Established(KEY), sent(0), sent(1)]).is_ok());
    for wrong in [
        vec![Change::Established(KEY), sent(1)],
        vec![Change::Established(KEY), sent(0), sent(0)],
        vec![Change::Established(KEY), Change::Closing { channel: id(1) }],
        vec![
            Change::Established(KEY),
            sent(0),
            Change::Decided {
                channel: id(1),
                operation: Operation::Commit,
                through: Sequence(0),
            },
        ],
    ] {
        assert_eq!(restore(wrong).unwrap_err().code, "journal_inconsistent");
    }
}

#[test]
fn a_lost_link_tells_the_messages_that_were_not_consumed() {
    let mut end = OneEnd::new(bare(1, false));
    for part in ["a", "b", "c"] {
        end.link.send_to(end.now, &id(1), text(part)).unwrap();
    }
    end.link.send_to(end.now, &id(0), text("d")).unwrap();
    end.sent();
    end.take(&acknowledgement(1, Acknowledgement::Received, 2))
        .unwrap();
    end.take(&acknowledgement(1, Acknowledgement::Consumed, 0))
        .unwrap();
    end.link.lose(end.now);
    assert_eq!(end.events(), [Event::LinkLost]);
    assert_eq!(end.link.state(), LinkState::Lost);
    assert!(!end.link.detached(end.now));
    let rest: Vec<(ChannelId, u32, Payload)> = end
        .link
        .unacknowledged()
        .map(|(id, sequence, payload)| (id.clone(), sequence.0, payload.clone()))
        .collect();
    let expected = [
        (id(0), 0, text("d")),
        (id(1), 1, text("b")),
        (id(1), 2, text("c")),
    ];
    assert_eq!(rest, expected);
    let refused = end.link.send_to(end.now, &id(1), text("e")).unwrap_err();
    assert_eq!(refused.code, "not_connected");
    end.link.attach(end.now, Attach::Resumed);
    assert_eq!((end.sent(), end.link.is_attached()), (vec![], false));
}

#[test]
fn giving_up_after_both_are_done_is_a_close() {
    let mut end = OneEnd::new(bare(1, false));
    end.link.shutdown(end.now).unwrap();
    assert_eq!(end.sent(), general(Packet::Shutdown));
    end.link.lose(end.now);
    assert_eq!(end.events(), [Event::LinkClosed]);
    // With an unconsumed message of the peer, the link is lost instead.
    let mut end = OneEnd::new(bare(1, false));
    end.take(&message(&[id(1)], &text("m"))).unwrap();
    end.link.shutdown(end.now).unwrap();
    end.sent();
    end.link.lose(end.now);
    assert_eq!(end.events(), [Event::LinkLost]);
}

#[test]
fn after_both_shutdowns_the_transport_drains_and_ends() {
    let mut end = OneEnd::new(bare(1, false));
    assert_eq!(end.link.state(), LinkState::Up);
    end.take(&general(Packet::Shutdown)).unwrap();
    assert_eq!(end.link.state(), LinkState::ShuttingDown);
    end.link.shutdown(end.now).unwrap();
    assert_eq!(end.link.lifecycle(), Lifecycle::Open);
    assert_eq!(end.sent(), general(Packet::Shutdown));
    assert_eq!(
        (end.link.state(), end.link.lifecycle()),
        (LinkState::Closed, Lifecycle::Draining)
    );
    // Later input is dropped.
    assert_eq!(
        end.receive(&general(Packet::Ping)),
        Ok(Need::Input { at_least: 1 })
    );
    assert!(end.input.is_empty());
    end.link.receive_eof(end.now).unwrap();
    assert_eq!(end.link.lifecycle(), Lifecycle::Closed);
    assert!(!end.link.detached(end.now));
}

#[test]
fn an_error_is_kept_until_the_transport_is_gone() {
    let mut end = OneEnd::new(bare(1, false));
    let nop = general(Packet::Nop);
    let first = end
        .receive(&[&nop[..], &[0xe0, 0, 0, 0, 0, 0, 0, 0]].concat())
        .unwrap_err();
    assert_eq!(first.offset, 8);
    assert_eq!(end.link.receive_eof(end.now), Err(first.clone()));
    assert_eq!(end.link.handle_timeout(end.now), Err(first.clone()));
    assert_eq!(end.receive(&nop), Err(first));
    assert!(!end.link.is_attached());
    // The application may go on, and its messages leave with the next transport.
    end.link.send_to(end.now, &id(1), text("m")).unwrap();
    assert_eq!(end.sent(), b"");
    end.resume();
    let expected = [general(Packet::Resume), message(&[id(1)], &text("m"))];
    assert_eq!(end.sent(), expected.concat());
}

#[test]
fn large_messages_and_small_ones_keep_their_order() {
    let mut end = OneEnd::new(bare(1, false));
    let large = Payload::from(vec![7; 3_000]);
    let bytes = [
        message(&[id(1)], &text("a")),
        message(&[id(1)], &large),
        message(&[id(1), id(2)], &text("b")),
    ];
    let payloads: Vec<Payload> = end
        .take(&bytes.concat())
        .unwrap()
        .into_iter()
        .map(|event| match event {
            Event::Message { payload, .. } => payload,
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(payloads, [text("a"), large, text("b"), text("b")]);
}
