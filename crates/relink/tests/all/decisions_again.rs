//! The places of decisions between messages that go out again, or were sent before there was a transport. The
//! receiver has to hold undecided messages, but should not have to hold a whole window of them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use crate::one_end::{KEY, OneEnd, acknowledgement, bare, general, id};
use ackline_core::Sequence;
use ackline_relink::frame::{
    Acknowledgement, Body, Context, Decoded, Operation, Packet, Role, decode,
};
use ackline_relink::{Attach, Change, Limits, Link, LinkConfig, Payload};
use bytes::Bytes;

/// Returns the output on own channels in short: `2:m` is a message on channel 2, `2:c7` its commit up to message 7,
/// `2:r` a rollback of the next one, `2:x` its close.
fn told(bytes: &[u8]) -> Vec<String> {
    let context = Context {
        from: Role::Listener,
        connector_channel_id_size: 1,
        listener_channel_id_size: 1,
    };
    let (mut told, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let decoded = decode(&context, &Limits::default(), rest).unwrap();
        let Decoded::Whole { packet, len } = decoded else {
            unreachable!("whole packets are emitted")
        };
        rest = &rest[len..];
        let Packet::Channel { targets, body } = packet else {
            continue;
        };
        let channel = targets.iter().next().unwrap()[0];
        let letter = |operation| match operation {
            Operation::Commit => 'c',
            Operation::Rollback => 'r',
            Operation::Close => 'x',
        };
        told.push(match body {
            Body::Message(_) => format!("{channel}:m"),
            Body::Operation(operation) => format!("{channel}:{}", letter(operation)),
            Body::SequenceOperation(operation, through) => {
                format!("{channel}:{}{}", letter(operation), through.0)
            }
            _ => continue,
        });
    }
    told
}

fn with(undecided_bytes: usize) -> LinkConfig {
    LinkConfig {
        undecided_bytes,
        ..bare(1, true)
    }
}

fn send(end: &mut OneEnd, channel: u8, bytes: usize) {
    let payload = Payload::from(Bytes::from(vec![7; bytes]));
    end.link.send_to(end.now, &id(channel), payload).unwrap();
}

fn commit(end: &mut OneEnd, channel: u8, through: u32) {
    let through = Some(Sequence(through));
    end.link.commit(end.now, &id(channel), through).unwrap();
}

/// Cuts the transport before anything was acknowledged. Returns the output after the peer's resume.
fn again(end: &mut OneEnd) -> Vec<String> {
    end.sent();
    end.resume();
    end.sent();
    end.take(&general(Packet::Resume)).unwrap();
    told(&end.sent())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The order is that of R-RELINK-V11, as long as the bytes are few.
#[test]
fn a_little_goes_out_again_before_its_decisions() {
    let mut end = OneEnd::new(bare(1, true));
    for channel in [2, 1] {
        for number in 0..4 {
            send(&mut end, channel, 1_000);
            if number % 2 == 1 {
                commit(&mut end, channel, number);
            }
        }
    }
    let expected = words("1:m 1:m 1:m 1:m 2:m 2:m 2:m 2:m 1:c3 2:c3");
    assert_eq!(again(&mut end), expected);
}

#[test]
fn decisions_go_out_at_their_places_where_nothing_may_be_undecided() {
    let mut end = OneEnd::new(with(0));
    (0..5).for_each(|_| send(&mut end, 1, 10));
    commit(&mut end, 1, 0);
    end.link
        .rollback(end.now, &id(1), Some(Sequence(2)))
        .unwrap();
    commit(&mut end, 1, 3);
    send(&mut end, 2, 10);
    commit(&mut end, 2, 0);
    let expected = words("1:m 1:c0 1:m 1:m 1:r2 1:m 1:c3 1:m 2:m 2:c0");
    assert_eq!(again(&mut end), expected);
    // Later output has its usual order.
    send(&mut end, 1, 10);
    commit(&mut end, 1, 4);
    commit(&mut end, 1, 5);
    assert_eq!(told(&end.sent()), words("1:m 1:c5"));
}

/// A window of transactions of 4 KiB lines, all of which were lost.
#[test]
fn a_window_that_goes_out_again_is_never_undecided_as_a_whole() {
    const LINE: usize = 4_096;
    let mut end = OneEnd::new(bare(1, true));
    for number in 0..3_000 {
        send(&mut end, 1, LINE);
        if number % 10 == 9 {
            commit(&mut end, 1, number);
        }
    }
    let (mut undecided, mut most, mut messages, mut last) = (0, 0, 0, 0);
    for word in again(&mut end) {
        if word == "1:m" {
            undecided += 1;
            messages += 1;
            most = most.max(undecided);
        } else {
            last = word.strip_prefix("1:c").unwrap().parse().unwrap();
            assert_eq!(last % 10, 9, "a transaction is decided as a whole");
            undecided = messages - (last + 1);
        }
    }
    assert_eq!((messages, last), (3_000, 2_999));
    assert!(
        most * LINE <= (64 << 10) + 10 * LINE,
        "{most} messages undecided"
    );
}

/// The bound is that of the link, not of a channel.
#[test]
fn many_channels_are_undecided_together() {
    let mut end = OneEnd::new(with(3 * (100 + 64)));
    for channel in [5, 4, 3, 2, 1] {
        send(&mut end, channel, 100);
        commit(&mut end, channel, 0);
    }
    let expected = words("1:m 2:m 3:m 1:c0 2:c0 3:c0 4:m 5:m 4:c0 5:c0");
    assert_eq!(again(&mut end), expected);
}

/// A decision covers all its messages: one that is larger than the bound is told when it is complete, and the
/// decisions on other messages are told before.
#[test]
fn a_transaction_above_the_bound_is_one_all_the_same() {
    let mut end = OneEnd::new(with(1_000));
    (0..8).for_each(|_| send(&mut end, 1, 300));
    commit(&mut end, 1, 0);
    commit(&mut end, 1, 6);
    commit(&mut end, 1, 7);
    let expected = words("1:m 1:m 1:m 1:c0 1:m 1:m 1:m 1:m 1:c6 1:m 1:c7");
    assert_eq!(again(&mut end), expected);
}

/// Decisions wait for the peer's resume (R-RELINK-V4), so their messages wait too.
#[test]
fn no_more_than_the_bound_goes_out_before_the_peers_resume() {
    let mut end = OneEnd::new(with(2 * (100 + 64)));
    for number in 0..5 {
        send(&mut end, 1, 100);
        commit(&mut end, 1, number);
    }
    send(&mut end, 1, 100);
    end.sent();
    end.resume();
    end.sent();
    let none = u32::MAX;
    end.take(&acknowledgement(1, Acknowledgement::Received, 0))
        .unwrap();
    assert_eq!(told(&end.sent()), words("1:m 1:m"));
    end.take(&acknowledgement(1, Acknowledgement::Consumed, none))
        .unwrap();
    // The channel is first used since the cut; its messages would be undecided too.
    send(&mut end, 2, 100);
    assert_eq!(told(&end.sent()), words(""));
    end.take(&general(Packet::Resume)).unwrap();
    let expected = words("1:c2 1:m 1:m 1:c4 1:m 2:m");
    assert_eq!(told(&end.sent()), expected);
    // A cut in between drops the waiting output.
    end.resume();
    end.sent();
    end.take(&acknowledgement(1, Acknowledgement::Received, 2))
        .unwrap();
    assert_eq!(told(&end.sent()), words("1:m 1:m"));
    end.take(&acknowledgement(1, Acknowledgement::Committed, 4))
        .unwrap();
    end.take(&general(Packet::Resume)).unwrap();
    assert_eq!(told(&end.sent()), words("1:m 2:m"));
}

#[test]
fn messages_sent_before_the_first_transport_have_decisions_in_between() {
    let mut end = OneEnd::new(with(2 * (100 + 64)));
    let mut link = Link::new(with(2 * (100 + 64)), KEY);
    for number in 0..4 {
        let payload = Payload::from(Bytes::from(vec![7; 100]));
        link.send_to(end.now, &id(1), payload).unwrap();
        let through = Some(Sequence(number));
        link.commit(end.now, &id(1), through).unwrap();
    }
    link.attach(end.now, Attach::New(KEY));
    end.link = link;
    assert_eq!(told(&end.sent()), words("1:m 1:m 1:c1 1:m 1:m 1:c3"));
}

/// A journal and its compacted form keep the end of each decision.
#[test]
fn a_restored_link_knows_where_its_decisions_end() {
    let config = LinkConfig {
        journal: true,
        ..with(0)
    };
    let mut end = OneEnd::new(config.clone());
    (0..6).for_each(|_| send(&mut end, 1, 10));
    commit(&mut end, 1, 1);
    commit(&mut end, 1, 3);
    end.link
        .rollback(end.now, &id(1), Some(Sequence(4)))
        .unwrap();
    let changes: Vec<Change> = std::iter::from_fn(|| end.link.poll_journal()).collect();
    for changes in [end.link.snapshot(), changes] {
        end.link = Link::restore(config.clone(), changes).unwrap();
        end.link.attach(end.now, Attach::Resumed);
        end.sent();
        end.take(&general(Packet::Resume)).unwrap();
        let expected = words("1:m 1:m 1:c1 1:m 1:m 1:c3 1:m 1:r4 1:m");
        assert_eq!(told(&end.sent()), expected);
    }
}

/// A transaction that was acknowledged in part is still told as a whole, and an answered one is not told again.
#[test]
fn received_messages_do_not_count_as_undecided() {
    let mut end = OneEnd::new(with(0));
    (0..6).for_each(|_| send(&mut end, 1, 10));
    commit(&mut end, 1, 1);
    commit(&mut end, 1, 4);
    commit(&mut end, 1, 5);
    end.sent();
    end.resume();
    end.sent();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 2),
        acknowledgement(1, Acknowledgement::Consumed, 2),
        acknowledgement(1, Acknowledgement::Committed, 1),
        general(Packet::Resume),
    ];
    end.take(&announced.concat()).unwrap();
    assert_eq!(told(&end.sent()), words("1:m 1:m 1:c4 1:m 1:c5"));
}

/// An application that only rolls back takes no memory: consumed messages need no end of a decision.
#[test]
fn decisions_on_consumed_messages_are_one_run() {
    let mut end = OneEnd::new(with(0));
    for number in 0..50_u32 {
        send(&mut end, 1, 10);
        end.link
            .rollback(end.now, &id(1), Some(Sequence(number)))
            .unwrap();
        end.sent();
        end.take(&acknowledgement(1, Acknowledgement::Consumed, number))
            .unwrap();
    }
    let decided = |change: &Change| matches!(change, Change::Decided { .. });
    let changes = end.link.snapshot();
    assert_eq!(changes.iter().filter(|change| decided(change)).count(), 1);
    end.resume();
    end.sent();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 49),
        acknowledgement(1, Acknowledgement::Consumed, 49),
        general(Packet::Resume),
    ];
    end.take(&announced.concat()).unwrap();
    assert_eq!(told(&end.sent()), words("1:r49"));
}
