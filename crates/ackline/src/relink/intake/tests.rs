//! Runs, decisions and rooms of one link.

use ackline_core::ErrorKind as _;
use ackline_relink::frame::{Acknowledgement, Parameters, Role};
use ackline_relink::{LinkConfig, LinkKey};
use bytes::BufMut as _;

use super::*;
use ackline_core::RUN_COST;

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};

fn parameters(transactions: bool) -> Parameters {
    Parameters {
        connector_channel_id_size: 1,
        listener_channel_id_size: 1,
        connector_transactions: transactions,
        listener_transactions: false,
    }
}

/// An intake, and the link that sends to it.
fn pair(now: Instant, transactions: bool, journal: bool) -> (Intake, Link) {
    let parameters = parameters(transactions);
    let config = LinkConfig {
        journal,
        ..LinkConfig::new(Role::Listener, parameters)
    };
    let budget = Budget::new(1 << 20);
    let mut intake = Intake::with_limit(Link::new(config, KEY), 10_000, &budget);
    intake.attach(now, Attach::New(KEY));
    let mut sender = Link::new(LinkConfig::new(Role::Connector, parameters), KEY);
    sender.attach(now, Attach::New(KEY));
    (intake, sender)
}

fn send(sender: &mut Link, now: Instant, channel: u8, text: &'static [u8]) {
    let channel = ChannelId::from(channel);
    sender.send_to(now, &channel, Payload::from(text)).unwrap();
}

/// Everything that the sender has to say.
fn flow(sender: &mut Link, intake: &mut Intake, now: Instant) {
    let mut out = SendQueue::new();
    sender.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    input.put(out);
    intake.receive(now, &mut input).unwrap();
}

/// First number, last number and messages of each run.
fn runs(intake: &mut Intake) -> Vec<(String, u32, usize)> {
    let runs = std::iter::from_fn(|| intake.poll_event());
    runs.map(|run| (run.channel.to_string(), run.first.0, run.payloads.len()))
        .collect()
}

#[test]
fn messages_that_wait_together_are_one_run_of_their_channel() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, false, false);
    for channel in [1, 2, 1, 1, 2] {
        send(&mut sender, now, channel, b"x");
    }
    flow(&mut sender, &mut intake, now);
    let run = |channel: &str, first, count| (channel.to_owned(), first, count);
    assert_eq!(runs(&mut intake), [run("01", 0, 3), run("02", 0, 2)]);
    send(&mut sender, now, 1, b"x");
    flow(&mut sender, &mut intake, now);
    assert_eq!(runs(&mut intake), [run("01", 3, 1)]);
    assert_eq!(intake.unsettled(), 3);
    for token in 0..3 {
        assert!(intake.settle(now, token));
    }
    assert!(!intake.settle(now, 0), "settled once");
    assert_eq!((intake.unsettled(), intake.held_bytes()), (0, 0));
}

#[test]
fn decisions_cut_runs_and_what_is_rolled_back_is_an_empty_one() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, true, false);
    let channel = ChannelId::from(1_u8);
    for _ in 0..7 {
        send(&mut sender, now, 1, b"xyz");
    }
    flow(&mut sender, &mut intake, now);
    assert_eq!(runs(&mut intake), []);
    assert_eq!(intake.complete_bytes(), 0, "nothing of it can be settled");
    for (commits, through) in [(true, 0), (true, 2), (false, 4), (true, 5)] {
        let through = Some(Sequence(through));
        if commits {
            sender.commit(now, &channel, through).unwrap();
        } else {
            sender.rollback(now, &channel, through).unwrap();
        }
    }
    flow(&mut sender, &mut intake, now);
    let run = |first, count| ("01".to_owned(), first, count);
    assert_eq!(runs(&mut intake), [run(0, 3), run(4, 0), run(5, 1)]);
    for token in 0..3 {
        assert!(intake.settle(now, token));
    }
    // One message is undecided.
    assert_eq!(intake.held_bytes(), 0);
    assert_eq!(intake.staged.payload_bytes(), 3);
}

/// The events that the sender is told.
fn answers(intake: &mut Intake, sender: &mut Link, now: Instant) -> Vec<Event> {
    let mut out = SendQueue::new();
    intake.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    input.put(out);
    sender.receive(now, &mut input).unwrap();
    std::iter::from_fn(|| sender.poll_event()).collect()
}

#[test]
fn a_transaction_without_room_is_let_go_and_uncommitted() {
    let now = Instant::now();
    // Its acknowledgement may wait for a consumer's commit, or not.
    for lands_first in [false, true] {
        let (mut intake, mut sender) = pair(now, true, false);
        let channel = ChannelId::from(1_u8);
        for _ in 0..5 {
            let payload = Payload::from(vec![0; 3_000]);
            sender.send_to(now, &channel, payload).unwrap();
        }
        flow(&mut sender, &mut intake, now);
        assert_eq!(intake.staged.payload_bytes(), 9_000, "two are not kept");
        assert_eq!(intake.held_bytes(), 2 * 32);
        assert_eq!(intake.complete_bytes(), 0);
        sender.commit(now, &channel, None).unwrap();
        // Decisions that are told together are one decision.
        flow(&mut sender, &mut intake, now);
        sender.commit(now, &channel, Some(Sequence(3))).unwrap();
        sender.rollback(now, &channel, None).unwrap();
        flow(&mut sender, &mut intake, now);
        let runs: Vec<Run> = std::iter::from_fn(|| intake.poll_event()).collect();
        let no_room = runs.iter().map(|run| run.no_room).collect::<Vec<_>>();
        let wanted = NoRoom {
            messages: 3,
            bytes: 3 * 3_064,
            over: Reason::OverLink(10_000),
        };
        assert_eq!(no_room, [None, Some(wanted), None]);
        assert_eq!(intake.held_bytes(), 3_064 + 3 * RUN_COST);
        for token in 0..3 {
            if lands_first {
                intake.landed(now, token);
            }
            assert!(intake.settle(now, token));
        }
        assert_eq!((intake.held_bytes(), intake.let_go), (0, 0));
        let outcomes: Vec<_> = answers(&mut intake, &mut sender, now)
            .into_iter()
            .filter_map(|event| match event {
                Event::Acknowledged {
                    acknowledgement,
                    through,
                    ..
                } => Some((acknowledgement, through.0)),
                _ => None,
            })
            .filter(|(what, _)| *what != Acknowledgement::Consumed)
            .collect();
        let expected = [
            (Acknowledgement::Committed, 0),
            (Acknowledgement::Uncommitted, 3),
        ];
        assert_eq!(outcomes, expected);
    }
}

#[test]
fn a_commit_of_what_was_kept_before_is_answered_beside_a_rollback() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, true, false);
    let channel = ChannelId::from(1_u8);
    send(&mut sender, now, 1, b"x");
    flow(&mut sender, &mut intake, now);
    // As after a restart: its messages are durable, and not here.
    intake.staged.clear();
    sender.commit(now, &channel, None).unwrap();
    send(&mut sender, now, 1, b"y");
    sender.rollback(now, &channel, None).unwrap();
    flow(&mut sender, &mut intake, now);
    assert_eq!(runs(&mut intake).len(), 2);
    for token in 0..2 {
        assert!(intake.settle(now, token));
    }
    let answers = answers(&mut intake, &mut sender, now);
    let committed = answers.iter().filter(|event| {
        let Event::Acknowledged {
            acknowledgement, ..
        } = event
        else {
            return false;
        };
        *acknowledgement == Acknowledgement::Committed
    });
    assert_eq!(committed.count(), 1);
    // Nor is one that finds no room the same.
    send(&mut sender, now, 1, b"z");
    flow(&mut sender, &mut intake, now);
    intake.staged.clear();
    sender.commit(now, &channel, None).unwrap();
    for _ in 0..4 {
        let payload = Payload::from(vec![0; 3_000]);
        sender.send_to(now, &channel, payload).unwrap();
    }
    flow(&mut sender, &mut intake, now);
    sender.commit(now, &channel, Some(Sequence(6))).unwrap();
    flow(&mut sender, &mut intake, now);
    let runs = std::iter::from_fn(|| intake.poll_event());
    let no_room: Vec<_> = runs.map(|run| run.no_room.is_some()).collect();
    assert_eq!(no_room, [false, true]);
}

#[test]
fn a_peer_that_goes_on_and_on_without_room_loses_its_link() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, true, false);
    let channel = ChannelId::from(1_u8);
    let payload = Payload::from(vec![0; 9_930]);
    sender.send_to(now, &channel, payload).unwrap();
    // 32 bytes for each that is only known of.
    for _ in 0..312 {
        send(&mut sender, now, 1, b"");
        flow(&mut sender, &mut intake, now);
    }
    send(&mut sender, now, 1, b"");
    let mut out = SendQueue::new();
    sender.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    input.put(out);
    let error = loop {
        match intake.receive(now, &mut input) {
            Ok(need) => assert_eq!(need, Need::Again),
            Err(error) => break error,
        }
    };
    let expected = LimitHit {
        value: 313 * 32,
        limit: 10_000,
        option: "--memory",
    };
    assert_eq!(error.kind.limit(), Some(expected));
    assert_eq!(
        error.kind.to_string(),
        "messages that are not decided, and have no room, take 10016 bytes; a link may have 10000 \
         for them now, of an eighth of --memory"
    );
    assert_eq!(intake.machine().state(), LinkState::Lost);
    assert_eq!(intake.receive(now, &mut input).unwrap_err(), error);
}

#[test]
fn nothing_of_a_link_is_kept_before_its_journal_knows_it() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, false, true);
    send(&mut sender, now, 1, b"x");
    flow(&mut sender, &mut intake, now);
    assert!(intake.poll_event().is_none());
    while intake.machine_mut().poll_journal().is_some() {}
    assert!(intake.poll_event().is_none());
    intake.journaled(now);
    assert!(intake.poll_event().is_some());
}

#[test]
fn a_stopping_link_takes_no_more_and_ends_when_all_is_settled() {
    let now = Instant::now();
    let (mut intake, mut sender) = pair(now, false, false);
    send(&mut sender, now, 1, b"x");
    flow(&mut sender, &mut intake, now);
    intake.stop(now);
    send(&mut sender, now, 1, b"y");
    flow(&mut sender, &mut intake, now);
    assert_eq!(runs(&mut intake).len(), 1);
    assert_eq!(intake.lifecycle(), Lifecycle::Open);
    let mut more = BytesMut::from(&b"more"[..]);
    let need = intake.receive(now, &mut more).unwrap();
    assert_eq!((need, more.len()), (Need::Input { at_least: 1 }, 0));
    intake.settle(now, 0);
    assert_eq!(intake.lifecycle(), Lifecycle::Draining);
    assert!(!intake.detached(now));
}
